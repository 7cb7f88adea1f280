package spec

import (
	"net/netip"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Node is the desired state of a provider's node in this cluster.
type Node struct {
	ID   peer.ClusterID
	Name string // of the cluster, for people; may be empty
	// Called is the name that people here use for the cluster. A new node is named after it.
	Called string
	// Wanted: there is to be a node with the resources of Offer. Without an Offer,
	// which has expired while the provider is away, an existing node stays and takes no
	// more pods. Not wanted: an existing node is to be drained and removed; Offer is
	// nil then.
	Wanted bool
	Offer  *api.AdvertisementSpec // accepted; shared, not to be changed
	// Shown: the Advertisement shows a node. It counts while NodeStatus.Unknown is true.
	Shown bool
	// Gone: the provider is given up and cannot be asked any more, so nobody is to wait
	// until its pods have ended in good order.
	Gone bool
	// Expelled: the provider says that this cluster has nothing there any more.
	Expelled bool
	// Reachable is whether the provider answers. Why says why not, in a sentence.
	Reachable bool
	Why       string
	// Network is the state of the network to the provider.
	Network Network
	// Excess, unless "", says which limit the provider's answers exceed. The state of
	// its pods is not known then.
	Excess string
}

// Network is the state of the network between the pods of this cluster and those of a peer.
// The zero Network is that of a peer with which nothing is shared.
type Network struct {
	// Enabled: the two are to be connected.
	Enabled bool
	// Status is whether packets pass. While it is Unknown, what was said before stays.
	Status api.ConditionStatus
	// Reason is why, one of package reason; Message is a sentence.
	Reason, Message string
}

// NodeStatus is the observed state of a provider's node in this cluster.
type NodeStatus struct {
	// Name of the node, "" while there is none.
	Name string
	// Assigned is the name that the node has, had last or will get; "" while that is not
	// decided.
	Assigned string
	// Busy: something of the node is left, here or at the provider, and needs the
	// peering; also while nobody has looked yet. While it is true, but not for longer
	// than sharing.drain_timeout and a minute, our request stays at the provider.
	Busy bool
	// Unknown: nobody has looked yet whether there is a node.
	Unknown bool
	// Ready is whether the node is; Reason (one of package vnode) and Message say why
	// not, or how far its removal is.
	Ready           bool
	Reason, Message string
	// Pods is how many pods are bound to the node.
	Pods int
}

// Tenant is the desired state of a consumer in this cluster.
type Tenant struct {
	ID   peer.ClusterID
	Name string // of the cluster, for people; may be empty
	// Admitted: it may run pods, up to Offer. Otherwise everything it has here is to go.
	Admitted bool
	// Asked is how much it asks for.
	Asked api.RequestedResources
	// Offer is what it was offered last, as Kubernetes quantities by resource; nil while
	// that is nothing: what it has stays, and nothing is added. Without "pods" it has as
	// many as a node has by default, 110. The map is shared and not to be changed.
	Offer map[string]string
	// Network are the addresses of the consumer's pods and host as this cluster knows them,
	// nil while the two are not connected. The slice is shared and not to be changed.
	Network []netip.Prefix
	// NetworkDown: no packets pass between the two at present.
	NetworkDown bool
	// Nameservers are the addresses at which its pods ask for names as in their own cluster,
	// nil while that is the DNS of this cluster. The slice is shared and not to be changed.
	Nameservers []netip.Addr
	// NamesUnknown: these are not known yet.
	NamesUnknown bool
	// Arch is the architecture that the offer is for, to which pods are restricted; ""
	// for any.
	Arch string
}

// TenantStatus is the observed state of a consumer in this cluster.
type TenantStatus struct {
	// Busy: some of its namespaces are still there that are not only kept for their claims, or
	// it is not known yet whether there are any.
	Busy       bool
	Namespaces int
	// Pods counts those that have not ended.
	Pods int
	// Claims counts its PersistentVolumeClaims, and Storage is how many bytes they ask for.
	Claims  int
	Storage int64
	// RetainedSince is since when some of them are only kept, because the cluster is not
	// admitted any more; zero if none are.
	RetainedSince time.Time
	// Used is what these pods and claims request, as Kubernetes quantities by resource; with "pods". The
	// map is shared and not to be changed.
	Used map[string]string
}

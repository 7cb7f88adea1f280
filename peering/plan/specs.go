package plan

import (
	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// NodeSpec is the desired state of a provider's node in this cluster.
type NodeSpec struct {
	ID   peer.ClusterID
	Name string // of the cluster, for people; may be empty
	// Wanted: there is to be a node with the resources of Offer. Without an Offer,
	// which has ended while the provider is away, an existing node stays and takes no
	// more pods. Not wanted: an existing node is to be drained and removed; Offer is
	// nil then.
	Wanted bool
	Offer  *api.AdvertisementSpec // accepted; shared, not to be changed
	// Gone: the provider is given up and cannot be asked any more, so that nobody is
	// to wait for its pods to end in good order.
	Gone bool
	// Expelled: the provider says that this cluster has nothing there any more.
	Expelled bool
	// Reachable is whether the provider answers. Why says why not, in a sentence.
	Reachable bool
	Why       string
	// Target is where the provider is and the key it is trusted by; without a
	// fingerprint it cannot be called.
	Target peer.Target
}

// NodeStatus is the state of a provider's node in this cluster.
type NodeStatus struct {
	// Name of the node, "" while there is none.
	Name string
	// Busy: something of the node is left, here or at the provider, and needs the
	// peering; also while nobody has looked yet. While it is true, but not for longer
	// than sharing.drain_timeout and a minute, our request stays at the provider.
	Busy bool
	// Ready is whether the node is; Reason and Message say why not, or how far its
	// removal is.
	Ready           bool
	Reason, Message string
	// Pods is how many pods are bound to the node.
	Pods int
}

// TenantSpec is the desired state of a consumer as a tenant of this cluster.
type TenantSpec struct {
	ID   peer.ClusterID
	Name string
	// Admitted: it may run pods, up to Offer. Otherwise everything it has here is to go.
	Admitted bool
	Offer    *api.AdvertisementSpec // the last one; shared, not to be changed; nil: nothing yet
}

// TenantStatus is the state of a consumer as a tenant of this cluster.
type TenantStatus struct {
	// Busy: some of its namespaces are still there.
	Busy       bool
	Namespaces int
	Pods       int
	// Used is what its pods request, by resource.
	Used map[string]string
}

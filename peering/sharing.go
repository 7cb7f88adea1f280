package peering

import (
	"context"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// Sharing turns peerings into capacity: a provider into a node of this cluster,
// and an accepted consumer into what it may run here. Its methods are called by
// the reconcile of a peer, again and again with what is so then, on several
// goroutines but for one peer at a time. They must be quick: what is to be done is
// done elsewhere, and Enqueue called when the answer is another.
type Sharing interface {
	// Provide tells how our use of a provider is to stand, and returns how it stands.
	Provide(p Provision) Use
	// Host tells how a consumer's use of this cluster is to stand, and returns how
	// it stands.
	Host(t Tenancy) Tenant
}

// Provision is how our use of a provider is to stand.
type Provision struct {
	ID   peer.ClusterID
	Name string // of the cluster, for people; may be empty
	// Wanted: there is to be a node for Offer; without an Offer, which has ended while
	// the provider is away, one that is there stays and takes no more pods. Not
	// wanted: the node, if there is one, is to be drained and removed; Offer is nil
	// then.
	Wanted bool
	Offer  *api.AdvertisementSpec // accepted; shared, not to be changed
	// Gone: the provider is given up and nobody there can be asked any more, so that
	// there is no point in waiting for pods to end in good order.
	Gone bool
	// Reachable is whether the provider answers. Why says why not, in a sentence.
	Reachable bool
	Why       string
	// Target is where the provider is and the key it is trusted by; without a
	// fingerprint nothing can be asked of it.
	Target endpoint.Target
}

// Use is how our use of a provider stands.
type Use struct {
	// Node is the name of its node, "" while there is none.
	Node string
	// Busy: something of it is left here or there, or may be, for nobody had the time
	// to look yet, and it still needs the peering. Until it is false, but not for longer
	// than sharing.drain_timeout and a minute, our request stays at the provider.
	Busy bool
	// Ready is whether the node is; Reason and Message say why not, or how far its
	// removal is.
	Ready           bool
	Reason, Message string
	// Pods is how many pods are bound to the node.
	Pods int
}

// Tenancy is how a consumer's use of this cluster is to stand.
type Tenancy struct {
	ID   peer.ClusterID
	Name string
	// Admitted: it may run pods, up to Offer. Else all it has here is to go.
	Admitted bool
	Offer    *api.AdvertisementSpec // what it was offered last; shared, not to be changed; nil: nothing yet
}

// Tenant is how a consumer's use of this cluster stands.
type Tenant struct {
	// Busy: some of its namespaces are still there.
	Busy       bool
	Namespaces int
	Pods       int
	// Used is what its pods ask for, by resource.
	Used map[string]string
}

// While runs as long as there is a connection to the API server, with the
// configuration of a client for it. When it returns before ctx ends it is called
// again after a pause. Writes through it count as the agent's own.
type While func(ctx context.Context, local *rest.Config) error

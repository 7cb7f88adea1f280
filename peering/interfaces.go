package peering

import (
	"context"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/spec"
)

// Registry is what the Controller asks about peers. Its methods are called on
// several goroutines.
type Registry interface {
	// Peer returns what is known about a cluster, and false when nothing is.
	Peer(id peer.ClusterID) (peer.Peer, bool)
	// IDs returns every cluster of which anything is known.
	IDs() []peer.ClusterID
	// Settled reports whether discovery has had the time to see who is there. While
	// it is false, no ForeignCluster of a cluster that Peer knows nothing about is
	// deleted. It never becomes false again.
	Settled() bool
	// Hold says whether a peer is to be checked even when discovery lost it, because
	// there is a peering with it. It must not block.
	Hold(id peer.ClusterID, hold bool)
}

// Decisions is where decisions are kept. Its methods are called on several
// goroutines; Policy is quick, the others return after what they were told is
// on the disk. An error of theirs is tried again.
type Decisions interface {
	// Policy returns what was decided about a peer.
	Policy(id peer.ClusterID) plan.Policy
	// JoinEdited is told that a person set spec.join with kubectl. stamp tells
	// edits apart; Policy.JoinStamp returns it from then on.
	JoinEdited(ctx context.Context, id peer.ClusterID, join bool, by, stamp string) error
	// TrustEdited is told that a person set spec.trustMode with kubectl, on an
	// object whose status shows that fingerprint (zero for none). stamp is as with
	// JoinEdited.
	TrustEdited(ctx context.Context, id peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error
	// Decided is told that a person said with kubectl that the peer's requests are
	// accepted, or refused. shown is the key that they were shown; zero for the trusted
	// one. Another than the trusted one is not let in by that.
	Decided(ctx context.Context, id peer.ClusterID, accept bool, shown peer.Fingerprint, by string) error
	// HungUp is told that a person deleted the ForeignCluster of a peer that we
	// are connected to. Until the peer returns from an absence or a person
	// connects again, Policy then says No.
	HungUp(ctx context.Context, id peer.ClusterID, by string) error
	// Forgot is told that no object says any more what was wanted of a peer before it
	// was forgotten. Policy.Forgotten is false from then on.
	Forgot(ctx context.Context, id peer.ClusterID) error
	// EndedByProvider is told that the peer ended our consuming its resources, by a
	// plan that was made when Policy had that Generation. It is remembered as No,
	// unless a person asked to be connected again since.
	EndedByProvider(ctx context.Context, id peer.ClusterID, generation uint64, reason string) error
	// EndedHere is told that a person at our side ended the peer's consuming ours,
	// by deleting its PeeringRequest. Its next request waits for a person.
	EndedHere(ctx context.Context, id peer.ClusterID, reason string) error
	// Replaced is told that the agent's own ForeignCluster of the peer was deleted,
	// because somebody wrote one for it, which is called object. It is a matter of the
	// history only.
	Replaced(ctx context.Context, id peer.ClusterID, object string) error
	// Joined is told when our consuming the peer's resources begins and ends.
	Joined(ctx context.Context, id peer.ClusterID, joined bool, why string) error
	// Served is told when the peer's consuming ours begins and ends.
	Served(ctx context.Context, id peer.ClusterID, served bool, why string) error
	// Requested is told that a PeeringRequest of the peer's is there and its
	// decision.
	Requested(ctx context.Context, id peer.ClusterID, phase api.RequestPhase, reason string) error
}

// URLProber asks who answers at the URLs that people write into ForeignClusters. Its
// methods are called on several goroutines and must not block.
type URLProber interface {
	// Probe has the URL of a ForeignCluster asked, again and again: id is the cluster
	// that the object is about, "" when it does not say. Saying the same again
	// changes nothing.
	Probe(object string, url string, id peer.ClusterID)
	// Stop ends that.
	Stop(object string)
	// Result returns who answers there; false when nothing is known yet.
	Result(object string) (discovered.Result, bool)
}

// Sharing turns peerings into capacity: a provider into a node of this cluster, and
// a consumer that was let in into a tenant of it. The reconcile of a peer calls it with
// the desired state again and again, on several goroutines but for one peer at a
// time. Its methods must be quick: they take the desired state, work elsewhere, and
// have Enqueue called when the state they return changes.
type Sharing interface {
	// Provide sets the desired state of the node of the provider at target, and returns its
	// state. Called and Excess are left to the implementation.
	Provide(node spec.Node, target peer.Target) spec.NodeStatus
	// Host sets the desired state of a consumer's tenancy, and returns its state.
	Host(tenant spec.Tenant) spec.TenantStatus
	// Network returns the state of the network to a peer.
	Network(id peer.ClusterID) spec.Network
}

// Liqo peers clusters by Liqo 1.x. The reconcile of a peer calls it as it calls Sharing, on
// several goroutines but for one peer at a time. Its methods must be quick: they take the
// desired state, work elsewhere, and have Enqueue called when the state they return changes.
type Liqo interface {
	// Installed returns the Liqo of this cluster, nil for none, and whether that is known yet.
	Installed() (found *engine.Installation, known bool)
	// Status returns the state of a pair.
	Status(id peer.ClusterID) (consuming, serving exchange.Status)
	// Drive sets the desired state of a pair, and returns its state.
	Drive(id peer.ClusterID, d liqo.Desired) (consuming, serving exchange.Status)
}

// While runs as long as there is a connection to the API server, with the
// configuration of a client for it, and returns when ctx ends. Writes through it count
// as the agent's own.
type While func(ctx context.Context, local *rest.Config)

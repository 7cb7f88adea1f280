package plan

import (
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/sharing/spec"
)

// Observed is everything that the decision about one cluster depends on. What is not known
// is left out. Nothing counts as gone because it is missing here.
type Observed struct {
	// ID is the cluster that is looked at.
	ID peer.ClusterID
	// Peer is what the registry knows about it; nil when it knows nothing.
	Peer *peer.Peer
	// Settled: discovery has had the time to see who is there. Before that, a cluster of
	// which the registry knows nothing is unknown, not gone. A peer that the registry calls
	// lost is gone at any time.
	Settled bool
	// Away is for how long Reachable has been false without a break, by the monotonic clock of
	// this process; 0 while it is true.
	Away time.Duration
	// LostAfter is how long a peering outlives the absence of its peer; 0: for ever.
	LostAfter time.Duration

	// Objects are the ForeignClusters that name ID in their spec, and the one whose
	// name is ID, in any order.
	Objects []*api.ForeignCluster
	// Owners says who set the fields that people may set, by the name of a ForeignCluster.
	// What is missing was set by nobody.
	Owners map[string]fields.Owners

	// URLs says what is known about the URL of a ForeignCluster that a person wrote, by its
	// name. What is missing is not probed.
	URLs map[string]discovered.Probe

	// Self is what this cluster says about itself: its identity, and the port and URL of its
	// endpoint. Without a cluster ID it asks nobody for anything.
	Self wire.Greeting
	// Policy is what people and the configuration decided about the peer.
	Policy Policy
	// GenerationSince is when this process first saw Policy.Generation as it is; zero
	// while that is 0.
	GenerationSince time.Time
	// ObservedGeneration is the last Policy.Generation that the provider is known to
	// have answered; 0 before there was one.
	ObservedGeneration uint64

	// RequestsKnown: all local objects below were listed completely (PeeringRequests,
	// Advertisements, Secrets and RBAC objects). Otherwise only discovery is planned.
	RequestsKnown bool
	// Request is the PeeringRequest that is named after the peer, in this cluster;
	// nil when there is none.
	Request *api.PeeringRequest
	// RequestSeen is when this process first saw a request with that UID. It is
	// compared with Remote.At.
	RequestSeen time.Time
	// RequestDeleted is who deleted the last request, while Request is nil.
	RequestDeleted Deleter
	// Advertisement is the offer of the peer, in this cluster; nil for none.
	Advertisement *api.Advertisement
	// OfferDeleted is who deleted the last offer since Policy.Generation changed, while
	// Advertisement is nil.
	OfferDeleted Deleter
	// OfferFits: sharing.max_accepted allows to accept the offer, or it is accepted already.
	OfferFits bool
	// OfferExpired: the lifetime of the offer, by our monotonic clock since it last changed,
	// ended without a renewal. Otherwise OfferLeft is the rest of it; 0: it never ends.
	OfferExpired bool
	OfferLeft    time.Duration
	// Sharing holds the settings that the use of offers depends on.
	Sharing SharingSettings
	// Node is the state of the peer's node in this cluster. While NodeKnown is false, it is
	// not known yet in this run, and there may be a node.
	Node      spec.NodeStatus
	NodeKnown bool
	// Network is the state of the network to the peer; zero while nothing is shared with it.
	Network spec.Network
	// Engine is what this cluster says about its engines, and Liqo what that has between the two.
	Engine engine.State
	Liqo   LiqoStatus
	// Draining is for how long Decision.Draining has been true without a break, by the
	// monotonic clock; 0 if it was not.
	Draining time.Duration
	// Quiet is for how long the peer, or its API server, has not answered, since the first
	// failed check; 0 while it answers.
	Quiet time.Duration
	// Secret is the peer's identity as it is stored in this cluster; nil for none.
	Secret *Secret
	// Access is what the peer may do in this cluster; nil when there are no RBAC
	// objects for it.
	Access *Access
	// Namespace is where Secrets are kept.
	Namespace string

	// Offer is what we would offer to the peer now; nil while that is not known. It changes,
	// also in its times, only if it has to be sent again.
	Offer *api.AdvertisementSpec
	// WhyNoOffer is why that is not known, in a sentence; may be empty.
	WhyNoOffer string
	// NotSharing: sharing is off: nothing is offered, and consumers run nothing here.
	NotSharing bool
	// Hosting: the peer still has something here, running or not.
	Hosting bool
	// Remote is what is known about the peer's side.
	Remote RemoteStatus
	// TearingDown is for how long Decision.TearingDown has been true without a break, by the
	// monotonic clock; 0 if it was not.
	TearingDown time.Duration
}

// Deleter says who deleted an object, as far as this process knows. It is remembered until
// the object exists again.
type Deleter int

// Who deletes objects.
const (
	// DeletedUnseen: this process never saw the object, so it does not know whether there was
	// one, and who deleted it.
	DeletedUnseen Deleter = iota
	// DeletedByPeer: the peer did, through the gateway or by withdrawing. It is noted before
	// the deletion. For a request, Decisions.Served(false) is called before as well, so that
	// the deletion does not look like a person's after a crash.
	DeletedByPeer
	// DeletedByUs: a DeleteRequest or DeleteAdvertisement did.
	DeletedByUs
	// DeletedByPerson: it existed and is gone, and none of the others deleted it. An API
	// server that was restored from a backup is no person.
	DeletedByPerson
)

// Secret is the identity of a peer as it is kept in a Secret.
type Secret struct {
	// Fingerprint of the key.
	Fingerprint peer.Fingerprint
	// CA is the certificate of the key, in DER.
	CA []byte
	// Namespace is where Liqo lives in the peer.
	Namespace string
	// Intact: the Secret is as ApplySecret writes it, with type and labels and consistent
	// data. It is ignored in an Action.
	Intact bool
}

// Access is what a peer may do in this cluster, through RBAC.
type Access struct {
	// Request: its PeeringRequest.
	Request bool
	// Advertisement: its Advertisement.
	Advertisement bool
	// Intact: role and binding are as ApplyAccess writes them. It is ignored in an Action.
	Intact bool
}

// Decision is what to do about one cluster.
type Decision struct {
	// Actions are carried out in this order, up to the first that fails.
	Actions []Action
	// Remote is the desired state of our objects in the peer's cluster.
	Remote RemoteSpec
	// Tenant is the desired state of the peer as a tenant of this cluster; nil if that is not
	// known, so that it stays as it is.
	Tenant *spec.Tenant
	// Hold: keep checking the peer even if discovery lost it, because there is a peering with
	// it.
	Hold bool
	// TearingDown: the outgoing peering is being removed.
	TearingDown bool
	// Draining: its node is no longer wanted, and still exists.
	Draining bool
	// Check: ask the peer for its state now, because a check is due or a person connected
	// again.
	Check bool
	// Replan: the actions change the decision: the decision store learns something, or a name
	// becomes free. After them, observe and plan again at once.
	Replan bool
	// Again is after how long to reconcile again even if nothing changes; 0: never.
	Again time.Duration
}

// SecretName is the name of the Secret with a peer's identity.
func SecretName(id peer.ClusterID) string { return "liqo-peer-" + string(id) }

// Reachable reports whether the peering can work now: the peer answers, and neither side has
// suspended its trust.
func (obs Observed) Reachable() bool {
	return obs.answers() && !obs.suspended()
}

// answers reports whether the peer is present and, if it is trusted, shows the trusted key.
func (obs Observed) answers() bool {
	return obs.present() && !obs.otherKey()
}

// otherKey reports whether the endpoint of the peer shows another key than the trusted one.
func (obs Observed) otherKey() bool {
	p := obs.Peer
	return p != nil && !p.Fingerprint.IsZero() && obs.isOther(p.Fingerprint)
}

// isOther reports whether there is a trusted key, and the given one is another. A former key
// that the trusted one succeeded is not: it may have been seen before the rotation.
func (obs Observed) isOther(key peer.Fingerprint) bool {
	pin := obs.Policy.Pin
	return pin != nil && key != pin.Fingerprint && !slices.Contains(obs.Policy.Former, key)
}

// suspended reports whether trust is suspended, because a fleet certificate has expired.
func (obs Observed) suspended() bool { return obs.suspendedHere() || obs.suspendedThere() }

// suspendedHere reports whether it is the peer's certificate that has ended.
func (obs Observed) suspendedHere() bool {
	pin := obs.Policy.Pin
	return pin != nil && !pin.Suspended.IsZero()
}

// suspendedThere reports whether it is ours, as the peer said last. An absent peer may have changed its mind.
func (obs Observed) suspendedThere() bool {
	return obs.Remote.Denied == wire.ReasonCertificateEnded && obs.present()
}

package plan

import (
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// Observed is everything that the decision about one cluster depends on. Whoever
// gathers it leaves out what is not known; nothing is taken to be gone because it
// is missing here.
type Observed struct {
	// ID is the cluster that is looked at.
	ID peer.ClusterID
	// Peer is what the registry knows about it; nil when it knows nothing.
	Peer *peer.Peer
	// Settled is true once discovery has had the time to see who is there. Before
	// that, a cluster of which the registry knows nothing is unknown, not gone. A
	// peer that the registry calls lost is gone at any time.
	Settled bool
	// Away is how long Reachable has been false without a break, by the monotonic
	// clock and since this process first saw it so; 0 while it is true.
	Away time.Duration
	// LostAfter is how long a peering outlives the absence of its peer; 0 for as
	// long as it takes.
	LostAfter time.Duration

	// Objects are the ForeignClusters that name ID in their spec, and the one whose
	// name is ID, in any order.
	Objects []*api.ForeignCluster
	// Owners says, by the name of a ForeignCluster, who set what people may set.
	// What is missing was set by nobody.
	Owners map[string]Owners

	// URLs says, by the name of a ForeignCluster that a person wrote, what is known
	// about its URL. What is missing is not asked about.
	URLs map[string]URLProbe

	// Self is what this cluster says about itself: its identity, and the port and
	// URL of its endpoint. Without a cluster ID nothing is asked of anyone.
	Self wire.Greeting
	// Policy is what was decided about the peer.
	Policy Policy
	// GenerationSince is when this process first saw Policy.Generation as it is; zero
	// while that is 0.
	GenerationSince time.Time
	// ObservedGeneration is the last Policy.Generation that the provider is known to
	// have answered; 0 before there was one.
	ObservedGeneration uint64

	// RequestsKnown is true once everything local below was read completely:
	// PeeringRequests, Advertisements, Secrets and RBAC objects. While it is false,
	// nothing but discovery is planned.
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
	// OfferDeleted is who deleted the last offer, while Advertisement is nil.
	OfferDeleted Deleter
	// OfferFits: there is room for one more offer that is accepted by policy, or it is
	// accepted already.
	OfferFits bool
	// OfferExpired: the offer ended without having been renewed, by our monotonic
	// clock since it last changed. Else OfferLeft is how long it stands; 0 for
	// always.
	OfferExpired bool
	OfferLeft    time.Duration
	// Sharing holds the settings that the use of offers depends on.
	Sharing SharingSettings
	// Node is the state of the peer's node in this cluster. While NodeKnown is false, it
	// was not asked for yet in this run, and there may be a node.
	Node      NodeStatus
	NodeKnown bool
	// Draining is how long Decision.Draining has been true without a break, by the
	// monotonic clock; 0 while it was not.
	Draining time.Duration
	// Quiet is how long the peer, or its API server, has not answered, since the first
	// check that failed after the last answer; 0 while it answers.
	Quiet time.Duration
	// Secret is the peer's identity as it is stored in this cluster; nil for none.
	Secret *Secret
	// Access is what the peer may do in this cluster; nil when there are no RBAC
	// objects for it.
	Access *Access
	// Namespace is where Secrets are kept.
	Namespace string

	// Offer is what we would offer to the peer now; nil while that is not known. It
	// changes only when it is to be sent again: the times in it are stable.
	Offer *api.AdvertisementSpec
	// WhyNoOffer is why that is not known, in a sentence; may be empty.
	WhyNoOffer string
	// NotSharing: nothing is offered to anybody, and nobody runs anything here.
	NotSharing bool
	// Hosting: something of what the peer ran here is left, or still running.
	Hosting bool
	// Remote is what is known about the peer's side.
	Remote RemoteStatus
	// TearingDown is how long Decision.TearingDown has been true without a break, by
	// the monotonic clock; 0 while it was not.
	TearingDown time.Duration
}

// Deleter says who deleted an object, as far as this process saw it. A note is
// kept until an object of the kind is there again.
type Deleter int

// Who deletes objects.
const (
	// DeletedUnseen: this process never saw the object, so that it did not see who
	// deleted it either, if there was one.
	DeletedUnseen Deleter = iota
	// DeletedByPeer: the peer did, through the gateway or by withdrawing. That is
	// noted before the deletion is carried out. For a request, Decisions.Served(false)
	// is told before as well, so that a crash right after does not make the deletion
	// look like a person's.
	DeletedByPeer
	// DeletedByUs: a DeleteRequest or DeleteAdvertisement did.
	DeletedByUs
	// DeletedByPerson: it was in the store and is gone, and nobody else was it. An
	// API server that was restored from a backup is no person.
	DeletedByPerson
)

// Owners says who set the fields of a ForeignCluster that belong to people.
type Owners struct {
	Join, TrustMode Owner
	Identity        IdentityOwners
}

// IdentityOwners says whose spec.clusterIdentity, spec.namespace and spec.authUrl are.
type IdentityOwners struct {
	// Filled: the agent wrote the cluster's ID into an object that is somebody
	// else's, and nothing but that cluster's name and namespace besides.
	Filled bool
	// Name and Namespace: somebody else set clusterName, or the namespace.
	Name, Namespace bool
	// Discovered: the agent set authUrl, and nobody else did. It is not the word of a
	// person then, whoever the object belongs to.
	DiscoveredURL bool
}

// Owner is who set a field, as metadata.managedFields tells.
type Owner struct {
	// Manager is the field manager; "" when nobody set the field (the schema's
	// default). When several own it, it is one that is not ManagerIntent.
	Manager string
	// Stamp tells edits apart: it is made of the object's UID, the manager, its
	// time and the value.
	Stamp string
}

// Secret is the identity of a peer as it is kept in a Secret.
type Secret struct {
	// Fingerprint of the key.
	Fingerprint peer.Fingerprint
	// CA is the certificate of the key, in DER.
	CA []byte
	// Namespace is where Liqo lives in the peer.
	Namespace string
	// Intact is true when the Secret is as ApplySecret writes it: type, labels, and
	// no data that contradicts each other. It is ignored in an Action.
	Intact bool
}

// Access is what a peer may do in this cluster, through RBAC.
type Access struct {
	// Request: its PeeringRequest.
	Request bool
	// Advertisement: its Advertisement.
	Advertisement bool
	// Intact is true when role and binding are as ApplyAccess writes them. It is
	// ignored in an Action.
	Intact bool
}

// Decision is what is to be done about one cluster.
type Decision struct {
	// Actions are to be done here, in this order; when one fails, those behind it
	// are not done.
	Actions []Action
	// Remote is the desired state of our objects in the peer's cluster.
	Remote RemoteSpec
	// Tenant is the desired state of the peer as a tenant of this cluster; nil when that
	// is not known, and it is to stay as it is.
	Tenant *TenantSpec
	// Hold: the peer is to be checked even when discovery lost it, because there is
	// a peering with it.
	Hold bool
	// TearingDown: our consuming its resources is being undone.
	TearingDown bool
	// Draining: its node is not wanted any more, and not gone yet.
	Draining bool
	// Check: the peer is to be asked now: whether it is there, or because a person
	// asked again.
	Check bool
	// Replan: the actions change what is to be done: the decision store is told something, or
	// a name becomes free. Once all of them are done, everything is gathered and
	// decided again at once.
	Replan bool
	// Again is after how long the cluster is to be looked at even if nothing
	// changes; 0 for never.
	Again time.Duration
}

// SecretName is the name of the Secret with a peer's identity.
func SecretName(id peer.ClusterID) string { return "liqo-peer-" + string(id) }

// Reachable reports whether there can be anything between us and the peer now: it
// answers, and neither side has suspended its trust.
func (obs Observed) Reachable() bool {
	return obs.answers() && !obs.suspended()
}

// answers reports whether the peer is present and holds the key by which it is
// trusted, if it is.
func (obs Observed) answers() bool {
	return obs.present() && !obs.otherKey()
}

// otherKey reports whether the endpoint of the peer shows another key than the
// one that is trusted.
func (obs Observed) otherKey() bool {
	p := obs.Peer
	return p != nil && !p.Fingerprint.IsZero() && obs.isOther(p.Fingerprint)
}

// isOther reports whether there is a trusted key, and the given one is another. A key
// of which the trusted one took the place is not: who saw it does not know yet.
func (obs Observed) isOther(key peer.Fingerprint) bool {
	pin := obs.Policy.Pin
	return pin != nil && key != pin.Fingerprint && !slices.Contains(obs.Policy.Former, key)
}

// suspended reports whether the trust between us and the peer is suspended, because
// the certificate of a fleet that it rests on has ended.
func (obs Observed) suspended() bool { return obs.suspendedHere() || obs.suspendedThere() }

// suspendedHere reports whether it is the peer's certificate that has ended.
func (obs Observed) suspendedHere() bool {
	pin := obs.Policy.Pin
	return pin != nil && !pin.Suspended.IsZero()
}

// suspendedThere reports whether it is ours, as the peer said last.
func (obs Observed) suspendedThere() bool {
	return obs.Remote.Denied == wire.ReasonCertificateEnded
}

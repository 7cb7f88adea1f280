package reason

import (
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/exchange"
)

// The reasons of the conditions Reachable, Verified and Conflict.
const (
	// Answers: the endpoint answers.
	Answers = "EndpointAnswers"
	// ChecksFailed: the endpoint does not answer.
	ChecksFailed = "ChecksFailed"
	// Lost: the cluster is no longer seen. Of OutgoingPeering and IncomingPeering: it was
	// away for longer than discovery.lost_after, and what belonged to the peering was
	// removed here.
	Lost = "Lost"
	// KeyProven: the endpoint proved that it has the key.
	KeyProven = "KeyProven"
	// OtherKey: another key claims the cluster's ID. Of AccessRequested: it is not the
	// known key that asks.
	OtherKey = "OtherKeySeen"
)

// The reasons of the condition Trusted.
const (
	// PersonDecided: a person compared the verification code, or said so.
	PersonDecided = "PersonDecided"
	// Invited: a one-time invite named the key, or its bearer held it.
	Invited = "Invited"
	// FleetCertified: the configured fleet CA certified the key.
	FleetCertified = "FleetCertified"
	// Configured: a [[peer]] entry of the configuration names the key.
	Configured = "Configured"
	// SystemRoots: the system's certificate authorities vouch for the name at
	// which the key was found.
	SystemRoots = "SystemRoots"
	// OpenPolicy: the configuration trusts whoever comes first.
	OpenPolicy = "OpenPolicy"
	// NotDecided: nobody decided yet.
	NotDecided = "NotDecided"
	// Distrusted: a person said that the key is not to be trusted.
	Distrusted = "Distrusted"
	// AnotherKey: the cluster's ID is shown with a key that is not the trusted
	// one.
	AnotherKey = "OtherKey"
)

// The reasons of the conditions OutgoingPeering and IncomingPeering that both
// have. The condition is True only with Joined, and while something fails
// that the peering survives.
const (
	// Joined: the request is accepted, and so is the offer.
	Joined = "Joined"
	// Refused: the provider refused the request.
	Refused = "Refused"
	// Blocked: a person blocked the cluster here.
	Blocked = "Blocked"
	// Incompatible: the agents of the two clusters speak no version of the
	// protocol in common. What there is between them stays as it is.
	Incompatible = "Incompatible"
	// CertificateEnded: the certificate of a fleet has ended by which one of the
	// two trusts the other. Nothing goes between them until there is a newer one; what
	// there is stays as it is. Also a reason of the condition Trusted.
	CertificateEnded = wire.ReasonCertificateEnded
	// Unknown: this cluster's API server does not answer, so that nothing is
	// known. It is never shown on an object.
	Unknown = "Unknown"
)

// Pending, of the condition AccessRequested: somebody has to decide. If another
// key than the known one asks, OtherKey is used.
const Pending = "Pending"

// The other reasons of the condition OutgoingPeering.
const (
	// AwaitingContact: the object names a URL at which nobody has answered yet
	// who could be joined.
	AwaitingContact = "AwaitingContact"
	// AnotherObject: an older ForeignCluster is about the same cluster, and that
	// one counts.
	AnotherObject = "AnotherObject"
	// AwaitingTrust: the cluster is to be joined, and its key is not trusted.
	// Nothing is sent before it is.
	AwaitingTrust = "AwaitingTrust"
	// AwaitingPeer: the cluster does not answer.
	AwaitingPeer = "AwaitingPeer"
	// Asking: the cluster is being asked.
	Asking = "Asking"
	// AwaitingAcceptance: a person has to accept us at the provider.
	AwaitingAcceptance = "AwaitingAcceptance"
	// AwaitingOffer: the provider accepted us, and has not offered anything yet.
	AwaitingOffer = "AwaitingOffer"
	// Offered: there is an offer that cannot be accepted.
	Offered = "Offered"
	// Disconnected: we do not want to consume the cluster's resources (any
	// more).
	Disconnected = "Disconnected"
	// EndedByProvider: the provider ended it. A person has to connect again.
	EndedByProvider = "EndedByProvider"
	// ProviderDown: the provider's agent answers, and its API server does not.
	ProviderDown = "ProviderDown"
	// Draining: it is to end, and pods of ours still leave the provider. The
	// request stays there until they have.
	Draining = "Draining"

	// AwaitingDecision, of the condition IncomingPeering, is used as well: a
	// person has to accept the provider's offer here.
)

// The reasons in the status of an Advertisement. It is Accepted for Joined
// too, and AwaitingDecision says that nobody decided yet.
const (
	// AcceptedByPerson and RefusedByPerson: somebody decided, with
	// "liqo-agent adverts" or by writing the status.
	AcceptedByPerson = "AcceptedByPerson"
	RefusedByPerson  = "RefusedByPerson"
	// TooMany: as many offers are accepted as sharing.max_accepted allows.
	TooMany = "TooMany"
	// Expired: the offer ended, and the provider did not renew it.
	Expired = "Expired"
	// BadAmount: the offer says something that is no amount of a resource.
	BadAmount = "BadAmount"
)

// The other reasons of the condition IncomingPeering.
const (
	// AwaitingDecision: a person has to accept the request here.
	AwaitingDecision = "AwaitingDecision"
	// AwaitingConsumer: the request is accepted, and the consumer has not
	// accepted our offer yet.
	AwaitingConsumer = "AwaitingConsumer"
	// NothingToOffer: the request is accepted, and what this cluster has to
	// offer is not known yet.
	NothingToOffer = "NothingToOffer"
	// NotSharing: the request is accepted, and this cluster shares nothing with
	// anybody.
	NotSharing = "NotSharing"
	// ConsumerAway: the request is accepted, and the consumer does not answer.
	ConsumerAway = "ConsumerAway"
	// ConsumerDown: the consumer's agent answers, and its API server does not.
	ConsumerDown = "ConsumerDown"
	// RequestMissing: the request that was accepted is not there, and nobody
	// took it away on purpose: the API server lost it.
	RequestMissing = "RequestMissing"
	// Ended: the peering was ended on this side.
	Ended = "Ended"
	// Withdrawn: the consumer withdrew its request.
	Withdrawn = "Withdrawn"
)

// The reasons of the condition AuthURL. Those but the first two are also reasons of
// the condition Reachable while nothing else was ever seen of the cluster, and what
// discovered.Result.Reason holds. Others that it holds are shown as they are.
const (
	// Answering: the cluster that the object is about answers at the URL.
	Answering = "Answers"
	// OtherCluster: a cluster answers that is not the one that the object is
	// about.
	OtherCluster = "OtherCluster"
	// NotAskedYet: nobody was asked yet.
	NotAskedYet = "NotAskedYet"
	// Unreachable: nothing answers.
	Unreachable = "Unreachable"
	// NotACluster: something answers that is no cluster.
	NotACluster = "NotACluster"
	// ThisCluster: the URL leads back to this cluster.
	ThisCluster = "ThisCluster"

	// AnotherKey, of the condition Trusted, is used as well: who answers does
	// not hold the key that is expected.
)

// The reasons of the condition Engine, and of peerings that Liqo makes.
const (
	// Builtin: the agents peer the two clusters. ByLiqo: Liqo does.
	Builtin = "Builtin"
	ByLiqo  = "Liqo"
	// NoEngine: the settings of the two clusters leave no engine.
	NoEngine = "NoCommonEngine"
	// AwaitingLiqo: it waits for Liqo's controllers, here or there.
	AwaitingLiqo = exchange.ReasonWaits
	// NotInCare: the namespace that stands for the cluster in Liqo is of a peering that the
	// agent did not make.
	NotInCare = exchange.ReasonNotOurs
	// LiqoIDClaimed: another cluster has that ID in Liqo.
	LiqoIDClaimed = exchange.ReasonClaimed
	// DocumentRefused: what the other cluster says for Liqo is refused.
	DocumentRefused = exchange.ReasonHostile
	// SliceDenied: the provider's Liqo denies the resources.
	SliceDenied = exchange.ReasonDenied
	// LiqoRemoving: Liqo undoes the peering.
	LiqoRemoving = exchange.ReasonRemoving
)

// The reasons of the conditions of modules.
const (
	// NodeReady: the node is ready.
	NodeReady = "NodeReady"
	// NodePending: the node is about to be made.
	NodePending = "NodePending"
	// NoNode: there is none, and none is wanted.
	NoNode = "NoNode"
	// SwitchedOff: sharing.use is off.
	SwitchedOff = "SwitchedOff"
	// Stored: the identity is in the Secret that caDataRef names.
	Stored = "Stored"
	// NotStored: the certificate of the cluster was not seen yet.
	NotStored = "NotStored"
)

// The reasons of the condition NetworkReady, of a ForeignCluster and of module networking.
// Those of a cluster that cannot be connected with any other are in package connectivity.
const (
	// Connected: packets pass.
	Connected = "Connected"
	// Connecting: the clusters are about to be connected.
	Connecting = "Connecting"
	// NetworkDown: the clusters were connected, and no packets pass now.
	NetworkDown = "NetworkDown"
	// CannotConnect: the clusters have not been connected yet, and attempts fail.
	CannotConnect = "CannotConnect"
	// NotWanted: the peer does not connect its network with this one.
	NotWanted = "NotWanted"
	// PeerWithoutNetwork: the agent of the peer is too old for it.
	PeerWithoutNetwork = "PeerWithoutNetwork"
	// NotPossibleHere: this machine cannot connect networks.
	NotPossibleHere = "NotPossibleHere"
	// Off: sharing.network is off.
	Off = "Off"
	// NotShared: no resources are shared with the peer now.
	NotShared = "NotShared"
)

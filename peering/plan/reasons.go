package plan

import "liqo.io/agent/endpoint/wire"

// The reasons of the condition Trusted.
const (
	// ReasonPersonDecided: a person compared the verification code, or said so.
	ReasonPersonDecided = "PersonDecided"
	// ReasonInvited: a one-time invite named the key, or its bearer held it.
	ReasonInvited = "Invited"
	// ReasonFleetCertified: the configured fleet CA certified the key.
	ReasonFleetCertified = "FleetCertified"
	// ReasonConfigured: a [[peer]] entry of the configuration names the key.
	ReasonConfigured = "Configured"
	// ReasonSystemRoots: the system's certificate authorities vouch for the name at
	// which the key was found.
	ReasonSystemRoots = "SystemRoots"
	// ReasonOpenPolicy: the configuration trusts whoever comes first.
	ReasonOpenPolicy = "OpenPolicy"
	// ReasonNotDecided: nobody decided yet.
	ReasonNotDecided = "NotDecided"
	// ReasonDistrusted: a person said that the key is not to be trusted.
	ReasonDistrusted = "Distrusted"
	// ReasonAnotherKey: the cluster's ID is shown with a key that is not the trusted
	// one.
	ReasonAnotherKey = "OtherKey"
)

// The reasons of the conditions OutgoingPeering and IncomingPeering that both
// have. The condition is True only with ReasonJoined, and while something fails
// that the peering survives.
const (
	// ReasonJoined: the request is accepted, and so is the offer.
	ReasonJoined = "Joined"
	// ReasonRefused: the provider refused the request.
	ReasonRefused = "Refused"
	// ReasonBlocked: a person blocked the cluster here.
	ReasonBlocked = "Blocked"
	// ReasonIncompatible: the agents of the two clusters speak no version of the
	// protocol in common. What there is between them stays as it is.
	ReasonIncompatible = "Incompatible"
	// ReasonCertificateEnded: the certificate of a fleet has ended by which one of the
	// two trusts the other. Nothing goes between them until there is a newer one; what
	// there is stays as it is. Also a reason of the condition Trusted.
	ReasonCertificateEnded = wire.ReasonCertificateEnded
	// ReasonUnknown: this cluster's API server does not answer, so that nothing is
	// known. It is never shown on an object.
	ReasonUnknown = "Unknown"

	// ReasonLost, of the discovered conditions, is used as well: the cluster was
	// away for longer than discovery.lost_after, and what belonged to the peering was
	// removed here.
)

// ReasonPending, of the condition AccessRequested: somebody has to decide. If another
// key than the known one asks, ReasonOtherKey is used.
const ReasonPending = "Pending"

// The other reasons of the condition OutgoingPeering.
const (
	// ReasonAwaitingContact: the object names a URL at which nobody has answered yet
	// who could be joined.
	ReasonAwaitingContact = "AwaitingContact"
	// ReasonAnotherObject: an older ForeignCluster is about the same cluster, and that
	// one counts.
	ReasonAnotherObject = "AnotherObject"
	// ReasonAwaitingTrust: the cluster is to be joined, and its key is not trusted.
	// Nothing is sent before it is.
	ReasonAwaitingTrust = "AwaitingTrust"
	// ReasonAwaitingPeer: the cluster does not answer.
	ReasonAwaitingPeer = "AwaitingPeer"
	// ReasonAsking: the cluster is being asked.
	ReasonAsking = "Asking"
	// ReasonAwaitingAcceptance: a person has to accept us at the provider.
	ReasonAwaitingAcceptance = "AwaitingAcceptance"
	// ReasonAwaitingOffer: the provider accepted us, and has not offered anything yet.
	ReasonAwaitingOffer = "AwaitingOffer"
	// ReasonOffered: there is an offer that cannot be accepted.
	ReasonOffered = "Offered"
	// ReasonDisconnected: we do not want to consume the cluster's resources (any
	// more).
	ReasonDisconnected = "Disconnected"
	// ReasonEndedByProvider: the provider ended it. A person has to connect again.
	ReasonEndedByProvider = "EndedByProvider"
	// ReasonProviderDown: the provider's agent answers, and its API server does not.
	ReasonProviderDown = "ProviderDown"
	// ReasonDraining: it is to end, and pods of ours still leave the provider. The
	// request stays there until they have.
	ReasonDraining = "Draining"

	// ReasonAwaitingDecision, of the condition IncomingPeering, is used as well: a
	// person has to accept the provider's offer here.
)

// The reasons in the status of an Advertisement. It is Accepted for ReasonJoined
// too, and ReasonAwaitingDecision says that nobody decided yet.
const (
	// ReasonAcceptedByPerson and ReasonRefusedByPerson: somebody decided, with
	// "liqo-agent adverts" or by writing the status.
	ReasonAcceptedByPerson = "AcceptedByPerson"
	ReasonRefusedByPerson  = "RefusedByPerson"
	// ReasonTooMany: as many offers are accepted as sharing.max_accepted allows.
	ReasonTooMany = "TooMany"
	// ReasonExpired: the offer ended, and the provider did not renew it.
	ReasonExpired = "Expired"
	// ReasonBadAmount: the offer says something that is no amount of a resource.
	ReasonBadAmount = "BadAmount"
)

// The other reasons of the condition IncomingPeering.
const (
	// ReasonAwaitingDecision: a person has to accept the request here.
	ReasonAwaitingDecision = "AwaitingDecision"
	// ReasonAwaitingConsumer: the request is accepted, and the consumer has not
	// accepted our offer yet.
	ReasonAwaitingConsumer = "AwaitingConsumer"
	// ReasonNothingToOffer: the request is accepted, and what this cluster has to
	// offer is not known yet.
	ReasonNothingToOffer = "NothingToOffer"
	// ReasonNotSharing: the request is accepted, and this cluster shares nothing with
	// anybody.
	ReasonNotSharing = "NotSharing"
	// ReasonConsumerAway: the request is accepted, and the consumer does not answer.
	ReasonConsumerAway = "ConsumerAway"
	// ReasonConsumerDown: the consumer's agent answers, and its API server does not.
	ReasonConsumerDown = "ConsumerDown"
	// ReasonRequestMissing: the request that was accepted is not there, and nobody
	// took it away on purpose: the API server lost it.
	ReasonRequestMissing = "RequestMissing"
	// ReasonEnded: the peering was ended on this side.
	ReasonEnded = "Ended"
	// ReasonWithdrawn: the consumer withdrew its request.
	ReasonWithdrawn = "Withdrawn"
)

// The reasons of the condition AuthURL. Those but the first two are also reasons of
// the condition Reachable while nothing else was ever seen of the cluster, and what
// ProbeResult.Reason holds. Others that it holds are shown as they are.
const (
	// ReasonAnswering: the cluster that the object is about answers at the URL.
	ReasonAnswering = "Answers"
	// ReasonOtherCluster: a cluster answers that is not the one that the object is
	// about.
	ReasonOtherCluster = "OtherCluster"
	// ReasonNotAskedYet: nobody was asked yet.
	ReasonNotAskedYet = "NotAskedYet"
	// ReasonUnreachable: nothing answers.
	ReasonUnreachable = "Unreachable"
	// ReasonNotACluster: something answers that is no cluster.
	ReasonNotACluster = "NotACluster"
	// ReasonThisCluster: the URL leads back to this cluster.
	ReasonThisCluster = "ThisCluster"

	// ReasonAnotherKey, of the condition Trusted, is used as well: who answers does
	// not hold the key that is expected.
)

// The conditions of the modules in a ForeignCluster's status.
const (
	// ConditionIdentityStored, of module authentication: the cluster's key is trusted
	// and its certificate is kept in a Secret.
	ConditionIdentityStored = "IdentityStored"
	// ConditionAvailable, of module networking: this version of the agent can do it.
	ConditionAvailable = "Available"
	// ConditionVirtualNode, of module offloading: there is a node for the cluster, and
	// it is ready. Its other reasons are those of the node.
	ConditionVirtualNode = "VirtualNode"
	// ReasonNodeReady: the node is ready.
	ReasonNodeReady = "NodeReady"
	// ReasonNodePending: the node is about to be made.
	ReasonNodePending = "NodePending"
	// ReasonNoNode: there is none, and none is wanted.
	ReasonNoNode = "NoNode"
	// ReasonSwitchedOff: sharing.use is off.
	ReasonSwitchedOff = "SwitchedOff"
	// ReasonStored: the identity is in the Secret that caDataRef names.
	ReasonStored = "Stored"
	// ReasonNotStored: the certificate of the cluster was not seen yet.
	ReasonNotStored = "NotStored"
	// ReasonNotInThisVersion: a later version of the agent does it.
	ReasonNotInThisVersion = "NotInThisVersion"
)

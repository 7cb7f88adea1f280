package events

import (
	"cmp"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/reason"
)

// The reasons of the Events on ForeignClusters, which "kubectl describe fc" and
// "kubectl events" show. There is one only when something changed.
const (
	// EventReachable, EventUnreachable and EventLost: a cluster with which there is a
	// peering answers again, does not answer, or is not seen any more.
	EventReachable   = "PeerReachable"
	EventUnreachable = "PeerUnreachable"
	EventLost        = "PeerLost"
	// EventConflict: somebody shows the cluster's ID with another key; EventConflictOver:
	// nobody does any more.
	EventConflict     = "KeyConflict"
	EventConflictOver = "KeyConflictOver"
	// EventKeyChanged: the cluster has another key than before. EventOtherKey: it shows
	// one that is not the trusted one. EventDistrusted: somebody said that its key is not
	// to be trusted.
	EventKeyChanged = "KeyChanged"
	EventOtherKey   = "KeyNotTrusted"
	EventDistrusted = "KeyDistrusted"
	// EventSuspended: nothing goes between the two clusters, because the certificate of a
	// fleet has ended.
	EventSuspended = "CertificateEnded"
	// EventBlocked: a person blocked the cluster here.
	EventBlocked = "PeerBlocked"
	// EventIncompatible: the two agents speak no version of the protocol that both know.
	EventIncompatible = "PeerIncompatible"
	// EventPeeringLost: the cluster was away for so long that the peering was undone here.
	EventPeeringLost = "PeeringLost"

	// EventJoined: we consume the cluster's resources. EventDisconnected: no longer,
	// because of us; EventEndedByProvider: because of the provider.
	EventJoined          = "Joined"
	EventDisconnected    = "Disconnected"
	EventEndedByProvider = "EndedByTheProvider"
	// EventTrustNeeded: somebody here has to say whether the key is to be trusted.
	EventTrustNeeded = "TrustNeeded"
	// EventAwaitingProvider: somebody at the provider has to accept us.
	EventAwaitingProvider = "WaitingForTheProvider"
	// EventRefused: the provider refused our request.
	EventRefused = "RefusedByTheProvider"
	// EventOfferWaiting: somebody here has to accept the provider's offer.
	EventOfferWaiting = "OfferWaiting"
	// EventOfferAccepted, EventOfferRefused and EventOfferWithdrawn: what became of it.
	EventOfferAccepted  = "OfferAccepted"
	EventOfferRefused   = "OfferRefused"
	EventOfferWithdrawn = "OfferWithdrawn"

	// EventRequestWaiting: somebody here has to decide about the cluster's request.
	EventRequestWaiting = "RequestWaiting"
	// EventRequestRefused: its request is refused here.
	EventRequestRefused = "RequestRefused"
	// EventRequestMissing: its request that was accepted is not there any more.
	EventRequestMissing = "RequestGone"
	// EventServing: the cluster consumes our resources. EventServingEnded: no longer.
	EventServing      = "Serving"
	EventServingEnded = "ServingEnded"

	// EventNetworkConnected: packets pass between the pods of the two clusters.
	// EventNetworkDown: no longer. EventNetworkNotConnected: they cannot be connected.
	EventNetworkConnected    = "NetworkConnected"
	EventNetworkDown         = "NetworkDown"
	EventNetworkNotConnected = "NetworkNotConnected"
)

// Event is something that happened and that an operator should see.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Between returns what happened between two states of a ForeignCluster. Both are
// in the API server, so that what was told before a restart is not told again. before
// is nil for an object that was just made.
func Between(before, after *api.ForeignCluster) []Event {
	if before == nil || before.UID != after.UID {
		before = &api.ForeignCluster{}
	}
	var all changes
	was, is := conditionsOf(before), conditionsOf(after)
	if is.outgoing != nil || is.incoming != nil {
		// Of the many neighbours with which there is nothing, nobody wants to hear that
		// somebody switched one off.
		all.reached(was.reachable, is.reachable)
		if old, key := before.Status.Fingerprint, after.Status.Fingerprint; old != "" && key != "" && old != key {
			all.add(EventKeyChanged, false, "Its key is "+key+" now; it was "+old+".")
		}
	}
	all.conflict(was.conflict, is.conflict)
	all.changed(was.trusted, is.trusted, trustedKinds)
	all.changed(was.outgoing, is.outgoing, eitherKinds)
	all.changed(was.outgoing, is.outgoing, outgoingKinds)
	all.changed(was.incoming, is.incoming, eitherKinds)
	all.changed(was.incoming, is.incoming, incomingKinds)
	all.network(was.network, is.network)
	all.offer(before.Status.Outgoing.AdvertisementStatus, after.Status.Outgoing.AdvertisementStatus, is.outgoing)
	return all
}

type shownConditions struct{ reachable, conflict, trusted, outgoing, incoming, network *api.Condition }

func conditionsOf(fc *api.ForeignCluster) shownConditions {
	return shownConditions{
		fc.Condition(api.ConditionReachable), fc.Condition(api.ConditionConflict), fc.Condition(api.ConditionTrusted),
		fc.Condition(api.ConditionOutgoingPeering), fc.Condition(api.ConditionIncomingPeering),
		fc.Condition(api.ConditionNetworkReady),
	}
}

// sameVerdict reports whether two conditions say the same, whatever the words; one that is
// not shown any more says nothing new.
func sameVerdict(was, is *api.Condition) bool {
	return is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason
}

func holds(c *api.Condition) bool { return c != nil && c.Status == api.ConditionTrue }

// changes collects Events, each reason once.
type changes []Event

func (c *changes) add(reason string, warning bool, message string) {
	for _, known := range *c {
		if known.Reason == reason {
			return // a cluster is blocked, or lost, in both directions at once
		}
	}
	*c = append(*c, Event{warning, reason, message})
}

func (c *changes) reached(was, is *api.Condition) {
	switch {
	case was == nil || sameVerdict(was, is):
	case holds(is):
		c.add(EventReachable, false, is.Message)
	case is.Reason == reason.Lost:
		c.add(EventLost, true, is.Message)
	case holds(was):
		c.add(EventUnreachable, true, is.Message)
	}
}

func (c *changes) conflict(was, is *api.Condition) {
	switch {
	case holds(is) && (!holds(was) || !discovered.SameConflict(was.Message, is.Message)):
		c.add(EventConflict, true, is.Message)
	case holds(was) && !holds(is):
		c.add(EventConflictOver, false, "No cluster uses this cluster ID with another key any more.")
	}
}

// kind is an Event without its message.
type kind struct {
	reason  string
	warning bool
}

// The Events of a condition that changed, by its reason.
var (
	trustedKinds = map[string]kind{
		reason.AnotherKey:       {EventOtherKey, true},
		reason.Distrusted:       {EventDistrusted, true},
		reason.CertificateEnded: {EventSuspended, true},
	}
	eitherKinds = map[string]kind{ // of the conditions of both directions
		reason.Blocked:          {EventBlocked, true},
		reason.Incompatible:     {EventIncompatible, true},
		reason.CertificateEnded: {EventSuspended, true},
		reason.Lost:             {EventPeeringLost, true},
	}
	outgoingKinds = map[string]kind{
		reason.Joined:             {EventJoined, false},
		reason.Refused:            {EventRefused, true},
		reason.EndedByProvider:    {EventEndedByProvider, true},
		reason.AwaitingTrust:      {EventTrustNeeded, false},
		reason.AwaitingAcceptance: {EventAwaitingProvider, false},
		reason.AwaitingDecision:   {EventOfferWaiting, false},
		reason.Disconnected:       {EventDisconnected, false},
	}
	incomingKinds = map[string]kind{
		reason.Joined:           {EventServing, false},
		reason.Refused:          {EventRequestRefused, false},
		reason.AwaitingDecision: {EventRequestWaiting, false},
		reason.RequestMissing:   {EventRequestMissing, true},
		reason.Ended:            {EventServingEnded, false},
		reason.Withdrawn:        {EventServingEnded, false},
	}
)

// changed adds the Event of a condition that changed. What was established before is not
// established again, and what never was does not end.
func (c *changes) changed(was, is *api.Condition, kinds map[string]kind) {
	if sameVerdict(was, is) {
		return
	}
	switch is.Reason {
	case reason.Joined:
		if holds(was) {
			return
		}
	case reason.Disconnected, reason.Ended, reason.Withdrawn:
		if was == nil {
			return
		}
	}
	if k, known := kinds[is.Reason]; known {
		c.add(k.reason, k.warning, is.Message)
	}
}

// network is about the network between the pods of the two clusters.
func (c *changes) network(was, is *api.Condition) {
	if sameVerdict(was, is) {
		return
	}
	switch {
	case is.Status == api.ConditionTrue:
		c.add(EventNetworkConnected, false, is.Message)
	case is.Status == api.ConditionUnknown, is.Reason == reason.NotShared, is.Reason == reason.Off:
	case is.Reason == reason.NetworkDown:
		c.add(EventNetworkDown, true, is.Message)
	default:
		c.add(EventNetworkNotConnected, true, is.Message)
	}
}

// offer is about the provider's offer. One that goes because the peering ends is
// told with that.
func (c *changes) offer(was, is api.AdvertisementStatus, outgoing *api.Condition) {
	switch {
	case was == is:
	case is == api.AdvertisementAccepted:
		c.add(EventOfferAccepted, false, "Its offer is accepted here.")
	case is == api.AdvertisementRefused:
		message := "Its offer is refused here."
		if outgoing != nil && outgoing.Reason == reason.Offered {
			message = outgoing.Message
		}
		c.add(EventOfferRefused, true, message)
	case outgoing != nil && outgoing.Reason == reason.AwaitingOffer:
		c.add(EventOfferWithdrawn, true, cmp.Or(outgoing.Message, "The provider no longer offers anything."))
	}
}

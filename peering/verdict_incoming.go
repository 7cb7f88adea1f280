package peering

import (
	"cmp"
	"strings"

	"liqo.io/agent/api"
)

// incomingVerdict says how the peer's consuming our resources stands.
func (f *facts) incomingVerdict(in incoming) *verdict {
	switch {
	case in.drop != "":
		return no(in.dropReason, in.drop)
	case in.endedHere:
		return no(ReasonEnded, "Somebody deleted its PeeringRequest here.")
	case in.missing:
		return no(ReasonRequestMissing, "The request that was accepted is not there. The consumer makes it again if it still wants it.")
	case in.serves:
		return f.servingVerdict(in)
	case in.decision != nil && in.decision.Phase == api.RequestRefused:
		return no(ReasonRefused, cmp.Or(f.toUs(in.decision), "The request is refused."))
	case in.stays:
		message := "Somebody has to decide about its request: liqo-agent peers accept " + f.called()
		if f.Standing.Code != "" && !f.trusted {
			message += ". Both sides show the code " + f.Standing.Code
		}
		return no(ReasonAwaitingDecision, message)
	}
	return f.endedIncomingVerdict()
}

// toUs is what a decision about its request says to people here.
func (f *facts) toUs(decision *api.PeeringRequestStatus) string {
	if accept := f.Standing.Accept; accept.Here != "" && decision.Message == accept.Message {
		return accept.Here
	}
	return decision.Message
}

// leftovers is added to how it ended as long as something is left of what the
// consumer ran here.
const leftovers = " Its namespaces here are being removed."

// leaving returns a verdict about a peering that ended, and that says so.
func leaving(v *verdict) *verdict {
	if v == nil {
		v = no(ReasonEnded, "There is no request any more.")
	}
	return no(v.reason, v.message+leftovers)
}

// servingVerdict is for a request that is accepted.
func (f *facts) servingVerdict(in incoming) *verdict {
	heard := f.heard()
	down := f.Remote.State != nil && heard == nil
	switch {
	case f.NotSharing:
		return no(ReasonNotSharing, "The request is accepted, but this cluster shares nothing at the moment (sharing.enable).")
	case f.suspended():
		return f.suspendedVerdict(in.joined)
	case in.joined && !f.Reachable():
		message := "The peering is established, but the cluster does not answer at the moment."
		if f.LostAfter > 0 {
			message += " It is kept for " + f.LostAfter.String() + "."
		}
		return yes(ReasonConsumerAway, message)
	case in.joined && f.incompatible() != "":
		return yes(ReasonIncompatible, "The peering is established. "+f.incompatible())
	case in.joined && down:
		return yes(ReasonConsumerDown, "The peering is established, but the API server of the consumer does not answer at the moment.")
	case in.joined:
		return yes(ReasonJoined, "The request is accepted, and the consumer accepted our offer.")
	case !f.Reachable():
		return no(ReasonConsumerAway, "The request is accepted, but the cluster does not answer.")
	case f.incompatible() != "":
		return no(ReasonIncompatible, "The request is accepted. "+f.incompatible())
	case f.denied():
		return no(ReasonAwaitingConsumer, "The request is accepted, but the consumer does not let this cluster in at the moment.")
	case down:
		return no(ReasonConsumerDown, "The request is accepted, but the API server of the consumer does not answer.")
	case f.Offer == nil:
		return no(ReasonNothingToOffer, "The request is accepted. "+cmp.Or(f.WhyNoOffer, "What this cluster has to offer is not known yet."))
	case heard != nil && heard.Advertisement != nil && heard.Advertisement.Status == api.AdvertisementRefused:
		return no(ReasonAwaitingConsumer, "The consumer did not accept our offer: "+cmp.Or(sentence(heard.Advertisement.Message), "it did not say why."))
	}
	return no(ReasonAwaitingConsumer, "The request is accepted, and the consumer has not accepted our offer yet.")
}

// endedIncomingVerdict is for when there is no request; nil when there never was
// one.
func (f *facts) endedIncomingVerdict() *verdict {
	shown := f.shown.Condition(api.ConditionIncomingPeering)
	if shown == nil && !f.Standing.LastServed {
		return nil
	}
	heard := f.heard()
	switch {
	case f.Standing.Blocked:
		return no(ReasonBlocked, "The consumer is blocked here.")
	case shown != nil && (shown.Reason == ReasonWithdrawn || shown.Reason == ReasonLost):
		return no(shown.Reason, strings.TrimSuffix(shown.Message, leftovers))
	case f.Standing.Ended != "":
		return no(ReasonEnded, sentence(f.Standing.Ended))
	case shown != nil && shown.Reason == ReasonEnded:
		return no(shown.Reason, strings.TrimSuffix(shown.Message, leftovers))
	case f.lost && f.RequestDeleted != DeletedByPeer:
		return no(ReasonLost, f.missed("The consumer"))
	case f.RequestDeleted == DeletedByPeer, heard != nil && !heard.Consumes:
		return no(ReasonWithdrawn, "The consumer does not want it any more.")
	}
	return no(ReasonEnded, "There is no request any more.")
}

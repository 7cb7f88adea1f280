package plan

import (
	"cmp"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

// incomingVerdict returns what the condition IncomingPeering says.
func (d *derived) incomingVerdict(in incoming) *verdict {
	switch {
	case in.drop != "":
		return no(in.dropReason, in.drop)
	case in.endedHere:
		return no(ReasonEnded, "Somebody deleted its PeeringRequest here.")
	case in.missing:
		return no(ReasonRequestMissing, "The accepted request no longer exists. The consumer creates it again if it still wants to connect.")
	case in.serves:
		return d.servingVerdict(in)
	case in.decision != nil && in.decision.Phase == api.RequestRefused:
		return no(ReasonRefused, cmp.Or(d.messageHere(in.decision), "The request is refused."))
	case in.stays:
		message := "Its request needs a decision: liqo-agent peers accept " + d.commandName()
		if d.Policy.Code != "" && !d.trusted {
			message += ". Both sides show the code " + d.Policy.Code
		}
		return no(ReasonAwaitingDecision, message)
	}
	return d.endedIncomingVerdict()
}

// messageHere is what a decision about its request says to people here.
func (d *derived) messageHere(decision *api.PeeringRequestStatus) string {
	if accept := d.Policy.Accept; accept.Here != "" && decision.Message == accept.Message {
		return accept.Here
	}
	return decision.Message
}

// removalNote is added to how it ended as long as something is left of what the
// consumer ran here.
const removalNote = " Its namespaces here are being removed."

// withRemovalNote returns a verdict about a peering that ended, and that says so.
func withRemovalNote(v *verdict) *verdict {
	if v == nil {
		v = no(ReasonEnded, "The request no longer exists.")
	}
	return no(v.reason, v.message+removalNote)
}

// servingVerdict is for a request that is accepted.
func (d *derived) servingVerdict(in incoming) *verdict {
	state := d.remoteState()
	down := d.Remote.State != nil && state == nil
	switch {
	case d.NotSharing:
		return no(ReasonNotSharing, "The request is accepted, but this cluster shares nothing at the moment (sharing.enable).")
	case d.suspended():
		return d.suspendedVerdict(in.joined)
	case in.joined && !d.Reachable():
		message := "The peering is established, but the cluster does not answer at the moment."
		if d.LostAfter > 0 {
			message += " It is kept for " + d.LostAfter.String() + "."
		}
		return yes(ReasonConsumerAway, message)
	case in.joined && d.incompatible() != "":
		return yes(ReasonIncompatible, "The peering is established. "+d.incompatible())
	case in.joined && down:
		return yes(ReasonConsumerDown, "The peering is established, but the API server of the consumer does not answer at the moment.")
	case in.joined:
		return yes(ReasonJoined, "The request is accepted, and the consumer accepted our offer.")
	case !d.Reachable():
		return no(ReasonConsumerAway, "The request is accepted, but the cluster does not answer.")
	case d.incompatible() != "":
		return no(ReasonIncompatible, "The request is accepted. "+d.incompatible())
	case d.denied():
		return no(ReasonAwaitingConsumer, "The request is accepted, but the consumer gives this cluster no access at the moment.")
	case down:
		return no(ReasonConsumerDown, "The request is accepted, but the API server of the consumer does not answer.")
	case d.Offer == nil:
		return no(ReasonNothingToOffer, "The request is accepted. "+cmp.Or(d.WhyNoOffer, "The available resources of this cluster are not known yet."))
	case state != nil && state.Advertisement != nil && state.Advertisement.Status == api.AdvertisementRefused:
		return no(ReasonAwaitingConsumer, "The consumer did not accept our offer: "+cmp.Or(text.Sentence(state.Advertisement.Message), "it gave no reason."))
	}
	return no(ReasonAwaitingConsumer, "The request is accepted, and the consumer has not accepted our offer yet.")
}

// endedIncomingVerdict is for when there is no request; nil when there never was
// one.
func (d *derived) endedIncomingVerdict() *verdict {
	shown := d.shown.Condition(api.ConditionIncomingPeering)
	if shown == nil && !d.Policy.LastServed {
		return nil
	}
	state := d.remoteState()
	switch {
	case d.Policy.Blocked:
		return no(ReasonBlocked, "The consumer is blocked here.")
	case shown != nil && (shown.Reason == ReasonWithdrawn || shown.Reason == ReasonLost):
		return no(shown.Reason, strings.TrimSuffix(shown.Message, removalNote))
	case d.Policy.Ended != "":
		return no(ReasonEnded, text.Sentence(d.Policy.Ended))
	case shown != nil && shown.Reason == ReasonEnded:
		return no(shown.Reason, strings.TrimSuffix(shown.Message, removalNote))
	case d.lost && d.RequestDeleted != DeletedByPeer:
		return no(ReasonLost, d.absence("The consumer"))
	case d.RequestDeleted == DeletedByPeer, state != nil && !state.Consumes:
		return no(ReasonWithdrawn, "The consumer withdrew its request.")
	}
	return no(ReasonEnded, "The request no longer exists.")
}

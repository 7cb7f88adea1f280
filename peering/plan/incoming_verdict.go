package plan

import (
	"cmp"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
)

// endedHere is why a peering ended whose request was deleted here, for people at both sides.
const endedHere = "Somebody deleted its PeeringRequest here."

// incomingVerdict returns the content of the condition IncomingPeering.
func (d *derived) incomingVerdict(in incoming) *verdict {
	switch {
	case in.drop != "":
		return no(in.dropReason, in.drop)
	case in.endedHere:
		return no(reason.Ended, endedHere)
	case in.missing:
		return no(reason.RequestMissing, "The accepted request no longer exists. The consumer creates it again if it still wants to connect.")
	case in.serves:
		return d.servingVerdict(in)
	case in.decision != nil && in.decision.Phase == api.RequestRefused:
		return no(reason.Refused, cmp.Or(d.messageHere(in.decision), "The request is refused."))
	case in.stays && in.decision != nil && in.decision.Reason == reason.NoEngine:
		return no(reason.NoEngine, in.decision.Message)
	case in.stays:
		message := "Its request needs a decision: liqo-agent peers accept " + d.commandName()
		if d.Policy.Code != "" && !d.trusted {
			message += ". Both sides show the code " + d.Policy.Code
		}
		return no(reason.AwaitingDecision, message)
	}
	return d.endedIncomingVerdict()
}

// messageHere returns the message of a decision about the request for people here.
func (d *derived) messageHere(decision *api.PeeringRequestStatus) string {
	if accept := d.Policy.Accept; accept.Here != "" && decision.Message == accept.Message {
		return accept.Here
	}
	return decision.Message
}

// removalNote is added to the message of an ended peering while the consumer still has something
// here.
const removalNote = " Its namespaces here are being removed."

// withRemovalNote adds the removalNote to a verdict; nil stands for an ended peering.
func withRemovalNote(v *verdict) *verdict {
	if v == nil {
		v = no(reason.Ended, "The request no longer exists.")
	}
	return no(v.reason, v.message+removalNote)
}

// servingVerdict is for an accepted request.
func (d *derived) servingVerdict(in incoming) *verdict {
	state := d.remoteState()
	down := d.Remote.State != nil && state == nil
	switch {
	case d.NotSharing:
		return no(reason.NotSharing, "The request is accepted, but this cluster shares nothing at the moment (sharing.enable).")
	case d.suspended():
		return d.suspendedVerdict(in.joined)
	case in.joined && !d.Reachable():
		return yes(reason.ConsumerAway, d.keptFor("The peering is established, but the cluster does not answer at the moment."))
	case in.joined && d.incompatible() != "":
		return yes(reason.Incompatible, "The peering is established. "+d.incompatible())
	case in.joined && down:
		return yes(reason.ConsumerDown, "The peering is established, but the API server of the consumer does not answer at the moment.")
	case in.joined && !in.liqo:
		return yes(reason.Joined, "The request is accepted, and the consumer accepted our offer.")
	case !d.Reachable():
		return no(reason.ConsumerAway, "The request is accepted, but the cluster does not answer.")
	case d.incompatible() != "":
		return no(reason.Incompatible, "The request is accepted. "+d.incompatible())
	case in.liqo:
		return d.liqoServingVerdict(in)
	case d.denied():
		return no(reason.AwaitingConsumer, "The request is accepted, but the consumer gives this cluster no access at the moment.")
	case down:
		return no(reason.ConsumerDown, "The request is accepted, but the API server of the consumer does not answer.")
	case d.Offer == nil:
		return no(reason.NothingToOffer, "The request is accepted. "+cmp.Or(d.WhyNoOffer, "The available resources of this cluster are not known yet."))
	case state != nil && state.Advertisement != nil && state.Advertisement.Status == api.AdvertisementRefused:
		return no(reason.AwaitingConsumer, "The consumer did not accept our offer: "+cmp.Or(text.Sentence(state.Advertisement.Message), "it gave no reason."))
	}
	return no(reason.AwaitingConsumer, "The request is accepted, and the consumer has not accepted our offer yet.")
}

// endedIncomingVerdict is for the end of the request; nil if there never was one.
func (d *derived) endedIncomingVerdict() *verdict {
	shown := d.shown.Condition(api.ConditionIncomingPeering)
	if shown == nil && !d.Policy.LastServed {
		return nil
	}
	state := d.remoteState()
	switch {
	case d.Policy.Blocked:
		return no(reason.Blocked, "The consumer is blocked here.")
	case shown != nil && (shown.Reason == reason.Withdrawn || shown.Reason == reason.Lost):
		return no(shown.Reason, strings.TrimSuffix(shown.Message, removalNote))
	case d.Policy.Ended != "":
		return no(reason.Ended, text.Sentence(d.Policy.Ended))
	case shown != nil && shown.Reason == reason.Ended:
		return no(shown.Reason, strings.TrimSuffix(shown.Message, removalNote))
	case d.lost && d.RequestDeleted != DeletedByPeer:
		return no(reason.Lost, d.absence("The consumer"))
	case d.RequestDeleted == DeletedByPeer, state != nil && !state.Consumes:
		return no(reason.Withdrawn, "The consumer withdrew its request.")
	}
	return no(reason.Ended, "The request no longer exists.")
}

package plan

import (
	"cmp"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
)

// verdict is the content of a condition.
type verdict struct {
	status  api.ConditionStatus
	reason  string
	message string
}

func yes(reason, message string) *verdict {
	return &verdict{status: api.ConditionTrue, reason: reason, message: message}
}

func no(reason, message string) *verdict {
	return &verdict{status: api.ConditionFalse, reason: reason, message: message}
}

// outgoingVerdict returns the content of the condition OutgoingPeering.
func (d *derived) outgoingVerdict(out outgoing) *verdict {
	shown := d.shown.Condition(api.ConditionOutgoingPeering)
	past := shown != nil || d.Policy.LastJoined || out.undo
	switch {
	case d.intent.ended != "":
		return d.endedVerdict(d.intent.ended)
	case out.draining && !d.endedBefore(shown):
		return d.drainingVerdict()
	case d.Policy.Blocked && (past || d.intent.join):
		return no(reason.Blocked, "The cluster is blocked here. To unblock it: liqo-agent peers unblock "+d.commandName())
	case !d.intent.wanted && !past:
		return nil
	case !d.intent.wanted:
		return d.disconnectedVerdict(shown)
	case !d.trusted && d.neverSeen():
		return awaitingContact()
	case !d.trusted:
		return no(reason.AwaitingTrust, "Its key is not trusted yet, so nothing is sent to it. "+d.trustAdvice())
	case d.lost:
		return no(reason.Lost, d.absence("The cluster")+" What belonged to the peering was removed here; it is joined again once that is over.")
	case d.suspended():
		return d.suspendedVerdict(out.joined)
	case out.joined:
		return d.joinedVerdict()
	case !d.Reachable():
		return no(reason.AwaitingPeer, "The cluster does not answer. The agent keeps trying; see condition Reachable.")
	case !out.active:
		return no(reason.Asking, "The agent is about to ask the cluster.")
	}
	return d.askingVerdict(out)
}

// outgoingShown returns the condition OutgoingPeering of fc. If people wrote several objects, only
// the effective one shows the verdict.
func (d *derived) outgoingShown(fc *api.ForeignCluster) *verdict {
	if d.redundant(fc) {
		return no(reason.AnotherObject, "ForeignCluster "+d.effective.Name+" is about the same cluster and is older: that one counts, and what is set in this one has no effect. Delete one of the two.")
	}
	return d.outgoing.verdict
}

// neverSeen reports whether the cluster is only known by the URL of a person's object, so that
// there is no key yet to trust.
func (d *derived) neverSeen() bool {
	if d.Peer != nil || d.Policy.Pin != nil || d.Policy.Distrusted || d.effective == nil || d.effective.Status.Fingerprint != "" {
		return false
	}
	return d.urlProbe(d.effective) != nil
}

// drainingVerdict is for a peering that ends once our pods have left.
func (d *derived) drainingVerdict() *verdict {
	message := "The pods that run there are leaving; then the request is withdrawn."
	if left := text.Sentence(d.Node.Message); left != "" {
		message += " " + asSentence(left)
	}
	if left := d.Liqo.Consuming; left.Busy && left.Message != "" {
		message += " " + left.Message
	}
	return no(reason.Draining, message)
}

// endedBefore reports whether the provider ended it, which is more important to show than the
// drain.
func (d *derived) endedBefore(shown *api.Condition) bool {
	state := d.remoteState()
	return shown != nil && shown.Reason == reason.EndedByProvider || state != nil && state.Request == nil && state.Ended != ""
}

// endedVerdict is for a peering that the provider ended.
func (d *derived) endedVerdict(why string) *verdict {
	return no(reason.EndedByProvider, "The provider ended the peering: "+why+" To ask again: liqo-agent peers connect "+d.commandName())
}

// withDrainStatus adds the progress of the removal of an unwanted node, if there is one.
func (d *derived) withDrainStatus(message string) string {
	if left := text.Sentence(d.Node.Message); left != "" && d.Node.Busy && !d.usesNode() {
		message += " " + asSentence(left)
	}
	return message
}

// amounts lists the most important resources of an offer.
func amounts(hard map[string]string) string {
	var parts []string
	for _, name := range []string{"cpu", "memory", "pods"} {
		if amount := hard[name]; amount != "" {
			parts = append(parts, name+" "+text.Line(amount, 64))
		}
	}
	if len(parts) == 0 {
		return "resources"
	}
	return strings.Join(parts, ", ")
}

// disconnectedVerdict is for a peering that is no longer wanted.
func (d *derived) disconnectedVerdict(shown *api.Condition) *verdict {
	state := d.remoteState()
	ended := state != nil && state.Request == nil && state.Ended != ""
	switch {
	case shown != nil && shown.Reason == reason.EndedByProvider && !ended:
		return no(shown.Reason, shown.Message)
	case ended && (shown != nil && shown.Reason == reason.EndedByProvider || d.shown.Status.Outgoing.RemotePeeringRequestName != ""):
		return d.endedVerdict(text.Sentence(state.Ended))
	}
	message := "Not connected"
	if d.Policy.ConnectReason != "" && d.Policy.Connect == No {
		message += ": " + d.Policy.ConnectReason
	}
	return no(reason.Disconnected, message+". To connect: liqo-agent peers connect "+d.commandName())
}

// joinedVerdict is for an established peering, with what fails at the moment.
func (d *derived) joinedVerdict() *verdict {
	switch {
	case !d.Reachable():
		return yes(reason.AwaitingPeer, d.keptFor("The peering is established, but the cluster does not answer at the moment."))
	case d.incompatible() != "":
		return yes(reason.Incompatible, "The peering is established. "+d.incompatible())
	case d.Remote.State != nil && d.remoteState() == nil:
		return yes(reason.ProviderDown, "The peering is established, but the API server of the provider does not answer at the moment.")
	}
	message := "The provider accepted our request, and its offer is accepted."
	if d.consumesByLiqo() {
		message = d.liqoJoinedMessage()
	}
	if !d.Sharing.Use {
		message += " It is not used: sharing.use is off."
	}
	return yes(reason.Joined, d.withDrainStatus(message))
}

// askingVerdict is for a peering that is being established.
func (d *derived) askingVerdict(out outgoing) *verdict {
	state, asked := d.remoteState(), d.Remote.Asked
	switch {
	case d.incompatible() != "":
		return no(reason.Incompatible, d.incompatible())
	case d.expectsAnswer():
		return no(reason.Asking, "The provider is being asked again.")
	case d.Remote.Denied == wire.ReasonBlocked:
		return no(reason.Refused, "The provider has blocked this cluster.")
	case d.Remote.Denied == wire.ReasonOtherKey:
		return no(reason.Refused, "The provider knows this cluster by another key. Somebody there has to decide.")
	case asked != nil && asked.Auth == api.AuthPending:
		return no(reason.AwaitingAcceptance, d.pendingMessage(asked.Message))
	case asked != nil && asked.Auth != api.AuthAccepted:
		return no(reason.Refused, "The provider refused: "+cmp.Or(text.Sentence(asked.Message), "it gave no reason."))
	case d.denied():
		return no(reason.Asking, "The provider does not know this cluster; the agent is asking it.")
	case d.Remote.State != nil && state == nil:
		return no(reason.ProviderDown, "The API server of the provider does not answer. The agent keeps trying.")
	case state != nil && state.Request != nil:
		return d.requestedVerdict(out, state.Request.Phase, state.Request.Message)
	case out.requested:
		return no(reason.Asking, "The agent is checking its request.")
	case d.Remote.State != nil && d.awaitsEngine():
		return d.engineAwaitedVerdict()
	case out.letIn:
		return no(reason.Asking, "The provider gives this cluster access; the agent is creating the request.")
	}
	return no(reason.Asking, "The agent is asking the provider for access.")
}

// requestedVerdict is for a request that exists at the provider.
func (d *derived) requestedVerdict(out outgoing, phase api.RequestPhase, message string) *verdict {
	switch phase {
	case api.RequestAccepted:
		switch {
		case out.liqo:
			return d.liqoWorks(d.Liqo.Consuming)
		case out.offer == nil:
			return no(reason.AwaitingOffer, d.withDrainStatus("The provider accepted our request, but offers nothing at the moment."))
		case out.offer.AdvertisementStatus == api.AdvertisementPending:
			return no(reason.AwaitingDecision, "The provider offers "+amounts(d.Advertisement.Spec.ResourceQuota.Hard)+". To accept the offer: liqo-agent adverts accept "+d.commandName()+
				". Not to: liqo-agent adverts refuse "+d.commandName())
		}
		return no(reason.Offered, d.withDrainStatus("The provider's offer is not accepted: "+out.offer.Message))
	case api.RequestRefused:
		return no(reason.Refused, "The provider refused our request: "+cmp.Or(text.Sentence(message), "it gave no reason."))
	}
	return no(reason.AwaitingAcceptance, d.pendingMessage(message))
}

// pendingMessage says that a person at the provider has to decide, and the code to compare.
func (d *derived) pendingMessage(message string) string {
	said := "The provider has not decided yet."
	if message = text.Sentence(message); message != "" {
		said = "The provider has not decided yet: " + strings.TrimSuffix(message, ".") + "."
	}
	if d.Policy.Code != "" {
		said += " Both sides show the code " + d.Policy.Code + "."
	}
	return said
}

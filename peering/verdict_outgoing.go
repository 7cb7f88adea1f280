package peering

import (
	"cmp"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
)

// verdict is what a condition says.
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

// outgoingVerdict says how our consuming the peer's resources stands.
func (f *facts) outgoingVerdict(out outgoing) *verdict {
	shown := f.shown.Condition(api.ConditionOutgoingPeering)
	past := shown != nil || f.Standing.LastJoined || out.undo
	switch {
	case f.intent.ended != "":
		return f.endedVerdict(f.intent.ended)
	case out.draining && !f.endedBefore(shown):
		return f.drainingVerdict()
	case f.Standing.Blocked && (past || f.intent.join):
		return no(ReasonBlocked, "The cluster is blocked here. That ends with: liqo-agent peers unblock "+f.called())
	case !f.intent.wanted && !past:
		return nil
	case !f.intent.wanted:
		return f.disconnectedVerdict(shown)
	case !f.trusted && f.unmet():
		return awaitingContact()
	case !f.trusted:
		return no(ReasonAwaitingTrust, "It is to be joined, and nothing is sent to it before its key is trusted. "+f.trustAdvice())
	case f.lost:
		return no(ReasonLost, f.missed("The cluster")+" What belonged to the peering was removed here; it is joined again once that is over.")
	case f.suspended():
		return f.suspendedVerdict(out.joined)
	case out.joined:
		return f.joinedVerdict()
	case !f.Reachable():
		return no(ReasonAwaitingPeer, "The cluster does not answer; it is tried again and again. Condition Reachable says more.")
	case !out.active:
		return no(ReasonAsking, "The cluster is about to be asked.")
	}
	return f.askingVerdict(out)
}

// outgoingShown is what fc says about our consuming the peer's resources: only one
// object does, when people wrote several.
func (f *facts) outgoingShown(fc *api.ForeignCluster) *verdict {
	if f.spare(fc) {
		return no(ReasonAnotherObject, "ForeignCluster "+f.decider.Name+" is about the same cluster and is older: that one counts, and what is set in this one has no effect. Delete one of the two.")
	}
	return f.outgoing.verdict
}

// unmet reports whether nothing was ever seen of the cluster, and a person said
// where it is to be found: there is no key yet that could be trusted.
func (f *facts) unmet() bool {
	if f.Peer != nil || f.Standing.Pin != nil || f.Standing.Distrusted || f.decider == nil || f.decider.Status.Fingerprint != "" {
		return false
	}
	_, asked := f.place(f.decider)
	return asked
}

// drainingVerdict is for a peering that is to end once our pods have left.
func (f *facts) drainingVerdict() *verdict {
	message := "The pods that run there are leaving; then the request is taken back."
	if left := sentence(f.Use.Message); left != "" {
		message += " " + asSentence(left)
	}
	return no(ReasonDraining, message)
}

// endedBefore reports whether it is the provider who ended it: then that says more
// than what is left of it here.
func (f *facts) endedBefore(shown *api.Condition) bool {
	heard := f.heard()
	return shown != nil && shown.Reason == ReasonEndedByProvider || heard != nil && heard.Request == nil && heard.Ended != ""
}

// endedVerdict is for a peering that the provider ended.
func (f *facts) endedVerdict(why string) *verdict {
	return no(ReasonEndedByProvider, "The provider ended it: "+why+" Ask again with: liqo-agent peers connect "+f.called())
}

// andDrains adds how far the removal of the node is, while there is one that is not
// wanted.
func (f *facts) andDrains(message string) string {
	if left := sentence(f.Use.Message); left != "" && f.Use.Busy && !f.usesNode() {
		message += " " + asSentence(left)
	}
	return message
}

// amounts lists the resources of an offer that people look at first.
func amounts(hard map[string]string) string {
	var parts []string
	for _, name := range []string{"cpu", "memory", "pods"} {
		if amount := hard[name]; amount != "" {
			parts = append(parts, name+" "+sentence(clipTo(amount, 64)))
		}
	}
	if len(parts) == 0 {
		return "resources"
	}
	return strings.Join(parts, ", ")
}

// disconnectedVerdict is for when nobody wants it any more.
func (f *facts) disconnectedVerdict(shown *api.Condition) *verdict {
	heard := f.heard()
	ended := heard != nil && heard.Request == nil && heard.Ended != ""
	switch {
	case shown != nil && shown.Reason == ReasonEndedByProvider && !ended:
		return no(shown.Reason, shown.Message)
	case ended && (shown != nil && shown.Reason == ReasonEndedByProvider || f.shown.Status.Outgoing.RemotePeeringRequestName != ""):
		return f.endedVerdict(sentence(heard.Ended))
	}
	message := "The cluster is not to be joined"
	if f.Standing.ConnectReason != "" && f.Standing.Connect == WishNo {
		message += ": " + f.Standing.ConnectReason
	}
	return no(ReasonDisconnected, message+". Join it with: liqo-agent peers connect "+f.called())
}

// joinedVerdict is for a peering that is established, whatever fails just now.
func (f *facts) joinedVerdict() *verdict {
	switch {
	case !f.Reachable():
		message := "The peering is established, but the cluster does not answer at the moment."
		if f.LostAfter > 0 {
			message += " It is kept for " + f.LostAfter.String() + "."
		}
		return yes(ReasonAwaitingPeer, message)
	case f.incompatible() != "":
		return yes(ReasonIncompatible, "The peering is established. "+f.incompatible())
	case f.Remote.State != nil && f.heard() == nil:
		return yes(ReasonProviderDown, "The peering is established, but the API server of the provider does not answer at the moment.")
	}
	message := "The provider accepted our request, and its offer is accepted."
	if !f.Sharing.Use {
		message += " It is not used: sharing.use is off."
	}
	return yes(ReasonJoined, f.andDrains(message))
}

// askingVerdict is for a peering that is on its way.
func (f *facts) askingVerdict(out outgoing) *verdict {
	heard, asked := f.heard(), f.Remote.Asked
	switch {
	case f.incompatible() != "":
		return no(ReasonIncompatible, f.incompatible())
	case f.expectant:
		return no(ReasonAsking, "The provider is being asked again.")
	case f.Remote.Denied == endpoint.ReasonBlocked:
		return no(ReasonRefused, "The provider has blocked this cluster.")
	case f.Remote.Denied == endpoint.ReasonOtherKey:
		return no(ReasonRefused, "The provider knows this cluster with another key, and waits for somebody there to decide.")
	case asked != nil && asked.Auth == api.AuthPending:
		return no(ReasonAwaitingAcceptance, f.pendingMessage(asked.Message))
	case asked != nil && asked.Auth != api.AuthAccepted:
		return no(ReasonRefused, "The provider refused: "+cmp.Or(sentence(asked.Message), "it did not say why."))
	case f.denied():
		return no(ReasonAsking, "The provider does not know this cluster, and is being asked.")
	case f.Remote.State != nil && heard == nil:
		return no(ReasonProviderDown, "The API server of the provider does not answer. It is tried again and again.")
	case heard != nil && heard.Request != nil:
		return f.requestedVerdict(out, heard.Request.Phase, heard.Request.Message)
	case out.requested:
		return no(ReasonAsking, "What became of our request is being asked.")
	case out.letIn:
		return no(ReasonAsking, "The provider lets this cluster in; the request is being made.")
	}
	return no(ReasonAsking, "The provider is being asked to let this cluster in.")
}

// requestedVerdict is for a request that is there.
func (f *facts) requestedVerdict(out outgoing, phase api.RequestPhase, message string) *verdict {
	switch phase {
	case api.RequestAccepted:
		switch {
		case out.offer == nil:
			return no(ReasonAwaitingOffer, f.andDrains("The provider accepted our request, and offers nothing now."))
		case out.offer.AdvertisementStatus == api.AdvertisementPending:
			return no(ReasonAwaitingDecision, "The provider offers "+amounts(f.Advertisement.Spec.ResourceQuota.Hard)+". To use that: liqo-agent adverts accept "+f.called()+
				". Not to: liqo-agent adverts refuse "+f.called())
		}
		return no(ReasonOffered, f.andDrains("The provider's offer is not accepted: "+out.offer.Message))
	case api.RequestRefused:
		return no(ReasonRefused, "The provider refused our request: "+cmp.Or(sentence(message), "it did not say why."))
	}
	return no(ReasonAwaitingAcceptance, f.pendingMessage(message))
}

// pendingMessage says that a person at the provider has to act, and how to know
// that it is the right cluster.
func (f *facts) pendingMessage(message string) string {
	text := "The provider has not decided yet."
	if message = sentence(message); message != "" {
		text = "The provider has not decided yet: " + strings.TrimSuffix(message, ".") + "."
	}
	if f.Standing.Code != "" {
		text += " Both sides show the code " + f.Standing.Code + "."
	}
	return text
}

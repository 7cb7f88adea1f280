package plan

import (
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// incoming is the state of the incoming peering: the peer consumes our resources.
type incoming struct {
	// stays: the peer's request exists and stays.
	stays bool
	// decision is the decision about it; nil for none.
	decision *api.PeeringRequestStatus
	// serves: the request is accepted.
	serves bool
	// liqo: it is by Liqo: the peer gets no offer and has no pods of guests here.
	liqo bool
	// missing: an accepted request is gone, and nobody deleted it on purpose.
	missing bool
	// keep: its objects stay.
	keep bool
	// joined: the request is accepted here and our offer there.
	joined bool
	// drop is why to delete the request, a sentence; "" to keep it.
	drop string
	// dropReason is the reason for drop.
	dropReason string
	// endedHere: a person deleted the request of a peer that was served.
	endedHere bool
	// edited: a person set the phase of the request, and the decision store does not know it
	// yet. Until then, the edit is overruled.
	edited bool
	// verdict is the content of the condition; nil if there never was a peering.
	verdict *verdict
}

// deriveIncoming derives the incoming peering. It does not read the outgoing one.
func (d *derived) deriveIncoming() incoming {
	if !d.RequestsKnown {
		return incoming{}
	}
	var in incoming
	state := d.remoteState()
	req := d.Request
	switch {
	case req == nil:
		d.deriveWithoutRequest(&in)
	case req.DeletionTimestamp != nil:
		// The meaning of the deletion is decided once it is gone.
		in.missing = d.Policy.LastServed
	default:
		in.drop, in.dropReason = d.dropsRequest()
		if in.stays = in.drop == ""; in.stays {
			in.decision = d.decideRequest()
			in.serves = in.decision != nil && in.decision.Phase == api.RequestAccepted
			in.edited = in.decision != nil && in.decision.Phase != req.Status.Phase && fields.PhaseBy(req) != ""
		}
	}
	in.liqo = req != nil && req.Spec.Engine == api.EngineLiqo
	if in.serves && in.liqo {
		in.joined = !d.NotSharing && (d.Liqo.Serving.Ready || d.shown.Status.Incoming.Joined && (d.Liqo.Serving.Present || d.Liqo.Serving.Unknown))
	} else if in.serves {
		in.decision.AdvertisementStatus = req.Status.AdvertisementStatus
		in.joined = d.shown.Status.Incoming.Joined
		switch {
		case d.NotSharing, d.denied():
			in.decision.AdvertisementStatus, in.joined = "", false
		case state != nil:
			in.decision.AdvertisementStatus = ""
			if state.Advertisement != nil {
				in.decision.AdvertisementStatus = knownStatus(state.Advertisement.Status)
			}
			in.joined = in.decision.AdvertisementStatus == api.AdvertisementAccepted
		}
	}
	in.keep = d.trusted && !d.lost && (in.serves || in.missing)
	in.verdict = d.incomingVerdict(in)
	if d.Hosting && (in.serves && d.NotSharing || !in.stays && !in.missing) {
		in.verdict = withRemovalNote(in.verdict)
	}
	return in
}

// labelArch is the label of an offer for the architecture of its nodes.
const labelArch = "kubernetes.io/arch"

// TenantSpec returns the desired state of the peer as a tenant of this cluster, nil while that
// is not known: a lost request ends nothing.
func (obs Observed) TenantSpec(now time.Time) *spec.Tenant { return derive(obs, now).tenantSpec() }

// tenantSpec is TenantSpec for what is derived already.
func (d *derived) tenantSpec() *spec.Tenant {
	in := d.incoming
	if !d.RequestsKnown || in.missing && in.keep && !d.NotSharing {
		return nil
	}
	t := &spec.Tenant{ID: d.ID, Admitted: in.serves && in.keep && !d.NotSharing && !in.liqo}
	if t.Admitted {
		t.Name, t.Asked = d.Request.Spec.ClusterIdentity.ClusterName, d.Request.Spec.Resources
		if d.Offer != nil {
			t.Offer, t.Arch = d.Offer.ResourceQuota.Hard, d.Offer.Labels[labelArch]
		}
	}
	if d.Peer != nil && d.Peer.Name != "" {
		t.Name = d.Peer.Name
	}
	return t
}

// deriveWithoutRequest derives what the absence of a request means.
func (d *derived) deriveWithoutRequest(in *incoming) {
	if !d.Policy.LastServed || !d.trusted || d.lost {
		return
	}
	state := d.remoteState()
	switch d.RequestDeleted {
	case DeletedByPerson:
		in.endedHere = state == nil || state.Consumes
	case DeletedUnseen:
		// Before the peer or the agent deletes a request, the decision store records that. So if
		// the status still shows it, a person deleted it while the agent was down. Otherwise
		// the API server is another one, or was restored, and the peer asks again.
		gaveUp := d.denied() || state != nil && !state.Consumes
		shows := d.shown.Status.Incoming.RemotePeeringRequestName != ""
		in.endedHere, in.missing = shows && !gaveUp, !shows && !gaveUp
	}
}

// dropsRequest returns why to delete the existing request, as a sentence and as a reason; "" to
// keep it.
func (d *derived) dropsRequest() (why, word string) {
	state := d.remoteState()
	switch {
	case d.Policy.Blocked:
		return "The consumer is blocked here.", reason.Blocked
	case d.lost:
		return d.absence("The consumer"), reason.Lost
	case state != nil && !state.Consumes && d.Reachable() && d.trusted && d.Remote.At.After(d.RequestSeen):
		return "The consumer withdrew its request.", reason.Withdrawn
	case d.Policy.Ended != "" && d.Request.Status.Phase == api.RequestAccepted && d.Policy.Accept.Phase != api.RequestAccepted:
		return d.Policy.Ended, reason.Ended
	}
	return "", ""
}

// decideRequest returns the decision about the existing request, nil for none.
func (d *derived) decideRequest() *api.PeeringRequestStatus {
	accept := d.Policy.Accept
	switch {
	case accept.Phase == "":
		return nil
	case accept.Phase == api.RequestAccepted && d.trusted && d.otherEngine() != "":
		return &api.PeeringRequestStatus{Phase: api.RequestPending, Reason: reason.NoEngine, Message: d.otherEngine()}
	case d.trusted && d.acceptedForLess():
		return &api.PeeringRequestStatus{
			Phase: api.RequestPending, Reason: wire.ReasonAsksPerson,
			Message: "The provider accepted this cluster for the agents' own sharing. A person there has to accept it once more, to be peered by Liqo: liqo-agent peers accept " + d.commandName(),
		}
	case accept.Phase == api.RequestAccepted && !d.trusted:
		return &api.PeeringRequestStatus{
			Phase: api.RequestPending, Reason: wire.ReasonNotTrusted, Message: "The provider does not trust the key of this cluster.",
		}
	}
	return &api.PeeringRequestStatus{Phase: accept.Phase, Reason: accept.Reason, Message: accept.Message}
}

// knownStatus returns status if it is a decision, and "" otherwise. It comes from the peer or a
// person.
func knownStatus(status api.AdvertisementStatus) api.AdvertisementStatus {
	if status == api.AdvertisementAccepted || status == api.AdvertisementRefused {
		return status
	}
	return ""
}

// remoteIncoming adds what the incoming peering needs at the peer.
func (d *derived) remoteIncoming(spec *RemoteSpec) {
	in := d.incoming
	if !d.RequestsKnown || d.lost || d.Policy.Pin == nil || d.Policy.Distrusted {
		return
	}
	state := d.remoteState()
	switch {
	case in.keep && in.serves && !d.NotSharing && in.liqo:
		spec.Contact = true
		spec.AdvertisementGone = state != nil && state.Advertisement != nil
	case in.keep && in.serves && !d.NotSharing:
		spec.Contact = true
		if state == nil || state.AdvertisementWelcome {
			spec.Advertisement = d.Offer
		}
	case in.missing && !d.NotSharing, in.endedHere:
		// The consumer's offer is not removed before the consumer can learn why.
		spec.Contact = true
	default:
		spec.Contact = spec.Contact || in.stays || in.missing || in.drop != "" || d.Liqo.Serving.Present
		if state != nil && state.Advertisement != nil || state == nil && d.showsServed() {
			spec.Contact, spec.AdvertisementGone = true, true
			if spec.Reason == "" {
				spec.Reason = in.why()
			}
		}
	}
}

// showsServed reports whether the status or the decision store says that the peer was served.
func (d *derived) showsServed() bool {
	return d.Policy.LastServed || d.shown.Status.Incoming.AvailableIdentity
}

// why returns a sentence about its end.
func (in incoming) why() string {
	if in.verdict != nil {
		return strings.TrimSuffix(in.verdict.message, removalNote)
	}
	return "The provider no longer offers anything."
}

// serveActions returns the actions of the incoming peering that come before the status.
func (d *derived) serveActions() []Action {
	var plan []Action
	in, req := d.incoming, d.Request
	if in.decision != nil && (in.decision.Phase != req.Status.Phase || in.decision.Reason != req.Status.Reason) {
		plan = append(plan, d.record(RecordRequested, Record{Phase: in.decision.Phase, Reason: in.decision.Reason}))
	}
	if in.serves && !d.Policy.LastServed {
		plan = append(plan, d.record(RecordServed, Record{On: true, Reason: d.messageHere(in.decision)}))
	}
	if in.decision != nil && *in.decision != req.Status {
		plan = append(plan, Action{Kind: SetRequestStatus, Name: req.Name, UID: req.UID, Request: in.decision})
	}
	return plan
}

// decidedActions returns the record of a person's edit of the request's phase, which comes
// first.
func (d *derived) decidedActions() []Action {
	if !d.incoming.edited {
		return nil
	}
	return []Action{d.record(RecordDecided, Record{On: d.Request.Status.Phase == api.RequestAccepted, By: fields.PhaseBy(d.Request)})}
}

// endActions returns the records of a person's end of the peering here, which come first.
func (d *derived) endActions() []Action {
	if !d.incoming.endedHere {
		return nil
	}
	why := d.incoming.why()
	return []Action{d.record(RecordEndedHere, Record{Reason: why}), d.record(RecordServed, Record{Reason: why})}
}

// unserveActions returns the actions that remove it, which come after the status. The record
// comes before the deletion, so that it is not taken for a person's after a crash in between.
func (d *derived) unserveActions() []Action {
	var plan []Action
	in := d.incoming
	if d.Policy.LastServed && !in.serves && !in.missing && !in.endedHere {
		plan = append(plan, d.record(RecordServed, Record{Reason: in.why()}))
	}
	if in.drop != "" {
		plan = append(plan, Action{Kind: DeleteRequest, Name: d.Request.Name, UID: d.Request.UID})
	}
	return plan
}

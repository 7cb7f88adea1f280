package plan

import (
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
)

// incoming is the state of the incoming peering: the peer consumes our resources.
type incoming struct {
	// stays: there is a request of the peer's, and it stays.
	stays bool
	// decision is what is decided about it; nil when there is none, or nothing is
	// decided.
	decision *api.PeeringRequestStatus
	// serves: the request is accepted.
	serves bool
	// missing: an accepted request is gone, and nobody took it away on purpose.
	missing bool
	// keep: what belongs to it stays.
	keep bool
	// joined: the request is accepted here and our offer there.
	joined bool
	// drop is why the request is to be deleted; "" when it is not.
	drop string
	// dropReason is the same in one word.
	dropReason string
	// endedHere: a person deleted the request of a peer that was served.
	endedHere bool
	// edited: a person accepted or refused the request by its status, and the decision store
	// does not know. What they wrote is overruled until it does.
	edited bool
	// verdict is what the condition says; nil when there never was anything.
	verdict *verdict
}

// deriveIncoming returns the state of the incoming peering. It looks at
// nothing about the other direction.
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
		// It is on its way out; what that means is decided once it is gone.
		in.missing = d.Policy.LastServed
	default:
		in.drop, in.dropReason = d.dropsRequest()
		if in.stays = in.drop == ""; in.stays {
			in.decision = d.decideRequest()
			in.serves = in.decision != nil && in.decision.Phase == api.RequestAccepted
			in.edited = in.decision != nil && in.decision.Phase != req.Status.Phase && phaseBy(req) != ""
		}
	}
	if in.serves {
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

// TenantSpec returns the desired state of the peer as a tenant of this cluster, nil
// while that is not known: a request that got lost ends nothing.
func (obs Observed) TenantSpec(now time.Time) *TenantSpec { return derive(obs, now).tenantSpec() }

// tenantSpec is TenantSpec for what is derived already.
func (d *derived) tenantSpec() *TenantSpec {
	in := d.incoming
	if !d.RequestsKnown || in.missing && in.keep && !d.NotSharing {
		return nil
	}
	t := &TenantSpec{ID: d.ID, Admitted: in.serves && in.keep && !d.NotSharing}
	if t.Admitted {
		t.Name, t.Offer = d.Request.Spec.ClusterIdentity.ClusterName, d.Offer
	}
	if d.Peer != nil && d.Peer.Name != "" {
		t.Name = d.Peer.Name
	}
	return t
}

// deriveWithoutRequest finds out what it means that there is no request.
func (d *derived) deriveWithoutRequest(in *incoming) {
	if !d.Policy.LastServed || !d.trusted || d.lost {
		return
	}
	state := d.remoteState()
	switch d.RequestDeleted {
	case DeletedByPerson:
		in.endedHere = state == nil || state.Consumes
	case DeletedUnseen:
		// The decision store records it before the peer deletes its request, and before we do. So
		// if it is shown, somebody deleted it while nobody looked. Else this is another
		// API server, or an earlier state of it, and the peer asks again.
		gaveUp := d.denied() || state != nil && !state.Consumes
		shows := d.shown.Status.Incoming.RemotePeeringRequestName != ""
		in.endedHere, in.missing = shows && !gaveUp, !shows && !gaveUp
	}
}

// dropsRequest says why the request that is there is to be deleted, as a sentence
// and as a reason; "" when it is not.
func (d *derived) dropsRequest() (why, reason string) {
	state := d.remoteState()
	switch {
	case d.Policy.Blocked:
		return "The consumer is blocked here.", ReasonBlocked
	case d.lost:
		return d.absence("The consumer"), ReasonLost
	case state != nil && !state.Consumes && d.Reachable() && d.trusted && d.Remote.At.After(d.RequestSeen):
		return "The consumer withdrew its request.", ReasonWithdrawn
	case d.Policy.Ended != "" && d.Request.Status.Phase == api.RequestAccepted && d.Policy.Accept.Phase != api.RequestAccepted:
		return d.Policy.Ended, ReasonEnded
	}
	return "", ""
}

// decideRequest returns the decision about the request that is there, nil while
// there is none.
func (d *derived) decideRequest() *api.PeeringRequestStatus {
	accept := d.Policy.Accept
	switch {
	case accept.Phase == "":
		return nil
	case accept.Phase == api.RequestAccepted && !d.trusted:
		return &api.PeeringRequestStatus{
			Phase: api.RequestPending, Reason: wire.ReasonNotTrusted, Message: "The provider does not trust the key of this cluster.",
		}
	}
	return &api.PeeringRequestStatus{Phase: accept.Phase, Reason: accept.Reason, Message: accept.Message}
}

// knownStatus returns status if it is a decision, and "" otherwise: it comes from
// the peer, or a person.
func knownStatus(status api.AdvertisementStatus) api.AdvertisementStatus {
	if status == api.AdvertisementAccepted || status == api.AdvertisementRefused {
		return status
	}
	return ""
}

// remoteIncoming adds what the peer's consuming our resources needs at its side.
func (d *derived) remoteIncoming(spec *RemoteSpec) {
	in := d.incoming
	if !d.RequestsKnown || d.lost || d.Policy.Pin == nil || d.Policy.Distrusted {
		return
	}
	state := d.remoteState()
	switch {
	case in.keep && in.serves && !d.NotSharing:
		spec.Contact = true
		if state == nil || state.AdvertisementWelcome {
			spec.Advertisement = d.Offer
		}
	case in.missing && !d.NotSharing, in.endedHere:
		// The consumer is not to see its offer go before it can be told why.
		spec.Contact = true
	default:
		spec.Contact = spec.Contact || in.stays || in.missing || in.drop != ""
		if state != nil && state.Advertisement != nil || state == nil && d.showsServed() {
			spec.Contact, spec.AdvertisementGone = true, true
			if spec.Reason == "" {
				spec.Reason = in.why()
			}
		}
	}
}

// showsServed reports whether anything tells that the peer was served.
func (d *derived) showsServed() bool {
	return d.Policy.LastServed || d.shown.Status.Incoming.AvailableIdentity
}

// why is a sentence about the end of it.
func (in incoming) why() string {
	if in.verdict != nil {
		return strings.TrimSuffix(in.verdict.message, removalNote)
	}
	return "The provider no longer offers anything."
}

// serveActions returns the steps of the peer's consuming our resources that come
// before they are shown.
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

// decidedActions returns what the decision store records first when a person decided about the
// request by its status.
func (d *derived) decidedActions() []Action {
	if !d.incoming.edited {
		return nil
	}
	return []Action{d.record(RecordDecided, Record{On: d.Request.Status.Phase == api.RequestAccepted, By: phaseBy(d.Request)})}
}

// endActions returns what the decision store records first when a person here ended it.
func (d *derived) endActions() []Action {
	if !d.incoming.endedHere {
		return nil
	}
	why := d.incoming.why()
	return []Action{d.record(RecordEndedHere, Record{Reason: why}), d.record(RecordServed, Record{Reason: why})}
}

// unserveActions returns the steps that undo it, which come after they are shown.
// The decision store records it before the request goes: after a crash in between, nobody
// takes our deletion for a person's.
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

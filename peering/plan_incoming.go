package peering

import (
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peering/remote"
)

// incoming is how the peer's consuming our resources stands.
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
	// edited: a person accepted or refused the request by its status, and the ledger
	// does not know. What they wrote is overruled until it does.
	edited bool
	// verdict is what the condition says; nil when there never was anything.
	verdict *verdict
}

// serve finds out how the peer's consuming our resources stands. It looks at
// nothing about the other direction.
func (f *facts) serve() incoming {
	if !f.RequestsKnown {
		return incoming{}
	}
	var in incoming
	heard := f.heard()
	req := f.Request
	switch {
	case req == nil:
		f.serveNothing(&in)
	case req.DeletionTimestamp != nil:
		// It is on its way out; what that means is decided once it is gone.
		in.missing = f.Standing.LastServed
	default:
		in.drop, in.dropReason = f.dropsRequest()
		if in.stays = in.drop == ""; in.stays {
			in.decision = f.decideRequest()
			in.serves = in.decision != nil && in.decision.Phase == api.RequestAccepted
			in.edited = in.decision != nil && in.decision.Phase != req.Status.Phase && phaseBy(req) != ""
		}
	}
	if in.serves {
		in.decision.AdvertisementStatus = req.Status.AdvertisementStatus
		in.joined = f.shown.Status.Incoming.Joined
		switch {
		case f.NotSharing, f.denied():
			in.decision.AdvertisementStatus, in.joined = "", false
		case heard != nil:
			in.decision.AdvertisementStatus = ""
			if heard.Advertisement != nil {
				in.decision.AdvertisementStatus = knownStatus(heard.Advertisement.Status)
			}
			in.joined = in.decision.AdvertisementStatus == api.AdvertisementAccepted
		}
	}
	in.keep = f.trusted && !f.lost && (in.serves || in.missing)
	in.verdict = f.incomingVerdict(in)
	if f.Hosting && (in.serves && f.NotSharing || !in.stays && !in.missing) {
		in.verdict = leaving(in.verdict)
	}
	return in
}

// tenancy says how the peer's use of this cluster is to stand, nil while that is
// not known: a request that got lost ends nothing.
func (f *facts) tenancy() *Tenancy {
	in := f.incoming
	if !f.RequestsKnown || in.missing && in.keep && !f.NotSharing {
		return nil
	}
	t := &Tenancy{ID: f.ID, Admitted: in.serves && in.keep && !f.NotSharing}
	if t.Admitted {
		t.Name, t.Offer = f.Request.Spec.ClusterIdentity.ClusterName, f.Offer
	}
	if f.Peer != nil && f.Peer.Name != "" {
		t.Name = f.Peer.Name
	}
	return t
}

// serveNothing finds out what it means that there is no request.
func (f *facts) serveNothing(in *incoming) {
	if !f.Standing.LastServed || !f.trusted || f.lost {
		return
	}
	heard := f.heard()
	switch f.RequestDeleted {
	case DeletedByPerson:
		in.endedHere = heard == nil || heard.Consumes
	case DeletedUnseen:
		// The ledger is told before the peer deletes its request, and before we do. So
		// if it is shown, somebody deleted it while nobody looked. Else this is another
		// API server, or an earlier state of it, and the peer asks again.
		gaveUp := f.denied() || heard != nil && !heard.Consumes
		shows := f.shown.Status.Incoming.RemotePeeringRequestName != ""
		in.endedHere, in.missing = shows && !gaveUp, !shows && !gaveUp
	}
}

// dropsRequest says why the request that is there is to be deleted, as a sentence
// and as a reason; "" when it is not.
func (f *facts) dropsRequest() (why, reason string) {
	heard := f.heard()
	switch {
	case f.Standing.Blocked:
		return "The consumer is blocked here.", ReasonBlocked
	case f.lost:
		return f.missed("The consumer"), ReasonLost
	case heard != nil && !heard.Consumes && f.Reachable() && f.trusted && f.Remote.At.After(f.RequestSeen):
		return "The consumer does not want it any more.", ReasonWithdrawn
	case f.Standing.Ended != "" && f.Request.Status.Phase == api.RequestAccepted && f.Standing.Accept.Phase != api.RequestAccepted:
		return f.Standing.Ended, ReasonEnded
	}
	return "", ""
}

// decideRequest returns the decision about the request that is there, nil while
// there is none.
func (f *facts) decideRequest() *api.PeeringRequestStatus {
	accept := f.Standing.Accept
	switch {
	case accept.Phase == "":
		return nil
	case accept.Phase == api.RequestAccepted && !f.trusted:
		return &api.PeeringRequestStatus{
			Phase: api.RequestPending, Reason: endpoint.ReasonNotTrusted, Message: "The provider does not trust the key of this cluster.",
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
func (f *facts) remoteIncoming(d *remote.Desired) {
	in := f.incoming
	if !f.RequestsKnown || f.lost || f.Standing.Pin == nil || f.Standing.Distrusted {
		return
	}
	heard := f.heard()
	switch {
	case in.keep && in.serves && !f.NotSharing:
		d.Contact = true
		if heard == nil || heard.AdvertisementWelcome {
			d.Advertisement = f.Offer
		}
	case in.missing && !f.NotSharing, in.endedHere:
		// The consumer is not to see its offer go before it can be told why.
		d.Contact = true
	default:
		d.Contact = d.Contact || in.stays || in.missing || in.drop != ""
		if heard != nil && heard.Advertisement != nil || heard == nil && f.showsServed() {
			d.Contact, d.AdvertisementGone = true, true
			if d.Reason == "" {
				d.Reason = in.why()
			}
		}
	}
}

// showsServed reports whether anything tells that the peer was served.
func (f *facts) showsServed() bool {
	return f.Standing.LastServed || f.shown.Status.Incoming.AvailableIdentity
}

// why is a sentence about the end of it.
func (in incoming) why() string {
	if in.verdict != nil {
		return strings.TrimSuffix(in.verdict.message, leftovers)
	}
	return "The provider does not offer anything any more."
}

// serveActions returns the steps of the peer's consuming our resources that come
// before they are shown.
func (f *facts) serveActions() []Action {
	var plan []Action
	in, req := f.incoming, f.Request
	if in.decision != nil && (in.decision.Phase != req.Status.Phase || in.decision.Reason != req.Status.Reason) {
		plan = append(plan, f.tell(TellRequested, Tell{Phase: in.decision.Phase, Reason: in.decision.Reason}))
	}
	if in.serves && !f.Standing.LastServed {
		plan = append(plan, f.tell(TellServed, Tell{On: true, Reason: f.toUs(in.decision)}))
	}
	if in.decision != nil && *in.decision != req.Status {
		plan = append(plan, Action{Kind: SetRequestStatus, Name: req.Name, UID: req.UID, Request: in.decision})
	}
	return plan
}

// decidedActions returns what the ledger is told first when a person decided about the
// request by its status.
func (f *facts) decidedActions() []Action {
	if !f.incoming.edited {
		return nil
	}
	return []Action{f.tell(TellDecided, Tell{On: f.Request.Status.Phase == api.RequestAccepted, By: phaseBy(f.Request)})}
}

// endActions returns what the ledger is told first when a person here ended it.
func (f *facts) endActions() []Action {
	if !f.incoming.endedHere {
		return nil
	}
	why := f.incoming.why()
	return []Action{f.tell(TellEndedHere, Tell{Reason: why}), f.tell(TellServed, Tell{Reason: why})}
}

// unserveActions returns the steps that undo it, which come after they are shown.
// The ledger is told before the request goes: after a crash in between, nobody
// takes our deletion for a person's.
func (f *facts) unserveActions() []Action {
	var plan []Action
	in := f.incoming
	if f.Standing.LastServed && !in.serves && !in.missing && !in.endedHere {
		plan = append(plan, f.tell(TellServed, Tell{Reason: in.why()}))
	}
	if in.drop != "" {
		plan = append(plan, Action{Kind: DeleteRequest, Name: f.Request.Name, UID: f.Request.UID})
	}
	return plan
}

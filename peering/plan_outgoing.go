package peering

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peering/remote"
)

// undoFor is how long the finalizer of a ForeignCluster waits for a present
// provider to confirm that our request is gone. After that the provider's own
// check cleans up.
const undoFor = 10 * time.Second

// outgoing is how our consuming the peer's resources stands.
type outgoing struct {
	// keep: what belongs to it stays; false removes it.
	keep bool
	// active: steps are taken, because there is an object that shows them.
	active bool
	// letIn: the provider let us in, as far as is known.
	letIn bool
	// requested and accepted are about our request there, as far as is known.
	requested, accepted bool
	// offer is the decision about the Advertisement here; nil when there is none
	// that could be decided about.
	offer *api.AdvertisementState
	// joined: the request is accepted there and the offer here.
	joined bool
	// givenUp: the provider is asked nothing any more, whatever is left there.
	givenUp bool
	// draining: nobody wants it any more, and it stays until our pods have left.
	draining bool
	// undo: something of it is left at the provider and is to go.
	undo bool
	// confirmed: the provider says that nothing is left, or nobody is there to ask.
	confirmed bool
	// verdict is what the condition says; nil when there never was anything.
	verdict *verdict
}

// consume finds out how our consuming the peer's resources stands. It looks at
// nothing about the other direction.
func (f *facts) consume() outgoing {
	if !f.RequestsKnown {
		return outgoing{}
	}
	var out outgoing
	out.keep = f.intent.wanted && f.trusted && !f.lost
	out.active = out.keep && f.decider != nil && f.Self.Identity.ClusterID != ""

	shown, heard, asked := f.shown.Status, f.heard(), f.Remote.Asked
	if out.active {
		out.letIn = f.Remote.State != nil || asked != nil && asked.Auth == api.AuthAccepted
		switch {
		case f.denied():
			out.letIn = false
		case heard != nil:
			out.requested = heard.Request != nil
			out.accepted = out.requested && heard.Request.Phase == api.RequestAccepted
		default:
			// What was there is not gone because nobody can say so.
			out.requested = shown.Outgoing.RemotePeeringRequestName != ""
			out.accepted = shown.Outgoing.Joined
			out.letIn = out.letIn || asked == nil && shown.Outgoing.AvailableIdentity
		}
		if adv := f.Advertisement; adv != nil && adv.DeletionTimestamp == nil {
			out.offer = f.decideOffer()
			out.joined = out.accepted && usable(out.offer)
		}
	}

	out.givenUp = f.gaveUp(out.keep)
	out.draining = f.drains(out)
	reachable := f.Standing.Pin != nil && !f.Standing.Distrusted && !f.lost
	out.undo = !out.keep && !out.draining && reachable && (f.finalizers() || shown.Outgoing.RemotePeeringRequestName != "" || f.Standing.LastJoined ||
		heard != nil && heard.Request != nil)
	asOf := f.now.Add(-f.TearingDown)
	out.confirmed = !reachable || !f.present() || f.TearingDown >= undoFor ||
		heard != nil && heard.Request == nil && f.TearingDown > 0 && f.Remote.At.After(asOf) ||
		f.Remote.Denied == endpoint.ReasonNotTrusted || f.Remote.Denied == endpoint.ReasonBlocked
	out.verdict = f.outgoingVerdict(out)
	return out
}

// finalizers reports whether some object about the peer has our finalizer.
func (f *facts) finalizers() bool {
	for _, fc := range f.Objects {
		if fc.ClusterID() == string(f.ID) && hasFinalizer(fc) {
			return true
		}
	}
	return false
}

// remoteOutgoing adds what our consuming the peer's resources needs at its side.
func (f *facts) remoteOutgoing(d *remote.Desired) {
	out := f.outgoing
	switch {
	case out.active:
		d.Contact, d.Token = true, f.Standing.Token
		// Once our request is there, there is nothing to ask for; when it vanished, the
		// provider has to be asked before it takes another one.
		heard := f.heard()
		d.Ask = heard == nil || heard.Request == nil
		d.Fresh = f.shown.Status.Outgoing.RemotePeeringRequestName == "" || f.Standing.Anew > f.Begun
		// A peering that begins is asked for and requested in one go. One that was
		// there is not requested before it is known that the provider did not end it.
		refused := f.Remote.Asked != nil && f.Remote.Asked.Auth != api.AuthAccepted
		if (f.Remote.State != nil || d.Fresh) && !f.denied() && !refused {
			d.Request = f.request()
		}
	case out.draining:
		// It stays, and is not made anew if somebody there took it away.
		d.Contact = true
		if heard := f.heard(); heard != nil && heard.Request != nil {
			d.Request = f.request()
		}
	case out.undo:
		d.Contact, d.RequestGone = true, true
		d.Reason = "The consumer disconnected."
		if f.Standing.Blocked {
			d.Reason = "The consumer blocked this cluster."
		}
	}
}

// request returns our PeeringRequest.
func (f *facts) request() *api.PeeringRequestSpec {
	self := f.Self
	return &api.PeeringRequestSpec{
		ClusterIdentity: api.ClusterIdentity{ClusterID: string(self.Identity.ClusterID), ClusterName: self.Identity.ClusterName},
		Namespace:       self.Identity.GuestNamespace,
		AuthURL:         self.URL,
	}
}

// begun reports whether the peering that a person asked for anew has begun: the
// provider has a request of ours from after the asking.
func (f *facts) begun() bool {
	heard := f.heard()
	return f.outgoing.active && f.Standing.Anew > f.Begun && heard != nil && heard.Request != nil && f.Remote.At.After(f.AnewSince)
}

// consumeActions returns the steps of our consuming the peer's resources that
// come before they are shown.
func (f *facts) consumeActions() []Action {
	var plan []Action
	out := f.outgoing
	if out.active && !hasFinalizer(f.decider) {
		plan = append(plan, Action{Kind: AddFinalizer, Name: f.decider.Name, UID: f.decider.UID})
	}
	if f.begun() {
		plan = append(plan, Action{Kind: Begin, Name: string(f.ID), Anew: f.Standing.Anew})
	}
	if adv := f.Advertisement; out.offer != nil && !sameOfferState(adv.Status, *out.offer) {
		plan = append(plan, Action{
			Kind: SetAdvertisementStatus, Name: adv.Name, UID: adv.UID, ResourceVersion: adv.ResourceVersion, Advertisement: f.appliedOffer(*out.offer),
		})
	}
	if out.joined && !f.Standing.LastJoined {
		plan = append(plan, f.tell(TellJoined, Tell{On: true, Reason: out.verdict.message}))
	}
	return plan
}

// unconsumeActions returns the steps that undo it here, which come after they are
// shown.
func (f *facts) unconsumeActions() []Action {
	var plan []Action
	out := f.outgoing
	if adv := f.Advertisement; f.dropsOffer() && adv.DeletionTimestamp == nil {
		plan = append(plan, Action{Kind: DeleteAdvertisement, Name: adv.Name, UID: adv.UID})
	}
	if !out.joined && f.Standing.LastJoined {
		why := "The peering is not established any more."
		if out.verdict != nil {
			why = out.verdict.message
		}
		plan = append(plan, f.tell(TellJoined, Tell{Reason: why}))
	}
	return plan
}

// dropsOffer reports whether there is an Advertisement that is to go: it is from
// a cluster that we do not consume or do not trust.
func (f *facts) dropsOffer() bool {
	return f.RequestsKnown && f.Advertisement != nil && !f.outgoing.keep && !f.outgoing.draining
}

// undone reports whether nothing of our consuming the peer's resources is left,
// once this plan is done.
func (f *facts) undone() bool {
	adv := f.Advertisement
	return f.RequestsKnown && !f.outgoing.keep && !f.outgoing.draining && f.outgoing.confirmed && (adv == nil || f.dropsOffer() && len(adv.Finalizers) == 0)
}

// releases reports whether the finalizer is to be taken from fc.
func (f *facts) releases(fc *api.ForeignCluster) bool {
	if !f.RequestsKnown || !hasFinalizer(fc) {
		return false
	}
	if f.outgoing.keep {
		return f.outgoing.active && fc != f.decider
	}
	return f.undone()
}

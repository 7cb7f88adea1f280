package plan

import (
	"time"

	"liqo.io/agent/api"
)

// undoFor is how long the finalizer of a ForeignCluster waits for a present provider to confirm
// that our request is gone. After that, the provider cleans up by itself.
const undoFor = 10 * time.Second

// outgoing is the state of the outgoing peering: we consume the peer's resources.
type outgoing struct {
	// keep: its objects stay; otherwise they are removed.
	keep bool
	// active: it is kept, and there is an object to show its progress.
	active bool
	// letIn: the provider gave us access, as far as is known.
	letIn bool
	// requested and accepted are about our request there, as far as is known.
	requested, accepted bool
	// liqo: it is by Liqo, and there is no offer.
	liqo bool
	// offer is the decision about the Advertisement here; nil if there is none.
	offer *api.AdvertisementState
	// joined: the request is accepted there and the offer here.
	joined bool
	// abandoned: the provider gets no more requests, whatever is left there.
	abandoned bool
	// draining: it is no longer wanted, and stays until our pods have left.
	draining bool
	// undo: something of it is left at the provider, and has to be removed.
	undo bool
	// confirmed: the provider reports that nothing is left, or cannot be asked.
	confirmed bool
	// verdict is the content of the condition; nil if there never was a peering.
	verdict *verdict
}

// deriveOutgoing derives the outgoing peering. It does not read the incoming one.
func (d *derived) deriveOutgoing() outgoing {
	if !d.RequestsKnown {
		return outgoing{}
	}
	var out outgoing
	out.keep = d.intent.wanted && d.trusted && !d.lost
	out.active = out.keep && d.effective != nil && d.Self.Identity.ClusterID != ""

	shown, state, asked := d.shown.Status, d.remoteState(), d.Remote.Asked
	if out.active {
		out.letIn = d.Remote.State != nil || asked != nil && asked.Auth == api.AuthAccepted
		switch {
		case d.denied():
			out.letIn = false
		case state != nil:
			out.requested = state.Request != nil
			out.accepted = out.requested && state.Request.Phase == api.RequestAccepted
		default:
			// Unknown is never gone.
			out.requested = shown.Outgoing.RemotePeeringRequestName != ""
			out.accepted = shown.Outgoing.Joined
			out.letIn = out.letIn || asked == nil && shown.Outgoing.AvailableIdentity
		}
		if out.liqo = d.consumesByLiqo(); out.liqo {
			done := d.Liqo.Consuming.Ready || shown.Outgoing.Joined && (d.Liqo.Consuming.Present || d.Liqo.Consuming.Unknown)
			out.joined = out.accepted && (done || !d.Sharing.Use)
		} else if adv := d.Advertisement; adv != nil && adv.DeletionTimestamp == nil {
			out.offer = d.decideOffer()
			out.joined = out.accepted && usable(out.offer)
		}
	}

	out.abandoned = d.abandons(out.keep)
	out.draining = d.drains(out)
	reachable := d.Policy.Pin != nil && !d.Policy.Distrusted && !d.lost
	out.undo = !out.keep && !out.draining && reachable && (d.finalizers() || shown.Outgoing.RemotePeeringRequestName != "" || d.Policy.LastJoined ||
		state != nil && state.Request != nil)
	asOf := d.now.Add(-d.TearingDown)
	out.confirmed = !reachable || !d.present() || d.TearingDown >= undoFor ||
		state != nil && state.Request == nil && d.TearingDown > 0 && d.Remote.At.After(asOf) ||
		d.expelled()
	out.verdict = d.outgoingVerdict(out)
	return out
}

// finalizers reports whether some object about the peer has our finalizer.
func (d *derived) finalizers() bool {
	for _, fc := range d.Objects {
		if fc.ClusterID() == string(d.ID) && hasFinalizer(fc) {
			return true
		}
	}
	return false
}

// remoteOutgoing adds what the outgoing peering needs at the peer.
func (d *derived) remoteOutgoing(spec *RemoteSpec) {
	out := d.outgoing
	switch {
	case out.active:
		spec.Contact, spec.Token = true, d.Policy.Token
		// With a request there, access is not needed. If it vanished, the provider has to give
		// access before it accepts another one.
		state := d.remoteState()
		spec.Ask = state == nil || state.Request == nil
		spec.Fresh = d.shown.Status.Outgoing.RemotePeeringRequestName == "" || d.Policy.Generation > d.ObservedGeneration
		// A new peering asks for access and creates the request at once. An earlier one first
		// needs the provider's state, which says whether the provider ended it.
		refused := d.Remote.Asked != nil && d.Remote.Asked.Auth != api.AuthAccepted
		if (d.Remote.State != nil || spec.Fresh) && !d.denied() && !refused && !d.awaitsEngine() {
			spec.Request = d.request()
		}
	case out.draining:
		// The request stays, but is not created again if somebody there deleted it.
		spec.Contact = true
		if state := d.remoteState(); state != nil && state.Request != nil {
			spec.Request = d.request()
		}
	case out.undo:
		spec.Contact, spec.RequestGone = true, true
		spec.Reason = "The consumer disconnected."
		if d.Policy.Blocked {
			spec.Reason = "The consumer blocked this cluster."
		}
	}
}

// request returns our PeeringRequest.
func (d *derived) request() *api.PeeringRequestSpec {
	self := d.Self
	spec := &api.PeeringRequestSpec{
		ClusterIdentity: api.ClusterIdentity{ClusterID: string(self.Identity.ClusterID), ClusterName: self.Identity.ClusterName},
		Namespace:       self.Identity.GuestNamespace,
		AuthURL:         self.URL,
		Resources:       d.Policy.Asks,
	}
	if d.consumesByLiqo() {
		spec.Engine = api.EngineLiqo
	}
	return spec
}

// generationObserved reports whether the provider has answered the current generation of the
// policy: it has our request since a person connected again.
func (d *derived) generationObserved() bool {
	state := d.remoteState()
	return d.outgoing.active && d.Policy.Generation > d.ObservedGeneration && state != nil && state.Request != nil && d.Remote.At.After(d.GenerationSince)
}

// consumeActions returns the actions of the outgoing peering that come before the status.
func (d *derived) consumeActions() []Action {
	var plan []Action
	out := d.outgoing
	if out.active && !hasFinalizer(d.effective) {
		plan = append(plan, Action{Kind: AddFinalizer, Name: d.effective.Name, UID: d.effective.UID})
	}
	if d.generationObserved() {
		plan = append(plan, Action{Kind: ObserveGeneration, Name: string(d.ID), Generation: d.Policy.Generation})
	}
	if adv := d.Advertisement; out.offer != nil && !sameOfferState(adv.Status, *out.offer) {
		plan = append(plan, Action{
			Kind: SetAdvertisementStatus, Name: adv.Name, UID: adv.UID, ResourceVersion: adv.ResourceVersion, Advertisement: d.appliedOffer(*out.offer),
		})
	}
	if out.joined && !d.Policy.LastJoined {
		plan = append(plan, d.record(RecordJoined, Record{On: true, Reason: out.verdict.message}))
	}
	return plan
}

// unconsumeActions returns the actions that remove it here, which come after the status.
func (d *derived) unconsumeActions() []Action {
	var plan []Action
	out := d.outgoing
	if adv := d.Advertisement; d.dropsOffer() && adv.DeletionTimestamp == nil {
		plan = append(plan, Action{Kind: DeleteAdvertisement, Name: adv.Name, UID: adv.UID})
	}
	if !out.joined && d.Policy.LastJoined {
		why := "The peering is no longer established."
		if out.verdict != nil {
			why = out.verdict.message
		}
		plan = append(plan, d.record(RecordJoined, Record{Reason: why}))
	}
	return plan
}

// dropsOffer reports whether to delete the Advertisement: it is from a cluster without an
// outgoing peering.
func (d *derived) dropsOffer() bool {
	return d.RequestsKnown && d.Advertisement != nil && !d.outgoing.keep && !d.outgoing.draining
}

// undone reports whether nothing of the outgoing peering is left after this plan.
func (d *derived) undone() bool {
	adv := d.Advertisement
	return d.RequestsKnown && !d.outgoing.keep && !d.outgoing.draining && d.outgoing.confirmed && (adv == nil || d.dropsOffer() && len(adv.Finalizers) == 0)
}

// releasesFinalizer reports whether to remove the finalizer from fc.
func (d *derived) releasesFinalizer(fc *api.ForeignCluster) bool {
	if !d.RequestsKnown || !hasFinalizer(fc) {
		return false
	}
	if d.outgoing.keep {
		return d.outgoing.active && fc != d.effective
	}
	return d.undone()
}

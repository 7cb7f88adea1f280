package peering

import (
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/remote"
)

// Plan decides what is to be done about one cluster so that its objects say what
// is known, and the peering with it is as is wanted. It is a pure function: the
// same arguments give the same decision. Applying a decision leaves one without
// actions; after one that says Replan it takes a second one.
//
// A cluster that is present has exactly one ForeignCluster: the one that a user
// wrote for its ID, or else one that the agent creates under the name of the ID.
// Only the latter is ever deleted: when nobody wants to join it and the peer is
// gone, when the peer has been away for so long that its peering was undone, or when
// a user's takes its place. That one takes over what was wanted, unless its author
// says otherwise, and what was there, so that the peering does not notice.
//
// Actions come in this order: what the ledger must know first; what discovery
// found; what is wanted; what grants something to the peer; decisions about what
// it asks and offers; what shows all that; what takes away. So nothing is shown
// that is not so yet, and nothing is taken away while it is still shown.
func Plan(obs Observed, now time.Time) Decision {
	f := weigh(obs, now)
	d := Decision{Actions: f.actions(), Replan: f.intent.replan || f.incoming.endedHere || f.incoming.edited || f.makesRoom(), Hold: f.holds()}
	if f.RequestsKnown {
		f.remoteOutgoing(&d.Remote)
		f.remoteIncoming(&d.Remote)
		switch {
		case f.suspendedHere():
			d.Remote = remote.Desired{} // nothing is sent to it
		case f.suspendedThere() && f.lost && f.trusted:
			d.Remote.Contact = true // to see whether that is over
		}
		d.Tenancy = f.tenancy()
		d.TearingDown = f.finalizers() && !f.outgoing.keep && !f.outgoing.draining && !f.undone()
		d.Draining = !f.usesNode() && f.Use.Busy
	}
	if d.Remote.Contact {
		d.Remote.Target = f.target()
	}
	d.Again = f.again(d.TearingDown)
	if ask := f.Standing.Ask; ask != nil {
		d.Again = sooner(d.Again, max(ask.Until.Sub(f.now), time.Millisecond))
	}
	if f.RequestsKnown {
		var soon time.Duration
		d.Check, soon = f.keepalive()
		d.Check = d.Check || f.outgoing.active && !f.Remote.Tried.IsZero() && f.AnewSince.After(f.Remote.Tried)
		d.Again = sooner(d.Again, soon)
		if d.Draining {
			d.Again = sooner(d.Again, f.Sharing.DrainTimeout+drainSlack-f.Draining)
		}
		if !f.OfferExpired {
			d.Again = sooner(d.Again, f.OfferLeft)
		}
	}
	return d
}

func (f *facts) actions() []Action {
	plan := append(f.intent.tells, f.endActions()...)
	plan = append(plan, f.decidedActions()...)
	plan = append(plan, f.discoveryActions()...)
	if f.RequestsKnown {
		plan = append(plan, f.intentActions()...)
		plan = append(plan, f.grantActions()...)
		plan = append(plan, f.consumeActions()...)
		plan = append(plan, f.serveActions()...)
		for _, fc := range f.live() {
			if !f.goes(fc) {
				plan = append(plan, f.showActions(fc)...)
			}
		}
		if f.outgoing.draining {
			// Whoever deleted them sees what is waited for.
			for _, fc := range f.leaving {
				plan = append(plan, f.showActions(fc)...)
			}
		}
		plan = append(plan, f.unconsumeActions()...)
		plan = append(plan, f.unserveActions()...)
		plan = append(plan, f.revokeActions()...)
	}
	return append(plan, f.removeActions()...)
}

// discoveryActions returns what makes the objects show what was discovered.
func (f *facts) discoveryActions() []Action {
	var plan []Action
	for _, fc := range f.live() {
		switch {
		case fc == f.own && f.creating:
			spec := discoveredSpec(f.subject(), &api.ForeignCluster{})
			status, _ := discoveredStatus(f.Observed, &api.ForeignCluster{}, f.now)
			plan = append(plan, Action{Kind: Create, Name: fc.Name, Spec: &spec}, Action{Kind: UpdateStatus, Name: fc.Name, Status: &status})
			continue
		case f.goes(fc):
			continue
		case fc != f.own:
			plan = append(plan, f.identityActions(fc)...)
		case fc == f.own && f.present():
			if spec := discoveredSpec(f.Peer, fc); !spec.shownBy(fc) {
				plan = append(plan, Action{Kind: UpdateSpec, Name: fc.Name, UID: fc.UID, Spec: &spec})
			}
		}
		plan = append(plan, statusActions(f.Observed, fc, f.now)...)
	}
	return plan
}

// grantActions returns what the peer needs here.
func (f *facts) grantActions() []Action {
	var plan []Action
	if want, have := f.secret, f.Secret; want != nil && want != have {
		plan = append(plan, Action{Kind: ApplySecret, Name: SecretName(f.ID), Secret: want})
	}
	if want, have := f.access, f.Access; want != nil && (have == nil || *want != *have) {
		plan = append(plan, Action{Kind: ApplyAccess, Name: string(f.ID), Access: want})
	}
	return plan
}

// revokeActions takes from the peer what it needs no longer.
func (f *facts) revokeActions() []Action {
	var plan []Action
	if f.secret == nil && f.Secret != nil {
		plan = append(plan, Action{Kind: DeleteSecret, Name: SecretName(f.ID)})
	}
	if f.access == nil && f.Access != nil {
		plan = append(plan, Action{Kind: DeleteAccess, Name: string(f.ID)})
	}
	return plan
}

// removeActions lets objects go: those that somebody deletes, and those that the
// agent made for a cluster that is not there any more.
func (f *facts) removeActions() []Action {
	var plan []Action
	for _, fc := range append(f.live(), f.leaving...) {
		goes := f.goes(fc)
		version, heir := "", ""
		if goes {
			version = fc.ResourceVersion
			if f.replaced() {
				heir = f.decider.Name
			}
		}
		if f.releases(fc) {
			plan = append(plan, Action{Kind: RemoveFinalizer, Name: fc.Name, UID: fc.UID, ResourceVersion: version})
		}
		if goes {
			plan = append(plan, Action{Kind: Delete, Name: fc.Name, UID: fc.UID, ResourceVersion: version, Heir: heir})
		}
	}
	return plan
}

// holds reports whether there is a peering that needs the peer to be checked even
// when discovery lost it.
func (f *facts) holds() bool {
	switch {
	case f.lost:
		return false
	case !f.RequestsKnown:
		return f.trusted && (f.intent.wanted || f.Standing.LastJoined || f.Standing.LastServed)
	}
	return f.outgoing.keep || f.outgoing.draining || f.outgoing.undo || f.trusted && (f.incoming.stays || f.incoming.missing)
}

// target is where the peer is and the key that it must hold.
func (f *facts) target() endpoint.Target {
	t := endpoint.Target{ID: f.ID}
	if f.Standing.Pin != nil {
		t.Fingerprint = f.Standing.Pin.Fingerprint
	}
	if p := f.Peer; p != nil {
		t.Addrs, t.URL = slices.Clone(p.Addrs), p.URL
		// Who was found by a name is called by it, so that calls go where checks go and
		// share their connection.
		switch p.Source {
		case peer.WAN:
			t.Places = []endpoint.Place{{URL: p.URL, Addrs: t.Addrs}}
		case peer.Manual:
			t.Places = []endpoint.Place{{URL: p.URL}}
		}
		if p.URL == "" {
			t.Places = nil
		}
	}
	if t.URL == "" && f.decider != nil {
		t.URL = f.decider.Spec.AuthURL
	}
	return t
}

// again returns after how long time alone changes the decision, 0 for never.
func (f *facts) again(tearingDown bool) time.Duration {
	var again time.Duration
	if tearingDown {
		again = max(undoFor-f.TearingDown, time.Millisecond)
	}
	if !f.lost && !f.Reachable() && f.LostAfter > 0 && f.holds() {
		if left := max(f.LostAfter-f.Away, time.Millisecond); again == 0 || left < again {
			again = left
		}
	}
	if f.expectant && (again == 0 || answerWithin < again) {
		// That the peer says the same as before is told to nobody.
		again = answerWithin
	}
	return again
}

// sooner is the shorter of two pauses, of which those that are not positive are
// none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// answerWithin is the time between two looks at whether a peer has answered.
const answerWithin = 500 * time.Millisecond

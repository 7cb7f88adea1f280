package plan

import (
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
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
// Actions come in this order: what the decision store must know first; what discovery
// found; what is wanted; what grants something to the peer; decisions about what
// it asks and offers; what shows all that; what takes away. So nothing is shown
// that is not so yet, and nothing is taken away while it is still shown.
func Plan(obs Observed, now time.Time) Decision {
	derived := derive(obs, now)
	decision := Decision{Actions: derived.actions(), Replan: derived.intent.replan || derived.incoming.endedHere || derived.incoming.edited || derived.freesName(), Hold: derived.holds()}
	if derived.RequestsKnown {
		derived.remoteOutgoing(&decision.Remote)
		derived.remoteIncoming(&decision.Remote)
		switch {
		case derived.suspendedHere():
			decision.Remote = RemoteSpec{} // nothing is sent to it
		case derived.suspendedThere() && derived.lost && derived.trusted:
			decision.Remote.Contact = true // to see whether that is over
		}
		decision.Tenant = derived.tenantSpec()
		decision.TearingDown = derived.finalizers() && !derived.outgoing.keep && !derived.outgoing.draining && !derived.undone()
		decision.Draining = !derived.usesNode() && derived.Node.Busy || derived.Liqo.Consuming.Busy || !derived.outgoing.keep && derived.Liqo.Consuming.Unknown && derived.past()
	}
	if decision.Remote.Contact {
		decision.Remote.Target = derived.target()
	}
	decision.Again = derived.again(decision.TearingDown)
	if ask := derived.Policy.Ask; ask != nil {
		decision.Again = sooner(decision.Again, max(ask.Until.Sub(derived.now), time.Millisecond))
	}
	if derived.RequestsKnown {
		var soon time.Duration
		decision.Check, soon = derived.keepalive()
		decision.Again = sooner(sooner(decision.Again, soon), derived.engineAgain())
		if derived.outgoing.active && !derived.Remote.Tried.IsZero() && derived.GenerationSince.After(derived.Remote.Tried) {
			// What the answer says may be what was known before, and an answer that is the same wakes nobody.
			decision.Check, decision.Again = true, sooner(decision.Again, time.Second)
		}
		if decision.Draining {
			decision.Again = sooner(decision.Again, derived.Sharing.DrainTimeout+drainSlack-derived.Draining)
		}
		if !derived.OfferExpired {
			decision.Again = sooner(decision.Again, derived.OfferLeft)
		}
	}
	return decision
}

func (d *derived) actions() []Action {
	plan := append(d.intent.records, d.endActions()...)
	plan = append(plan, d.decidedActions()...)
	plan = append(plan, d.discoveryActions()...)
	if d.RequestsKnown {
		plan = append(plan, d.intentActions()...)
		plan = append(plan, d.grantActions()...)
		plan = append(plan, d.consumeActions()...)
		plan = append(plan, d.serveActions()...)
		for _, fc := range d.live() {
			if !d.deletes(fc) {
				plan = append(plan, d.showActions(fc)...)
			}
		}
		if d.outgoing.draining {
			// They show the person who deleted them what the agent waits for.
			for _, fc := range d.terminating {
				plan = append(plan, d.showActions(fc)...)
			}
		}
		plan = append(plan, d.unconsumeActions()...)
		plan = append(plan, d.unserveActions()...)
		plan = append(plan, d.revokeActions()...)
	}
	return append(plan, d.removeActions()...)
}

// discoveryActions returns the actions that write what was discovered to the objects.
func (d *derived) discoveryActions() []Action {
	var plan []Action
	for _, fc := range d.live() {
		switch {
		case fc == d.own && d.creating:
			spec := discovered.SpecOf(d.subject(), &api.ForeignCluster{})
			status := d.discoveredStatus(&api.ForeignCluster{})
			plan = append(plan, Action{Kind: Create, Name: fc.Name, Spec: &spec}, Action{Kind: UpdateStatus, Name: fc.Name, Status: &status})
			continue
		case d.deletes(fc):
			continue
		case fc != d.own:
			plan = append(plan, d.identityActions(fc)...)
		case fc == d.own && d.present():
			if spec := discovered.SpecOf(d.Peer, fc); !spec.ShownBy(fc) {
				plan = append(plan, Action{Kind: UpdateSpec, Name: fc.Name, UID: fc.UID, Spec: &spec})
			}
		}
		if status := d.discoveredStatus(fc); !status.ShownBy(fc) {
			plan = append(plan, Action{Kind: UpdateStatus, Name: fc.Name, UID: fc.UID, Status: &status})
		}
	}
	return plan
}

// grantActions returns the actions that give the peer what it needs here.
func (d *derived) grantActions() []Action {
	var plan []Action
	if want, have := d.secret, d.Secret; want != nil && want != have {
		plan = append(plan, Action{Kind: ApplySecret, Name: SecretName(d.ID), Secret: want})
	}
	if want, have := d.access, d.Access; want != nil && (have == nil || *want != *have) {
		plan = append(plan, Action{Kind: ApplyAccess, Name: string(d.ID), Access: want})
	}
	return plan
}

// revokeActions returns the actions that remove what the peer no longer needs here.
func (d *derived) revokeActions() []Action {
	var plan []Action
	if d.secret == nil && d.Secret != nil {
		plan = append(plan, Action{Kind: DeleteSecret, Name: SecretName(d.ID)})
	}
	if d.access == nil && d.Access != nil {
		plan = append(plan, Action{Kind: DeleteAccess, Name: string(d.ID)})
	}
	return plan
}

// removeActions returns the actions that remove objects: those that somebody deleted, and those
// of the agent that are unneeded.
func (d *derived) removeActions() []Action {
	var plan []Action
	for _, fc := range append(d.live(), d.terminating...) {
		goes := d.deletes(fc)
		version, heir := "", ""
		if goes {
			version = fc.ResourceVersion
			if d.superseded() {
				heir = d.effective.Name
			}
		}
		if d.releasesFinalizer(fc) {
			plan = append(plan, Action{Kind: RemoveFinalizer, Name: fc.Name, UID: fc.UID, ResourceVersion: version})
		}
		if goes {
			plan = append(plan, Action{Kind: Delete, Name: fc.Name, UID: fc.UID, ResourceVersion: version, Heir: heir})
		}
	}
	return plan
}

// holds reports whether there is a peering for which to check the peer even if discovery lost
// it.
func (d *derived) holds() bool {
	switch {
	case d.lost:
		return false
	case !d.RequestsKnown:
		return d.trusted && (d.intent.wanted || d.Policy.LastJoined || d.Policy.LastServed)
	}
	return d.outgoing.keep || d.outgoing.draining || d.outgoing.undo || d.trusted && (d.incoming.stays || d.incoming.missing)
}

// target returns the addresses of the peer, and the key that it must show.
func (d *derived) target() peer.Target {
	t := peer.Target{ID: d.ID}
	if d.Policy.Pin != nil {
		t.Fingerprint = d.Policy.Pin.Fingerprint
	}
	if p := d.Peer; p != nil {
		t.Addrs, t.URL = slices.Clone(p.Addrs), p.URL
		// A peer that was found by name is called by that name, so that calls share the
		// connection of the checks.
		switch p.Source {
		case peer.WAN:
			t.Places = []peer.Place{{URL: p.URL, Addrs: t.Addrs}}
		case peer.Manual:
			t.Places = []peer.Place{{URL: p.URL}}
		}
		if p.URL == "" {
			t.Places = nil
		}
	}
	if t.URL == "" && d.effective != nil {
		t.URL = d.effective.Spec.AuthURL
	}
	return t
}

// again returns after how long the decision changes by time alone, 0: never.
func (d *derived) again(tearingDown bool) time.Duration {
	var again time.Duration
	if tearingDown {
		again = max(undoFor-d.TearingDown, time.Millisecond)
	}
	if !d.lost && !d.Reachable() && d.LostAfter > 0 && d.holds() {
		again = sooner(again, max(d.LostAfter-d.Away, time.Millisecond))
	}
	return again
}

// sooner returns the shorter of two pauses; one that is not positive is none. It repeats
// work.Sooner, because plans must not depend on kube.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

package deletion

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peering/plan"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestTracker(t *testing.T) {
	type step = func(*Tracker)
	saw := func(uid types.UID) step { return func(tr *Tracker) { tr.Observed(uid, t0) } }
	sawLate := func(uid types.UID) step { return func(tr *Tracker) { tr.Observed(uid, t0.Add(unseenNote)) } }
	by := func(d plan.Deleter) step { return func(tr *Tracker) { _ = tr.Begin(d, t0) } }
	gone := func(uid types.UID) step { return func(tr *Tracker) { tr.Deleted(uid, false, t0) } }
	goneLate := func(uid types.UID) step {
		return func(tr *Tracker) { tr.Deleted(uid, false, t0.Add(time.Hour)) }
	}
	restored := func(uid types.UID) step { return func(tr *Tracker) { tr.Deleted(uid, true, t0) } }
	resumed := func(uid types.UID) step { return func(tr *Tracker) { tr.Resync(uid, false) } }
	// tried is a deletion that came to that, with what happened meanwhile.
	tried := func(d plan.Deleter, came Outcome, meanwhile ...step) step {
		return func(tr *Tracker) {
			n := tr.Begin(d, t0)
			for _, s := range meanwhile {
				s(tr)
			}
			tr.Resolve(n, came)
		}
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  plan.Deleter
	}{
		{"nothing", nil, plan.DeletedUnseen},
		{"there", []step{saw("1")}, plan.DeletedUnseen},
		{"a person", []step{saw("1"), gone("1")}, plan.DeletedByPerson},
		{"the peer", []step{saw("1"), by(plan.DeletedByPeer), gone("1")}, plan.DeletedByPeer},
		{"we", []step{saw("1"), by(plan.DeletedByUs), gone("1")}, plan.DeletedByUs},
		{"we, before the event", []step{saw("1"), by(plan.DeletedByUs)}, plan.DeletedByUs},
		{"a backup", []step{saw("1"), restored("1")}, plan.DeletedUnseen},
		{"a note is for one object", []step{saw("1"), by(plan.DeletedByPeer), gone("1"), saw("2"), gone("2")}, plan.DeletedByPerson},
		{"it is back", []step{saw("1"), gone("1"), saw("2")}, plan.DeletedUnseen},
		{"an old event", []step{saw("2"), gone("1")}, plan.DeletedUnseen},
		{"the peer, before it was seen", []step{by(plan.DeletedByPeer), saw("1"), gone("1")}, plan.DeletedByPeer},
		{"a note that nothing came of", []step{by(plan.DeletedByPeer), sawLate("1"), gone("1")}, plan.DeletedByPerson},
		{"the peer was refused, then a person", []step{saw("1"), tried(plan.DeletedByPeer, Refused), gone("1")}, plan.DeletedByPerson},
		{"we were refused, then the peer", []step{saw("1"), tried(plan.DeletedByUs, Refused), tried(plan.DeletedByPeer, Taken), gone("1")}, plan.DeletedByPeer},
		{"a person was quicker than the peer", []step{saw("1"), tried(plan.DeletedByPeer, Refused, gone("1"))}, plan.DeletedByPerson},
		{"the peer asks again, as the answer was lost", []step{saw("1"), tried(plan.DeletedByPeer, Unknown), tried(plan.DeletedByPeer, Refused), gone("1")}, plan.DeletedByPeer},
		{"the peer, and it takes long", []step{saw("1"), tried(plan.DeletedByPeer, Taken), goneLate("1")}, plan.DeletedByPeer},
		{"the peer, told before it was answered", []step{saw("1"), tried(plan.DeletedByPeer, Taken, gone("1"))}, plan.DeletedByPeer},
		{"the peer, answered after a long time", []step{saw("1"), tried(plan.DeletedByPeer, Taken, goneLate("1"))}, plan.DeletedByPeer},
		{"nobody answered the peer", []step{saw("1"), tried(plan.DeletedByPeer, Unknown), gone("1")}, plan.DeletedByPeer},
		{"nobody answered the peer, a person did it later", []step{saw("1"), tried(plan.DeletedByPeer, Unknown), goneLate("1")}, plan.DeletedByPerson},
		{"nobody answered the peer, then there was no connection", []step{saw("1"), tried(plan.DeletedByPeer, Unknown), resumed("")}, plan.DeletedByPeer},
		{"nobody answered the peer, it was there afterwards", []step{saw("1"), tried(plan.DeletedByPeer, Unknown), resumed("1"), gone("1")}, plan.DeletedByPerson},
		{"the peer, then there was no connection", []step{saw("1"), tried(plan.DeletedByPeer, Taken), resumed("1"), resumed("")}, plan.DeletedByPeer},
		{"refused about an object that was replaced", []step{saw("1"), tried(plan.DeletedByPeer, Refused, gone("1"), saw("2"), by(plan.DeletedByUs)), gone("2")}, plan.DeletedByUs},
		{"seen twice", []step{saw("1"), by(plan.DeletedByPeer), saw("1"), gone("1")}, plan.DeletedByPeer},
	} {
		var tr Tracker
		for _, s := range tc.steps {
			s(&tr)
		}
		if tr.By != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tr.By, tc.want)
		}
	}
}

package peering

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

func TestDeletionTracker(t *testing.T) {
	type step = func(*deletionTracker)
	saw := func(uid types.UID) step { return func(tr *deletionTracker) { tr.observed(uid, t0) } }
	sawLate := func(uid types.UID) step { return func(tr *deletionTracker) { tr.observed(uid, t0.Add(unseenNote)) } }
	by := func(d plan.Deleter) step { return func(tr *deletionTracker) { _ = tr.begin(d, t0) } }
	gone := func(uid types.UID) step { return func(tr *deletionTracker) { tr.deleted(uid, false, t0) } }
	goneLate := func(uid types.UID) step {
		return func(tr *deletionTracker) { tr.deleted(uid, false, t0.Add(time.Hour)) }
	}
	restored := func(uid types.UID) step { return func(tr *deletionTracker) { tr.deleted(uid, true, t0) } }
	resumed := func(uid types.UID) step { return func(tr *deletionTracker) { tr.resync(uid, false) } }
	// tried is a deletion that came to that, with what happened meanwhile.
	tried := func(d plan.Deleter, came outcome, meanwhile ...step) step {
		return func(tr *deletionTracker) {
			n := tr.begin(d, t0)
			for _, s := range meanwhile {
				s(tr)
			}
			tr.resolve(n, came)
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
		{"the peer was refused, then a person", []step{saw("1"), tried(plan.DeletedByPeer, deletionRefused), gone("1")}, plan.DeletedByPerson},
		{"we were refused, then the peer", []step{saw("1"), tried(plan.DeletedByUs, deletionRefused), tried(plan.DeletedByPeer, deletionTaken), gone("1")}, plan.DeletedByPeer},
		{"a person was quicker than the peer", []step{saw("1"), tried(plan.DeletedByPeer, deletionRefused, gone("1"))}, plan.DeletedByPerson},
		{"the peer asks again, as the answer was lost", []step{saw("1"), tried(plan.DeletedByPeer, deletionUnknown), tried(plan.DeletedByPeer, deletionRefused), gone("1")}, plan.DeletedByPeer},
		{"the peer, and it takes long", []step{saw("1"), tried(plan.DeletedByPeer, deletionTaken), goneLate("1")}, plan.DeletedByPeer},
		{"the peer, told before it was answered", []step{saw("1"), tried(plan.DeletedByPeer, deletionTaken, gone("1"))}, plan.DeletedByPeer},
		{"the peer, answered after a long time", []step{saw("1"), tried(plan.DeletedByPeer, deletionTaken, goneLate("1"))}, plan.DeletedByPeer},
		{"nobody answered the peer", []step{saw("1"), tried(plan.DeletedByPeer, deletionUnknown), gone("1")}, plan.DeletedByPeer},
		{"nobody answered the peer, a person did it later", []step{saw("1"), tried(plan.DeletedByPeer, deletionUnknown), goneLate("1")}, plan.DeletedByPerson},
		{"nobody answered the peer, then there was no connection", []step{saw("1"), tried(plan.DeletedByPeer, deletionUnknown), resumed("")}, plan.DeletedByPeer},
		{"nobody answered the peer, it was there afterwards", []step{saw("1"), tried(plan.DeletedByPeer, deletionUnknown), resumed("1"), gone("1")}, plan.DeletedByPerson},
		{"the peer, then there was no connection", []step{saw("1"), tried(plan.DeletedByPeer, deletionTaken), resumed("1"), resumed("")}, plan.DeletedByPeer},
		{"refused about an object that was replaced", []step{saw("1"), tried(plan.DeletedByPeer, deletionRefused, gone("1"), saw("2"), by(plan.DeletedByUs)), gone("2")}, plan.DeletedByUs},
		{"seen twice", []step{saw("1"), by(plan.DeletedByPeer), saw("1"), gone("1")}, plan.DeletedByPeer},
	} {
		var tr deletionTracker
		for _, s := range tc.steps {
			s(&tr)
		}
		if tr.by != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tr.by, tc.want)
		}
	}
}

// contents is what a store had in its first list.
type contents struct {
	uids map[string]types.UID
	at   string
}

func (c contents) UID(name string) types.UID { return c.uids[name] }
func (c contents) Version() string           { return c.at }

// TestPeerStatesOverConnections: what is gone when a connection begins was deleted in
// between, unless the API server has another history.
func TestPeerStatesOverConnections(t *testing.T) {
	const stays, goes, offered = peer.ClusterID("stays"), peer.ClusterID("goes"), peer.ClusterID("offered")
	for _, tc := range []struct {
		name    string
		version string
		other   bool
		want    plan.Deleter
	}{
		{"deleted", "60", false, plan.DeletedByPerson},
		{"restored", "40", false, plan.DeletedUnseen},
		{"another server", "60", true, plan.DeletedUnseen},
	} {
		m := newPeerStates()
		for _, id := range []peer.ClusterID{stays, goes} {
			m.with(id, func(p *peerState) { p.request.observed(types.UID(id), t0) })
		}
		m.with(offered, func(p *peerState) { p.offer.observed("o", t0) })
		m.leave(contents{at: "50"}, contents{at: "50"})
		if tc.other {
			m.anotherServer()
		}
		m.resume(contents{map[string]types.UID{"stays": "stays"}, tc.version}, contents{at: tc.version})
		m.with(stays, func(p *peerState) {
			if p.request.by != plan.DeletedUnseen {
				t.Errorf("%s: what is there counts as deleted by %v", tc.name, p.request.by)
			}
		})
		m.with(goes, func(p *peerState) {
			if p.request.by != tc.want {
				t.Errorf("%s: request deleted by %v, want %v", tc.name, p.request.by, tc.want)
			}
		})
		m.with(offered, func(p *peerState) {
			if p.offer.by != tc.want {
				t.Errorf("%s: offer deleted by %v, want %v", tc.name, p.offer.by, tc.want)
			}
		})
	}
}

// TestFill: what is measured is measured from when it was first seen.
func TestFill(t *testing.T) {
	var m peerState
	look := func(after time.Duration, change func(*plan.Observed)) plan.Observed {
		p := barn()
		obs := plan.Observed{ID: p.ID, Peer: p}
		change(&obs)
		m.fill(&obs, t0.Add(after))
		return obs
	}
	away := func(o *plan.Observed) { o.Peer.Phase = peer.PhaseUnreachable }
	if got := look(0, func(*plan.Observed) {}); got.Away != 0 {
		t.Errorf("a peer that is there is away for %v", got.Away)
	}
	if got := look(time.Minute, away); got.Away <= 0 || got.Away > time.Second {
		t.Errorf("a peer that just left is away for %v", got.Away)
	}
	if got := look(3*time.Minute, away); got.Away != 2*time.Minute {
		t.Errorf("away for %v", got.Away)
	}
	if got := look(4*time.Minute, func(o *plan.Observed) { o.Policy.Pin = &peer.Pin{Fingerprint: peer.FingerprintOf([]byte("other"))} }); got.Away != 3*time.Minute {
		t.Errorf("behind another key it is away for %v", got.Away)
	}
	if got := look(5*time.Minute, func(*plan.Observed) {}); got.Away != 0 {
		t.Errorf("a peer that is back is away for %v", got.Away)
	}
	if got := look(6*time.Minute, func(o *plan.Observed) { o.Policy.Generation = 3 }); !got.GenerationSince.Equal(t0.Add(6 * time.Minute)) {
		t.Errorf("anew since %v", got.GenerationSince)
	}
	got := look(7*time.Minute, func(o *plan.Observed) {
		o.Policy.Generation = 3
		o.Request = &api.PeeringRequest{}
		o.Request.UID = "1"
	})
	if !got.GenerationSince.Equal(t0.Add(6*time.Minute)) || !got.RequestSeen.Equal(t0.Add(7*time.Minute)) || got.RequestDeleted != plan.DeletedUnseen {
		t.Errorf("%+v", got)
	}
	m.request.begin(plan.DeletedByPeer, t0)
	if got := look(8*time.Minute, func(*plan.Observed) {}); got.RequestDeleted != plan.DeletedByPeer || got.OfferDeleted != plan.DeletedUnseen {
		t.Errorf("deleted by %v and %v", got.RequestDeleted, got.OfferDeleted)
	}
}

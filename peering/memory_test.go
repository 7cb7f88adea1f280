package peering

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

func TestTrail(t *testing.T) {
	type step = func(*trail)
	saw := func(uid types.UID) step { return func(tr *trail) { tr.saw(uid, t0) } }
	sawLate := func(uid types.UID) step { return func(tr *trail) { tr.saw(uid, t0.Add(unseenNote)) } }
	by := func(d Deleter) step { return func(tr *trail) { _ = tr.deleting(d, t0) } }
	gone := func(uid types.UID) step { return func(tr *trail) { tr.gone(uid, false, t0) } }
	goneLate := func(uid types.UID) step { return func(tr *trail) { tr.gone(uid, false, t0.Add(time.Hour)) } }
	restored := func(uid types.UID) step { return func(tr *trail) { tr.gone(uid, true, t0) } }
	resumed := func(uid types.UID) step { return func(tr *trail) { tr.resume(uid, false) } }
	// tried is a deletion that came to that, with what happened meanwhile.
	tried := func(d Deleter, came outcome, meanwhile ...step) step {
		return func(tr *trail) {
			n := tr.deleting(d, t0)
			for _, s := range meanwhile {
				s(tr)
			}
			tr.ended(n, came)
		}
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  Deleter
	}{
		{"nothing", nil, DeletedUnseen},
		{"there", []step{saw("1")}, DeletedUnseen},
		{"a person", []step{saw("1"), gone("1")}, DeletedByPerson},
		{"the peer", []step{saw("1"), by(DeletedByPeer), gone("1")}, DeletedByPeer},
		{"we", []step{saw("1"), by(DeletedByUs), gone("1")}, DeletedByUs},
		{"we, before the event", []step{saw("1"), by(DeletedByUs)}, DeletedByUs},
		{"a backup", []step{saw("1"), restored("1")}, DeletedUnseen},
		{"a note is for one object", []step{saw("1"), by(DeletedByPeer), gone("1"), saw("2"), gone("2")}, DeletedByPerson},
		{"it is back", []step{saw("1"), gone("1"), saw("2")}, DeletedUnseen},
		{"an old event", []step{saw("2"), gone("1")}, DeletedUnseen},
		{"the peer, before it was seen", []step{by(DeletedByPeer), saw("1"), gone("1")}, DeletedByPeer},
		{"a note that nothing came of", []step{by(DeletedByPeer), sawLate("1"), gone("1")}, DeletedByPerson},
		{"the peer was refused, then a person", []step{saw("1"), tried(DeletedByPeer, deletionRefused), gone("1")}, DeletedByPerson},
		{"we were refused, then the peer", []step{saw("1"), tried(DeletedByUs, deletionRefused), tried(DeletedByPeer, deletionTaken), gone("1")}, DeletedByPeer},
		{"a person was quicker than the peer", []step{saw("1"), tried(DeletedByPeer, deletionRefused, gone("1"))}, DeletedByPerson},
		{"the peer asks again, as the answer was lost", []step{saw("1"), tried(DeletedByPeer, deletionUnknown), tried(DeletedByPeer, deletionRefused), gone("1")}, DeletedByPeer},
		{"the peer, and it takes long", []step{saw("1"), tried(DeletedByPeer, deletionTaken), goneLate("1")}, DeletedByPeer},
		{"the peer, told before it was answered", []step{saw("1"), tried(DeletedByPeer, deletionTaken, gone("1"))}, DeletedByPeer},
		{"the peer, answered after a long time", []step{saw("1"), tried(DeletedByPeer, deletionTaken, goneLate("1"))}, DeletedByPeer},
		{"nobody answered the peer", []step{saw("1"), tried(DeletedByPeer, deletionUnknown), gone("1")}, DeletedByPeer},
		{"nobody answered the peer, a person did it later", []step{saw("1"), tried(DeletedByPeer, deletionUnknown), goneLate("1")}, DeletedByPerson},
		{"nobody answered the peer, then there was no connection", []step{saw("1"), tried(DeletedByPeer, deletionUnknown), resumed("")}, DeletedByPeer},
		{"nobody answered the peer, it was there afterwards", []step{saw("1"), tried(DeletedByPeer, deletionUnknown), resumed("1"), gone("1")}, DeletedByPerson},
		{"the peer, then there was no connection", []step{saw("1"), tried(DeletedByPeer, deletionTaken), resumed("1"), resumed("")}, DeletedByPeer},
		{"refused about an object that was replaced", []step{saw("1"), tried(DeletedByPeer, deletionRefused, gone("1"), saw("2"), by(DeletedByUs)), gone("2")}, DeletedByUs},
		{"seen twice", []step{saw("1"), by(DeletedByPeer), saw("1"), gone("1")}, DeletedByPeer},
	} {
		var tr trail
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

func (c contents) uid(name string) types.UID { return c.uids[name] }
func (c contents) version() string           { return c.at }

// TestMemoryOverConnections: what is gone when a connection begins was deleted in
// between, unless the API server has another history.
func TestMemoryOverConnections(t *testing.T) {
	const stays, goes, offered = peer.ClusterID("stays"), peer.ClusterID("goes"), peer.ClusterID("offered")
	for _, tc := range []struct {
		name    string
		version string
		other   bool
		want    Deleter
	}{
		{"deleted", "60", false, DeletedByPerson},
		{"restored", "40", false, DeletedUnseen},
		{"another server", "60", true, DeletedUnseen},
	} {
		m := newMemory()
		for _, id := range []peer.ClusterID{stays, goes} {
			m.with(id, func(p *memo) { p.request.saw(types.UID(id), t0) })
		}
		m.with(offered, func(p *memo) { p.offer.saw("o", t0) })
		m.leave(contents{at: "50"}, contents{at: "50"})
		if tc.other {
			m.anotherServer()
		}
		m.resume(contents{map[string]types.UID{"stays": "stays"}, tc.version}, contents{at: tc.version})
		m.with(stays, func(p *memo) {
			if p.request.by != DeletedUnseen {
				t.Errorf("%s: what is there counts as deleted by %v", tc.name, p.request.by)
			}
		})
		m.with(goes, func(p *memo) {
			if p.request.by != tc.want {
				t.Errorf("%s: request deleted by %v, want %v", tc.name, p.request.by, tc.want)
			}
		})
		m.with(offered, func(p *memo) {
			if p.offer.by != tc.want {
				t.Errorf("%s: offer deleted by %v, want %v", tc.name, p.offer.by, tc.want)
			}
		})
	}
}

// TestFill: what is measured is measured from when it was first seen.
func TestFill(t *testing.T) {
	var m memo
	look := func(after time.Duration, change func(*Observed)) Observed {
		p := barn()
		obs := Observed{ID: p.ID, Peer: p}
		change(&obs)
		m.fill(&obs, t0.Add(after))
		return obs
	}
	away := func(o *Observed) { o.Peer.Phase = peer.PhaseUnreachable }
	if got := look(0, func(*Observed) {}); got.Away != 0 {
		t.Errorf("a peer that is there is away for %v", got.Away)
	}
	if got := look(time.Minute, away); got.Away <= 0 || got.Away > time.Second {
		t.Errorf("a peer that just left is away for %v", got.Away)
	}
	if got := look(3*time.Minute, away); got.Away != 2*time.Minute {
		t.Errorf("away for %v", got.Away)
	}
	if got := look(4*time.Minute, func(o *Observed) { o.Standing.Pin = &peer.Pin{Fingerprint: peer.FingerprintOf([]byte("other"))} }); got.Away != 3*time.Minute {
		t.Errorf("behind another key it is away for %v", got.Away)
	}
	if got := look(5*time.Minute, func(*Observed) {}); got.Away != 0 {
		t.Errorf("a peer that is back is away for %v", got.Away)
	}
	if got := look(6*time.Minute, func(o *Observed) { o.Standing.Anew = 3 }); !got.AnewSince.Equal(t0.Add(6 * time.Minute)) {
		t.Errorf("anew since %v", got.AnewSince)
	}
	got := look(7*time.Minute, func(o *Observed) {
		o.Standing.Anew = 3
		o.Request = &api.PeeringRequest{}
		o.Request.UID = "1"
	})
	if !got.AnewSince.Equal(t0.Add(6*time.Minute)) || !got.RequestSeen.Equal(t0.Add(7*time.Minute)) || got.RequestDeleted != DeletedUnseen {
		t.Errorf("%+v", got)
	}
	m.request.deleting(DeletedByPeer, t0)
	if got := look(8*time.Minute, func(*Observed) {}); got.RequestDeleted != DeletedByPeer || got.OfferDeleted != DeletedUnseen {
		t.Errorf("deleted by %v and %v", got.RequestDeleted, got.OfferDeleted)
	}
}

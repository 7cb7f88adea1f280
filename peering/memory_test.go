package peering

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

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
			m.with(id, func(p *peerState) { p.request.Observed(types.UID(id), t0) })
		}
		m.with(offered, func(p *peerState) { p.offer.Observed("o", t0) })
		m.leave(contents{at: "50"}, contents{at: "50"})
		if tc.other {
			m.anotherServer()
		}
		m.resume(contents{map[string]types.UID{"stays": "stays"}, tc.version}, contents{at: tc.version})
		m.with(stays, func(p *peerState) {
			if p.request.By != plan.DeletedUnseen {
				t.Errorf("%s: what is there counts as deleted by %v", tc.name, p.request.By)
			}
		})
		m.with(goes, func(p *peerState) {
			if p.request.By != tc.want {
				t.Errorf("%s: request deleted by %v, want %v", tc.name, p.request.By, tc.want)
			}
		})
		m.with(offered, func(p *peerState) {
			if p.offer.By != tc.want {
				t.Errorf("%s: offer deleted by %v, want %v", tc.name, p.offer.By, tc.want)
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
	m.request.Begin(plan.DeletedByPeer, t0)
	if got := look(8*time.Minute, func(*plan.Observed) {}); got.RequestDeleted != plan.DeletedByPeer || got.OfferDeleted != plan.DeletedUnseen {
		t.Errorf("deleted by %v and %v", got.RequestDeleted, got.OfferDeleted)
	}
	// An offer that went before somebody decided anew is no answer to that.
	m.offer.Begin(plan.DeletedByPeer, t0.Add(9*time.Minute))
	third := func(o *plan.Observed) { o.Policy.Generation = 3 }
	look(9*time.Minute, third)
	if got := look(10*time.Minute, third); got.OfferDeleted != plan.DeletedByPeer {
		t.Errorf("the offer was deleted by %v", got.OfferDeleted)
	}
	fourth := func(o *plan.Observed) { o.Policy.Generation = 4 }
	if got := look(11*time.Minute, fourth); got.OfferDeleted != plan.DeletedUnseen {
		t.Errorf("an earlier offer was deleted by %v", got.OfferDeleted)
	}
	m.offer.Begin(plan.DeletedByPeer, t0.Add(12*time.Minute))
	if got := look(12*time.Minute, fourth); got.OfferDeleted != plan.DeletedByPeer {
		t.Errorf("the next offer was deleted by %v", got.OfferDeleted)
	}
}

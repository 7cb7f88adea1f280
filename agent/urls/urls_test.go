package urls

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// world is a registry that notes what it is told, and the decisions that a URL was given
// for cluster b.
type world struct{ did []string }

func (w *world) SetCandidate(c registry.Candidate) { w.did = append(w.did, "set "+c.Instance) }

func (w *world) DropCandidate(k peer.Key, _ registry.Absence) {
	w.did = append(w.did, "drop "+k.Instance)
}

func (w *world) Candidate(peer.Key) (registry.CandidateStatus, bool) {
	return registry.CandidateStatus{}, false
}

func (w *world) Candidates(func(peer.Key) bool) []registry.CandidateStatus { return nil }

func (w *world) Peer(peer.ClusterID) (peer.Peer, bool) { return peer.Peer{}, false }

func (w *world) Wanted() []peer.ClusterID { return []peer.ClusterID{"b"} }

func (w *world) Preferences(peer.ClusterID) state.Preferences {
	return state.Preferences{URL: "https://b.example.com"}
}

func (w *world) Pin(peer.ClusterID) *peer.Pin { return nil }

// A URL that was removed while the agent was stopped is taken back.
func TestRemovedMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &world{}
		p := New(Config{Self: "self", Settings: func() config.Config { return config.Config{} }, Registry: w, Decisions: w, Seen: []peer.Sighting{
			{Source: peer.Manual, Instance: givenFor + "a"}, {Source: peer.Manual, Instance: givenFor + "b"},
			{Source: peer.Manual, Instance: givenBy + "mine"}, {Source: peer.LAN, Instance: givenFor + "c"},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"set cluster/b", "drop cluster/a"}; !slices.Equal(w.did, want) {
			t.Errorf("did %q, want %q", w.did, want)
		}
	})
}

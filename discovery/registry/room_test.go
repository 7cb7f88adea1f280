package registry

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// stored opens a database, for a registry that keeps it up to date.
func stored(t *testing.T, path string) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), path, state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// forgets is what a person does who forgets a peer.
func (b *bench) forgets(t *testing.T, s *state.Store, id peer.ClusterID) {
	t.Helper()
	if err := s.Apply(t.Context(), state.Change{Forget: []peer.ClusterID{id}, Events: []peer.Event{{ID: id, Kind: peer.EventForgotten}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// gated is a store that lets a change in when a test says so.
type gated struct {
	*state.Store
	open chan error // an element for each change: nil lets it in
}

func (g *gated) Apply(ctx context.Context, c state.Change) error {
	if err := <-g.open; err != nil {
		return err
	}
	return g.Store.Apply(ctx, c)
}

// A peer that is forgotten while it is being stored, or cannot be, is not stored in the end.
func TestForgottenWhileItIsStored(t *testing.T) {
	for name, first := range map[string]error{"slowly": nil, "in vain": state.ErrFull} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.db")
			bubble.Test(t, func(t *testing.T) {
				s := stored(t, path)
				g := &gated{Store: s, open: make(chan error, 100)}
				b := startWith(t, func(cfg *Config) { cfg.Store = g })
				b.net.set(addr1, hostA())
				b.see(t, sightingA(addr1))
				settle(time.Second)
				b.unsee(t, sightingA(addr1), Absence{Reason: "said goodbye", Evidence: Withdrawn})
				b.forgets(t, s, "a")
				g.open <- first
				settle(time.Second)
				for range cap(g.open) {
					g.open <- nil
				}
				settle(5 * time.Minute)
				if peers, err := s.Peers(t.Context()); err != nil || len(peers) > 0 {
					t.Errorf("stored after it was forgotten: %+v, %v", peers, err)
				}
			})
		})
	}
}

// A peer that was forgotten is not stored again because of what happened a moment before.
func TestForgottenPeerStaysForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	bubble.Test(t, func(t *testing.T) {
		s := stored(t, path)
		b := startWith(t, func(cfg *Config) { cfg.Store = s })
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(100 * time.Millisecond)
		b.phase(t, "a", peer.PhasePresent)
		b.unsee(t, sightingA(addr1), Absence{Reason: "said goodbye", Evidence: Withdrawn})
		b.phase(t, "a", peer.PhaseLost)
		b.forgets(t, s, "a")
		settle(5 * time.Second)
		peers, err := s.Peers(t.Context())
		if err != nil || len(peers) > 0 {
			t.Errorf("stored after it was forgotten: %+v, %v", peers, err)
		}
		history, err := s.History(t.Context(), state.HistoryQuery{ID: "a"})
		if err != nil || len(history) != 1 || history[0].Kind != peer.EventForgotten {
			t.Errorf("its history: %+v, %v", history, err)
		}
		// Who is there all the same is a stranger that has just come.
		b.see(t, sightingA(addr1))
		settle(5 * time.Second)
		if peers, err := s.Peers(t.Context()); err != nil || len(peers) != 1 {
			t.Errorf("stored when it is back: %+v, %v", peers, err)
		}
	})
}

// stranger is an announcement by nobody who answers.
func stranger(i int) peer.Sighting {
	name := string(rune('s' + i))
	return peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: name, ClusterID: peer.ClusterID(name), Fingerprint: peer.FingerprintOf([]byte(name)),
		Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 9, byte(i)}), 6447)}}
}

// Who is announced while there is no room is seen as soon as there is: nobody says again what has not changed.
func TestRoomForWhoCameBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := startWith(t, func(cfg *Config) { cfg.Limit = 2 })
		b.net.set(addr1, hostA())
		b.see(t, stranger(0))
		b.see(t, stranger(1))
		b.see(t, sightingA(addr1))
		settle(time.Minute)
		if _, known := b.Peer("a"); known || b.Stats().Refused != 1 {
			t.Fatalf("%+v: this is no test", b.Peers())
		}
		b.unsee(t, stranger(1), Absence{Reason: "its records ended", Evidence: Expired})
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)

		// The same for who had to make room while its endpoint did not answer.
		b.net.set(addr1, nil)
		settle(10 * interval)
		b.phase(t, "a", peer.PhaseLost)
		b.see(t, stranger(2))
		if _, known := b.Peer("a"); known {
			t.Fatal("the peer that was lost did not make room")
		}
		b.net.set(addr1, hostA())
		settle(time.Minute)
		b.unsee(t, stranger(2), Absence{Reason: "its records ended", Evidence: Expired})
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)

		// Who has gone meanwhile does not come.
		b.see(t, stranger(3))
		b.see(t, stranger(4))
		b.unsee(t, stranger(4), Absence{Reason: "said goodbye", Evidence: Withdrawn})
		b.unsee(t, stranger(0), Absence{Reason: "its records ended", Evidence: Expired})
		settle(time.Second)
		if _, known := b.Peer(stranger(4).ClusterID); known {
			t.Error("seen after its goodbye")
		}
		b.phase(t, stranger(3).ClusterID, peer.PhaseUnverified)
	})
}

// crowded has room for one cluster, which is there, and a stranger was announced.
func crowded(t *testing.T) *bench {
	t.Helper()
	b := startWith(t, func(cfg *Config) { cfg.Limit = 1 })
	b.net.set(addr1, hostA())
	b.see(t, sightingA(addr1))
	settle(time.Second)
	b.see(t, stranger(0))
	return b
}

// Who is there goes before who is gone, also if it came when nobody was.
func TestRoomByWhoIsLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := crowded(t)
		b.unsee(t, sightingA(addr1), Absence{Reason: "said goodbye", Evidence: Withdrawn})
		settle(time.Second)
		b.phase(t, stranger(0).ClusterID, peer.PhaseUnverified)
	})
}

// Who is gone makes room for who came in vain before, as soon as nothing keeps it: that somebody depends on it, its
// alias, or a check that is under way.
func TestRoomByWhoWasKept(t *testing.T) {
	ended := Absence{Reason: "its records ended", Evidence: Expired}
	for name, kept := range map[string]struct {
		keep, release func(t *testing.T, b *bench)
	}{
		"held":     {func(_ *testing.T, b *bench) { b.Hold("a", true) }, func(_ *testing.T, b *bench) { b.Hold("a", false) }},
		"an alias": {func(t *testing.T, b *bench) { b.rename(t, "barn") }, func(t *testing.T, b *bench) { b.rename(t, "") }},
		"a check":  {func(t *testing.T, b *bench) { b.unsee(t, sightingA(addr1), ended) }, func(*testing.T, *bench) {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := startWith(t, func(cfg *Config) { cfg.Limit = 1 })
				b.net.silence = 10 * time.Second
				b.net.set(addr1, hostA())
				b.see(t, sightingA(addr1))
				settle(time.Second)
				b.net.set(addr1, nil)
				settle(10 * interval)
				b.phase(t, "a", peer.PhaseLost)
				kept.keep(t, b)
				settle(time.Second)
				b.see(t, stranger(0))
				b.unsee(t, sightingA(addr1), ended)
				settle(10 * interval)
				kept.release(t, b)
				settle(10 * interval)
				b.phase(t, stranger(0).ClusterID, peer.PhaseUnverified)
			})
		})
	}
}

func (b *bench) rename(t *testing.T, alias string) {
	t.Helper()
	if known, err := b.Rename(t.Context(), "a", alias); err != nil || !known {
		t.Fatal(known, err)
	}
}

// Bogus neighbours that wait for room do not get that of a neighbour which is still announced and does not answer for a while.
func TestOutageMakesNoRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := crowded(t)
		b.net.set(addr1, nil)
		settle(10 * interval)
		b.phase(t, "a", peer.PhaseLost)
		b.net.set(addr1, hostA())
		settle(time.Hour)
		b.phase(t, "a", peer.PhasePresent)
	})
}

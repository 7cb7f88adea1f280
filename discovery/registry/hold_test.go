package registry

import (
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// A peer that somebody depends on stays while its endpoint answers, whatever
// happens to its announcements.
func TestHeldPeerNeedsNoAnnouncement(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.Hold("a", true)
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.unsee(t, sightingA(addr1), Absence{Reason: "it said goodbye", Evidence: Withdrawn})
		settle(5 * interval)
		b.phase(t, "a", peer.PhasePresent)

		b.net.set(addr1, nil)
		settle(10 * interval)
		b.phase(t, "a", peer.PhaseLost)
		before := b.net.count()
		settle(20 * interval)
		if n := b.net.count() - before; n < 10 || n > 30 {
			t.Errorf("%d checks of a held peer that does not answer, in 20 intervals", n)
		}
		// It is back at its address, and nothing announces it.
		b.net.set(addr1, hostA())
		settle(2 * interval)
		b.phase(t, "a", peer.PhasePresent)

		b.Hold("a", false)
		settle(time.Second)
		b.phase(t, "a", peer.PhaseLost)
		before = b.net.count()
		settle(20 * interval)
		if n := b.net.count() - before; n > 0 {
			t.Errorf("%d checks of a lost peer that nobody depends on", n)
		}
	})
}

// A goodbye of a held peer is believed once its endpoint is silent, too.
func TestGoodbyeOfAHeldPeer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.Hold("a", true)
		settle(time.Second)
		b.net.set(addr1, nil)
		b.unsee(t, sightingA(addr1), Absence{Reason: "it said goodbye", Evidence: Withdrawn})
		settle(time.Second)
		b.phase(t, "a", peer.PhaseLost)
	})
}

// A peer of an earlier run that was lost then is looked for as soon as it is
// held.
func TestHeldPeerOfAnEarlierRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, peer.Peer{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA, Phase: peer.PhaseLost,
			URL: "https://" + addr1.String(), LastSeen: time.Now()})
		b.net.set(addr1, hostA())
		settle(2 * interval)
		b.phase(t, "a", peer.PhaseLost)
		b.Hold("a", true)
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)
	})
}

// Right after a start, nobody has heard yet who announces itself. So that a peering ends in that moment is no reason to lose
// the peer: its object would be deleted, with what it says about the end.
func TestNoLongerHeldRightAfterAStart(t *testing.T) {
	known := peer.Peer{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA, Phase: peer.PhasePresent,
		URL: "https://" + addr1.String(), LastSeen: time.Now()}
	given := peer.Sighting{Source: peer.Manual, Instance: "cluster/a", URL: known.URL, ClusterID: "a", Fingerprint: keyA}
	for name, tc := range map[string]struct {
		seen      []peer.Sighting // in the earlier run
		meanwhile func(b *bench, t *testing.T)
		want      peer.Phase
	}{
		"at once": {nil, func(*bench, *testing.T) {}, peer.PhasePresent},
		"it called": {nil, func(b *bench, t *testing.T) {
			called := peer.Sighting{Source: peer.IncomingPeering, Instance: "a", ClusterID: "a", Fingerprint: keyA, Addrs: sightingA(addr1).Addrs}
			b.see(t, called)
			b.unsee(t, called, Absence{Reason: "it was let go", Evidence: Expired})
		}, peer.PhasePresent},
		"it said goodbye": {nil, func(b *bench, t *testing.T) {
			b.see(t, sightingA(addr1))
			b.unsee(t, sightingA(addr1), Absence{Reason: "it said goodbye", Evidence: Withdrawn})
		}, peer.PhaseLost},
		"a person took it back": {[]peer.Sighting{given}, func(b *bench, t *testing.T) {
			b.unsee(t, given, Absence{Reason: "taken back", Evidence: Withdrawn})
		}, peer.PhaseLost},
		"later": {nil, func(*bench, *testing.T) { settle(4 * interval) }, peer.PhaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := startWith(t, func(cfg *Config) {
					cfg.Remembered, cfg.Seen = []peer.Peer{known}, map[peer.ClusterID][]peer.Sighting{"a": tc.seen}
				})
				b.net.set(addr1, hostA())
				b.Hold("a", true)
				settle(time.Second)
				tc.meanwhile(b, t)
				b.Hold("a", false)
				settle(5 * interval)
				b.phase(t, "a", tc.want)
				if tc.want == peer.PhasePresent {
					b.net.set(addr1, nil)
					settle(5 * interval)
					b.phase(t, "a", peer.PhaseLost)
				}
			})
		})
	}
}

// The best source is the one that sees the peer, not the one that was called.
func TestBestSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		called := peer.Sighting{Source: peer.IncomingPeering, Instance: "a", ClusterID: "a", Fingerprint: keyA, Addrs: sightingA(addr1).Addrs}
		b.see(t, called)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Source != peer.IncomingPeering {
			t.Errorf("source %s", p.Source)
		}
		b.see(t, sightingA(addr1))
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Source != peer.LAN {
			t.Errorf("source %s", p.Source)
		}
		// That it called once does not keep it when it says goodbye, and that it
		// calls again brings it back.
		b.unsee(t, sightingA(addr1), Absence{Reason: "goodbye", Evidence: Withdrawn})
		b.phase(t, "a", peer.PhaseLost)
		b.see(t, called)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Source != peer.IncomingPeering {
			t.Errorf("source %s", p.Source)
		}
	})
}

// A call from one more address of a peer's does not move it there; when it has
// left the address it had, it is found at the one it called from.
func TestCallsAreHints(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.net.set(addr2, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.see(t, peer.Sighting{Source: peer.IncomingPeering, Instance: "a", ClusterID: "a", Fingerprint: keyA, Addrs: sightingA(addr2).Addrs})
		settle(2 * interval)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+addr1.String() {
			t.Errorf("moved to %s", p.URL)
		}
		b.net.set(addr1, nil)
		settle(2 * interval)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+addr2.String() {
			t.Errorf("stayed at %s", p.URL)
		}
	})
}

// A peer that answers at its link-local address, because it has only just got
// another one, is looked for there a moment later, and not for ever.
func TestLinkLocalIsADetour(t *testing.T) {
	local := netip.MustParseAddrPort("[fe80::1%eth0]:6447")
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(local, hostA())
		b.see(t, sightingA(addr1, local))
		settle(500 * time.Millisecond)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+local.String() {
			t.Fatalf("at %s", p.URL)
		}
		b.net.set(addr1, hostA())
		settle(1500 * time.Millisecond)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+addr1.String() {
			t.Errorf("still at %s", p.URL)
		}
		b.net.set(addr1, nil)
		settle(2 * interval)
		before := b.net.count()
		settle(10 * interval)
		if n := b.net.count() - before; n > 12 {
			t.Errorf("%d checks in 10 intervals", n)
		}
	})
}

// A peer stays where it is shown when one check is answered at another of its addresses first, as by a host that is busy for a
// moment: nothing is told and stored. It moves when that goes on.
func TestSlowForAMoment(t *testing.T) {
	local := netip.MustParseAddrPort("[fe80::1%eth0]:6447")
	for name, other := range map[string]netip.AddrPort{"another address": addr2, "a link-local address": local} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := start(t)
				b.net.set(addr1, hostA())
				b.net.set(other, hostA())
				b.see(t, sightingA(addr1, other))
				settle(2 * interval)
				shown := func(at netip.AddrPort) bool { return b.phase(t, "a", peer.PhasePresent).URL == "https://"+at.String() }
				if !shown(addr1) {
					t.Fatal("it is not at its first address")
				}
				for range 3 * maxDetours {
					b.net.set(addr1, nil)
					for before := b.net.count(); b.net.count() == before; {
						settle(secondLook / 10)
					}
					b.net.set(addr1, hostA())
					if !shown(addr1) {
						t.Fatal("it moved")
					}
					settle(2 * interval)
					if !shown(addr1) {
						t.Fatal("it moved afterwards")
					}
				}
				b.net.set(addr1, nil)
				settle(interval + 2*maxDetours*secondLook)
				if !shown(other) {
					t.Error("it did not move")
				}
				b.net.set(addr1, hostA())
				settle(interval + 2*maxDetours*secondLook)
				if back := other == local; shown(addr1) != back {
					t.Errorf("afterwards it is at its first address: %v", !back)
				}
			})
		})
	}
}

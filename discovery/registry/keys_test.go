package registry

import (
	"slices"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// hostB is host A with another key.
func hostB() *host {
	h := hostA()
	h.key = keyB
	return h
}

func sightingB() peer.Sighting {
	s := sightingA(addr1)
	s.Fingerprint = keyB
	return s
}

// A peer that replaced its key, and whose old key signed the new one, stays the
// same peer, whichever news comes first: the announcement of the new key or the
// check with the old one. One that was away when it happened, too.
func TestRotatedKeyIsFollowed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		announce bool
	}{{"seen in a check", false}, {"announced", true}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := start(t)
				b.net.set(addr1, hostA())
				b.see(t, sightingA(addr1))
				settle(time.Second)
				b.phase(t, "a", peer.PhasePresent)

				b.net.mu.Lock()
				b.net.signed[keyA] = keyB
				b.net.mu.Unlock()
				b.net.set(addr1, hostB())
				if tc.announce {
					b.see(t, sightingB())
					settle(time.Second)
				} else {
					settle(2 * interval)
				}
				p := b.phase(t, "a", peer.PhasePresent)
				if p.Fingerprint != keyB || p.Conflict != nil {
					t.Errorf("key %v, conflict %v", p.Fingerprint, p.Conflict)
				}
				settle(5 * time.Second)
				if kinds := b.store.kinds(); !slices.Contains(kinds, peer.EventKeyRotated) || slices.Contains(kinds, peer.EventConflict) ||
					slices.Contains(kinds, peer.EventLost) {
					t.Errorf("events %v", kinds)
				}
				b.mu.Lock()
				last := b.proved[len(b.proved)-1]
				b.mu.Unlock()
				if last != keyB {
					t.Errorf("the last proof told of is %v", last)
				}
				// Both kinds of news end in one claim: the goodbye ends it.
				b.unsee(t, sightingB(), Absence{Reason: "goodbye", Evidence: Withdrawn})
				if !tc.announce {
					b.unsee(t, sightingA(addr1), Absence{Reason: "goodbye", Evidence: Withdrawn})
				}
				settle(time.Second)
				b.phase(t, "a", peer.PhaseLost)
			})
		})
	}
}

// A key that is trusted to be a cluster's is its key even if another one that
// claims the ID is met first.
func TestPinnedKeyComesFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.mu.Lock()
		b.pins["a"] = keyA
		b.mu.Unlock()
		b.net.set(addr1, hostB())
		b.see(t, sightingB())
		settle(time.Second)
		p := b.phase(t, "a", peer.PhaseLost)
		if p.Conflict == nil || p.Conflict.Fingerprint != keyB {
			t.Errorf("conflict %+v", p.Conflict)
		}
		if len(b.proved) != 0 {
			t.Errorf("proved %v", b.proved)
		}
		b.net.set(addr2, hostA())
		s := sightingA(addr2)
		s.Instance = "a (2)"
		b.see(t, s)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Fingerprint != keyA {
			t.Errorf("key %v", p.Fingerprint)
		}
	})
}

// A box that was set up anew has its old ID and another key. A person who says
// that this is right ends the conflict.
func TestAdoptedKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.net.set(addr1, hostB())
		b.see(t, sightingB())
		settle(time.Second)
		if p, _ := b.Peer("a"); p.Conflict == nil || p.Fingerprint != keyA {
			t.Fatalf("no conflict: %+v", p)
		}
		if found, err := b.Adopt(t.Context(), "a", keyB); !found || err != nil {
			t.Fatal(found, err)
		}
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Fingerprint != keyB || p.Conflict != nil {
			t.Errorf("key %v, conflict %v", p.Fingerprint, p.Conflict)
		}
		if found, err := b.Adopt(t.Context(), "nobody", keyB); found || err != nil {
			t.Error(found, err)
		}
	})
}

// Forgotten is not gone: who is still there comes back as a stranger, with
// whatever key it has now.
func TestForget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.net.set(addr1, hostB())
		b.see(t, sightingB())
		settle(time.Second)
		if err := b.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Fingerprint != keyB || p.Conflict != nil {
			t.Errorf("key %v, conflict %v", p.Fingerprint, p.Conflict)
		}
		b.unsee(t, sightingB(), Absence{Reason: "goodbye", Evidence: Withdrawn})
		settle(time.Second)
		if err := b.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, known := b.Peer("a"); known {
			t.Error("it is still known")
		}
	})
}

// A check that ends after its peer was forgotten changes nothing.
func TestForgetDuringACheck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.delay = 10 * time.Second
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.unsee(t, sightingA(addr1), Absence{Reason: "goodbye", Evidence: Withdrawn})
		if err := b.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if p, known := b.Peer("a"); known {
			t.Errorf("it is known: %+v", p)
		}
	})
}

// A box that replaced its key while we were away is followed when it is back,
// also where only the announcement leads to it.
func TestRotatedKeyIsFollowedAfterAnAbsence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t, peer.Peer{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA, Phase: peer.PhaseLost,
			URL: "https://" + addr2.String(), LastSeen: time.Now()})
		b.net.mu.Lock()
		b.net.signed[keyA] = keyB
		b.net.mu.Unlock()
		b.net.set(addr1, hostB())
		b.see(t, sightingB())
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Fingerprint != keyB || p.Conflict != nil {
			t.Errorf("key %v, conflict %v", p.Fingerprint, p.Conflict)
		}
	})
}

// News of a new key on one link does not lose the sightings on another one.
func TestRotatedKeyOnTwoLinks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		other := sightingA(addr1)
		other.Link = "eth1"
		b.see(t, sightingA(addr1))
		b.see(t, other)
		settle(time.Second)
		b.net.mu.Lock()
		b.net.signed[keyA] = keyB
		b.net.mu.Unlock()
		b.net.set(addr1, hostB())
		b.see(t, sightingB())
		settle(2 * interval)
		if p := b.phase(t, "a", peer.PhasePresent); p.Fingerprint != keyB || len(p.Links) != 2 {
			t.Errorf("key %v, links %v", p.Fingerprint, p.Links)
		}
		b.unsee(t, sightingB(), Absence{Reason: "goodbye", Evidence: Withdrawn})
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)
		b.unsee(t, other, Absence{Reason: "goodbye", Evidence: Withdrawn})
		settle(time.Second)
		b.phase(t, "a", peer.PhaseLost)
	})
}

package registry

import (
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// One check that fails is looked at again in a moment, and that counts once.
func TestSecondLook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)

		b.net.set(addr1, nil)
		for b.net.count() < 2 {
			settle(time.Second / 4)
		}
		settle(time.Second / 4)
		b.phase(t, "a", peer.PhaseUnreachable)
		b.net.set(addr1, hostA())
		settle(2 * secondLook)
		b.phase(t, "a", peer.PhasePresent)

		b.net.set(addr1, nil)
		before := b.net.count()
		for b.net.count() < before+2 {
			settle(time.Second / 4)
		}
		settle(time.Second / 4)
		if p := b.phase(t, "a", peer.PhaseUnreachable); p.Failures != 1 {
			t.Errorf("%d failures after a look and a second one", p.Failures)
		}
		settle(interval / 2)
		if n := b.net.count() - before; n != 2 {
			t.Errorf("%d checks within half an interval", n)
		}
	})
}

// Who is seen again after it was lost, and does not answer at once, is asked again soon, however long it was away, and then ever
// more rarely.
func TestWhoReturnsIsAskedAgainSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.net.set(addr1, nil)
		settle(2 * time.Hour) // long away, and its records stay
		b.phase(t, "a", peer.PhaseLost)
		for _, back := range []struct {
			what string
			do   func()
		}{
			{"is announced again", func() {
				b.unsee(t, sightingA(addr1), Absence{Reason: "its records expired", Evidence: Expired})
				settle(time.Minute)
				b.see(t, sightingA(addr1))
			}},
			{"has another address", func() { b.see(t, sightingA(addr2, addr1)) }},
		} {
			back.do()
			before := b.net.count()
			settle(10 * time.Second)
			b.phase(t, "a", peer.PhaseLost)
			if n := b.net.count() - before; n < 3 || n > 5 {
				t.Errorf("%s: %d checks in ten seconds", back.what, n)
			}
			settle(time.Hour)
			before = b.net.count()
			settle(time.Hour)
			if n := b.net.count() - before; n < 4 || n > 8 {
				t.Errorf("%s: %d checks in the second hour", back.what, n)
			}
		}
		b.unsee(t, sightingA(addr1), Absence{Reason: "its records expired", Evidence: Expired})
		b.see(t, sightingA(addr1))
		settle(2 * time.Second)
		b.net.set(addr1, hostA())
		settle(10 * time.Second)
		b.phase(t, "a", peer.PhasePresent)
	})
}

// A stranger that does not answer at once is asked again soon, and then ever more
// rarely.
func TestStrangersAreAskedAgainSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.see(t, sightingA(addr1))
		settle(10 * time.Second)
		b.phase(t, "a", peer.PhaseUnverified)
		if n := b.net.count(); n < 3 || n > 5 {
			t.Errorf("%d checks in ten seconds", n)
		}
		before := b.net.count()
		settle(10 * time.Minute)
		if n := b.net.count() - before; n > 8 {
			t.Errorf("%d checks in ten minutes", n)
		}
		b.net.set(addr1, hostA())
		settle(15 * time.Minute)
		b.phase(t, "a", peer.PhasePresent)
	})
}

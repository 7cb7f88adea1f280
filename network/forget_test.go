package network

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/network/filter"
)

// That addresses of a peer that is gone cannot be forgotten concerns nobody else: the others are as they are, and what is
// granted to them is in effect at once.
func TestForgettingOnAFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		a.breaks("store", errors.New("disk full"))
		a.Remove("c")
		time.Sleep(time.Minute)
		if s := mustStatus(t, a, "b"); s.State != Connected || s.Unable {
			t.Errorf("%s, unable %v: %v", s.State, s.Unable, s.Problem)
		}
		worst := time.Duration(0)
		for i := range 20 {
			pod := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(20 + i)}), 32)
			a.Set(Peer{ID: "b", Out: []filter.Grant{{From: []netip.Prefix{pod}, To: wholes(mustStatus(t, a, "b").Blocks.Theirs)}}})
			begun := time.Now()
			for len(a.set().Peers) != 1 || len(a.set().Peers[0].Out) != 1 || a.set().Peers[0].Out[0].From[0] != pod {
				time.Sleep(100 * time.Millisecond)
				if time.Since(begun) > time.Minute {
					t.Fatal("never")
				}
			}
			worst = max(worst, time.Since(begun))
			time.Sleep(3 * time.Second)
		}
		if worst > time.Second {
			t.Errorf("a new pod waits for %v until its packets pass", worst)
		}
	})
}

package endpoint

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// withoutRates lets everybody send as many requests as they like.
func withoutRates(s *Server) {
	s.limits.requests = throttle.New[netip.Addr](rate.Inf, 1, maxSources)
	s.limits.calls = throttle.New[netip.Addr](rate.Inf, 1, maxSources)
	s.limits.peers = throttle.New[peer.ClusterID](rate.Inf, 1, maxPeers)
	s.limits.guestRate = throttle.New[peer.ClusterID](rate.Inf, 1, maxPeers)
}

func TestSlots(t *testing.T) {
	s := newSlots[string](2, 5)
	for _, step := range []struct {
		key  string
		take bool // else release
		want bool
	}{
		{"a", true, true}, {"a", true, true}, {"a", true, false},
		{"b", true, true}, {"b", true, true}, {"c", true, true}, {"d", true, false},
		{"a", false, true}, {"d", true, true}, {"a", true, false},
	} {
		if !step.take {
			s.release(step.key)
		} else if got := s.take(step.key); got != step.want {
			t.Errorf("take %s: %v with %v", step.key, got, s.held)
		}
	}

	s = newSlots[string](2, 5)
	held := map[string]int{}
	for range 10_000 {
		key := string(rune('a' + rand.IntN(6)))
		if held[key] > 0 && rand.IntN(2) == 0 {
			s.release(key)
			held[key]--
		} else if s.take(key) {
			held[key]++
		}
		sum := 0
		for _, n := range held {
			sum += n
			if n > 2 {
				t.Fatal("too many for one key")
			}
		}
		if sum > 5 {
			t.Fatal("too many in all")
		}
	}
}

func TestRatesOfOneSource(t *testing.T) {
	l := newLimits()
	now := time.Now()
	l.now = func() time.Time { return now }
	source := netip.MustParseAddr("192.0.2.1")
	count := func(try func() time.Duration) int {
		n := 0
		for range 1000 {
			if try() == 0 {
				n++
			}
		}
		return n
	}
	if n := count(func() time.Duration { return l.call(source) }); n != callBurst {
		t.Errorf("%d calls at once", n)
	}
	// Calls that were one too many have used up what is there for requests, too.
	if n := count(func() time.Duration { return l.request(source) }); n != 0 {
		t.Errorf("then %d requests", n)
	}
	now = now.Add(10 * time.Second)
	if n := count(func() time.Duration { return l.request(source) }); n != sourceBurst {
		t.Errorf("%d requests at once", n)
	}
	if n := count(func() time.Duration { return l.known(peer.ClusterID("a")) }); n != peerBurst {
		t.Errorf("%d requests of a known cluster at once", n)
	}
	if n := count(func() time.Duration { return l.request(netip.MustParseAddr("192.0.2.2")) }); n != sourceBurst {
		t.Errorf("%d requests at once from another source", n)
	}
	if wait := l.call(source); wait <= 0 || math.Ceil(wait.Seconds()) != 1 {
		t.Errorf("wait %s", wait)
	}
}

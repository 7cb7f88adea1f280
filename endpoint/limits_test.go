package endpoint

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/peer"
)

// withoutRates lets everybody send as many requests as they like.
func withoutRates(s *Server) {
	s.limits.requests.rate = rate.Inf
	s.limits.calls.rate = rate.Inf
	s.limits.peers.rate = rate.Inf
	s.limits.guestRate.rate = rate.Inf
}

func TestBuckets(t *testing.T) {
	now := time.Now()
	b := newBuckets[string](2, 3, 10)
	take := func(key string) time.Duration { return b.take(key, now) }
	for i := range 3 {
		if wait := take("a"); wait != 0 {
			t.Errorf("request %d has to wait %s", i, wait)
		}
	}
	if wait := take("a"); wait < 400*time.Millisecond || wait > 600*time.Millisecond {
		t.Errorf("two a second, and the next in %s", wait)
	}
	if take("b") != 0 {
		t.Error("another key has to wait")
	}
	now = now.Add(500 * time.Millisecond)
	if take("a") != 0 {
		t.Error("nothing was refilled")
	}
	if take("a") == 0 {
		t.Error("too much was refilled")
	}
	now = now.Add(time.Hour)
	for range 3 {
		if take("a") != 0 {
			t.Error("not full after an hour")
		}
	}
	if take("a") == 0 {
		t.Error("more than full after an hour")
	}
}

// However many come, the memory is bounded, and those who come all the time are
// not forgotten in favour of those who came once.
func TestBucketsAreBounded(t *testing.T) {
	now := time.Now()
	b := newBuckets[int](1, 1, 100)
	for i := range 10_000 {
		now = now.Add(time.Microsecond)
		b.take(i, now)
		if i%50 == 0 && i > 0 && b.take(0, now) == 0 {
			t.Fatalf("after %d others, the first may again", i)
		}
		if len(b.keys) > 100 || len(b.keys) != b.used.Len() {
			t.Fatalf("%d keys, %d in the list", len(b.keys), b.used.Len())
		}
	}
	if len(b.keys) != 100 {
		t.Errorf("%d keys are remembered", len(b.keys))
	}
	// Whoever is idle goes as others come.
	now = now.Add(time.Minute)
	for i := range 60 {
		b.take(-1-i%2, now)
		b.take(-10-i, now)
	}
	if len(b.keys) > 80 {
		t.Errorf("%d keys are still remembered after a minute", len(b.keys))
	}
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

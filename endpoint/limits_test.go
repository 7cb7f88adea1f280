package endpoint

import (
	"math"
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
	for _, b := range []**throttle.Buckets[peer.ClusterID]{&s.limits.guestRate, &s.limits.writes, &s.limits.bytes, &s.limits.pods, &s.limits.opens} {
		*b = throttle.New[peer.ClusterID](rate.Inf, 1<<30, maxPeers)
	}
}

// patient gives everybody the time that a busy machine takes for a handshake, a request, its answer and the next one. Tests of these limits
// set their own.
func patient(s *Server) {
	for _, d := range []*time.Duration{&s.times.header, &s.times.read, &s.times.body, &s.times.call, &s.times.gateway, &s.times.write, &s.times.idle} {
		*d *= 12
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

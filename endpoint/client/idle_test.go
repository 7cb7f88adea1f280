package client

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// accepted returns how many connections a server has let in.
func accepted(s *endpoint.Server) uint64 { return s.Stats().Accepted }

func mustIdentify(t *testing.T, c *Client, target peer.Target) Result {
	t.Helper()
	got, err := c.Identify(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestNextCheckUsesTheKeptConnection(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0")
	c := patient(Config{Keep: 1})
	defer c.Close()
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}
	first := mustIdentify(t, c, target)
	for range 5 {
		if again := mustIdentify(t, c, target); !same(again, first) {
			t.Errorf("%+v, then %+v", first, again)
		}
	}
	if n := accepted(s); n != 1 {
		t.Errorf("%d connections for 6 checks", n)
	}
	b.Identity.ClusterName = "renamed"
	if got := mustIdentify(t, c, target); got.Identity.ClusterName != "renamed" {
		t.Errorf("a kept connection gives an old answer: %+v", got)
	}
}

func TestClientWithoutKeepClosesEveryConnection(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0")
	c := patient(Config{})
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}
	mustIdentify(t, c, target)
	mustIdentify(t, c, target)
	if n := accepted(s); n != 2 {
		t.Errorf("%d connections for 2 checks", n)
	}
}

// A peer that restarted, or whose idle timeout ended, has closed it.
func TestClosedKeptConnectionIsReplaced(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, b, "127.0.0.1:0", echo, func(s *http.Server) { s.IdleTimeout = 20 * time.Millisecond })
	c := patient(Config{Keep: 1})
	defer c.Close()
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(p.addr)}
	mustIdentify(t, c, target)
	endpointtest.Eventually(t, "close an idle connection", func() bool { return p.open.Load() == 0 })
	mustIdentify(t, c, target)
	if n := p.conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A peer that announces another address is asked there, although the old
// connection still works.
func TestKeptConnectionGivesWayToABetterAddress(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0")
	moved := serve(t, b, "127.0.0.2:0")
	c := patient(Config{Keep: 1})
	defer c.Close()
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}
	mustIdentify(t, c, target)
	target.Addrs = endpointtest.Addrs(at(moved, "127.0.0.2"), at(s, "127.0.0.1"))
	if got := mustIdentify(t, c, target); got.Addr != target.Addrs[0] {
		t.Errorf("asked at %s, want %s", got.Addr, target.Addrs[0])
	}
}

// An idle connection proves the key it was opened with, and no other.
func TestKeptConnectionKeepsThePin(t *testing.T) {
	b, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := serve(t, b, "127.0.0.1:0")
	c := patient(Config{Keep: 1})
	defer c.Close()
	list := endpointtest.Addrs(at(s, "127.0.0.1"))
	mustIdentify(t, c, peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: list})
	for _, target := range []peer.Target{
		{ID: endpointtest.IDA, Fingerprint: other.Key.Fingerprint(), Addrs: list},
		{ID: endpointtest.IDB, Fingerprint: b.Key.Fingerprint(), Addrs: list},
	} {
		var e *Error
		if _, err := c.Identify(t.Context(), target); !errors.As(err, &e) || e.Reason != ReasonWrongKey && e.Reason != ReasonWrongID {
			t.Errorf("%+v: %v", target, err)
		}
	}
}

func TestKeptConnectionsAreBounded(t *testing.T) {
	c := patient(Config{Keep: 2})
	defer c.Close()
	var servers []*endpoint.Server
	var targets []peer.Target
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		b := endpointtest.New(t, endpointtest.IDA)
		s := serve(t, b, netip.AddrPortFrom(netip.MustParseAddr(ip), 0).String())
		servers = append(servers, s)
		targets = append(targets, peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, ip))})
	}
	connections := func() (n uint64) {
		for _, s := range servers {
			n += accepted(s)
		}
		return n
	}
	for range 3 {
		for _, target := range targets {
			mustIdentify(t, c, target)
		}
	}
	if n := connections(); n != 1+1+3 {
		t.Errorf("%d connections for three checks of three peers, two of which are kept", n)
	}
	c.Forget(targets[0].Fingerprint)
	mustIdentify(t, c, targets[2])
	mustIdentify(t, c, targets[2])
	if n := connections(); n != 1+1+4 {
		t.Errorf("%d connections after room was made", n)
	}
}

// One whose peer nobody asks any more, as it has another key now, does not keep others from being kept.
func TestKeptConnectionOfNobodyGivesWay(t *testing.T) {
	former, b := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	gone, s := serve(t, former, "127.0.0.1:0"), serve(t, b, "127.0.0.2:0")
	c := patient(Config{Keep: 1})
	defer c.Close()
	mustIdentify(t, c, peer.Target{ID: endpointtest.IDA, Fingerprint: former.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(gone, "127.0.0.1"))})
	target := peer.Target{ID: endpointtest.IDB, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.2"))}
	mustIdentify(t, c, target)
	mustIdentify(t, c, target)
	if n := accepted(s); n != 2 {
		t.Fatalf("%d connections for 2 checks while another one is kept", n)
	}
	c.idle.mu.Lock()
	old := c.idle.byKey[former.Key.Fingerprint()]
	old.since = old.since.Add(-idleLife)
	c.idle.byKey[former.Key.Fingerprint()] = old
	c.idle.mu.Unlock()
	mustIdentify(t, c, target)
	mustIdentify(t, c, target)
	if n := accepted(s); n != 3 {
		t.Errorf("%d connections after 4 checks, the last two with room", n)
	}
}

func TestKept(t *testing.T) {
	k := newIdleConns(1)
	if k.take(peer.Fingerprint{1}) != nil || !k.room(peer.Fingerprint{1}, 0) {
		t.Error("an empty set holds something")
	}
	k.end()
	if k.room(peer.Fingerprint{1}, 1) {
		t.Error("room after the end")
	}
}

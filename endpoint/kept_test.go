package endpoint

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// accepted returns how many connections a server has let in.
func accepted(s *Server) uint64 { return s.Stats().Accepted }

func mustIdentify(t *testing.T, c *Client, target Target) Result {
	t.Helper()
	got, err := c.Identify(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestNextCheckUsesTheKeptConnection(t *testing.T) {
	b := newBox(t, idA)
	s := b.serve(t, "127.0.0.1:0", nil)
	c := NewClient(ClientConfig{Keep: 1})
	defer c.Close()
	target := Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: addrs(at(s, "127.0.0.1"))}
	first := mustIdentify(t, c, target)
	for range 5 {
		if again := mustIdentify(t, c, target); !same(again, first) {
			t.Errorf("%+v, then %+v", first, again)
		}
	}
	if n := accepted(s); n != 1 {
		t.Errorf("%d connections for 6 checks", n)
	}
	b.identity.ClusterName = "renamed"
	if got := mustIdentify(t, c, target); got.Identity.ClusterName != "renamed" {
		t.Errorf("a kept connection gives an old answer: %+v", got)
	}
}

func TestClientWithoutKeepClosesEveryConnection(t *testing.T) {
	b := newBox(t, idA)
	s := b.serve(t, "127.0.0.1:0", nil)
	c := NewClient(ClientConfig{})
	target := Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: addrs(at(s, "127.0.0.1"))}
	mustIdentify(t, c, target)
	mustIdentify(t, c, target)
	if n := accepted(s); n != 2 {
		t.Errorf("%d connections for 2 checks", n)
	}
}

// A peer that restarted, or whose idle timeout ended, has closed it.
func TestClosedKeptConnectionIsReplaced(t *testing.T) {
	b := newBox(t, idA)
	s := b.serve(t, "127.0.0.1:0", func(s *Server) { s.times.idle = 20 * time.Millisecond })
	c := NewClient(ClientConfig{Keep: 1})
	defer c.Close()
	target := Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: addrs(at(s, "127.0.0.1"))}
	mustIdentify(t, c, target)
	deadline := time.Now().Add(2 * time.Minute)
	for s.Stats().Open > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the server does not close an idle connection")
		}
		time.Sleep(5 * time.Millisecond)
	}
	mustIdentify(t, c, target)
	if n := accepted(s); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A peer that announces another address is asked there, although the old
// connection still works.
func TestKeptConnectionGivesWayToABetterAddress(t *testing.T) {
	b := newBox(t, idA)
	s := b.serve(t, "127.0.0.1:0", nil)
	moved := b.serve(t, "127.0.0.2:0", nil)
	c := NewClient(ClientConfig{Keep: 1})
	defer c.Close()
	target := Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: addrs(at(s, "127.0.0.1"))}
	mustIdentify(t, c, target)
	target.Addrs = addrs(at(moved, "127.0.0.2"), at(s, "127.0.0.1"))
	if got := mustIdentify(t, c, target); got.Addr != target.Addrs[0] {
		t.Errorf("asked at %s, want %s", got.Addr, target.Addrs[0])
	}
}

// A kept connection proves the key it was opened with, and no other.
func TestKeptConnectionKeepsThePin(t *testing.T) {
	b, other := newBox(t, idA), newBox(t, idB)
	s := b.serve(t, "127.0.0.1:0", nil)
	c := NewClient(ClientConfig{Keep: 1})
	defer c.Close()
	list := addrs(at(s, "127.0.0.1"))
	mustIdentify(t, c, Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: list})
	for _, target := range []Target{
		{ID: idA, Fingerprint: other.key.Fingerprint(), Addrs: list},
		{ID: idB, Fingerprint: b.key.Fingerprint(), Addrs: list},
	} {
		var e *Error
		if _, err := c.Identify(t.Context(), target); !errors.As(err, &e) || e.Reason != ReasonWrongKey && e.Reason != ReasonWrongID {
			t.Errorf("%+v: %v", target, err)
		}
	}
}

func TestKeptConnectionsAreBounded(t *testing.T) {
	c := NewClient(ClientConfig{Keep: 2})
	defer c.Close()
	var servers []*Server
	var targets []Target
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		b := newBox(t, idA)
		s := b.serve(t, netip.AddrPortFrom(netip.MustParseAddr(ip), 0).String(), nil)
		servers = append(servers, s)
		targets = append(targets, Target{ID: idA, Fingerprint: b.key.Fingerprint(), Addrs: addrs(at(s, ip))})
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

func TestKept(t *testing.T) {
	k := newKept(1)
	if k.take(peer.Fingerprint{1}) != nil || !k.room(peer.Fingerprint{1}, 0) {
		t.Error("an empty set holds something")
	}
	k.end()
	if k.room(peer.Fingerprint{1}, 1) {
		t.Error("room after the end")
	}
}

package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
)

// inBubble runs a test in a time of its own.
func inBubble(t *testing.T, f func(t *testing.T, l *lan)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		l := newLAN(t)
		f(t, l)
		for _, s := range l.sites {
			if s.stop != nil {
				s.stop()
			}
		}
		l.all.Wait()
	})
}

// connected checks that packets go both ways between two sites.
func connected(t *testing.T, a, b *site, within time.Duration) {
	t.Helper()
	ab, ba := a.expect(b.id, Connected, within), b.expect(a.id, Connected, within)
	if !slices.Equal(ab.Blocks.Theirs, ba.Blocks.Ours) || !slices.Equal(ab.Blocks.Ours, ba.Blocks.Theirs) || ab.Problem != nil || ab.RTT <= 0 {
		t.Errorf("%+v and %+v", ab, ba)
	}
	if !pass(a, b, "ping") || !pass(b, a, "pong") {
		t.Errorf("packets do not pass: %+v, %+v", ab, ba)
	}
}

func TestEitherOrder(t *testing.T) {
	for later, within := range map[time.Duration]time.Duration{
		0: 100 * time.Millisecond, 50 * time.Millisecond: 200 * time.Millisecond, 3 * time.Second: 3 * time.Second, 5 * time.Minute: 3 * time.Second,
	} {
		for _, first := range []peer.ClusterID{"a", "b"} {
			inBubble(t, func(t *testing.T, l *lan) {
				a, b := l.add("a"), l.add("b")
				begin := map[peer.ClusterID]func(){"a": func() { a.begin("b") }, "b": func() { b.begin("a") }}
				begin[first]()
				delete(begin, first)
				time.Sleep(later)
				for _, second := range begin {
					second()
				}
				connected(t, a, b, within)
				if len(a.set().Peers) != 1 || len(a.routed()) != 1 || a.routed()[0].Source != k3s.Host[0] || a.routed()[0].Prefix.Bits() != 23 {
					t.Errorf("%+v, %+v", a.set(), a.routed())
				}
				c := mustStatus(t, a, "b").Counters
				if c.PacketsIn != 1 || c.PacketsOut != 1 || c.BytesIn == 0 || len(c.Dropped) != 0 {
					t.Errorf("%+v", c)
				}
				if n := l.dialed("a", "b"); later == 0 && n != 1 {
					t.Errorf("a connects %d times", n)
				}
			})
		}
	}
}

func mustStatus(t *testing.T, s *site, id peer.ClusterID) Status {
	t.Helper()
	synctest.Wait()
	status, ok := s.Status(id)
	if !ok {
		t.Fatalf("%s does not know %s", s.id, id)
	}
	return status
}

// Both connect at the same time, again and again: the stream of the lesser ID is the
// one that stays, at both.
func TestCrossing(t *testing.T) {
	for _, ahead := range []time.Duration{-2, -1, 0, 1, 2} {
		inBubble(t, func(t *testing.T, l *lan) {
			a, b := l.add("a").begin("b"), l.add("b")
			time.Sleep(500 * time.Millisecond)
			b.begin("a")
			connected(t, a, b, 3*time.Second)
			time.Sleep(time.Minute)
			release := l.hold("")
			time.Sleep(7 * time.Second) // both are silent, and connect
			a.expect("b", Silent, time.Second)
			b.expect("a", Silent, time.Second)
			time.Sleep(time.Second + ahead*time.Millisecond)
			release()
			time.Sleep(2 * time.Second)
			connected(t, a, b, 0)
			if s, o := a.path("b").current.Load(), b.path("a").current.Load(); !s.dialed || o.dialed {
				t.Errorf("dialed by a: %v, by b: %v", s.dialed, o.dialed)
			}
			begun := a.path("b").current.Load()
			time.Sleep(time.Minute)
			if a.path("b").current.Load() != begun {
				t.Error("the connection does not last")
			}
		})
	}
}

func TestOneCanConnect(t *testing.T) {
	for _, cut := range [][2]peer.ClusterID{{"a", "b"}, {"b", "a"}} {
		inBubble(t, func(t *testing.T, l *lan) {
			l.cut[cut] = true
			a, b := l.add("a").begin("b"), l.add("b").begin("a")
			connected(t, a, b, 5*time.Second)
			time.Sleep(time.Hour)
			connected(t, a, b, 0)
			l.breakAll()
			connected(t, a, b, 3*time.Second)
		})
	}
}

// later is the error of a peer that says when to come again.
type later time.Duration

func (later) Error() string               { return "not wanted" }
func (l later) RetryAfter() time.Duration { return time.Duration(l) }

func TestPeerThatRefuses(t *testing.T) {
	for pause, most := range map[time.Duration]int{0: 250, time.Minute: 61, 1000 * time.Hour: 13} {
		inBubble(t, func(t *testing.T, l *lan) {
			a := l.add("a")
			l.refuse = later(pause)
			l.cut[[2]peer.ClusterID{"a", "b"}] = true
			a.begin("b")
			time.Sleep(time.Hour)
			if n := l.dialed("a", "b"); n > most || n < most*3/4 {
				t.Errorf("%d attempts in an hour", n)
			}
			b := l.add("b")
			b.begin("a") // can connect
			connected(t, a, b, 2*time.Second)
		})
	}
}

func TestBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		before := mustStatus(t, a, "b").Blocks
		for range 5 {
			l.breakAll()
			synctest.Wait()
			connected(t, a, b, 3*time.Second)
			time.Sleep(time.Minute)
		}
		// A peer that comes back with a new engine knows the same addresses.
		for _, away := range []time.Duration{0, time.Second, time.Hour} {
			b.stop()
			a.expect("b", Connecting, time.Second)
			if p := mustStatus(t, a, "b").Problem; p == nil {
				t.Error("nothing is known to be wrong")
			}
			time.Sleep(away)
			b.renew()
			b.begin("a")
			connected(t, a, b, 3*time.Second)
		}
		if after := mustStatus(t, a, "b").Blocks; !slices.Equal(before.Theirs, after.Theirs) || !slices.Equal(before.Ours, after.Ours) || a.stored() != 2 || b.stored() != 2 {
			t.Errorf("%+v became %+v, stored %d and %d times", before, after, a.stored(), b.stored())
		}
		if n := l.dialed("a", "b"); n > 400 {
			t.Errorf("%d attempts in an hour", n)
		}
	})
}

func TestSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		// Shorter than that is nothing.
		changes := a.told("b")
		release := l.hold("")
		time.Sleep(3 * time.Second)
		release()
		time.Sleep(5 * time.Second)
		if a.told("b") != changes {
			t.Error("told of a short silence")
		}
		for _, away := range []time.Duration{9 * time.Second, 20 * time.Second, 28 * time.Second} {
			release := l.hold("")
			time.Sleep(away)
			if s := a.expect("b", Silent, 0); s.Problem == nil {
				t.Error("it is not said what is wrong")
			}
			release()
			connected(t, a, b, 2*time.Second)
			time.Sleep(time.Minute)
			connected(t, a, b, 0)
		}
		// What stays silent ends.
		release = l.hold("")
		time.Sleep(deadAfter + probeEvery)
		a.expect("b", Connecting, probeEvery)
		time.Sleep(time.Hour)
		release()
		connected(t, a, b, redialMost+3*time.Second)
		// Nobody waits as long when it is known that the peer is there again.
		release = l.hold("")
		time.Sleep(time.Hour)
		release()
		a.Moved("b")
		connected(t, a, b, 2*time.Second)
	})
}

// Pods of this node can ask for names whether or not it is connected with anybody.
func TestNames(t *testing.T) {
	names := filter.Names{Addresses: []netip.Addr{netip.MustParseAddr("169.254.241.53")}, AskPort: 53, Port: 6453, From: k3s.Pods}
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		there := func(what string, peers int) {
			t.Helper()
			synctest.Wait()
			time.Sleep(restMost)
			if routes := a.routed(); len(a.addressed()) != 1 || !slices.Equal(a.set().Names.Addresses, names.Addresses) || len(a.set().Peers) != peers || len(routes) != peers || a.count("remove") != 0 {
				t.Errorf("%s: addresses %v, routes %v, rules %+v", what, a.addressed(), routes, a.set())
			}
		}
		a.SetNames(names)
		there("connected", 1)
		a.SetNode(Node{})
		there("without a network", 0)
		if state := a.state("b"); state == Connected {
			t.Errorf("it is %s", state)
		}
		a.SetNode(k3s)
		connected(t, a, b, 20*time.Second)
		there("again", 1)
		a.Remove("b")
		there("without a peer", 0)
		a.SetNames(filter.Names{})
		time.Sleep(restMost)
		if a.count("remove") != 1 || a.count("remove table") != 1 || a.link.Load() != nil {
			t.Errorf("something is left: %+v", a.set())
		}
		a.SetNames(names)
		time.Sleep(restMost)
		if len(a.addressed()) != 1 || len(a.set().Names.Addresses) != 1 {
			t.Errorf("nobody is answered: %v, %+v", a.addressed(), a.set())
		}
	})
}

// What guests open is bounded whether or not this cluster is connected with theirs, or with any, and as far as the machine can.
func TestGuests(t *testing.T) {
	guests := map[peer.ClusterID][]netip.Prefix{"b": prefixes("10.42.0.9/32"), "c": prefixes("10.42.0.10/32")}
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		var log strings.Builder
		a.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		held := func(when string, peers int, plugged bool) {
			t.Helper()
			synctest.Wait()
			time.Sleep(restMost)
			set := a.set()
			if len(set.Guests) != 2 || !slices.Equal(set.Guests["b"], guests["b"]) || set.Connections == 0 || len(set.Peers) != peers || (a.link.Load() != nil) != plugged {
				t.Errorf("%s: %+v, device %v", when, set, a.link.Load())
			}
		}
		a.breaks("device", errors.New("no TUN"))
		a.SetGuests(guests)
		a.begin("b")
		held("without a device", 0, false)
		a.breaks("device", nil)
		time.Sleep(redialMost)
		held("with nothing agreed on", 0, true)
		b := l.add("b").begin("a")
		connected(t, a, b, redialMost)
		held("connected", 1, true)
		removed := a.count("remove")
		a.SetNode(Node{})
		held("without a network", 0, false)
		if n := a.count("remove") - removed; n != 1 || len(a.routed()) != 0 {
			t.Errorf("the device is removed %d times, with routes %v", n, a.routed())
		}
		a.stop()
		a.renew()
		a.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a.SetGuests(guests)
		a.run()
		held("after a restart", 0, false)
		a.breaks("set", errors.New("no nftables"))
		a.SetGuests(nil)
		a.SetGuests(guests)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), "what pods of consumers open is not limited"); n != 1 || a.Problem() != nil {
			t.Errorf("it is said %d times, and the problem is %v:\n%s", n, a.Problem(), log.String())
		}
		a.breaks("set", nil)
		time.Sleep(checkEvery)
		held("again", 0, false)
		a.Settled()
		a.SetGuests(nil)
		time.Sleep(restMost)
		if a.count("remove table") != 1 || a.set().Device != "" {
			t.Errorf("something is left: %+v", a.set())
		}
		b.stop()
	})
}

func TestRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		before := a.row("b")
		a.Remove("b")
		a.Remove("b")
		synctest.Wait()
		if b.state("a") != Connecting {
			t.Error("the stream goes on")
		}
		if _, ok := a.Status("b"); ok || a.Wanted("b") == nil || a.Wanted("c") != nil {
			t.Error("it is still wanted")
		}
		time.Sleep(time.Second)
		if len(a.set().Peers) != 1 || len(a.routed()) != 1 || a.count("remove") != 0 {
			t.Errorf("%+v, %+v", a.set(), a.routed())
		}
		if b := a.row("b"); len(b.Theirs) != 0 {
			t.Errorf("%v is still stored", b)
		}
		a.Set(Peer{ID: "b"})
		connected(t, a, b, 20*time.Second)
		if after := a.row("b"); !slices.Equal(before.Theirs, after.Theirs) {
			t.Errorf("%v became %v", before, after)
		}
		connected(t, a, c, 0)
		a.Remove("b")
		a.Remove("c")
		synctest.Wait()
		if a.set().Device != "" || a.count("remove") != 1 || a.count("remove table") != 1 || a.link.Load() != nil {
			t.Errorf("something is left: %+v, %v", a.set(), a.set())
		}
		a.Set(Peer{ID: "b"})
		connected(t, a, b, 20*time.Second)
	})
}

// A node that has no network any more is not connected, and one that gets another one
// is known by that.
func TestSetNode(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		a.SetNode(k3s)
		synctest.Wait()
		connected(t, a, b, 0)
		other := Node{Pods: prefixes("10.1.0.0/20"), Host: []netip.Addr{netip.MustParseAddr("10.1.0.1")}}
		a.SetNode(other)
		synctest.Wait()
		connected(t, a, b, 5*time.Second)
		if s := mustStatus(t, b, "a"); !slices.Equal(s.Blocks.Pods, other.Pods) || s.Blocks.Theirs[0].Bits() != 20 || b.routed()[0].Prefix.Bits() != 19 {
			t.Errorf("%+v", s)
		}
		a.SetNode(Node{})
		time.Sleep(time.Minute)
		dials := l.dialed("a", "b")
		time.Sleep(time.Hour)
		if a.state("b") != Connecting || a.Wanted("b") == nil || a.count("remove") != 1 || l.dialed("a", "b") != dials {
			t.Errorf("%s, %v", a.state("b"), a.set())
		}
		a.SetNode(k3s)
		connected(t, a, b, 20*time.Second)
	})
}

// The peer is away while this node's addresses change: that must not keep others from
// being connected.
func TestSetNodeWhilePeerIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		c.stop()
		a.SetNode(Node{Pods: prefixes("10.1.0.0/20"), Host: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
		connected(t, a, b, 20*time.Second)
		if len(a.set().Peers) != 1 {
			t.Errorf("%+v", a.set().Peers)
		}
		c.renew()
		c.begin("a")
		connected(t, a, c, 20*time.Second)
	})
}

// TestNothingGoesBeforeSettled: nothing is there at first, so nobody is waited for. What an
// earlier run left stays until it is known that nobody wants it.
func TestNothingGoesBeforeSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		a.SetNode(k3s)
		a.Set(Peer{ID: "b"})
		a.run()
		b := l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		// What an earlier run left for peers that nobody wants any more goes.
		a.stop()
		if a.count("remove") != 0 || len(a.set().Peers) != 1 || a.state("b") != Connecting {
			t.Errorf("%v", a.set())
		}
		a.renew()
		a.SetNode(k3s)
		a.Set(Peer{ID: "c"})
		a.run()
		time.Sleep(time.Hour)
		if a.count("remove") != 0 || len(a.set().Peers) != 1 || l.dialed("a", "c") != 0 {
			t.Errorf("b is not waited for: %v", a.set())
		}
		a.Remove("c")
		a.Settled()
		if a.count("remove") != 1 || a.count("remove table") != 1 || len(a.set().Peers) != 0 || len(a.row("b").Theirs) != 0 {
			t.Errorf("%v", a.set())
		}
		if a.Wanted("b") == nil {
			t.Error("b is wanted")
		}
	})
}

// TestAgreedBefore: what the first Set of a peer grants is made of what was agreed on with it in an earlier run.
func TestAgreedBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		before := mustStatus(t, a, "b").Blocks
		a.stop()
		a.renew()
		if s, wanted := a.Status("b"); wanted || s.Known || len(s.Blocks.Theirs) > 0 {
			t.Errorf("before it runs: %+v", s)
		}
		select {
		case <-a.Loaded():
			t.Error("loaded before it runs")
		default:
		}
		a.run()
		<-a.Loaded()
		if s, wanted := a.Status("b"); wanted || !s.Known || !reflect.DeepEqual(s.Blocks, before) {
			t.Errorf("before it is wanted: %+v, want %+v", s, before)
		}
		a.stop()
		a.run() // Run may be called again
		a.SetNode(k3s)
		a.Set(Peer{ID: "b"})
		connected(t, a, b, 3*time.Second)
	})
}

// A disk that takes nothing keeps nobody from being connected who was so before, and what
// could not be written is.
func TestDiskIsFull(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		a.breaks("store", errors.New("disk full"))
		a.Remove("c")
		time.Sleep(time.Minute)
		if s := mustStatus(t, a, "b"); s.State != Connected || s.Problem != nil || !pass(a, b, "x") || len(a.set().Peers) != 1 {
			t.Errorf("%+v", s)
		}
		l.breakAll()
		time.Sleep(5 * time.Second)
		if s := mustStatus(t, a, "b"); s.State != Connected {
			t.Errorf("%+v", s)
		}
		a.Set(Peer{ID: "c"}) // as before
		time.Sleep(redialMost)
		a.expect("c", Connected, redialMost)
		d := l.add("d").begin("a")
		a.Set(Peer{ID: "d"})
		time.Sleep(time.Minute)
		if s := mustStatus(t, a, "d"); s.State != Connecting || s.Problem == nil || !strings.Contains(s.Problem.Error(), "disk full") {
			t.Errorf("%+v", s)
		}
		a.Remove("c")
		a.breaks("store", nil)
		connected(t, a, d, 2*redialMost)
		if len(a.row("c").Theirs) != 0 || a.row("d").check() != nil {
			t.Errorf("%+v, %+v", a.row("c"), a.row("d"))
		}
		connected(t, a, b, 0)
	})
}

func TestRunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		for range 3 {
			connected(t, a, b, 20*time.Second)
			a.stop()
			if a.state("b") != Connecting || a.Wanted("b") == nil || a.path("b").route.Load() != nil {
				t.Error("it is connected while it does not run")
			}
			time.Sleep(time.Second)
			a.run()
		}
	})
}

// A route of this machine that comes to collide gives another block, and the peer is told.
func TestCollision(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		before, same := a.row("b"), a.row("c")
		changes := a.told("b")
		a.uses(before.Theirs[0])
		time.Sleep(checkEvery + 3*time.Second)
		connected(t, a, b, 0)
		after := a.row("b")
		if after.Theirs[0].Overlaps(whole(before.Theirs[0])) || !slices.Equal(after.Pods, before.Pods) || !slices.Equal(a.row("c").Theirs, same.Theirs) || a.told("b") == changes {
			t.Errorf("%v became %v", before, after)
		}
		if status, _ := a.Status("b"); status.Moved == nil || !slices.Equal(status.Moved.From, before.Theirs) || !slices.Equal(status.Moved.To, after.Theirs) || status.Moved.Taken != before.Theirs[0] {
			t.Errorf("the move is %+v, from %v to %v", status.Moved, before.Theirs, after.Theirs)
		}
		if status, _ := a.Status("c"); status.Moved != nil {
			t.Errorf("who stays was moved: %+v", status.Moved)
		}
		stores := a.stored()
		time.Sleep(time.Hour)
		connected(t, a, b, 0)
		if a.stored() != stores {
			t.Error("it goes on choosing")
		}
		// The peer is away, and others are connected all the same.
		b.stop()
		a.uses(after.Theirs[0])
		time.Sleep(checkEvery + 3*time.Second)
		connected(t, a, c, 0)
		if a.set().Peers[0].Theirs[0] == after.Theirs[0] {
			t.Error("the block is used although it is taken")
		}
		b.renew()
		b.begin("a")
		connected(t, a, b, 20*time.Second)
	})
}

// Nothing is free: that is said, and does not keep others from being connected.
func TestNoBlockIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		a.within = prefix("241.0.0.0/20") // eight blocks, of which others use six
		a.uses(prefix("241.0.0.0/21"))
		a.uses(prefix("241.0.8.0/22"))
		a.begin("b", "c", "d")
		b, c, d := l.add("b").begin("a"), l.add("c").begin("a"), l.add("d")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		d.begin("a")
		time.Sleep(time.Minute)
		if s := mustStatus(t, a, "d"); s.State != Connecting || s.Problem == nil || !strings.Contains(s.Problem.Error(), "sharing.network_range") {
			t.Errorf("%+v", s)
		}
		if n := l.dialed("a", "d") + l.dialed("d", "a"); n > 40 {
			t.Errorf("%d attempts in a minute", n)
		}
		connected(t, a, b, 0)
		connected(t, a, c, 0)
	})
}

func TestDeviceFails(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		time.Sleep(time.Hour)
		a.device().failed <- errors.New("deleted by somebody else")
		synctest.Wait()
		connected(t, a, b, time.Second)
		// Once more, and again, and again.
		opened := a.count("device")
		for range 100 {
			select {
			case a.device().failed <- errors.New("deleted by somebody else"):
			default:
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if n := a.count("device") - opened; n > 10 {
			t.Errorf("opened %d times", n)
		}
		time.Sleep(2 * time.Minute) // it has to last
		connected(t, a, b, time.Second)
	})
}

func TestProblemsAreShown(t *testing.T) {
	for _, what := range []string{"device", "table", "taken", "set", "configure"} {
		inBubble(t, func(t *testing.T, l *lan) {
			a, b := l.add("a"), l.add("b").begin("a")
			a.breaks(what, errors.New("does not work"))
			a.begin("b", "c")
			time.Sleep(time.Minute)
			for _, id := range []peer.ClusterID{"b", "c"} {
				if s := mustStatus(t, a, id); s.State != Connecting || s.Problem == nil || !strings.Contains(s.Problem.Error(), "does not work") || a.told(id) == 0 {
					t.Errorf("%s: %+v", what, s)
				}
			}
			n := a.count(what)
			time.Sleep(time.Hour)
			if n := a.count(what) - n; n < 100 || n > 500 {
				t.Errorf("%s: tried %d times in an hour", what, n)
			}
			if what != "table" && a.count("table")-a.count("close table") > 1 {
				t.Errorf("%s: tables are left open: %v", what, a.set())
			}
			a.breaks(what, nil)
			time.Sleep(redialMost)
			connected(t, a, b, redialMost)
			if what != "device" && what != "table" {
				// Those who are connected stay so.
				a.breaks(what, errors.New("does not work"))
				a.Set(Peer{ID: "b", In: []filter.Grant{{From: prefixes("241.0.0.0/8"), To: prefixes("10.42.0.0/24")}}})
				time.Sleep(time.Second)
				if s := mustStatus(t, a, "b"); s.State != Connected || s.Problem == nil || !pass(a, b, "x") {
					t.Errorf("%s: %+v", what, s)
				}
			}
		})
	}
}

// TestNothingToClear: a machine without nftables, on which nothing was ever connected, is left
// alone.
func TestNothingToClear(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		a.breaks("table", errors.New("does not work"))
		a.begin()
		time.Sleep(time.Hour)
		if n := a.count("table"); n != 1 {
			t.Errorf("tried %d times in an hour", n)
		}
	})
}

// Who parts on purpose, however often, has lost nothing, and the other one is told.
func TestParting(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a"), l.add("b")
		var logs [2]strings.Builder
		for i, s := range []*site{a, b} {
			s.cfg.Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
			s.begin()
		}
		times := 2 * lossBurst
		for i := range times {
			a.Set(Peer{ID: "b"})
			b.Set(Peer{ID: "a"})
			connected(t, a, b, 20*time.Second)
			first, second := a, b
			if i%2 == 1 {
				first, second = b, a
			}
			first.Remove(second.id)
			if s := second.expect(first.id, Connecting, 0); !errors.Is(s.Problem, ErrLeft) {
				t.Errorf("round %d: %s is told %v", i, second.id, s.Problem)
			}
			second.Remove(first.id)
			time.Sleep(time.Second)
		}
		for i := range logs {
			text := logs[i].String()
			for line, want := range map[string]int{
				"disconnected from the network of a peer": times / 2, "a peer has disconnected": times / 2, "no packets pass": 0, "again and again": 0,
			} {
				if n := strings.Count(text, line); n != want {
					t.Errorf("%d lines %q, want %d:\n%s", n, line, want, text)
				}
			}
		}
	})
}

// A peer that takes nothing does not keep what it is not to have any more.
func TestPartingFromWhoTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		r := l.intrude(a, true)
		r.say(honest)
		a.expect("b", Connected, 3*time.Second)
		l.hold("b")
		for range 10 {
			a.device().in <- frameOf(netip.MustParseAddr("241.7.0.5"), mustStatus(t, a, "b").Blocks.Theirs[0].Addr().Next(), "x")
		}
		s := a.path("b").current.Load()
		a.Remove("b")
		time.Sleep(partTimeout)
		synctest.Wait()
		if !s.ended() {
			t.Error("the stream goes on")
		}
		l.breakAll()
	})
}

func TestClearIsRetried(t *testing.T) {
	for _, what := range []string{"remove", "table", "remove table"} {
		inBubble(t, func(t *testing.T, l *lan) {
			a := l.add("a")
			a.SetNode(k3s)
			a.run()
			a.Set(Peer{ID: "b"})
			connected(t, a, l.add("b").begin("a"), time.Minute) // there is something to clear
			a.Remove("b")
			a.breaks(what, errors.New("does not work"))
			before := a.count(what)
			a.Settled()
			time.Sleep(time.Hour)
			if n := a.count(what) - before; n < 100 || n > 500 {
				t.Errorf("%s: tried %d times in an hour", what, n)
			}
			a.breaks(what, nil)
			time.Sleep(time.Minute)
			n := a.count(what)
			time.Sleep(time.Hour)
			if n != a.count(what) {
				t.Errorf("%s: again although nothing is left", what)
			}
		})
	}
}

// TestChangesWithoutEnd: a peer whose pods come and go all the time keeps this cluster busy for half of the time, at most,
// and the last change is made soon.
func TestChangesWithoutEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		a.slow = 100 * time.Millisecond
		connected(t, a.begin("b"), l.add("b").begin("a"), time.Minute)
		before := a.count("set")
		var last []filter.Grant
		for i := range 10_000 {
			pod := netip.PrefixFrom(netip.AddrFrom4([4]byte{241, 0, 0, byte(i % 250)}), 32)
			last = []filter.Grant{{From: k3s.Pods, To: []netip.Prefix{pod}}}
			a.Set(Peer{ID: "b", Out: last})
			time.Sleep(time.Millisecond)
		}
		if n := a.count("set") - before; n < 10 || n > 51 {
			t.Errorf("%d changes of 100 ms in 10 s", n)
		}
		time.Sleep(time.Second)
		if got := a.set().Peers; len(got) != 1 || !slices.EqualFunc(got[0].Out, last, func(x, y filter.Grant) bool { return slices.Equal(x.To, y.To) }) {
			t.Errorf("%+v", got)
		}
	})
}

func TestLoadFails(t *testing.T) {
	e := New(Config{Load: func(context.Context) (map[peer.ClusterID]Blocks, error) { return nil, errors.New("disk full") }})
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
}

// A peer that takes nothing does not keep others waiting.
func TestPeerThatDoesNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b, c := l.add("a").begin("b", "c"), l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		blocks := mustStatus(t, a, "b").Blocks
		frame := superpacket(blocks.Ours[0].Addr().Next(), blocks.Theirs[0].Addr().Next(), 64000)
		release := l.hold("b")
		const n = 100
		for range n {
			a.device().in <- frame // returns at once
		}
		connected(t, a, c, 0)
		s := mustStatus(t, a, "b").Counters
		if d := s.Dropped[dropNames[dropFull]]; d < n-20 || d > n-5 || s.PacketsOut < 5 {
			t.Errorf("%+v", s)
		}
		release()
		time.Sleep(time.Minute)
		connected(t, a, b, time.Second)
		q := a.path("b").current.Load().queue
		q.mu.Lock()
		defer q.mu.Unlock()
		if cap(q.packets) > keptBytes {
			t.Errorf("%d bytes are kept", cap(q.packets))
		}
	})
}

// Grants go to the filter, and the kernel's packets only where they belong.
func TestWhatIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		grant := filter.Grant{From: prefixes("241.0.0.0/8"), To: prefixes("10.42.0.0/24")}
		a.Set(Peer{ID: "b", In: []filter.Grant{grant}})
		synctest.Wait()
		if p := a.set().Peers[0]; len(p.In) != 1 || p.Name != "b" || p.Gateways[0] != p.Theirs[0].Addr().Next() {
			t.Errorf("%+v", p)
		}
		sets := a.count("set")
		a.Set(Peer{ID: "b", In: []filter.Grant{grant}})
		synctest.Wait()
		if a.count("set") != sets {
			t.Error("the tables are set although nothing has changed")
		}
		blocks := mustStatus(t, a, "b").Blocks
		ours, theirs := blocks.Ours[0].Addr(), blocks.Theirs[0].Addr()
		for _, frame := range [][]byte{
			frameOf(netip.MustParseAddr("10.42.0.7"), theirs, "not translated"),
			frameOf(ours, netip.MustParseAddr("1.1.1.1"), "to nobody"),
			frameOf(ours, whole(blocks.Theirs[0]).Addr().Prev(), "beside the block"),
			{0, 0, 0}, make([]byte, 100),
		} {
			if deliver(a, b, frame) {
				t.Errorf("%q arrives", frame)
			}
		}
		if c := mustStatus(t, a, "b").Counters; c.Dropped[dropNames[dropSource]] != 1 || c.PacketsOut != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// Many peers that come at once are all connected, by few changes of the tables.
func TestManyPeers(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		const peers = 60
		a := l.add("a").begin()
		var all []*site
		for i := range peers {
			s := l.add(peer.ClusterID(fmt.Sprintf("p%03d", i)))
			a.Set(Peer{ID: s.id})
			all = append(all, s.begin("a"))
		}
		for _, s := range all {
			a.expect(s.id, Connected, 5*time.Second)
		}
		blocks := make(map[netip.Prefix]bool)
		for _, r := range a.routed() {
			blocks[r.Prefix] = true
		}
		if len(blocks) != peers || len(a.set().Peers) != peers || a.stored() != 2*peers {
			t.Errorf("%d blocks, %d peers, %d writes", len(blocks), len(a.set().Peers), a.stored())
		}
		sets := a.count("set")
		time.Sleep(5 * time.Minute)
		if n := a.count("set") - sets; n > 6 {
			t.Errorf("the tables are set %d times in five minutes", n)
		}
		for _, s := range all {
			s.stop()
		}
	})
}

// What the kernel refuses is counted like what we drop, however often its counters begin anew.
func TestRefusedConnectionsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		if n := a.set().Connections; n != 1<<12 {
			t.Errorf("each peer may have %d connections", n)
		}
		var sum uint64
		for _, step := range []struct{ counter, more uint64 }{{5, 5}, {7, 2}, {7, 0}, {3, 3}, {4, 1}} {
			a.machine.mu.Lock()
			a.machine.refused = map[string]uint64{"b": step.counter, "nobody": 9}
			a.machine.mu.Unlock()
			a.Refresh()
			sum += step.more
			if status, _ := a.Status("b"); status.Counters.Dropped["connections"] != sum {
				t.Errorf("after %d: %v, want %d", step.counter, status.Counters.Dropped, sum)
			}
		}
	})
}

func TestShare(t *testing.T) {
	for all, want := range map[int]int{0: 4096, 100: 64, 65536: 4096, 131072: 8192, 1 << 20: 8192} {
		if got := share(all); got != want {
			t.Errorf("of %d: %d, want %d", all, got, want)
		}
	}
}

// A kernel that cannot limit connections is not silently taken for one that can.
func TestKernelWithoutLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a"), l.add("b").begin("a")
		var log strings.Builder
		a.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a.machine.unbound = true
		a.begin("b")
		connected(t, a, b, 3*time.Second)
		a.device().failed <- errors.New("broken") // another Table
		time.Sleep(time.Minute)
		connected(t, a, b, time.Minute)
		a.stop()
		if n := strings.Count(log.String(), "nft_connlimit"); n != 1 {
			t.Errorf("it is said %d times:\n%s", n, log.String())
		}
	})
}

// An address that a pod shows leads to its peer or to nobody.
func TestBlocksThatAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a"), l.add("b").begin("a")
		first := func() netip.Prefix {
			a.begin("b")
			return a.expect("b", Connected, 3*time.Second).Blocks.Theirs[0]
		}
		block := first()
		again := func(shown map[netip.Addr]peer.ClusterID) netip.Prefix {
			a.stop()
			a.rows = make(map[peer.ClusterID]Blocks) // as after the network was off
			a.renew()
			a.Shown(shown)
			return first()
		}
		at := block.Addr().Next()
		if got := again(map[netip.Addr]peer.ClusterID{at: "c"}); got.Overlaps(block) {
			t.Errorf("b has %s, of which a pod of c shows %s", got, at)
		}
		if got := again(map[netip.Addr]peer.ClusterID{at: ""}); got.Overlaps(block) {
			t.Errorf("b has %s, of which a pod of somebody shows %s", got, at)
		}
		if got := again(map[netip.Addr]peer.ClusterID{at: "b"}); got != block {
			t.Errorf("b has %s, and its own pods show %s", got, at)
		}
		// The agent starts just when somebody has deleted the node of b.
		anew := func(shown map[netip.Addr]peer.ClusterID) netip.Prefix {
			a.stop()
			a.renew()
			a.Shown(shown)
			return first()
		}
		if got := anew(map[netip.Addr]peer.ClusterID{at: ""}); got != block {
			t.Errorf("b has %s in place of %s, of which a pod shows an address", got, block)
		}
		if got := anew(map[netip.Addr]peer.ClusterID{at: Nobody}); got.Overlaps(block) {
			t.Errorf("b has %s, of which pods at several peers show %s", got, at)
		}
		b.stop()
	})
}

// A peer with many addresses does not take those of all others.
func TestLargePeer(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		l.cut[[2]peer.ClusterID{"a", "b"}] = true
		a, c := l.add("a"), l.add("c").begin("a")
		a.within = prefix("241.0.0.0/14")
		a.begin("b", "c")
		r := l.intrude(a, true)
		r.say(`{"pods":["10.42.0.0/16"],"yours":["241.7.0.0/24"]}`)
		if !r.ended(time.Second) {
			t.Error("it is taken")
		}
		if s := mustStatus(t, a, "b"); len(s.Blocks.Theirs) > 0 || s.Problem == nil || !strings.Contains(s.Problem.Error(), "more than an eighth of the range 241.0.0.0/14") {
			t.Errorf("%+v", s)
		}
		connected(t, a, c, 3*time.Second)
	})
}

func TestFair(t *testing.T) {
	for _, tc := range []struct {
		pods   []netip.Prefix
		within string
		ok     bool
	}{
		{prefixes("10.42.0.0/24"), "241.0.0.0/20", true}, {prefixes("10.42.0.0/23"), "241.0.0.0/20", false},
		{prefixes("10.0.0.0/16"), "241.0.0.0/12", true}, {prefixes("10.0.0.0/16"), "241.0.0.0/13", false},
		{prefixes("10.0.0.0/16"), "241.0.0.0/8", true}, {prefixes("fd00::/64"), "241.0.0.0/20", true},
		{prefixes("fd00::/64", "10.42.0.0/16"), "241.0.0.0/20", false},
	} {
		if err := fair(tc.pods, prefix(tc.within)); (err == nil) != tc.ok {
			t.Errorf("%v in %s: %v", tc.pods, tc.within, err)
		}
	}
}

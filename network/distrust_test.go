package network

import (
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/peer"
)

// Trust in a peer ends, or is suspended: what this cluster has opened ends, too, not only what the peer has.
func TestDistrustedPeerIsDisconnected(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		connected(t, a, b, 3*time.Second)
		if s := a.path("b").current.Load(); !s.dialed {
			t.Fatal("a has not opened the connection")
		}

		l.mu.Lock()
		l.cut[[2]peer.ClusterID{"a", "b"}], l.cut[[2]peer.ClusterID{"b", "a"}] = true, true // no target here, and b is refused
		l.mu.Unlock()
		a.Distrust("b")
		synctest.Wait()
		if pass(b, a, "from a peer that is not trusted") {
			t.Error("packets of a peer that is not trusted pass")
		}
		time.Sleep(10 * time.Minute)
		if s := mustStatus(t, a, "b"); s.State == Connected {
			t.Errorf("ten minutes later: %+v", s)
		}
	})
}

// A connection that was being opened while the peer was blocked, of which Distrust does not know, is not used.
func TestDistrustedWhileItConnects(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a"), l.add("b")
		a.distrusts.Store(true)
		a.begin("b")
		b.begin("a")
		for range 60 {
			time.Sleep(time.Second)
			if s := mustStatus(t, a, "b"); s.State == Connected {
				t.Fatalf("it has %+v", s)
			}
		}
		a.distrusts.Store(false)
		a.Moved("b")
		connected(t, a, b, 2*time.Minute)
	})
}

// What an earlier process left of WireGuard is not used for a peer that is not trusted any more.
func TestDistrustedBetweenRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		w := newWires()
		a, b := l.add("a"), l.add("b")
		w.gets(a)
		w.gets(b)
		a.begin("b")
		b.begin("a")
		by(t, a, "b", EngineWireGuard, 15*time.Second)
		a.stop()
		a.distrusts.Store(true)
		a.renew()
		a.begin("b")
		time.Sleep(time.Second)
		if a.hasTunnel() && len(a.machine.tunnel().Peers) > 0 {
			t.Errorf("it goes on with %+v", a.machine.tunnel().Peers)
		}
		if s := mustStatus(t, a, "b"); s.State == Connected {
			t.Errorf("it has %+v", s)
		}
	})
}

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

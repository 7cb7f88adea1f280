package network

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A probe is answered by the peer's agent. However many ask at the same time, one is on its way.
func TestProbe(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a").begin("b"), l.add("b").begin("a")
		if _, err := a.Probe(t.Context(), "nobody"); err == nil {
			t.Error("a peer that is not to be connected answers")
		}
		connected(t, a, b, 3*time.Second)
		var asking sync.WaitGroup
		for range 100 {
			asking.Go(func() {
				if took, err := a.Probe(t.Context(), "b"); err != nil || took <= 0 {
					t.Errorf("it took %v, %v", took, err)
				}
			})
		}
		asking.Wait()
		if left := len(a.path("b").stream().waiters); left != 0 {
			t.Errorf("%d still wait", left)
		}
		b.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := a.Probe(ctx, "b"); err == nil {
			t.Errorf("a peer that has stopped answers within %v", took)
		}
	})
}

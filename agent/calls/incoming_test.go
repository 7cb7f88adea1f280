package calls

import (
	"slices"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

func TestCallsExpire(t *testing.T) {
	c := newCalls()
	if got := c.expired(c.last, time.Now()); got != nil {
		t.Errorf("nobody called, and %v are silent", got)
	}
	c.stamp(c.last, "a")
	c.stamp(c.admitted, "b")
	start := time.Now()
	if got := c.expired(c.last, start.Add(-callsLast)); got != nil {
		t.Errorf("%v are silent at once", got)
	}
	if got := c.expired(c.admitted, start.Add(-askLasts)); got != nil {
		t.Errorf("%v have lapsed at once", got)
	}
	later := start.Add(time.Second)
	if got := c.expired(c.last, later); !slices.Equal(got, []peer.ClusterID{"a"}) {
		t.Errorf("silent: %v", got)
	}
	if got := c.expired(c.admitted, later); !slices.Equal(got, []peer.ClusterID{"b"}) {
		t.Errorf("lapsed: %v", got)
	}
	if c.expired(c.last, later) != nil || c.expired(c.admitted, later) != nil {
		t.Error("told twice")
	}
}

// A caller whose peering may have ended is checked once.
func TestCallsAfterPeering(t *testing.T) {
	c := newCalls()
	if c.look("a") || c.toLook() != nil {
		t.Error("a never called, but is checked")
	}
	c.stamp(c.last, "a")
	c.stamp(c.last, "b")
	for range 2 {
		if !c.look("a") {
			t.Error("a is not checked")
		}
	}
	if got := c.toLook(); !slices.Equal(got, []peer.ClusterID{"a"}) {
		t.Errorf("to check: %v", got)
	}
	if c.toLook() != nil {
		t.Error("checked twice")
	}
	if !c.forget("a") || c.forget("a") || c.look("a") {
		t.Error("a was not forgotten once")
	}
	if got := c.expired(c.last, time.Now().Add(time.Second)); !slices.Equal(got, []peer.ClusterID{"b"}) {
		t.Errorf("silent: %v", got)
	}
}

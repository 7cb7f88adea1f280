package agent

import (
	"slices"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

func TestCallsExpire(t *testing.T) {
	var c calls
	if got := c.silent(time.Now()); got != nil {
		t.Errorf("nobody called, and %v are silent", got)
	}
	c.note("a")
	c.letIn("b")
	start := time.Now()
	if got := c.silent(start.Add(-callsLast)); got != nil {
		t.Errorf("%v are silent at once", got)
	}
	if got := c.lapsed(start.Add(-askLasts)); got != nil {
		t.Errorf("%v have lapsed at once", got)
	}
	later := start.Add(time.Second)
	if got := c.silent(later); !slices.Equal(got, []peer.ClusterID{"a"}) {
		t.Errorf("silent: %v", got)
	}
	if got := c.lapsed(later); !slices.Equal(got, []peer.ClusterID{"b"}) {
		t.Errorf("lapsed: %v", got)
	}
	if c.silent(later) != nil || c.lapsed(later) != nil {
		t.Error("told twice")
	}
}

// Who called and has nothing to do with us any more is looked at once.
func TestCallersPart(t *testing.T) {
	var c calls
	if c.look("a") || c.toLook() != nil {
		t.Error("a never called, and is looked at")
	}
	c.note("a")
	c.note("b")
	for range 2 {
		if !c.look("a") {
			t.Error("a is not looked at")
		}
	}
	if got := c.toLook(); !slices.Equal(got, []peer.ClusterID{"a"}) {
		t.Errorf("to look at: %v", got)
	}
	if c.toLook() != nil {
		t.Error("looked at twice")
	}
	if !c.forget("a") || c.forget("a") || c.look("a") {
		t.Error("a was not forgotten once")
	}
	if got := c.silent(time.Now().Add(time.Second)); !slices.Equal(got, []peer.ClusterID{"b"}) {
		t.Errorf("silent: %v", got)
	}
}

func TestReturns(t *testing.T) {
	var a absences
	for i, step := range []struct {
		phase    peer.Phase
		returned bool
	}{
		{peer.PhasePresent, false}, {peer.PhaseUnreachable, false}, {peer.PhasePresent, false},
		{peer.PhaseLost, false}, {peer.PhaseUnreachable, false}, {peer.PhasePresent, true}, {peer.PhasePresent, false},
	} {
		if got := a.note("a", step.phase); got != step.returned {
			t.Errorf("step %d: returned %v", i, got)
		}
	}
}

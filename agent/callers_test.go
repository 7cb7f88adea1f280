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

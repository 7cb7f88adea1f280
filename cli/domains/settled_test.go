package domains

import (
	"testing"
	"time"

	"liqo.io/agent/agent/control"
)

// A look is over also if the clock was set back since the one before it.
func TestSettledByAnotherClock(t *testing.T) {
	before := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		last time.Time
		over bool
	}{{before.Add(time.Second), true}, {before.Add(-time.Hour), true}, {before, false}, {time.Time{}, false}} {
		if over := settled(control.Domain{LastQuery: tc.last}, before); over != tc.over {
			t.Errorf("looked at %s, before at %s: it is over: %v", tc.last, before, over)
		}
	}
}

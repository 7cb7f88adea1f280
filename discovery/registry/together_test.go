package registry

import (
	"testing"
	"time"
)

// TestTogether: checks begin at one of a few moments, never later than they are due, and hardly earlier.
func TestTogether(t *testing.T) {
	m := newMachine(&Config{Interval: 30 * time.Second}, nil, time.Now())
	moments := make(map[time.Time]bool)
	start := time.Now()
	for i := range 1000 {
		due := start.Add(time.Duration(i) * 10 * time.Millisecond)
		at := m.together(due)
		if early := due.Sub(at); early < 0 || early >= time.Second {
			t.Errorf("due %v, begins %v earlier", due, early)
		}
		moments[at] = true
	}
	if n := len(moments); n > 11 {
		t.Errorf("checks of ten seconds begin at %d moments", n)
	}
}

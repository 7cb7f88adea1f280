package vnode

import (
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// TestUnknown: there is no node when somebody has looked, and until then it is not known.
func TestUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		if status := New(Config{Names: f}).Set(testProvider(barn)); !status.Unknown || !status.Busy {
			t.Errorf("before anybody has looked: %+v", status)
		}
		a := f.start(t)
		defer a.stop()
		a.Set(testProvider(barn))
		wait(time.Minute)
		if status := a.Set(testProvider(barn)); status.Unknown || status.Name == "" {
			t.Errorf("at work: %+v", status)
		}
	})
}

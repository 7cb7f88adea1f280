package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/mdnssvc/browser"
)

func TestFailedPartIsStartedAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var starts []time.Time
		var mu sync.Mutex
		var told []error
		p := part{name: "flaky", run: func(ctx context.Context) error {
			starts = append(starts, time.Now())
			switch len(starts) {
			case 4: // runs well for long, and fails then
				time.Sleep(2 * steadyAfter)
				return errors.New("late failure")
			case 6:
				<-ctx.Done()
				return nil
			}
			return errors.New("early failure")
		}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			supervise(ctx, slog.New(slog.DiscardHandler), p, func(_ string, err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err)
			})
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		cancel()
		<-done
		if len(starts) != 6 {
			t.Fatalf("%d starts", len(starts))
		}
		for i, bounds := range [][2]time.Duration{{250, 750}, {500, 1500}, {1000, 3000}} {
			if gap := starts[i+1].Sub(starts[i]); gap < bounds[0]*time.Millisecond || gap > bounds[1]*time.Millisecond {
				t.Errorf("pause %d was %v", i, gap)
			}
		}
		if gap := starts[4].Sub(starts[3]) - 2*steadyAfter; gap > time.Second {
			t.Errorf("after a long good run the pause was %v", gap)
		}
		recovered := false
		for _, err := range told {
			recovered = recovered || err == nil
		}
		if !recovered {
			t.Error("nobody was told that the part runs steadily again")
		}
	})
}

func TestPartThatEndsWellIsNotStartedAgain(t *testing.T) {
	runs := 0
	supervise(t.Context(), slog.New(slog.DiscardHandler), part{name: "done", run: func(context.Context) error { runs++; return nil }},
		func(string, error) { t.Error("told of a failure") })
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// Only what the peer said, or two signs, may count as its absence.
func TestAbsence(t *testing.T) {
	for reason, want := range map[string]struct{ said, expired bool }{
		browser.ReasonGoodbye:      {said: true},
		browser.ReasonDiscoveryOff: {said: true},
		browser.ReasonExpired:      {expired: true},
		browser.ReasonNoAnswer:     {expired: true},
		browser.ReasonEvicted:      {},
		browser.ReasonLinkGone:     {},
		"something new":            {},
	} {
		got := absence(reason)
		if got.Evidence == registry.Withdrawn != want.said || got.Evidence == registry.Expired != want.expired || got.Reason == "" {
			t.Errorf("absence(%q) = %+v", reason, got)
		}
	}
}

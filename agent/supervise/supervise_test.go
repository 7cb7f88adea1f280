package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/health"
	"liqo.io/agent/internal/bubble"
)

func TestFailedPartIsStartedAgainWithGrowingPauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var starts []time.Time
		var tracker health.Tracker
		s := New(&tracker, slog.New(slog.DiscardHandler))
		p := Part{Name: "flaky", Run: func(ctx context.Context) error {
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
			s.Run(ctx, p)
		}()
		time.Sleep(time.Minute)
		if _, steady := s.Stats(); steady {
			t.Error("the part counts as steady, but failed just now")
		}
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
		if count, steady := s.Stats(); !steady || count["flaky"] != 5 {
			t.Errorf("steady: %t, restarts: %v", steady, count)
		}
	})
}

func TestPartThatEndsWellIsNotStartedAgain(t *testing.T) {
	var tracker health.Tracker
	s, runs := New(&tracker, slog.New(slog.DiscardHandler)), 0
	s.Run(t.Context(), Part{Name: "done", Run: func(context.Context) error { runs++; return nil }})
	if count, steady := s.Stats(); runs != 1 || !steady || len(count) > 0 {
		t.Errorf("%d runs, restarts: %v, steady: %t", runs, count, steady)
	}
}

func TestCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tracker health.Tracker
		s := New(&tracker, slog.New(slog.DiscardHandler))
		mdns, endpoint := Part{Name: "mDNS", PortTaken: health.MDNSPort}, Part{Name: "endpoint"}
		s.report(mdns, nil) // it ran steadily from the start
		s.report(mdns, errors.New("no socket"))
		s.report(endpoint, errors.New("too many files"))
		s.report(mdns, fmt.Errorf("port 5353: %w", syscall.EADDRINUSE))
		s.report(endpoint, nil)
		count, steady := s.Stats()
		if diff := cmp.Diff(map[string]uint64{"mDNS": 2, "endpoint": 1}, count); diff != "" || steady {
			t.Errorf("steady: %t, restarts (-want +got):\n%s", steady, diff)
		}
		if now := active(&tracker); !slices.Equal(now, []string{health.MDNSPort.Code}) {
			t.Errorf("problems: %v", now)
		}
		s.report(mdns, errors.New("no socket"))
		if now := active(&tracker); !slices.Equal(now, []string{health.PartFailing.Code}) {
			t.Errorf("problems: %v", now)
		}
		s.Reset()
		if count, steady := s.Stats(); !steady || count["mDNS"] != 3 || len(active(&tracker)) > 0 {
			t.Errorf("with rebuilt parts: restarts %v, steady: %t, problems: %v", count, steady, active(&tracker))
		}
	})
}

// active returns the codes of the problems that last for ten seconds.
func active(tracker *health.Tracker) []string {
	time.Sleep(10 * time.Second)
	var out []string
	for _, p := range tracker.Current() {
		out = append(out, p.Kind.Code)
	}
	return out
}

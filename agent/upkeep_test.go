package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/internal/bubble"
)

// pruned notes when history was deleted, in time since the start, and what counted as old.
type pruned struct {
	start time.Time
	at    []time.Duration
	older time.Duration

	cached atomic.Bool // the database has been read, and the memory of that not given back
}

func (p *pruned) Check(context.Context) error {
	p.cached.Store(true)
	return nil
}

func (p *pruned) Shrink(context.Context) error {
	p.cached.Store(false)
	return nil
}

func (p *pruned) Prune(_ context.Context, olderThan time.Duration) (int, error) {
	p.at, p.older = append(p.at, time.Since(p.start)), olderThan
	return 0, nil
}

// By a clock that is ahead, all history is old: nothing is deleted before the clock can be believed, and what is old then
// is deleted soon, however often the clock was wrong before.
func TestClockThatIsWrongDeletesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		store := &pruned{start: start}
		wrong := func(since time.Duration) bool {
			return since < 150*time.Minute || since > 40*time.Hour && since < 60*time.Hour
		}
		cfg := config.Config{}
		cfg.State.History = 90 * 24 * time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- upkeep{
				store: store, settings: func() config.Config { return cfg }, seen: func(context.Context) error { return nil }, logger: slog.New(slog.DiscardHandler),
				clock: func() error {
					if wrong(time.Since(start)) {
						return errors.New("it is 400 days ahead")
					}
					return nil
				},
			}.Run(ctx)
		}()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if store.cached.Load() {
			t.Error("the memory of the check is not given back while the clock is wrong")
		}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		const minute = time.Minute
		if want := []time.Duration{3*time.Hour + minute, 27*time.Hour + minute, 60*time.Hour + minute, 84*time.Hour + minute}; !slices.Equal(store.at, want) {
			t.Errorf("deleted at %v, want %v", store.at, want)
		}
		if store.older != cfg.State.History {
			t.Errorf("what is older than %s was deleted", store.older)
		}
	})
}

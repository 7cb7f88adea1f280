package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Bounds of the pause before a failed part is started again.
const (
	minRestartPause = 500 * time.Millisecond
	maxRestartPause = 30 * time.Second
	// steadyAfter is how long a part must have run for its next failure to
	// count as a new one.
	steadyAfter = time.Minute
)

// part is one long-running piece of the agent. Its run blocks until ctx ends
// (and returns nil then) or it cannot go on.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// supervise runs p until ctx ends, starting it again with growing pauses when
// it fails. failed is told of every failure, and of nil when the part has run
// steadily since.
func supervise(ctx context.Context, logger *slog.Logger, p part, failed func(name string, err error)) {
	pause := minRestartPause
	for ctx.Err() == nil {
		started := time.Now()
		steady := time.AfterFunc(steadyAfter, func() { failed(p.name, nil) })
		err := p.run(ctx)
		steady.Stop()
		if ctx.Err() != nil || err == nil {
			if err != nil {
				logger.Debug("part ended with an error while stopping", "part", p.name, "error", err)
			}
			return
		}
		if time.Since(started) > steadyAfter {
			pause = minRestartPause
		}
		failed(p.name, err)
		logger.Error("a part of the agent failed and will be started again", "part", p.name, "error", err, "pause", pause)
		wait := pause/2 + rand.N(pause)
		pause = min(2*pause, maxRestartPause)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
)

// restarts is the pause before a failed part is started again.
var restarts = work.Backoff{First: 500 * time.Millisecond, Max: 30 * time.Second}

// steadyAfter is how long a part must run until its failures are forgotten: the next
// one has the shortest pause again.
const steadyAfter = time.Minute

// part is one long-running piece of the agent. Its run blocks until ctx ends
// (and returns nil then) or it cannot go on.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// supervise runs p until ctx ends, and restarts it with growing pauses when it fails.
// It calls failed with each error, and with nil when the part has run for steadyAfter.
func supervise(ctx context.Context, logger *slog.Logger, p part, failed func(name string, err error)) {
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		steady := time.AfterFunc(steadyAfter, func() { failed(p.name, nil) })
		err := p.run(ctx)
		steady.Stop()
		if ctx.Err() != nil || err == nil {
			if err != nil {
				logger.Debug("a part ended with an error while stopping", "part", p.name, "error", err)
			}
			return
		}
		if time.Since(started) > steadyAfter {
			failures = 0
		}
		failures++
		pause := restarts.Pause(failures)
		failed(p.name, err)
		logger.Error("a part of the agent failed and is restarted", "part", p.name, "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// partFailed records and reports the failure of a part, or with nil its recovery.
func (s *session) partFailed(name string, err error) {
	s.measures.failed(name, err)
	held := name == partMDNS && errors.Is(err, syscall.EADDRINUSE)
	if name == partMDNS {
		s.health.Report(health.MDNSPort, map[bool]error{true: err}[held])
	}
	if err == nil || held {
		s.health.Clear(health.PartFailing, name)
		return
	}
	text := err.Error()
	if !strings.HasPrefix(text, name) {
		text = name + ": " + text
	}
	s.health.Set(health.PartFailing, health.Finding{About: name, Args: health.Args{"part": name, "error": text}})
}

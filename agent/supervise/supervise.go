package supervise

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
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

// Part is one long-running part of the agent.
type Part struct {
	Name string
	// Run blocks until ctx ends (and returns nil then) or it cannot go on.
	Run func(ctx context.Context) error
	// PortTaken is the problem that is reported if the port of the part is in use; nil
	// for a failure like any other.
	PortTaken *health.Kind
}

// Supervisor runs parts and counts their failures. It is safe for concurrent use.
type Supervisor struct {
	tracker *health.Tracker
	logger  *slog.Logger

	mu       sync.Mutex
	restarts map[string]uint64   // by part
	failing  map[string]struct{} // parts that failed lately
}

// New returns a Supervisor that reports to tracker.
func New(tracker *health.Tracker, logger *slog.Logger) *Supervisor {
	return &Supervisor{tracker: tracker, logger: logger, restarts: make(map[string]uint64), failing: make(map[string]struct{})}
}

// Reset forgets which parts fail, because all parts were rebuilt. It keeps the number of
// restarts.
func (s *Supervisor) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.failing)
	s.tracker.Replace(health.PartFailing)
}

// Stats returns the number of restarts by part, and whether no part failed lately.
func (s *Supervisor) Stats() (restarts map[string]uint64, steady bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.restarts), len(s.failing) == 0
}

// Run runs parts until ctx ends and all of them have returned. It restarts a part that
// fails, with growing pauses.
func (s *Supervisor) Run(ctx context.Context, parts ...Part) {
	var running sync.WaitGroup
	for _, p := range parts {
		if p.PortTaken != nil {
			s.tracker.Clear(p.PortTaken, "")
		}
		running.Go(func() { s.keep(ctx, p) })
	}
	running.Wait()
}

// keep runs one part until ctx ends.
func (s *Supervisor) keep(ctx context.Context, p Part) {
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		steady := time.AfterFunc(steadyAfter, func() { s.report(p, nil) })
		err := p.Run(ctx)
		steady.Stop()
		if ctx.Err() != nil || err == nil {
			if err != nil {
				s.logger.Debug("a part ended with an error while stopping", "part", p.Name, "error", err)
			}
			return
		}
		if time.Since(started) > steadyAfter {
			failures = 0
		}
		failures++
		pause := restarts.Pause(failures)
		s.report(p, err)
		s.logger.Error("a part of the agent failed and is restarted", "part", p.Name, "error", err, "pause", pause)
		_ = work.Sleep(ctx, pause) // the loop sees the end of ctx
	}
}

// report records the failure of a part, or with nil that it has run for steadyAfter.
func (s *Supervisor) report(p Part, err error) {
	s.count(p.Name, err)
	taken := p.PortTaken != nil && errors.Is(err, syscall.EADDRINUSE)
	if p.PortTaken != nil {
		s.tracker.Report(p.PortTaken, map[bool]error{true: err}[taken])
	}
	if err == nil || taken {
		s.tracker.Clear(health.PartFailing, p.Name)
		return
	}
	text := err.Error()
	if !strings.HasPrefix(text, p.Name) {
		text = p.Name + ": " + text
	}
	s.tracker.Set(health.PartFailing, health.Finding{About: p.Name, Args: health.Args{"part": p.Name, "error": text}})
}

func (s *Supervisor) count(part string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.failing, part)
		return
	}
	s.failing[part] = struct{}{}
	s.restarts[part]++
}

package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/service/notify"
)

const (
	// rebuildLimit is how long the parts may take to start before the agent counts as hanging.
	rebuildLimit = 90 * time.Second
	// statusPause is the least time between two status lines for the service manager.
	statusPause = 5 * time.Second
)

// Session is the running session of the agent.
type Session struct {
	// Probes call the parts that own its state.
	Probes []Probe
	// Status returns the status that the control socket shows.
	Status func(ctx context.Context) (control.Status, error)
}

// state says what the agent does. It is never changed in place.
type state struct {
	running  *Session // nil while the agent starts its parts, or stops them
	since    time.Time
	sessions int64 // so far
}

// Watchdog tells the service manager what the agent does. It is safe for concurrent use.
type Watchdog struct {
	notifier *notify.Notifier // nil: there is no service manager
	state    atomic.Pointer[state]
	changed  chan struct{} // the status may have changed; capacity 1
}

// New returns a Watchdog of an agent that starts. A nil notifier is allowed.
func New(notifier *notify.Notifier) *Watchdog {
	w := &Watchdog{notifier: notifier, changed: make(chan struct{}, 1)}
	w.state.Store(&state{since: time.Now()})
	return w
}

// Sessions returns how often the parts of the agent were built.
func (w *Watchdog) Sessions() int64 { return w.state.Load().sessions }

// Up records that the parts of a session run, and tells the service manager that the
// agent is ready.
func (w *Watchdog) Up(s *Session) {
	w.state.Store(&state{running: s, since: time.Now(), sessions: w.Sessions() + 1})
	w.notifier.Ready()
	w.Changed()
}

// Down records that no session runs.
func (w *Watchdog) Down() { w.state.Store(&state{since: time.Now(), sessions: w.Sessions()}) }

// Changed has Run tell the service manager the status. It does not block.
func (w *Watchdog) Changed() { work.Wake(w.changed) }

// Start tells the service manager that the agent is alive and what its status is, until
// the returned function is called. When ctx ends, it tells that the agent stops.
func (w *Watchdog) Start(ctx context.Context) (stop func()) {
	if !w.notifier.On() {
		return func() {}
	}
	forget := context.AfterFunc(ctx, w.notifier.Stopping)
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { w.notifier.Watch(ctx, w.alive) })
	parts.Go(func() { w.tellStatus(ctx) })
	return func() {
		forget()
		cancel()
		parts.Wait()
	}
}

// alive checks that the agent does not hang: it calls each part that others depend on, and returns an error that
// names those that do not answer. It returns when all have answered, or ctx ends.
func (w *Watchdog) alive(ctx context.Context) error {
	now := w.state.Load()
	if now.running == nil {
		if duration := time.Since(now.since); duration > rebuildLimit {
			return fmt.Errorf("the agent has been starting its parts for %s", duration.Round(time.Second))
		}
		return nil
	}
	var status control.Status
	err := askAll(ctx, append(slices.Clone(now.running.Probes), Probe{"status (control socket)", func(ctx context.Context) (err error) {
		status, err = now.running.Status(ctx)
		return err
	}}))
	if w.state.Load() != now {
		return nil // the session ended meanwhile
	}
	if err == nil {
		w.notifier.Status(summary(status))
	}
	return err
}

// Probe is a call to the owner of some state. It returns when that has answered.
type Probe struct {
	Owner string
	Ask   func(ctx context.Context) error
}

// askAll runs all probes at once. Its error names those that failed, and those that did not answer before ctx ended. It
// abandons these: the service manager will end the process.
func askAll(ctx context.Context, probes []Probe) error {
	type answer struct {
		owner string
		err   error
	}
	answers := make(chan answer, len(probes))
	waiting := make([]string, 0, len(probes))
	for _, p := range probes {
		waiting = append(waiting, p.Owner)
		go func() { answers <- answer{p.Owner, p.Ask(ctx)} }()
	}
	var failed []error
	for len(waiting) > 0 {
		select {
		case got := <-answers:
			waiting = slices.DeleteFunc(waiting, func(owner string) bool { return owner == got.owner })
			if got.err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", got.owner, got.err))
			}
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no answer from %s", strings.Join(waiting, ", ")), errors.Join(failed...))
		}
	}
	return errors.Join(failed...)
}

// tellStatus sends changes of the status to the service manager, within a few seconds.
func (w *Watchdog) tellStatus(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		if now := w.state.Load(); now.running != nil {
			// The next check of the watchdog reports a failure.
			if status, err := now.running.Status(ctx); err == nil {
				w.notifier.Status(summary(status))
			}
		}
		if work.Sleep(ctx, statusPause) != nil {
			return
		}
	}
}

// summary is a status in one line.
func summary(st control.Status) string {
	here := st.Peers[string(peer.PhasePresent)]
	text := fmt.Sprintf("%s: %s", st.Identity.Name, count(here, "peer"))
	if n := st.Peers[string(peer.PhaseUnreachable)]; n > 0 {
		text += fmt.Sprintf(", %d more unreachable", n)
	}
	switch n := len(st.Problems); n {
	case 0:
		return text
	case 1:
		return text + "; 1 problem: " + st.Problems[0].Text
	default:
		return text + fmt.Sprintf("; %d problems, one of them: %s", n, st.Problems[0].Text)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

const (
	// rebuildLimit is how long a rebuild of the parts may take before the watchdog is told that the agent hangs.
	rebuildLimit = 90 * time.Second
	// linePause is the least time between two lines for the service manager.
	linePause = 5 * time.Second
)

// standing is the session that runs, and since when; session is nil while there is none.
type standing struct {
	session *session
	since   time.Time
}

// tell reports the state of the agent to the service manager, if there is one, until the returned function is
// called.
func (a *Agent) tell(ctx context.Context) (stop func()) {
	if !a.opts.Notify.On() {
		return func() {}
	}
	forget := context.AfterFunc(ctx, a.opts.Notify.Stopping)
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { a.opts.Notify.Watch(ctx, a.alive) })
	parts.Go(func() { a.feedStatus(ctx) })
	return func() {
		forget()
		cancel()
		parts.Wait()
	}
}

// up records that the parts of a session run, and tells the service manager that the agent is ready.
func (a *Agent) up(s *session) {
	a.generation.Add(1)
	a.stands.Store(&standing{session: s, since: time.Now()})
	a.opts.Notify.Ready()
	work.Wake(a.told)
}

// down records that no session runs.
func (a *Agent) down() { a.stands.Store(&standing{since: time.Now()}) }

// alive checks that the agent does not hang: it calls each part that others depend on, and returns an error that
// names those that do not answer. It returns when all have answered, or ctx ends.
func (a *Agent) alive(ctx context.Context) error {
	now := a.stands.Load()
	if now.session == nil {
		if gone := time.Since(now.since); gone > rebuildLimit {
			return fmt.Errorf("the agent has been starting its parts for %s", gone.Round(time.Second))
		}
		return nil
	}
	status, err := now.session.answers(ctx)
	if a.stands.Load() != now {
		return nil // it ended meanwhile, and what did not answer is gone
	}
	if err == nil {
		a.opts.Notify.Status(summary(status))
	}
	return err
}

// answers calls the parts that own the state of the session. It abandons calls that hang; the service manager will
// end the process.
func (s *session) answers(ctx context.Context) (control.Status, error) {
	var status control.Status
	err := askAll(ctx, []probe{
		// No peer has this ID, so nothing changes, but the owner of the peers has to answer.
		{"peers (registry)", func() error { _, err := s.registry.Rename(ctx, "", ""); return err }},
		{"decisions", func() error { s.decisions.Policy(peer.ClusterID("")); return nil }},
		{"configuration", func() error { return s.settings.answers(ctx) }},
		{"mDNS", func() error { return s.mdns.Answers(ctx) }},
		{"status (control socket)", func() (err error) { status, err = s.control.SelfCheck(ctx); return err }},
	})
	if err != nil {
		return control.Status{}, err
	}
	return status, nil
}

// probe is a call to one owner, which returns when that has answered.
type probe struct {
	owner string
	ask   func() error
}

// askAll runs all probes at once. Its error names those that failed, and those that did not answer before ctx ended; it
// does not wait for these.
func askAll(ctx context.Context, probes []probe) error {
	type answer struct {
		owner string
		err   error
	}
	answers := make(chan answer, len(probes))
	waiting := make([]string, 0, len(probes))
	for _, p := range probes {
		waiting = append(waiting, p.owner)
		go func() { answers <- answer{p.owner, p.ask()} }()
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

// feedStatus sends changes of the status to the service manager, within a few seconds.
func (a *Agent) feedStatus(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.told:
		}
		if now := a.stands.Load(); now.session != nil {
			// A failure is reported by the watchdog check.
			if status, err := now.session.control.SelfCheck(ctx); err == nil {
				a.opts.Notify.Status(summary(status))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(linePause):
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

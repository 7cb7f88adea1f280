package notify

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watched reports whether the service manager waits for signs of life (WATCHDOG_USEC).
func (n *Notifier) Watched() bool { return n != nil && n.watchdog > 0 }

// Watch tells the service manager that the agent is alive (WATCHDOG=1), at half of the time that it grants, until
// ctx ends. Each time it calls check first, with a quarter of that time to answer in, and says nothing before check has
// returned nil: a check that hangs, or goes on failing, has the service manager end the process. Of checks there is one
// at a time, and Watch does not wait for the last one. When nobody waits for signs of life, Watch returns at once.
func (n *Notifier) Watch(ctx context.Context, check func(context.Context) error) {
	if !n.Watched() {
		return
	}
	period := n.watchdog / 2
	timer := time.NewTimer(0)
	defer timer.Stop()
	results := make(chan error, 1)
	var begun time.Time // of the check under way; zero: none is
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if !begun.IsZero() {
				n.logger.Error("the agent's self-check does not return; the service manager will end the process",
					"for", time.Since(begun).Round(time.Millisecond))
				timer.Reset(period)
				continue
			}
			begun = time.Now()
			go func() {
				ctx, cancel := context.WithTimeout(ctx, n.watchdog/4)
				defer cancel()
				results <- check(ctx)
			}()
			timer.Reset(period)
		case err := <-results:
			took := time.Since(begun)
			begun = time.Time{}
			if ctx.Err() != nil {
				return
			}
			next := period - took
			if err != nil {
				n.logger.Error("the agent's self-check failed; the service manager will end the process", "error", err)
				next = period / 4
			} else {
				n.alive()
			}
			timer.Reset(max(0, next))
		}
	}
}

// alive is one sign of life.
func (n *Notifier) alive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.settle() {
		n.send(daemon.SdNotifyWatchdog)
	}
}

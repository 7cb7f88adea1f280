package agent

import (
	"context"
	"time"

	"liqo.io/agent/agent/decisions"
)

// lapseEvery is how often trust is checked for certificates that have ended, at least:
// the clock may have been set, or peers may have shown theirs.
const lapseEvery = 15 * time.Second

// suspendTrust suspends trust when the certificate that it is based on ends.
func suspendTrust(ctx context.Context, l *decisions.Store) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := lapseEvery
		if next := l.Lapse(ctx); !next.IsZero() {
			// The wall clock may be slower than the timer.
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		timer.Reset(wait)
	}
}

package agent

import (
	"context"
	"time"

	"liqo.io/agent/agent/decisions"
)

// lapseEvery is how often is looked for certificates that have ended: clocks are set,
// and peers tell theirs.
const lapseEvery = 15 * time.Second

// suspendTrust has trust suspended when the certificate that it rests on ends.
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
			// The clock on the wall may be slower than the timer.
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		timer.Reset(wait)
	}
}

package proofs

import (
	"context"
	"time"
)

// expiryInterval is how often at least trust is checked for expired certificates: the
// clock may have been set, or a peer may have shown its certificate.
const expiryInterval = 15 * time.Second

// SuspendTrust suspends trust when the certificate that it is based on expires. It
// returns when ctx ends. lapse suspends what is due, and returns when the next
// certificate expires, zero for never.
func SuspendTrust(ctx context.Context, lapse func(ctx context.Context) time.Time) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := expiryInterval
		if next := lapse(ctx); !next.IsZero() {
			// The wall clock may be slower than the timer.
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		timer.Reset(wait)
	}
}

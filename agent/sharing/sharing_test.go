package sharing

import (
	"context"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// TestComplete: who was not heard of counts as gone when all peers were told of, and not because a time has passed.
func TestComplete(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		slow := func() bool { return time.Since(began) > 3*settleAfter }
		if !complete(t.Context(), slow) || !slow() {
			t.Errorf("complete after %s, when not all were told of", time.Since(began))
		}
		began = time.Now()
		if !complete(t.Context(), func() bool { return true }) || time.Since(began) != settleAfter {
			t.Errorf("complete after %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if complete(ctx, func() bool { return false }) {
			t.Error("complete without anybody told of")
		}
	})
}

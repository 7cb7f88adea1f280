package sharing

import (
	"context"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
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

// TestNoNetwork: the setting reaches those peers, too, whose networks Liqo connects.
func TestNoNetwork(t *testing.T) {
	for setting, off := range map[string]bool{config.NetworkAuto: false, config.NetworkOff: true} {
		cfg := config.Default()
		cfg.Sharing.Network = setting
		if got := Settings(cfg); got.NoNetwork != off {
			t.Errorf("%s: %+v", setting, got)
		}
	}
}

package peering

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube/conn"
)

func TestSwitchedOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		c := New(Config{
			Kubeconfig: func() string { return conn.KubeconfigNone },
			Registry:   neighbours{}, Decisions: &diary{},
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go c.Enqueue(testID)
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if s := c.Status(); s.Connected || !strings.Contains(s.LastError, "switched off") {
			t.Errorf("status = %+v", s)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("an hour without an API server gives %d lines:\n%s", n, log)
		}
	})
}

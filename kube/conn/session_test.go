package conn

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bubble"
)

// TestAwait: a kind that is not served is worth one line in the log, and is waited
// for.
func TestAwait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, err := New(Config{Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Open(&rest.Config{Host: "https://nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		synced, done := make(chan struct{}), make(chan bool, 1)
		go func() { done <- s.Await(t.Context(), Listed{Kind: "Things", Synced: synced}) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(done) != 0 || !s.reported["Things"] {
			t.Errorf("waiting %v, reported %v", len(done) == 0, s.reported)
		}
		close(synced)
		if !<-done {
			t.Error("the first list is not noticed")
		}
	})
}

package endpointtest

import (
	"context"
	"testing"
	"time"
)

// Hang bounds whatever a test waits for. It measures nothing: these machines are shared.
const Hang = 5 * time.Minute

// Eventually waits until ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(Hang)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Start runs s until the test ends, or stop is called, and fails the test if that is
// not orderly.
func Start(t testing.TB, s interface{ Run(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

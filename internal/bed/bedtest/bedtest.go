package bedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
)

// RequestTimeout is for clients of a test: more than an API server takes for any request. On a busy machine, the ten seconds of
// kube.New are soon over.
const RequestTimeout = 2 * time.Minute

// logTail is how much of a log a failed test shows, in bytes.
const logTail = 64 << 10

// Within polls condition until it returns nil, and ends the test with what and its last error if that takes
// longer than [bed.Hang]. It belongs on the test's goroutine.
func Within(t testing.TB, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Hang)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Run calls run on a goroutine of its own, with a context that ends when stop is called, or with the test. Run
// must return then, and not before, with an error that is want. If the test has failed by its end, it shows
// the end of the log, which may be nil.
func Run(t testing.TB, log *Log, want error, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	problem := make(chan error, 1)
	go func() {
		err := run(ctx)
		switch {
		case ctx.Err() == nil:
			problem <- fmt.Errorf("ended before it was told to, with %v", err)
		case !errors.Is(err, want):
			problem <- fmt.Errorf("ended with %v, want %v", err, want)
		}
		close(problem)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-problem:
			if err != nil {
				t.Errorf("Run %v", err)
			}
		case <-time.After(bed.Hang):
			t.Errorf("Run has not ended %v after it was told to", bed.Hang)
		}
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() && log != nil {
			text := log.String()
			t.Logf("log:\n%s", text[max(0, len(text)-logTail):])
		}
	})
	return stop
}

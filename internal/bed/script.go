//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
)

// Script gives programs that are not tests a [TB], and with it a bed: it calls body on a goroutine of
// its own, then the clean-up functions, and returns the failures that were reported. Logf and the
// failures are also written to out at once.
func Script(ctx context.Context, name string, out io.Writer, body func(TB)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &script{name: name, out: out, ctx: ctx}
	s.run(func() { body(s) })
	cancel()
	for {
		s.mu.Lock()
		cleanups := s.cleanups
		s.cleanups = nil
		s.mu.Unlock()
		if len(cleanups) == 0 {
			return errors.Join(s.failures...)
		}
		for _, cleanup := range slices.Backward(cleanups) {
			s.run(cleanup)
		}
	}
}

// script implements TB.
type script struct {
	name string
	out  io.Writer
	ctx  context.Context

	mu       sync.Mutex
	failures []error
	cleanups []func()
}

// run calls fn on a goroutine that Fatalf may end, and waits for its end.
func (s *script) run(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}

func (s *script) Helper()                  {}
func (s *script) Name() string             { return s.name }
func (s *script) Context() context.Context { return s.ctx }

func (s *script) Logf(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *script) Errorf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	s.mu.Lock()
	s.failures = append(s.failures, err)
	s.mu.Unlock()
	s.Logf("%v", err)
}

func (s *script) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *script) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

func (s *script) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

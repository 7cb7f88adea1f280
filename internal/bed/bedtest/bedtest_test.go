package bedtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bubble"
)

// recorder is a test that only notes what is said of it.
type recorder struct {
	testing.TB
	said    []string
	cleanup []func()
}

func (r *recorder) Logf(f string, a ...any)   { r.said = append(r.said, fmt.Sprintf(f, a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.Logf(f, a...) }
func (r *recorder) Failed() bool              { return len(r.said) > 0 }
func (r *recorder) Cleanup(f func())          { r.cleanup = append(r.cleanup, f) }

func TestRun(t *testing.T) {
	untilTold := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	broken := func(context.Context) error { return errors.New("broken") }
	for _, test := range []struct {
		name   string
		wanted error
		run    func(context.Context) error
		want   string
	}{
		{"as wanted", context.Canceled, untilTold, ""},
		{"an error", nil, untilTold, "Run ended with context canceled, want <nil>\nlog:\nthe end"},
		{"no error", context.Canceled, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, "Run ended with <nil>, want context canceled\nlog:\nthe end"},
		{"early", nil, broken, "Run ended before it was told to, with broken\nlog:\nthe end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var log Log
				fmt.Fprint(&log, "the end")
				r := &recorder{TB: t}
				stop := Run(r, &log, test.wanted, test.run)
				synctest.Wait()
				stop()
				for _, f := range r.cleanup {
					f()
				}
				if got := strings.Join(r.said, "\n"); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
			})
		})
	}
}

// What does not end is a failure, too.
func TestRunHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, end := &recorder{TB: t}, make(chan struct{})
		Run(r, nil, nil, func(context.Context) error {
			<-end
			return nil
		})()
		close(end)
		if got := strings.Join(r.said, "\n"); got != fmt.Sprintf("Run has not ended %v after it was told to", bed.Hang) {
			t.Errorf("%q", got)
		}
	})
}

func TestLines(t *testing.T) {
	var log Log
	logger := log.Logger()
	logger.Debug("one")
	logger.Info("two", "text", "level=ERROR")
	logger.Warn("three")
	logger.Error("four")
	fmt.Fprintln(&log, "panic: five")
	for least, want := range map[slog.Level]string{
		slog.LevelDebug: "one two three four five", slog.LevelInfo: "two three four five", slog.LevelWarn: "three four five", slog.LevelError: "four five",
	} {
		lines := log.Lines(least)
		words := strings.Fields(want)
		if len(lines) != len(words) {
			t.Errorf("%v: %q", least, lines)
			continue
		}
		for i, word := range words {
			if !strings.Contains(lines[i], word) {
				t.Errorf("%v: line %d is %q, want %s", least, i, lines[i], word)
			}
		}
	}
}

//go:build linux

package mdnscheck

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Level is how strongly the RFC asks for something.
type Level string

// The levels of RFC 2119 that are checked.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
)

// Check is one requirement and the way to see whether a responder meets it.
type Check struct {
	Section string // of RFC 6762, or "6763 " and a section of that one
	Level   Level
	Name    string
	run     func(ctx context.Context, l *Lab) error
}

// Result is the outcome of a check.
type Result struct {
	Check
	// Err is nil when the requirement is met, and otherwise says what was seen.
	Err error
}

// String names the check.
func (c Check) String() string { return fmt.Sprintf("%s %s: %s", c.Section, c.Level, c.Name) }

// Checks returns all checks in the order in which they are best run: those
// that watch a start first, then those that ask an established responder, then
// those that end it.
func Checks() []Check {
	return slices.Concat(probingChecks(), announcingChecks(), answeringChecks(), suppressionChecks(),
		conflictChecks(), hostileChecks(), endingChecks())
}

// Run performs the given checks one after the other against the lab's subject.
// A check that fails is repeated up to four times, on a machine that may be busy:
// a responder that breaks a rule breaks it every time. after, if not nil, is
// called with each result.
func (l *Lab) Run(ctx context.Context, checks []Check, after func(Result)) ([]Result, error) {
	var out []Result
	for _, c := range checks {
		var err error
		for range 5 {
			if err = c.run(ctx, l); err == nil || ctx.Err() != nil {
				break
			}
			if restartErr := l.halt(); restartErr != nil {
				return out, fmt.Errorf("stop %s: %w", l.subject.Name, restartErr)
			}
		}
		if ctx.Err() != nil {
			return out, fmt.Errorf("check %q was cut short: %w", c, context.Cause(ctx))
		}
		out = append(out, Result{Check: c, Err: err})
		if after != nil {
			after(out[len(out)-1])
		}
	}
	return out, nil
}

// between says whether d lies within bounds, widened by what a busy machine
// and a kernel timestamp may add.
func between(what string, d, low, high time.Duration) error {
	const slack = 25 * time.Millisecond
	if d < low-slack/5 || d > high+slack {
		return fmt.Errorf("%s took %v, want %v to %v", what, d.Round(time.Millisecond), low, high)
	}
	return nil
}

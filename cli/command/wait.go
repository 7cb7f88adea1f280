package command

import (
	"cmp"
	"fmt"
	"time"

	urfave "github.com/urfave/cli/v2"
)

// Pace is how long a command waits. Zero is as long as usual.
type Pace struct {
	// Settle is how long a step has to take before it is said that it is being
	// waited for: most take no time.
	Settle time.Duration
	// Believe is how long a bad outcome, which was there before anything was
	// asked for, is taken for an old one.
	Believe time.Duration
	// Answer is how long the agent may take to answer what the person did not ask
	// for: at a press of the tab key, for instance.
	Answer time.Duration
}

// orUsual returns p with the usual times where it has none.
func (p Pace) orUsual() Pace {
	return Pace{
		Settle:  cmp.Or(p.Settle, 700*time.Millisecond),
		Believe: cmp.Or(p.Believe, 5*time.Second),
		Answer:  cmp.Or(p.Answer, 500*time.Millisecond),
	}
}

// The options of commands that wait for what they began.
const (
	TimeoutFlag = "timeout"
	NoWaitFlag  = "no-wait"
)

// WaitFlags returns the options of commands that wait for what they began.
func WaitFlags(timeout time.Duration) []urfave.Flag {
	return []urfave.Flag{
		&urfave.DurationFlag{Name: TimeoutFlag, Value: timeout, Usage: "stop waiting after `DURATION`; 0 = never"},
		&urfave.BoolFlag{Name: NoWaitFlag, Usage: "do not wait; continue in the background"},
	}
}

// CheckTimeout refuses a --timeout that is none.
func (c *Call) CheckTimeout() error {
	if d := c.Duration(TimeoutFlag); d < 0 {
		return UsageError(fmt.Sprintf("--%s %s: want a duration, 0 for no limit", TimeoutFlag, d), c.Name()+" --timeout 5m")
	}
	return nil
}

// Deadline returns what fires when --timeout is over, nil for never, and a function
// that releases it.
func (c *Call) Deadline() (<-chan time.Time, func()) {
	limit := c.Duration(TimeoutFlag)
	if limit <= 0 {
		return nil, func() {}
	}
	t := time.NewTimer(limit)
	return t.C, func() { t.Stop() }
}

package clock

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

const (
	// tolerance is by how much clocks differ that agree. What ends, ends on a day, so
	// minutes do not matter; a clock that runs in another time zone is wrong.
	tolerance = 10 * time.Minute
	// fresh is how long a reading of a peer's clock counts.
	fresh = time.Hour
)

// Clock is the clock of this machine, and what is known about others.
type Clock struct {
	now    func() time.Time
	since  func() time.Duration // the start, by the monotonic clock
	synced func() bool

	mu       sync.Mutex
	readings map[peer.ClusterID]reading
}

// reading is what a peer's clock said, and when that was.
type reading struct {
	theirs time.Time
	at     time.Duration // by the monotonic clock
}

// New returns a Clock that has heard of no peer.
func New() *Clock {
	start := time.Now()
	return &Clock{
		now: time.Now, since: func() time.Duration { return time.Since(start) },
		synced: func() bool {
			kept, err := Synchronised()
			return kept && err == nil
		},
		readings: make(map[peer.ClusterID]reading),
	}
}

// Synchronised asks the kernel whether somebody (NTP, PTP) keeps its clock right. It
// needs no privilege and changes nothing (adjtimex(2)).
func Synchronised() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, fmt.Errorf("ask the kernel about its clock: %w", err)
	}
	return t.Status&unix.STA_UNSYNC == 0 && state != unix.TIME_ERROR, nil
}

// Heard takes in the time that a peer said just now. The zero time is none.
func (c *Clock) Heard(id peer.ClusterID, theirs time.Time) {
	if theirs.IsZero() {
		return
	}
	at := c.since()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings[id] = reading{theirs, at}
	for other, r := range c.readings {
		if at-r.at > fresh {
			delete(c.readings, other)
		}
	}
}

// Check returns nil if the clock can be believed for a decision about a peer, or for
// any with "", and else why not, for people. joined tells whose word counts; it must
// be quick.
func (c *Clock) Check(about peer.ClusterID, joined func(peer.ClusterID) bool) error {
	now, since := c.now(), c.since()
	if built := trust.Built(); now.Before(built) {
		return fmt.Errorf("it says %s, and this program was built on %s", day(now), day(built))
	}
	if c.synced() {
		return nil
	}
	agree, all := 0, 0
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.readings {
		passed := since - r.at
		if passed > fresh || !joined(id) {
			continue
		}
		off := r.theirs.Add(passed).Sub(now)
		switch {
		case off.Abs() <= tolerance:
			agree++
			all++
		case id != about:
			all++
		}
	}
	switch {
	case 2*agree > all:
		return nil
	case all == 0:
		return errors.New("no time server keeps it, and there is no joined peer whose clock it could be compared with")
	}
	return fmt.Errorf("no time server keeps it, and it agrees with those of %d out of %d joined peers only", agree, all)
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

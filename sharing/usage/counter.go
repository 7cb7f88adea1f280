package usage

import "time"

const (
	// least is what a counter begins with, in seconds: metrics-server takes a counter of
	// zero for one that is not known yet, and drops the whole pod. It reads nanoseconds,
	// and one could get lost in rounding.
	least = 2e-9
	// began is how long before its first rate a counter begins: metrics-server compares with what it read first only if the counter
	// had begun then, and both times are rounded.
	began = time.Millisecond
	// maxSeconds is where a counter begins anew, as scrapers read nanoseconds in 64 bits.
	maxSeconds = 1e10
)

// counter is CPU time as a kubelet counts it, added up of rates. It never goes back but
// with a later since.
type counter struct {
	since   time.Time // when it was 0; the zero time before the first rate
	last    time.Time // of the last rate
	seconds float64
}

// add counts the CPU time since the last rate, at that rate. What was used before the
// first one is not known, and not counted.
func (c *counter) add(cores float64, now time.Time) {
	passed := now.Sub(c.last)
	switch {
	case c.since.IsZero() || c.seconds+cores*passed.Seconds() > maxSeconds:
		*c = counter{since: now.Add(-began), last: now, seconds: least}
	case passed > 0:
		c.seconds += cores * passed.Seconds()
		c.last = now
	}
}

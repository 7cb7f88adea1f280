package tally

import (
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of a Histogram's buckets.
var bounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Histogram counts durations, from milliseconds to half a minute. The zero value
// is ready for use, by any number of goroutines; it must not be copied.
type Histogram struct {
	counts [len(bounds) + 1]atomic.Uint64 // the last one is for what took longer
	sum    atomic.Int64                   // nanoseconds
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(max(d, 0)))
}

// Distribution is what a Histogram counted.
type Distribution struct {
	Count   uint64
	Seconds float64            // the sum of all durations
	Buckets map[float64]uint64 // how many took at most so many seconds
}

// Distribution returns what was counted. What is counted meanwhile may be in Seconds
// and not in Count.
func (h *Histogram) Distribution() Distribution {
	d := Distribution{Buckets: make(map[float64]uint64, len(bounds))}
	for i, bound := range bounds {
		d.Count += h.counts[i].Load()
		d.Buckets[bound.Seconds()] = d.Count
	}
	d.Count += h.counts[len(bounds)].Load()
	d.Seconds = time.Duration(h.sum.Load()).Seconds()
	return d
}

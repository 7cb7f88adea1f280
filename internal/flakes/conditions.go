package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// conditions are what a run has to cope with. They follow from its seed.
type conditions struct {
	seed  int64
	procs int    // GOMAXPROCS
	busy  int    // processes that do nothing but compute
	stops stops  // how often the tests are stopped
	who   victim // which of their processes
	twins int    // copies of the same tests beside them: they contend for what the tests use most
}

// stops says how often the processes of a run are stopped, and for how long at most.
type stops struct {
	name       string
	gap, pause time.Duration // at most; at least a tenth and a millisecond
}

// victim says which processes are stopped.
type victim string

const (
	// everyone is all processes of the tests: timers of all run late, as on a machine that hangs.
	everyone victim = "all"
	// program is the test program alone, while what it started goes on.
	program victim = "program"
)

var levels = []stops{
	{name: "none"},
	{name: "short", gap: 200 * time.Millisecond, pause: 20 * time.Millisecond},
	{name: "long", gap: 1500 * time.Millisecond, pause: 200 * time.Millisecond},
}

// conditionsOf draws what the run with a seed has to cope with on a machine of so many processors.
func conditionsOf(seed int64, cpus int) conditions {
	r := random(seed)
	return conditions{
		seed:  seed,
		procs: []int{1, 2, 4}[r.IntN(3)],
		busy:  r.IntN(cpus + 1),
		stops: levels[r.IntN(len(levels))],
		who:   []victim{everyone, program}[r.IntN(2)],
		twins: []int{0, 0, 1, 3}[r.IntN(4)],
	}
}

func random(seed int64) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 0)) }

func (c conditions) String() string {
	s := fmt.Sprintf("GOMAXPROCS=%d, %d busy, stops %s", c.procs, c.busy, c.stops.name)
	if c.stops.pause > 0 {
		s += " of " + string(c.who)
	}
	if c.twins > 0 {
		s += fmt.Sprintf(", beside %d of its kind", c.twins)
	}
	return s
}

// next draws the time until the next stop and how long it lasts.
func (s stops) next(r *rand.Rand) (gap, pause time.Duration) {
	return between(r, s.gap/10, s.gap), between(r, time.Millisecond, s.pause)
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

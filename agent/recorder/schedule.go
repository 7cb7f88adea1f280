package recorder

import (
	"container/heap"
	"time"
)

// class is how much a claim deserves a check. Anybody can announce thousands of
// claims whose addresses never answer, and each occupies a checker for seconds;
// so the less a claim has shown, the fewer checkers it can hold.
type class int

const (
	proven   class = iota // verified once: may use every checker
	untried               // never checked: three quarters, the newest first
	doubtful              // checked in vain, never verified: one quarter
	classes
)

func (c *claim) class() class {
	switch {
	case c.verified:
		return proven
	case c.failures == 0:
		return untried
	}
	return doubtful
}

// schedule orders claims by their next check, and says which may be checked.
// The zero value is not usable, see newSchedule.
type schedule struct {
	queues  [classes]queue
	limit   [classes]int // checkers a class and those below it may hold
	running [classes]int
}

func newSchedule(checkers int) schedule {
	s := schedule{limit: [classes]int{proven: checkers, untried: max(1, checkers*3/4), doubtful: max(1, checkers/4)}}
	// What was announced last is most likely not part of the flood before.
	s.queues[untried].newestFirst = true
	return s
}

// plan sets a claim's next check; the zero time takes it off the schedule.
func (s *schedule) plan(c *claim, due time.Time) {
	if c.heapPos >= 0 {
		heap.Remove(&s.queues[c.queued], c.heapPos)
	}
	if c.due = due; !due.IsZero() {
		c.queued = c.class()
		heap.Push(&s.queues[c.queued], c)
	}
}

// free reports whether a class may have one more checker.
func (s *schedule) free(k class) bool {
	held := 0
	for below := classes - 1; below >= 0; below-- {
		held += s.running[below]
		if below <= k && held >= s.limit[below] {
			return false
		}
	}
	return true
}

// take returns a claim to be checked now, nil when there is none or no checker
// for it. The checker is the claim's until done.
func (s *schedule) take(now time.Time) *claim {
	for k := range classes {
		if q := &s.queues[k]; s.free(k) && q.Len() > 0 && !q.claims[0].due.After(now) {
			c := heap.Pop(q).(*claim)
			s.running[k]++
			return c
		}
	}
	return nil
}

// done gives back the checker that take gave c.
func (s *schedule) done(c *claim) { s.running[c.queued]-- }

// next returns when take will have something; false when that is not known.
func (s *schedule) next() (time.Time, bool) {
	var next time.Time
	for k := range classes {
		if q := &s.queues[k]; s.free(k) && q.Len() > 0 && (next.IsZero() || q.claims[0].due.Before(next)) {
			next = q.claims[0].due
		}
	}
	return next, !next.IsZero()
}

// queue is a container/heap that keeps each claim's position, so that a claim
// can be taken out of the middle.
type queue struct {
	claims      []*claim
	newestFirst bool // of claims that are all due already
}

// Len implements heap.Interface.
func (q *queue) Len() int { return len(q.claims) }

// Less implements heap.Interface.
func (q *queue) Less(i, j int) bool {
	if q.newestFirst {
		i, j = j, i
	}
	return q.claims[i].due.Before(q.claims[j].due)
}

// Swap implements heap.Interface.
func (q *queue) Swap(i, j int) {
	q.claims[i], q.claims[j] = q.claims[j], q.claims[i]
	q.claims[i].heapPos, q.claims[j].heapPos = i, j
}

// Push implements heap.Interface; use schedule.plan instead.
func (q *queue) Push(x any) {
	c := x.(*claim)
	c.heapPos = len(q.claims)
	q.claims = append(q.claims, c)
}

// Pop implements heap.Interface; use schedule.take or schedule.plan instead.
func (q *queue) Pop() any {
	last := len(q.claims) - 1
	c := q.claims[last]
	q.claims[last] = nil
	q.claims = q.claims[:last]
	c.heapPos = -1
	return c
}

package recorder

import (
	"container/heap"
	"time"
)

// schedule orders claims by their next check. It is a container/heap that
// keeps each claim's position, so that a claim is rescheduled in place.
type schedule []*claim

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].heapPos, s[j].heapPos = i, j
}

// Push implements heap.Interface; use plan instead.
func (s *schedule) Push(x any) {
	c := x.(*claim)
	c.heapPos = len(*s)
	*s = append(*s, c)
}

// Pop implements heap.Interface; use pop instead.
func (s *schedule) Pop() any {
	old := *s
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	c.heapPos = -1
	return c
}

// plan sets a claim's next check; the zero time takes it off the schedule.
func (s *schedule) plan(c *claim, due time.Time) {
	c.due = due
	switch {
	case due.IsZero() && c.heapPos >= 0:
		heap.Remove(s, c.heapPos)
	case due.IsZero():
	case c.heapPos >= 0:
		heap.Fix(s, c.heapPos)
	default:
		heap.Push(s, c)
	}
}

// pop removes and returns the first claim that is due at now, or nil.
func (s *schedule) pop(now time.Time) *claim {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*claim)
}

// next returns when the first check is due; false when none is planned.
func (s schedule) next() (time.Time, bool) {
	if len(s) == 0 {
		return time.Time{}, false
	}
	return s[0].due, true
}

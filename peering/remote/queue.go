package remote

import (
	"container/heap"
	"context"
	"time"
)

// task is something to do with one peer: a look or a notice. It is guarded by
// Syncer.mu.
type task struct {
	entry   *entry
	index   int       // in the queue, -1 when it is not there
	due     time.Time // in the queue, or when it is to begin again
	again   bool      // it is running, and has to begin again
	running bool
	started time.Time
	cancel  context.CancelFunc // while it is running
}

// schedule puts t into the queue for a time, whatever it was there for. One that
// is running is put there when it has ended. s.mu is held.
func (s *Syncer) schedule(t *task, due time.Time) {
	t.due = due
	switch {
	case t.running:
		t.again = true
		return
	case t.index < 0:
		heap.Push(&s.queue, t)
	default:
		heap.Fix(&s.queue, t.index)
	}
	s.poke()
}

// sooner is schedule unless t is there for an earlier time. s.mu is held.
func (s *Syncer) sooner(t *task, due time.Time) {
	if t.waits() && t.due.Before(due) {
		due = t.due
	}
	s.schedule(t, due)
}

// waits reports whether t will be begun.
func (t *task) waits() bool { return t.index >= 0 || t.again }

// interrupt ends t early if it is running.
func (t *task) interrupt() {
	if t.cancel != nil {
		t.cancel()
	}
}

// remove takes t out of the queue. s.mu is held.
func (s *Syncer) remove(t *task) {
	t.again = false
	if t.index >= 0 {
		heap.Remove(&s.queue, t.index)
	}
}

// queue is a heap.Interface of tasks, the one that is due first in front.
type queue []*task

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	t := x.(*task)
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	t.index = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}

package browser

import "time"

// heap is a binary heap whose members know their place in it, so that one of
// them can move or leave in logarithmic time. before says who comes first.
type heap[T interface{ slot() *int }] struct {
	items  []T
	before func(a, b T) bool
}

func (h *heap[T]) len() int { return len(h.items) }

// top returns the first member; the heap must not be empty.
func (h *heap[T]) top() T { return h.items[0] }

// push adds x, whose slot must be outside (see outside).
func (h *heap[T]) push(x T) {
	*x.slot() = len(h.items)
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// fix restores the order after x changed.
func (h *heap[T]) fix(x T) {
	if i := *x.slot(); !h.down(i) {
		h.up(i)
	}
}

// remove takes x out; a member that is not in the heap is left alone.
func (h *heap[T]) remove(x T) {
	i := *x.slot()
	if i == outside {
		return
	}
	last := len(h.items) - 1
	h.swap(i, last)
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	*x.slot() = outside
	if i < last {
		h.fix(h.items[i])
	}
}

// outside is the slot of something that is in no heap.
const outside = -1

func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.items[i].slot() = i
	*h.items[j].slot() = j
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return moved
		}
		if right := child + 1; right < len(h.items) && h.before(h.items[right], h.items[child]) {
			child = right
		}
		if !h.before(h.items[child], h.items[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}

// timer wakes its owner at a time. Links, instances and hosts have one each;
// it stands for the earliest of everything they wait for.
type timer struct {
	at    time.Time
	place int
	owner interface {
		// wake does what is due. late is how long after its time it is called.
		wake(now time.Time, late time.Duration)
	}
}

func (t *timer) slot() *int { return &t.place }

// earliest returns the earliest of times that are not zero, or zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// due reports whether t is set and not later than now.
func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

package throttle

import (
	"container/list"
	"context"
	"sync"
)

// Slots bound how much is under way at a time, for each key and in all. They are
// safe for concurrent use.
type Slots[K comparable] struct {
	perKey, inAll int

	mu      sync.Mutex
	held    map[K]int
	sum     int
	waiting list.List // of *waiter[K], the first come first
}

// waiter is somebody who waits for a slot. ready is closed, with Slots.mu held, when
// there is one.
type waiter[K comparable] struct {
	key   K
	ready chan struct{}
}

// NewSlots returns slots of which each key can have so many, and all of them
// together so many.
func NewSlots[K comparable](perKey, inAll int) *Slots[K] {
	return &Slots[K]{perKey: perKey, inAll: inAll, held: make(map[K]int)}
}

// Take takes a slot, if there is one. Whoever got one calls Release.
func (s *Slots[K]) Take(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(key)
}

// Await takes a slot as Take does, and waits for one until ctx ends. How many wait is
// for the caller to bound.
func (s *Slots[K]) Await(ctx context.Context, key K) bool {
	s.mu.Lock()
	if s.take(key) {
		s.mu.Unlock()
		return true
	}
	w := &waiter[K]{key: key, ready: make(chan struct{})}
	place := s.waiting.PushBack(w)
	s.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready:
		return true // it came at the same time
	default:
		s.waiting.Remove(place)
		return false
	}
}

func (s *Slots[K]) take(key K) bool {
	if s.sum >= s.inAll || s.held[key] >= s.perKey {
		return false
	}
	s.held[key]++
	s.sum++
	return true
}

// Release gives back a slot that key took, to the first of those who wait that may
// have it.
func (s *Slots[K]) Release(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum--
	if s.held[key]--; s.held[key] == 0 {
		delete(s.held, key)
	}
	for e := s.waiting.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter[K]); s.take(w.key) {
			s.waiting.Remove(e)
			close(w.ready)
			return
		}
	}
}

// Taken returns how many slots are taken.
func (s *Slots[K]) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum
}

// Waiting returns how many wait for a slot.
func (s *Slots[K]) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len()
}

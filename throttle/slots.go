package throttle

import "sync"

// Slots bound how much is under way at a time, for each key and in all. They are
// safe for concurrent use.
type Slots[K comparable] struct {
	perKey, inAll int

	mu   sync.Mutex
	held map[K]int
	sum  int
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
	if s.sum >= s.inAll || s.held[key] >= s.perKey {
		return false
	}
	s.held[key]++
	s.sum++
	return true
}

// Release gives back a slot that key took.
func (s *Slots[K]) Release(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum--
	if s.held[key]--; s.held[key] == 0 {
		delete(s.held, key)
	}
}

// Taken returns how many slots are taken.
func (s *Slots[K]) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum
}

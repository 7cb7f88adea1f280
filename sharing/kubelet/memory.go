package kubelet

import (
	"sync"
	"time"
)

// memory keeps answers for some time, and no more than a number of them. It may be
// used by any number of goroutines.
type memory[T any] struct {
	most int

	mu      sync.Mutex
	answers map[[32]byte]answer[T]
}

type answer[T any] struct {
	value T
	until time.Time
}

func newMemory[T any](most int) *memory[T] {
	return &memory[T]{most: most, answers: make(map[[32]byte]answer[T])}
}

// get returns the answer to a question if it is still good.
func (m *memory[T]) get(question [32]byte) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, known := m.answers[question]
	if !known || !time.Now().Before(a.until) {
		var none T
		return none, false
	}
	return a.value, true
}

// put keeps an answer. When there is no place left, those that are no good any
// more make it, or else the one that would go first.
func (m *memory[T]) put(question [32]byte, value T, life time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if _, known := m.answers[question]; !known && len(m.answers) >= m.most {
		var first [32]byte
		var soonest time.Time
		for q, a := range m.answers {
			if !now.Before(a.until) {
				delete(m.answers, q)
			}
			if soonest.IsZero() || a.until.Before(soonest) {
				first, soonest = q, a.until
			}
		}
		delete(m.answers, first)
	}
	m.answers[question] = answer[T]{value: value, until: now.Add(life)}
}

package throttle

import (
	"sync"
	"time"
)

// Limiter lets a number of things happen in each span of time, such as lines in a log.
// The zero one is ready, and safe for concurrent use.
type Limiter struct {
	mu         sync.Mutex
	start      time.Time
	used       int
	suppressed int
}

// Allow reports whether one more may happen at now, and if so how many were
// not allowed since the last that was.
func (l *Limiter) Allow(now time.Time, burst int, span time.Duration) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.start) >= span {
		l.start, l.used = now, 0
	}
	if l.used >= burst {
		l.suppressed++
		return 0, false
	}
	l.used++
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}

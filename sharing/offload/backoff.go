package offload

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// retryFirst and retryMax bound the pause before something that failed is tried
	// again; refusedMax the one after the provider said no, when only a change there
	// can help, and that is mostly noticed by itself.
	retryFirst   = 100 * time.Millisecond
	retryMax     = 30 * time.Second
	refusedFirst = 2 * time.Second
	refusedMax   = 5 * time.Minute
)

// backoff counts failures by key. It may be used by any number of goroutines.
type backoff struct {
	mu       sync.Mutex
	failures map[key]int
}

// next counts a failure and returns how long to wait: from first on twice as long
// each time, at most most, give or take a fifth.
func (b *backoff) next(k key, first, most time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures == nil {
		b.failures = make(map[key]int)
	}
	n := b.failures[k]
	b.failures[k]++
	pause := most
	if n < 30 && first<<n < most {
		pause = first << n
	}
	return jitter(pause)
}

// count returns how often a key failed in a row.
func (b *backoff) count(k key) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures[k]
}

// forget ends a row of failures.
func (b *backoff) forget(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, k)
}

// reset ends all of them.
func (b *backoff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = nil
}

// jitter returns d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

package throttle

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Buckets are token buckets, one for each key that was used lately. They forget
// those that are full again, and beyond a number the one that was not used for
// longest: whoever commands that many keys gains a bucket's size with each and no
// more. They are safe for concurrent use.
type Buckets[K comparable] struct {
	rate       rate.Limit
	burst, max int

	mu   sync.Mutex
	keys map[K]*list.Element
	used list.List // of *bucket[K], the one not used for longest first
}

type bucket[K comparable] struct {
	key     K
	limiter *rate.Limiter
}

// New returns buckets of burst tokens that fill again with perSecond tokens a
// second, at most so many at a time.
func New[K comparable](perSecond rate.Limit, burst, most int) *Buckets[K] {
	return &Buckets[K]{rate: perSecond, burst: burst, max: most, keys: make(map[K]*list.Element)}
}

// Take takes a token out of key's bucket. If there is none it returns how long
// it takes until there is one, else 0.
func (b *Buckets[K]) Take(key K, now time.Time) time.Duration { return b.TakeN(key, 1, now) }

// TakeN takes n tokens, all or none of them, as Take does. n is at most the size of a
// bucket.
func (b *Buckets[K]) TakeN(key K, n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.limiter(key, now)
	if limiter.AllowN(now, n) {
		return 0
	}
	return b.until(limiter, n, now)
}

// Owe takes n tokens, also those that come only later: whoever owes some waits for
// them before the next. More than the size of a bucket at a time are not counted.
func (b *Buckets[K]) Owe(key K, n int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limiter(key, now).ReserveN(now, min(n, b.burst))
}

// Wait returns how long it takes until there is a token in key's bucket, 0 if there
// is one. It takes none.
func (b *Buckets[K]) Wait(key K, now time.Time) time.Duration { return b.WaitN(key, 1, now) }

// WaitN returns how long it takes until there are n tokens, as Wait does.
func (b *Buckets[K]) WaitN(key K, n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.keys[key]
	if !ok || e.Value.(*bucket[K]).limiter.TokensAt(now) >= float64(n) {
		return 0
	}
	return b.until(e.Value.(*bucket[K]).limiter, n, now)
}

func (b *Buckets[K]) until(limiter *rate.Limiter, n int, now time.Time) time.Duration {
	return max(time.Millisecond, time.Duration((float64(n)-limiter.TokensAt(now))/float64(b.rate)*float64(time.Second)))
}

// Reserve takes a token that will be there after wait, unless that is longer than
// most: then it takes none.
func (b *Buckets[K]) Reserve(key K, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.limiter(key, now).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > most {
		r.CancelAt(now)
		return wait, false
	}
	return wait, true
}

// limiter returns key's bucket. b.mu is held.
func (b *Buckets[K]) limiter(key K, now time.Time) *rate.Limiter {
	e, ok := b.keys[key]
	if ok {
		b.used.MoveToBack(e)
	} else {
		b.makeRoom(now)
		e = b.used.PushBack(&bucket[K]{key, rate.NewLimiter(b.rate, b.burst)})
		b.keys[key] = e
	}
	return e.Value.(*bucket[K]).limiter
}

// makeRoom forgets up to two buckets that are full again, so that their number
// shrinks while others come, and one in any case when there are too many.
func (b *Buckets[K]) makeRoom(now time.Time) {
	for range 2 {
		front := b.used.Front()
		if front == nil {
			return
		}
		oldest := front.Value.(*bucket[K])
		if len(b.keys) < b.max && oldest.limiter.TokensAt(now) < float64(b.burst) {
			return
		}
		b.used.Remove(front)
		delete(b.keys, oldest.key)
	}
}

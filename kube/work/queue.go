package work

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Config is how a Queue treats its keys.
type Config[T comparable] struct {
	// Backoff is for keys whose reconcile fails.
	Backoff Backoff
	// Permanent is the pause after a Permanent outcome, up to a quarter less; 0: the key
	// is not due before it is added again.
	Permanent time.Duration
	// Observe, if not nil, is told of every attempt, on the goroutine that made it.
	Observe func(key T, a Attempt)
}

// Attempt is how one reconcile of a key ended.
type Attempt struct {
	Err       error // nil: it did not fail
	Permanent bool
	Failures  int           // in a row, with this one; 0 after Permanent
	Next      time.Duration // the pause until the key is due again, 0 for none
}

// Queue holds the keys that are to be reconciled. A key is in it once, however often it
// is added, and is due at the earliest time that was asked for since it was last
// reconciled. Any goroutine may call its methods at any time; they do not block.
type Queue[T comparable] struct {
	cfg Config[T]

	mu       sync.Mutex
	due      map[T]time.Time // the keys that wait
	failures map[T]int       // in a row
	// running has every key of due at or before its time, and may have others: only due
	// counts. It is nil while Run does not run.
	running workqueue.TypedDelayingInterface[T]
}

// New returns a queue without keys.
func New[T comparable](cfg Config[T]) *Queue[T] {
	return &Queue[T]{cfg: cfg, due: make(map[T]time.Time), failures: make(map[T]int)}
}

// Add has a key reconciled now. One that is being reconciled is so once more.
func (q *Queue[T]) Add(key T) { q.AddAfter(key, 0) }

// AddAfter has a key reconciled after a pause, unless it is due before.
func (q *Queue[T]) AddAfter(key T, pause time.Duration) {
	at := time.Now().Add(pause)
	q.mu.Lock()
	defer q.mu.Unlock()
	if due, waits := q.due[key]; waits && !at.Before(due) {
		return
	}
	q.due[key] = at
	if q.running != nil {
		q.running.AddAfter(key, pause)
	}
}

// Drop takes a key out, and forgets its failures. A reconcile of it that is running goes
// on.
func (q *Queue[T]) Drop(key T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.due, key)
	delete(q.failures, key)
}

// Due returns when a key is due; false when it is not.
func (q *Queue[T]) Due(key T) (at time.Time, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, waits = q.due[key]
	return at, waits
}

// Ready returns the keys that are due now, in no order: for tests, and for people who look
// for a fault.
func (q *Queue[T]) Ready() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []T
	for key, at := range q.due {
		if time.Until(at) <= 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Failures returns how often the reconcile of a key failed in a row.
func (q *Queue[T]) Failures(key T) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failures[key]
}

// ForgetFailures has the backoff of every key begin anew.
func (q *Queue[T]) ForgetFailures() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.failures)
}

// Len returns how many keys are due now and wait for a worker; before Run, how many
// there are.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running == nil {
		return len(q.due)
	}
	return q.running.Len()
}

// Run reconciles the keys that are due, at most that many at a time and each one by one
// goroutine at a time, until ctx ends. Keys that are left then, and those whose reconcile
// was interrupted, are there for the next Run. It is to run once at a time.
func (q *Queue[T]) Run(ctx context.Context, workers int, reconcile func(ctx context.Context, key T) Outcome) {
	queue := q.start()
	defer q.stop()
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, workers)
	for {
		slots <- struct{}{}
		key, down := queue.Get()
		if down {
			return
		}
		running.Go(func() {
			if ctx.Err() == nil && q.take(key) {
				q.settle(ctx, key, reconcile(ctx, key))
			}
			queue.Done(key)
			<-slots
		})
	}
}

func (q *Queue[T]) start() workqueue.TypedDelayingInterface[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = workqueue.NewTypedDelayingQueue[T]()
	for key, at := range q.due {
		q.running.AddAfter(key, time.Until(at))
	}
	return q.running
}

func (q *Queue[T]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = nil
}

// take takes a key that client-go has come to. It is false for one that is not due
// (any more, or yet).
func (q *Queue[T]) take(key T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, waits := q.due[key]
	if pause := time.Until(at); waits && pause > 0 {
		q.running.AddAfter(key, pause)
		return false
	}
	delete(q.due, key)
	return waits
}

// settle decides when a key is due again.
func (q *Queue[T]) settle(ctx context.Context, key T, o Outcome) {
	if ctx.Err() != nil {
		q.Add(key)
		return
	}
	a := Attempt{Err: o.err, Permanent: o.permanent}
	q.mu.Lock()
	switch {
	case o.err == nil:
		delete(q.failures, key)
		a.Next = o.after
	case o.permanent:
		delete(q.failures, key)
		a.Next = spread(q.cfg.Permanent)
	default:
		q.failures[key]++
		a.Failures = q.failures[key]
		backoff := q.cfg.Backoff
		if o.most > 0 {
			backoff.Max = o.most
		}
		a.Next = max(backoff.Pause(a.Failures), RetryAfter(o.err))
	}
	q.mu.Unlock()
	if q.cfg.Observe != nil {
		q.cfg.Observe(key, a)
	}
	if a.Next > 0 || o.again {
		q.AddAfter(key, a.Next)
	}
}

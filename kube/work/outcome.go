package work

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Outcome is how a reconcile ended. The zero value is Done.
type Outcome struct {
	err       error
	permanent bool
	most      time.Duration // bound of the pause after err, 0 for the queue's
	again     bool
	after     time.Duration
}

// Done: the key is reconciled, and not due before it is added again.
func Done() Outcome { return Outcome{} }

// Again: nothing failed, and the key is due after a pause, at once if that is not
// positive.
func Again(pause time.Duration) Outcome { return Outcome{again: true, after: pause} }

// Retry: the reconcile failed, and is tried again with backoff, not before the pause
// that the error asks for.
func Retry(err error) Outcome { return Outcome{err: err} }

// Permanent: the reconcile failed in a way that only another state of the world can
// help. It is tried again after Config.Permanent.
func Permanent(err error) Outcome { return Outcome{err: err, permanent: true} }

// Result is Retry of an error, if there is one; else Again after a positive pause; else
// Done.
func Result(again time.Duration, err error) Outcome {
	switch {
	case err != nil:
		return Retry(err)
	case again > 0:
		return Again(again)
	}
	return Done()
}

// AtMost returns a Retry whose backoff grows to another maximum than the queue's.
func (o Outcome) AtMost(pause time.Duration) Outcome {
	o.most = pause
	return o
}

// Backoff is the pause between attempts that fail: First, and twice as long after each
// further failure, up to Max.
type Backoff struct{ First, Max time.Duration }

// Pause returns the pause after that many failures in a row, which are at least one: up
// to a quarter less than Backoff says, so that what failed together is not tried again
// together.
func (b Backoff) Pause(failures int) time.Duration {
	pause := b.First
	for i := 1; i < failures && pause < b.Max; i++ {
		pause *= 2
	}
	return spread(min(pause, b.Max))
}

// spread returns three quarters of a pause to all of it.
func spread(pause time.Duration) time.Duration { return wait.Jitter(pause*3/4, 1./3) }

// Sleep waits for d, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sooner returns the shorter of two pauses, of which 0 or less is none.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// maxRetryAfter bounds the pause that is made because somebody asks for one.
const maxRetryAfter = time.Minute

// RetryAfter returns the pause that an API server asked for with an error, or whoever
// made an error that has a method RetryAfter; 0 when nobody asked for one, and a
// minute at most.
func RetryAfter(err error) time.Duration {
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		return min(asks.RetryAfter(), maxRetryAfter)
	}
	seconds, asked := apierrors.SuggestsClientDelay(err)
	if !asked {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

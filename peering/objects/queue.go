package objects

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/kube/work"
)

const (
	// RetryFirst and retryMax bound the pause before a key whose reconcile failed is
	// tried again.
	RetryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
	// RefusedRetry is the pause after the API server refused an object as invalid:
	// only another object can help, and that comes by itself.
	RefusedRetry = 5 * time.Minute
	// PatientRetries is how often something fails until its trouble is worth a line in the
	// log: some ten seconds.
	PatientRetries = 9
)

// NewQueue returns a queue of what depends on the API server.
func NewQueue[T comparable](observe func(T, work.Attempt)) *work.Queue[T] {
	return work.New(work.Config[T]{Backoff: work.Backoff{First: RetryFirst, Max: retryMax}, Permanent: RefusedRetry, Observe: observe})
}

// Result says whether an error of a reconcile, nil for none, can pass by itself.
func Result(err error) work.Outcome {
	switch {
	case err == nil:
		return work.Done()
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return work.Permanent(err)
	}
	return work.Retry(err)
}

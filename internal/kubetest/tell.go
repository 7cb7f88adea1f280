package kubetest

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering/objects"
)

// Teller tells a Store of objects as an API server does.
type Teller[T kube.Object] struct {
	store cache.ReflectorStore
	trim  func(T)
}

// Tell returns a Teller for a Store.
func Tell[T kube.Object](s *objects.Store[T]) Teller[T] { return Teller[T]{s.Told(), s.Kind.Trim} }

// Update tells of an object that was made or changed.
func (t Teller[T]) Update(o T) error {
	t.trim(o)
	return t.store.Update(o)
}

// Delete tells of an object that was deleted.
func (t Teller[T]) Delete(o T) error { return t.store.Delete(o) }

// Replace tells of all objects there are.
func (t Teller[T]) Replace(version string, all ...T) error {
	var list []any
	for _, o := range all {
		t.trim(o)
		list = append(list, o)
	}
	return t.store.Replace(list, version)
}

// Again returns how long it takes until a key is reconciled again after a reconcile.
func Again[T comparable](t *testing.T, q *work.Queue[T], key T, reconcile func(context.Context, T) work.Outcome) (pause time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended time.Time
	q.Add(key)
	q.Run(ctx, 1, func(ctx context.Context, k T) work.Outcome {
		switch {
		case k != key:
			return work.Done()
		case ended.IsZero():
			ended = time.Now()
			return reconcile(ctx, k)
		}
		pause = time.Since(ended)
		cancel()
		return work.Done()
	})
	return pause
}

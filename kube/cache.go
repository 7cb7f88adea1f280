package kube

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is what a Cache holds: a pointer to a struct of an API object.
//
// It has nothing but methods, not even comparable: only then does the compiler make the
// code of a Cache once for all kinds of pointers, rather than once for each.
type Object interface {
	runtime.Object
	metav1.Object
}

// IsNil reports whether o is a nil pointer, which stands for no object.
func IsNil[T Object](o T) bool { return same(o, *new(T)) }

func same[T Object](a, b T) bool { return any(a) == any(b) }

// Query selects objects.
type Query struct {
	Path   string // of the collection, such as "/api/v1/pods"
	Labels string // a label selector, "" for all
	Fields string // a field selector, "" for all
}

// Kind says how the objects of a Cache are made and kept.
type Kind[T Object] struct {
	// Fresh returns an empty object.
	Fresh func() T
	// Trim, if not nil, takes away what nobody needs, before an object is kept.
	Trim func(T)
	// Keep, if not nil, reports whether an object is to be kept. It is as if the others
	// did not exist. It must not block.
	Keep func(T) bool
	// Bounds, if not nil, are for an API server that is not trusted.
	Bounds *Bounds
	// Changed, if not nil, is told of every object that is not what it was: as it was
	// and as it is, either of which may be nil. It is called for one change at a time, in
	// their order, on the goroutine of Follow and on those that write. It may read the
	// Cache, and must neither block nor write.
	Changed func(before, after T)
	// Index, if not nil, returns what By finds an object by.
	Index func(T) []string
	// Inherit, if not nil, takes over from an earlier state of an object what only that
	// tells. It is called before an object is kept.
	Inherit func(before, after T)
	// Failed, if not nil, is told why a list or watch failed. It must not block.
	Failed func(error)
	// Lost, if not nil, is told instead of Changed of an object that is not there any
	// more because the API server's store was restored from a backup: nobody deleted it.
	Lost func(before T)
}

// Cache holds all objects that a Query selects. Objects in it are shared and must
// not be changed. Its methods may be called from any goroutine.
//
// What it held when it was last told stays when the API server cannot be reached:
// unknown is never gone.
//
// Once Wrote and Deleted are told of our own writes, it never shows anything older than
// these, so that no reconcile acts on what is from before the last one.
type Cache[T Object] struct {
	kind      Kind[T]
	share     share
	synced    chan struct{}
	firstList sync.Once

	telling sync.Mutex // held while a change is made and told, so that all are told in order

	mu      sync.Mutex
	objects map[string]T
	index   map[string]map[string]T // by what Kind.Index returns, and key
	own     map[string]own
	seen    string // the newest resource version that the API server told of
	failed  error
	until   time.Time // the API server wants no request before
}

// NewCache returns an empty cache that follows nothing yet.
func NewCache[T Object](kind Kind[T]) *Cache[T] {
	return &Cache[T]{kind: kind, share: share{Bounds: kind.Bounds}, synced: make(chan struct{}), objects: make(map[string]T), index: make(map[string]map[string]T), own: make(map[string]own)}
}

// Synced is closed once the first complete list is in.
func (c *Cache[T]) Synced() <-chan struct{} { return c.synced }

// HasSynced reports whether the first complete list is in.
func (c *Cache[T]) HasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// Failure returns why the last attempt to list or watch failed, nil when it did
// not.
func (c *Cache[T]) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Get returns the object with that name, in the namespace if its kind has
// namespaces, and nil when there is none.
func (c *Cache[T]) Get(namespace, name string) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[key(namespace, name)]
}

// All returns every object, in no order.
func (c *Cache[T]) All() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]T, 0, len(c.objects))
	for _, o := range c.objects {
		out = append(out, o)
	}
	return out
}

// By returns the objects that Kind.Index finds by that, in no order.
func (c *Cache[T]) By(index string) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.index[index]))
}

// Indexes returns everything that By finds something by, in no order.
func (c *Cache[T]) Indexes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.index))
}

// Version returns the newest resource version that the API server told of, "" before the
// first list.
func (c *Cache[T]) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// Len returns the number of objects.
func (c *Cache[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects)
}

// Forget drops an object that nobody needs any more, although it exists. It is back
// when it changes, or everything is listed again.
func (c *Cache[T]) Forget(o T) {
	k := keyOf(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if same(c.objects[k], o) {
		c.drop(k)
		c.share.forget(k, o)
	}
}

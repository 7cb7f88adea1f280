package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// maxEvent bounds one event of a watch in bytes.
const maxEvent = 4 << 20

// Object is what a Cache holds: a pointer to a struct of an API object.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

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
	// Changed, if not nil, is told of every object that is not what it was: as it was
	// and as it is, either of which may be nil. It is called on the goroutine of
	// Follow, without a lock, and must not block.
	Changed func(before, after T)
}

// Cache holds all objects that a Query selects. Objects in it are shared and must
// not be changed. Its methods may be called from any goroutine.
//
// What it held when it was last told stays when the API server cannot be reached:
// unknown is never gone.
type Cache[T Object] struct {
	kind      Kind[T]
	synced    chan struct{}
	firstList sync.Once

	mu      sync.Mutex
	objects map[string]T
	failed  error
}

// NewCache returns an empty cache that follows nothing yet.
func NewCache[T Object](kind Kind[T]) *Cache[T] {
	return &Cache[T]{kind: kind, synced: make(chan struct{}), objects: make(map[string]T)}
}

// Synced is closed once the first complete list is in.
func (c *Cache[T]) Synced() <-chan struct{} { return c.synced }

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

// Len returns the number of objects.
func (c *Cache[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects)
}

// Follow keeps the cache up to date until ctx ends. It is to run once at a time.
func (c *Cache[T]) Follow(ctx context.Context, client *Client, query Query) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := c.list(ctx, client, query, options)
			c.note(err)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := c.watch(ctx, client, query, options)
			c.note(err)
			return w, err
		},
	}
	cache.NewReflectorWithOptions(lw, c.kind.Fresh(), (*sink[T])(c), cache.ReflectorOptions{
		Name:    query.Path,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 10 * time.Second, Steps: math.MaxInt32},
	}).RunWithContext(ctx)
}

func (c *Cache[T]) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// list is a list of objects as the API server returns it.
type list[T Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *list[T]) DeepCopyObject() runtime.Object {
	out := &list[T]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		out.Items = append(out.Items, item.DeepCopyObject().(T))
	}
	return out
}

func (q Query) options(options metav1.ListOptions) *metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = q.Labels, q.Fields
	return &options
}

func (c *Cache[T]) list(ctx context.Context, client *Client, query Query, options metav1.ListOptions) (*list[T], error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	request := client.rest.Get().AbsPath(query.Path).VersionedParams(query.options(options), metav1.ParameterCodec)
	text, err := read(ctx, request, maxList)
	out := &list[T]{}
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", query.Path, err)
	}
	var none T
	for _, item := range out.Items {
		if item == none {
			return nil, fmt.Errorf("list %s: an item is null", query.Path)
		}
	}
	return out, nil
}

func (c *Cache[T]) watch(ctx context.Context, client *Client, query Query, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := client.rest.Get().AbsPath(query.Path).VersionedParams(query.options(options), metav1.ParameterCodec).
		MaxRetries(0).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", query.Path, err)
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), maxEvent)
	decoder := &events[T]{body: body, lines: lines, fresh: c.kind.Fresh}
	return watch.NewStreamWatcher(decoder, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding")), nil
}

// events decodes a watch: one JSON object a line.
type events[T Object] struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	fresh func() T
}

// Close implements watch.Decoder.
func (e *events[T]) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events[T]) Decode() (watch.EventType, runtime.Object, error) {
	if !e.lines.Scan() {
		if err := e.lines.Err(); err != nil {
			return "", nil, err
		}
		return "", nil, io.EOF
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(e.lines.Bytes(), &event); err != nil {
		return "", nil, fmt.Errorf("an event of the watch is no JSON: %w", err)
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		object := e.fresh()
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return "", nil, fmt.Errorf("an object of the watch: %w", err)
		}
		var none T
		if object == none {
			return "", nil, errors.New("an object of the watch is null")
		}
		return event.Type, object, nil
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(event.Object, status); err != nil {
			return "", nil, fmt.Errorf("an error of the watch: %w", err)
		}
		return event.Type, status, nil
	}
	return "", nil, fmt.Errorf("an event of the watch has the unknown type %q", event.Type)
}

// sink takes in what the reflector delivers. It implements cache.ReflectorStore.
type sink[T Object] Cache[T]

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func keyOf(o metav1.Object) string { return key(o.GetNamespace(), o.GetName()) }

// Add implements cache.ReflectorStore.
func (s *sink[T]) Add(object any) error { return s.put(object) }

// Update implements cache.ReflectorStore.
func (s *sink[T]) Update(object any) error { return s.put(object) }

func (s *sink[T]) put(object any) error {
	o, ok := object.(T)
	if !ok {
		return fmt.Errorf("a %T is not what was asked for", object)
	}
	if s.kind.Trim != nil {
		s.kind.Trim(o)
	}
	s.mu.Lock()
	before := s.objects[keyOf(o)]
	s.objects[keyOf(o)] = o
	s.mu.Unlock()
	s.tell(before, o)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sink[T]) Delete(object any) error {
	o, ok := object.(T)
	if !ok {
		return fmt.Errorf("a %T is not what was asked for", object)
	}
	var none T
	s.mu.Lock()
	before := s.objects[keyOf(o)]
	delete(s.objects, keyOf(o))
	s.mu.Unlock()
	if before != none {
		s.tell(before, none)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *sink[T]) Replace(objects []any, _ string) error {
	fresh := make(map[string]T, len(objects))
	for _, object := range objects {
		o, ok := object.(T)
		if !ok {
			return fmt.Errorf("a %T is not what was asked for", object)
		}
		if s.kind.Trim != nil {
			s.kind.Trim(o)
		}
		fresh[keyOf(o)] = o
	}
	s.mu.Lock()
	before := s.objects
	s.objects = fresh
	s.mu.Unlock()
	var none T
	for k, o := range fresh {
		if old := before[k]; old == none || old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID() {
			s.tell(old, o)
		}
	}
	for k, o := range before {
		if fresh[k] == none {
			s.tell(o, none)
		}
	}
	s.firstList.Do(func() { close(s.synced) })
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (s *sink[T]) Resync() error { return nil }

func (s *sink[T]) tell(before, after T) {
	if s.kind.Changed != nil {
		s.kind.Changed(before, after)
	}
}

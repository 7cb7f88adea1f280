package kube

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"liqo.io/agent/kube/work"
)

// maxEvent bounds one event of a watch in bytes, where there are no Bounds.
const maxEvent = 4 << 20

// Follow keeps the cache up to date until ctx ends. It is to run once at a time.
func (c *Cache[T]) Follow(ctx context.Context, client *Client, query Query) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := c.list(ctx, client, query, options)
			if c.note(err); err != nil {
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
	c.share.reset()
	c.kind.Bounds.note(c, nil)
}

func (c *Cache[T]) note(err error) {
	c.mu.Lock()
	if c.failed = err; apierrors.IsTooManyRequests(err) && time.Now().After(c.until) {
		c.until = time.Now().Add(work.RetryAfter(err))
	}
	c.mu.Unlock()
	if err != nil {
		c.kind.Bounds.note(c, err)
		if c.kind.Failed != nil {
			c.kind.Failed(err)
		}
	}
}

// mayAsk returns the error of the last attempt while there is to be no other one.
func (c *Cache[T]) mayAsk() error {
	c.mu.Lock()
	err, until := c.failed, c.until
	c.mu.Unlock()
	if err != nil && time.Now().Before(until) {
		return err
	}
	return c.kind.Bounds.open()
}

// accept makes an object what is kept of it, and counts it, in place of an earlier one of
// its name if there may be one. It is false for an object that is not to be kept.
func (c *Cache[T]) accept(in *tally, o T, again bool) (bool, error) {
	if c.kind.Trim != nil {
		c.kind.Trim(o)
	}
	if c.kind.Keep != nil && !c.kind.Keep(o) {
		return false, nil
	}
	if c.kind.Bounds == nil {
		return true, nil
	}
	return true, c.share.take(in, keyOf(o), o, weigh(o), again)
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

// list lists what a query selects, or the page of it that options want.
func (c *Cache[T]) list(ctx context.Context, client *Client, query Query, options metav1.ListOptions) (*list[T], error) {
	if err := c.mayAsk(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	one := int64(maxList)
	if b := c.kind.Bounds; b != nil {
		one = int64(b.Object)
	}
	of := c.share.goOn
	if options.Continue == "" {
		of = c.share.begin
	}
	in, text := of()
	body, err := client.rest.Get().AbsPath(query.Path).VersionedParams(query.options(options), metav1.ParameterCodec).
		MaxRetries(0).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	out := &list[T]{}
	if err == nil {
		page := &boundedBody{ReadCloser: body, left: text}
		err = c.readList(page, one, in, out)
		text = page.left
		_ = body.Close() // everything that matters was read
	}
	c.share.end(in, text, err)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", query.Path, err)
	}
	return out, nil
}

// List returns what a query selects, read as a Cache of that kind reads it.
func List[T Object](ctx context.Context, client *Client, query Query, kind Kind[T]) ([]T, error) {
	c := NewCache(kind)
	defer c.share.reset()
	found, err := c.list(ctx, client, query, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// readList reads a list item by item, each of at most so many bytes.
func (c *Cache[T]) readList(body io.ReadCloser, one int64, in *tally, out *list[T]) error {
	piece := &boundedBody{ReadCloser: body}
	decoder := json.NewDecoder(piece)
	next := func() (json.Token, error) {
		piece.left = one
		return decoder.Token()
	}
	if t, err := next(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errors.New("the answer is no list"))
	}
	for {
		field, err := next()
		switch {
		case err != nil:
			return err
		case field == json.Delim('}'):
			if _, err := next(); err != io.EOF {
				return cmp.Or(err, errors.New("something follows the list"))
			}
			return nil
		case field == "items":
			err = c.readItems(decoder, piece, one, in, out)
		case field == "metadata":
			piece.left = one
			err = decoder.Decode(&out.ListMeta)
		default: // a list's type is known
			piece.left = one
			err = decoder.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
}

// readItems reads the items of a list, and keeps those that are to be kept.
func (c *Cache[T]) readItems(decoder *json.Decoder, piece *boundedBody, one int64, in *tally, out *list[T]) error {
	piece.left = one
	begin, err := decoder.Token()
	switch {
	case err != nil:
		return err
	case begin == nil: // as Go writes an empty one
		return nil
	case begin != json.Delim('['):
		return errors.New("the items are no list")
	}
	for {
		piece.left = one
		if !decoder.More() {
			_, err := decoder.Token()
			return err
		}
		piece.left = one
		item := c.kind.Fresh()
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		if IsNil(item) {
			return errors.New("an item is null")
		}
		keep, err := c.accept(in, item, false)
		if err != nil {
			return err
		}
		if keep {
			out.Items = append(out.Items, item)
		}
	}
}

func (c *Cache[T]) watch(ctx context.Context, client *Client, query Query, options metav1.ListOptions) (watch.Interface, error) {
	if err := c.mayAsk(); err != nil {
		return nil, err
	}
	in := c.share.current()
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		in, _ = c.share.begin() // it is the list, too
	}
	most := maxEvent
	if b := c.kind.Bounds; b != nil {
		most = b.Object
	}
	options.Watch = true
	body, err := client.rest.Get().AbsPath(query.Path).VersionedParams(query.options(options), metav1.ParameterCodec).
		MaxRetries(0).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", query.Path, err)
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), most)
	decoder := &events[T]{body: body, lines: lines, cache: c, in: in, path: query.Path}
	return watch.NewStreamWatcher(decoder, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding")), nil
}

// events decodes a watch: one JSON object a line.
type events[T Object] struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	cache *Cache[T]
	in    *tally
	path  string
}

// Close implements watch.Decoder.
func (e *events[T]) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events[T]) Decode() (watch.EventType, runtime.Object, error) {
	kind, object, err := e.decode()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("%w: an event is too long", ErrTooMuch)
	}
	if errors.Is(err, ErrTooMuch) {
		// What the reflector is told loses what it is.
		err = fmt.Errorf("watch %s: %w", e.path, err)
		e.cache.note(err)
	}
	return kind, object, err
}

func (e *events[T]) decode() (watch.EventType, runtime.Object, error) {
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
	case watch.Bookmark:
		var mark struct {
			Metadata struct {
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(event.Object, &mark); err != nil {
			return "", nil, fmt.Errorf("a bookmark of the watch: %w", err)
		}
		return event.Type, e.mark(mark.Metadata.ResourceVersion, mark.Metadata.Annotations), nil
	case watch.Added, watch.Modified, watch.Deleted:
		object := e.cache.kind.Fresh()
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return "", nil, fmt.Errorf("an object of the watch: %w", err)
		}
		if IsNil(object) {
			return "", nil, errors.New("an object of the watch is null")
		}
		if event.Type == watch.Deleted {
			e.cache.share.drop(e.in, keyOf(object))
			return event.Type, object, nil
		}
		keep, err := e.cache.accept(e.in, object, true)
		if err != nil {
			return "", nil, err
		}
		if !keep { // one that was to be may be on its way still
			e.cache.share.drop(e.in, keyOf(object))
			return watch.Deleted, object, nil
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

// mark returns a bookmark.
func (e *events[T]) mark(version string, annotations map[string]string) T {
	object := e.cache.kind.Fresh()
	object.SetResourceVersion(version)
	object.SetAnnotations(annotations)
	return object
}

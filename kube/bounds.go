package kube

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// ErrTooMuch is what a Cache fails with when its Bounds are exceeded.
var ErrTooMuch = errors.New("too much")

// boundsPause is how long an API server is left alone that exceeded its Bounds.
const boundsPause = time.Minute

// Bounds are how much several caches take together from an API server that is not
// trusted. They are checked object by object, before the next one is read. Once they
// are exceeded nothing is asked for a minute; what the caches hold stays.
//
// While a cache lists everything anew it has what it holds and what it is told: the
// larger of the two is counted, so that a cache that is nearly full can be told of other
// objects. The caches then take twice the bounds at most.
//
// The exported fields are not to be changed once a Cache has them. The methods may be
// called from any goroutine.
type Bounds struct {
	Objects int   // that are kept
	Bytes   int64 // of memory that these take, about
	List    int64 // of text of one list, with all its pages
	Object  int   // bytes of text of one object in a list, and of one event of a watch
	// Changed, if not nil, is told when Err changed. It must not block.
	Changed func()

	mu      sync.Mutex
	objects int
	bytes   int64
	failed  error
	by      any       // the cache that failed
	until   time.Time // nothing is asked before
}

// Err returns an ErrTooMuch that says what was exceeded, until what exceeded it was
// listed in full, or is not followed any more; nil if nothing was.
func (b *Bounds) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// open returns an error while the API server is left alone.
func (b *Bounds) open() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil && time.Now().Before(b.until) {
		return b.failed
	}
	return nil
}

// note takes in how a list or watch of a cache ended: with an error, or well.
func (b *Bounds) note(by any, err error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	before := b.failed
	switch {
	case errors.Is(err, ErrTooMuch):
		if before == nil || time.Now().After(b.until) {
			b.failed, b.by, b.until = err, by, time.Now().Add(boundsPause)
		}
	case err == nil && b.by == by:
		b.failed, b.by = nil, nil
	}
	changed := (before == nil) != (b.failed == nil)
	b.mu.Unlock()
	if changed && b.Changed != nil {
		b.Changed()
	}
}

// share is what one cache takes of its Bounds: the larger of what it holds and what it
// is being told anew. Its zero value has none.
type share struct {
	*Bounds
	held, next *tally // guarded by Bounds.mu, with what is in them
}

// tally is what was counted of one list and of the watch that goes on from it.
type tally struct {
	of    map[string]weighed // by key
	bytes int64
	text  int64 // that the list may still have, over all its pages
}

type weighed struct {
	object any
	size   int64
}

var (
	errTwice = fmt.Errorf("%w: a list names an object twice", ErrTooMuch)
	errStale = errors.New("nobody waits for it any more")
)

func (t *tally) sum() (objects int, bytes int64) {
	if t == nil {
		return 0, 0
	}
	return len(t.of), t.bytes
}

// change counts what a change makes of the share. The caller holds Bounds.mu.
func (s *share) change(change func()) {
	sum := func() (int, int64) {
		objects, bytes := s.held.sum()
		more, larger := s.next.sum()
		return max(objects, more), max(bytes, larger)
	}
	objects, bytes := sum()
	change()
	objectsNow, bytesNow := sum()
	s.objects += objectsNow - objects
	s.bytes += bytesNow - bytes
}

// begin returns the tally of a list, and how much text it may have. What is held stays
// counted until settle.
func (s *share) begin() (*tally, int64) {
	if s.Bounds == nil {
		return nil, maxList
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(func() { s.next = &tally{of: make(map[string]weighed), text: s.List} })
	return s.next, s.List
}

// goOn returns the tally of the list that a page goes on with, and how much text is left
// to it.
func (s *share) goOn() (*tally, int64) {
	if s.Bounds == nil {
		return nil, maxList
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		return nil, 0
	}
	return s.next, s.next.text
}

// end takes in how a list, or a page of it, ended: with so much text left, or with an
// error, which is the end of the tally.
func (s *share) end(in *tally, text int64, err error) {
	if s.Bounds == nil || in == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in.text = text
	if err != nil && s.next == in {
		s.change(func() { s.next = nil })
	}
}

// settle has what was told anew take the place of what was held.
func (s *share) settle() {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.change(func() { s.held, s.next = s.next, nil })
	}
}

// current returns the tally of what is held.
func (s *share) current() *tally {
	if s.Bounds == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// take counts an object, in place of the one that had its key if there may be one. It
// fails for a tally that is not one of the share any more.
func (s *share) take(in *tally, key string, object any, size int64, again bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in == nil || in != s.held && in != s.next {
		return errStale
	}
	before, there := in.of[key]
	if there && !again {
		return errTwice
	}
	s.change(func() {
		in.of[key] = weighed{object, size}
		in.bytes += size - before.size
	})
	var err error
	switch {
	case s.objects > s.Objects:
		err = fmt.Errorf("%w: more than %d objects", ErrTooMuch, s.Objects)
	case s.bytes > s.Bytes:
		err = fmt.Errorf("%w: objects that take more than %d MiB", ErrTooMuch, s.Bytes>>20)
	default:
		return nil
	}
	s.change(func() {
		if in.of[key] = before; !there {
			delete(in.of, key)
		}
		in.bytes -= size - before.size
	})
	return err
}

// drop takes an object out of a tally.
func (s *share) drop(in *tally, key string) {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(in, key)
}

// forget takes an object out of what is held, unless another one that is on its way was
// counted in its place.
func (s *share) forget(key string, object any) {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil && s.held.of[key].object == object {
		s.remove(s.held, key)
	}
}

// remove is drop for a caller that holds Bounds.mu.
func (s *share) remove(in *tally, key string) {
	if in == nil || in != s.held && in != s.next {
		return
	}
	s.change(func() {
		in.bytes -= in.of[key].size
		delete(in.of, key)
	})
}

// reset takes everything out of the count: nothing is followed any more.
func (s *share) reset() {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(func() { s.held, s.next = nil, nil })
}

// weigh returns about how much memory a value takes, with all that it leads to.
func weigh(v any) int64 {
	of := reflect.ValueOf(v)
	return int64(of.Type().Size()) + beyond(of)
}

var timeType = reflect.TypeFor[time.Time]()

// beyond is what a value leads to.
func beyond(v reflect.Value) (size int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			size = int64(v.Elem().Type().Size()) + beyond(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			size = int64(v.Cap()) * int64(v.Type().Elem().Size())
		}
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
			for i := range v.Len() {
				size += beyond(v.Index(i))
			}
		}
	case reflect.Map:
		entry := int64(v.Type().Key().Size() + v.Type().Elem().Size())
		for it := v.MapRange(); it.Next(); {
			size += entry + beyond(it.Key()) + beyond(it.Value())
		}
	case reflect.Struct:
		if v.Type() == timeType { // the zone is shared
			return 0
		}
		for i := range v.NumField() {
			size += beyond(v.Field(i))
		}
	}
	return size
}

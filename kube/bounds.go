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
// The exported fields are not to be changed once a Cache has them. The methods may be
// called from any goroutine.
type Bounds struct {
	Objects int   // that are kept
	Bytes   int64 // of memory that these take, about
	List    int64 // of text of one list
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

// share is what one cache takes of its Bounds. Its zero value has none.
type share struct {
	*Bounds
	sizes map[string]int64 // by key; guarded by Bounds.mu
}

// take counts an object, in place of the one that had its key.
func (s *share) take(key string, size int64) error {
	if s.Bounds == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, there := s.sizes[key]
	bytes, objects := s.bytes-before+size, s.objects
	if !there {
		objects++
	}
	switch {
	case objects > s.Objects:
		return fmt.Errorf("%w: more than %d objects", ErrTooMuch, s.Objects)
	case bytes > s.Bytes:
		return fmt.Errorf("%w: objects that take more than %d MiB", ErrTooMuch, s.Bytes>>20)
	}
	if s.sizes == nil {
		s.sizes = make(map[string]int64)
	}
	s.sizes[key], s.bytes, s.objects = size, bytes, objects
	return nil
}

// drop takes an object out of the count.
func (s *share) drop(key string) {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if size, there := s.sizes[key]; there {
		s.bytes -= size
		s.objects--
		delete(s.sizes, key)
	}
}

// reset takes everything out of the count: the whole is about to be read anew.
func (s *share) reset() {
	if s.Bounds == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, size := range s.sizes {
		s.bytes -= size
	}
	s.objects -= len(s.sizes)
	s.sizes = nil
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

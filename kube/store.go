package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// own is the last write of ours to an object, while the API server has not told of it.
type own struct {
	version string    // of the object as the write returned it; if it was deleted, as it was before that
	deleted types.UID // of the object, if it was
}

// hides reports whether a state of an object, or of an earlier one of its name, is from
// before the write.
func (w own) hides(o metav1.Object) bool {
	return Older(o.GetResourceVersion(), w.version) ||
		w.deleted != "" && o.GetUID() == w.deleted && (o.GetDeletionTimestamp() == nil || o.GetResourceVersion() == w.version)
}

// Told returns what takes in what an API server tells: that is for Follow, and for tests.
func (c *Cache[T]) Told() cache.ReflectorStore { return (*sink[T])(c) }

// Wrote takes in an object as the API server returned it after a write of ours; it is the
// Cache's then. Changed is told, because the answer holds what others changed a moment
// before as well, and that is no news when the API server tells of it. It is not for a
// Cache with Bounds: those hold for what an API server tells by itself.
//
// The caller holds no lock that Changed takes.
func (c *Cache[T]) Wrote(o T) {
	if c.kind.Trim != nil {
		c.kind.Trim(o)
	}
	k := keyOf(o)
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	before, there := c.objects[k]
	// The API server tells in order. If it has come to a later version already, and the
	// object is not there, then it told that it was deleted, and will not tell again.
	known := !there && c.seen != "" && !Older(c.seen, o.GetResourceVersion()) ||
		there && !Older(before.GetResourceVersion(), o.GetResourceVersion()) || c.own[k].hides(o)
	if !known {
		c.inherit(before, o)
		c.set(k, o)
		c.own[k] = own{version: o.GetResourceVersion()}
	}
	c.mu.Unlock()
	if !known {
		c.tell(before, o)
	}
}

// Deleted takes in that the API server took the deletion of the object with that UID from
// us, and that nothing but finalizers can hold it. The caller holds no lock that Changed
// takes.
func (c *Cache[T]) Deleted(namespace, name string, uid types.UID) {
	k := key(namespace, name)
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	o, there := c.objects[k]
	gone := there && o.GetUID() == uid && len(o.GetFinalizers()) == 0
	if gone {
		c.drop(k)
		c.own[k] = own{version: o.GetResourceVersion(), deleted: uid}
	}
	c.mu.Unlock()
	if gone {
		c.tell(o, *new(T))
	}
}

// Apply is [Client.Apply] for an object of the Cache, which takes in the answer.
func (c *Cache[T]) Apply(ctx context.Context, client *Client, path, manager string, force bool, object any) (T, error) {
	written := c.kind.Fresh()
	if err := client.Apply(ctx, path, manager, force, object, written); err != nil {
		var none T
		return none, err
	}
	c.Wrote(written)
	return written, nil
}

// set keeps an object under its key. The caller holds mu.
func (c *Cache[T]) set(k string, o T) {
	c.unindex(k)
	c.objects[k] = o
	if c.kind.Index == nil {
		return
	}
	for _, at := range c.kind.Index(o) {
		if c.index[at] == nil {
			c.index[at] = make(map[string]T)
		}
		c.index[at][k] = o
	}
}

// drop forgets the object under a key. The caller holds mu.
func (c *Cache[T]) drop(k string) {
	c.unindex(k)
	delete(c.objects, k)
}

func (c *Cache[T]) unindex(k string) {
	before, there := c.objects[k]
	if !there || c.kind.Index == nil {
		return
	}
	for _, at := range c.kind.Index(before) {
		if delete(c.index[at], k); len(c.index[at]) == 0 {
			delete(c.index, at)
		}
	}
}

func (c *Cache[T]) inherit(before, after T) {
	if c.kind.Inherit != nil && !IsNil(before) && !same(before, after) {
		c.kind.Inherit(before, after)
	}
}

func (c *Cache[T]) tell(before, after T) {
	if c.kind.Changed != nil {
		c.kind.Changed(before, after)
	}
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
	k := keyOf(o)
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.seen = o.GetResourceVersion()
	w, wrote := s.own[k]
	if wrote && w.hides(o) {
		s.mu.Unlock()
		return nil
	}
	delete(s.own, k)
	before := s.objects[k]
	c := (*Cache[T])(s)
	c.inherit(before, o)
	c.set(k, o)
	s.mu.Unlock()
	if !wrote || w.version != o.GetResourceVersion() {
		c.tell(before, o)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sink[T]) Delete(object any) error {
	o, ok := object.(T)
	if !ok {
		return fmt.Errorf("a %T is not what was asked for", object)
	}
	k := keyOf(o)
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.seen = o.GetResourceVersion()
	if w, wrote := s.own[k]; wrote && Older(o.GetResourceVersion(), w.version) {
		s.mu.Unlock()
		return nil // an earlier one of that name
	}
	delete(s.own, k)
	before, there := s.objects[k]
	(*Cache[T])(s).drop(k)
	s.mu.Unlock()
	if there {
		(*Cache[T])(s).tell(before, *new(T))
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *sink[T]) Replace(objects []any, version string) error {
	fresh := make(map[string]T, len(objects))
	for _, object := range objects {
		o, ok := object.(T)
		if !ok {
			return fmt.Errorf("a %T is not what was asked for", object)
		}
		fresh[keyOf(o)] = o
	}
	c := (*Cache[T])(s)
	var changes [][2]T // before and after
	var gone []T
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	// The history went back: the API server's store was restored from a backup, and what
	// we wrote after that is not there.
	restored := Older(version, s.seen)
	s.seen = version
	if restored {
		clear(s.own)
	}
	for k, w := range s.own {
		switch o, listed := fresh[k]; {
		case listed && w.hides(o), !listed && Older(version, w.version): // the list is from before the write
			if written, there := s.objects[k]; there {
				fresh[k] = written
			} else {
				delete(fresh, k)
			}
		default:
			delete(s.own, k)
		}
	}
	for k, o := range fresh {
		if old, there := s.objects[k]; !there || old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID() {
			changes = append(changes, [2]T{old, o})
		}
	}
	for k, o := range s.objects {
		if _, there := fresh[k]; !there {
			gone = append(gone, o)
			c.drop(k)
		}
	}
	for k, o := range fresh {
		if !restored {
			c.inherit(s.objects[k], o)
		}
		c.set(k, o)
	}
	s.share.settle()
	s.mu.Unlock()
	for _, change := range changes {
		c.tell(change[0], change[1])
	}
	for _, o := range gone {
		if restored && s.kind.Lost != nil {
			s.kind.Lost(o)
		} else {
			c.tell(o, *new(T))
		}
	}
	s.kind.Bounds.note(c, nil)
	s.firstList.Do(func() { close(s.synced) })
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (s *sink[T]) Resync() error { return nil }

// Older reports whether resource version a is older than b. Versions that cannot be
// compared count as older, so that what arrives later wins.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != "" && b != "" && a != b
	}
	return order < 0
}

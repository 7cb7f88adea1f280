package peering

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"liqo.io/agent/peer"
)

// object is what a store holds: a pointer to one of the kinds in kinds.go.
type object interface {
	comparable
	runtime.Object
	metav1.Object
}

// store is the cache of all objects of one kind: a reflector feeds it, and the
// answers to our own writes do, so that a reconcile never acts on something
// older than what the one before it wrote. Objects in it are never changed.
//
// An answer holds what others changed a moment before as well, and when the
// reflector delivers that, it is no news any more. So an answer is told of like
// everything else: whoever wrote looks once more.
//
// It implements cache.ReflectorStore. All methods are safe for concurrent use.
type store[T object] struct {
	kind kind[T]
	// changed is told of every object that is not what it was: as it was and as it
	// is, either of which may be nil, and whether that is because the server's store
	// was restored from a backup. It is called without a lock, on the goroutine of the
	// reflector and on those that write.
	changed func(before, after T, restored bool)

	synced    chan struct{} // closed after the first list
	firstList sync.Once

	mu      sync.Mutex
	objects map[string]T                // by name
	byID    map[peer.ClusterID][]string // names of the objects about a cluster
	seen    string                      // newest resource version the reflector delivered
	buried  map[types.UID]struct{}      // what we deleted and the reflector has not told the end of
}

func newStore[T object](kind kind[T], changed func(before, after T, restored bool)) *store[T] {
	return &store[T]{
		kind:    kind,
		changed: changed,
		objects: make(map[string]T),
		byID:    make(map[peer.ClusterID][]string),
		buried:  make(map[types.UID]struct{}),
		synced:  make(chan struct{}),
	}
}

// get returns the object with that name, nil when there is none.
func (s *store[T]) get(name string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// about returns the objects about a cluster.
func (s *store[T]) about(id peer.ClusterID) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for _, name := range s.byID[id] {
		out = append(out, s.objects[name])
	}
	return out
}

// all returns every object.
func (s *store[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]T, 0, len(s.objects))
	for _, o := range s.objects {
		out = append(out, o)
	}
	return out
}

// uid returns the UID of the object with that name, "" when there is none.
func (s *store[T]) uid(name string) types.UID {
	var none T
	if o := s.get(name); o != none {
		return o.GetUID()
	}
	return ""
}

// version returns the newest resource version that the reflector delivered.
func (s *store[T]) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// ids returns every cluster that some object is about.
func (s *store[T]) ids() []peer.ClusterID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]peer.ClusterID, 0, len(s.byID))
	for id := range s.byID {
		out = append(out, id)
	}
	return out
}

func (s *store[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// wrote takes in the API server's answer to a write of ours.
func (s *store[T]) wrote(o T) {
	s.mu.Lock()
	before, there := s.objects[o.GetName()]
	// The reflector delivers in order. If it has come to a later version than this
	// one already, and the object is not there, then it told that the object was
	// deleted, and it will not tell again.
	gone := !there && s.seen != "" && !older(s.seen, o.GetResourceVersion())
	changed := !gone && s.put(o)
	s.mu.Unlock()
	if changed {
		s.changed(before, o, false)
	}
}

// deleted takes in that the API server deleted an object for us. What the
// reflector still delivers of the time before does not bring it back.
func (s *store[T]) deleted(name string, uid types.UID) {
	s.mu.Lock()
	o, there := s.objects[name]
	gone := there && o.GetUID() == uid && len(o.GetFinalizers()) == 0
	if gone {
		s.drop(o)
		s.buried[uid] = struct{}{}
	}
	s.mu.Unlock()
	if gone {
		var none T
		s.changed(o, none, false)
	}
}

// Transformer implements cache.TransformingStore: what nobody reads is dropped
// before a first list is held in memory as a whole.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			s.kind.trim(o)
		}
		return obj, nil
	}
}

// Add takes in an object that the reflector delivers.
func (s *store[T]) Add(obj any) error { return s.Update(obj) }

// Update takes in an object that the reflector delivers.
func (s *store[T]) Update(obj any) error {
	o, ok := obj.(T)
	if !ok {
		return nil
	}
	s.mu.Lock()
	s.seen = newer(s.seen, o.GetResourceVersion())
	before := s.objects[o.GetName()]
	changed := s.put(o)
	s.mu.Unlock()
	if changed {
		s.changed(before, o, false)
	}
	return nil
}

// Delete takes in that an object is gone.
func (s *store[T]) Delete(obj any) error {
	o, ok := obj.(T)
	if !ok {
		return nil
	}
	s.mu.Lock()
	s.seen = newer(s.seen, o.GetResourceVersion())
	if before, there := s.objects[o.GetName()]; there && before.GetUID() == o.GetUID() {
		s.drop(before)
	}
	delete(s.buried, o.GetUID())
	s.mu.Unlock()
	var none T
	s.changed(o, none, false)
	return nil
}

// Replace takes in a complete list.
func (s *store[T]) Replace(list []any, version string) error {
	type change struct{ before, after T }
	var none T
	s.mu.Lock()
	// The history went back: the server's store was restored from a backup. What
	// is known from the lost future is worth nothing.
	restored := older(version, s.seen)
	if restored {
		clear(s.buried)
	}
	s.seen = version
	listed := make(map[string]struct{}, len(list))
	buried := make(map[types.UID]struct{})
	var changes []change
	for _, obj := range list {
		o, ok := obj.(T)
		if !ok {
			continue
		}
		listed[o.GetName()] = struct{}{}
		if _, ended := s.buried[o.GetUID()]; ended {
			buried[o.GetUID()] = struct{}{}
		}
		before, there := s.objects[o.GetName()]
		if there && restored {
			s.drop(before)
		}
		if s.put(o) {
			changes = append(changes, change{before, o})
		}
	}
	s.buried = buried
	for name, o := range s.objects {
		_, there := listed[name]
		// An object that we wrote after the list was made is not in it, and yet not
		// gone: the watch that follows will tell.
		if !there && (restored || !older(version, o.GetResourceVersion())) {
			s.drop(o)
			changes = append(changes, change{o, none})
		}
	}
	s.mu.Unlock()
	s.firstList.Do(func() { close(s.synced) })
	for _, c := range changes {
		s.changed(c.before, c.after, restored)
	}
	return nil
}

// Resync does nothing: there is no other cache to compare with.
func (s *store[T]) Resync() error { return nil }

// put stores o unless the same or a newer version of it is there already, or it
// is of the time before we deleted it.
func (s *store[T]) put(o T) bool {
	s.kind.trim(o)
	if _, ended := s.buried[o.GetUID()]; ended && o.GetDeletionTimestamp() == nil {
		return false
	}
	if before, there := s.objects[o.GetName()]; there {
		if !older(before.GetResourceVersion(), o.GetResourceVersion()) {
			return false
		}
		s.drop(before)
		if s.kind.inherit != nil {
			s.kind.inherit(before, o)
		}
	}
	s.objects[o.GetName()] = o
	for _, id := range s.kind.about(o) {
		s.byID[id] = append(s.byID[id], o.GetName())
	}
	return true
}

func (s *store[T]) drop(o T) {
	delete(s.objects, o.GetName())
	for _, id := range s.kind.about(o) {
		names := slices.DeleteFunc(s.byID[id], func(name string) bool { return name == o.GetName() })
		if len(names) == 0 {
			delete(s.byID, id)
		} else {
			s.byID[id] = names
		}
	}
}

// older reports whether resource version a is older than b. Versions that
// cannot be compared count as older, so that what arrives later wins.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != "" && b != "" && a != b
	}
	return order < 0
}

func newer(a, b string) string {
	if a == "" || older(a, b) {
		return b
	}
	return a
}

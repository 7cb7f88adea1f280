package peering

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// store is the cache of all ForeignClusters: a reflector feeds it, and the
// answers to our own writes do, so that a reconcile never acts on something
// older than what the one before it wrote. Objects in it are never changed.
//
// It implements cache.ReflectorStore. All methods are safe for concurrent use.
type store struct {
	changed func(peer.ClusterID) // a cluster is to be looked at

	synced    chan struct{} // closed after the first list
	firstList sync.Once

	mu      sync.Mutex
	objects map[string]*api.ForeignCluster // by name
	byID    map[peer.ClusterID][]string    // names of the objects about a cluster
	seen    string                         // newest resource version the reflector delivered
}

func newStore(changed func(peer.ClusterID)) *store {
	return &store{
		changed: changed,
		objects: make(map[string]*api.ForeignCluster),
		byID:    make(map[peer.ClusterID][]string),
		synced:  make(chan struct{}),
	}
}

// about returns the objects that name id in their spec, and the one whose name
// is id.
func (s *store) about(id peer.ClusterID) []*api.ForeignCluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*api.ForeignCluster
	for _, name := range s.byID[id] {
		out = append(out, s.objects[name])
	}
	if fc := s.objects[string(id)]; fc != nil && fc.ClusterID() != string(id) {
		out = append(out, fc)
	}
	return out
}

// uid returns the UID of the object with that name, "" when there is none.
func (s *store) uid(name string) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fc := s.objects[name]; fc != nil {
		return fc.UID
	}
	return ""
}

// ids returns every cluster that some object is about.
func (s *store) ids() []peer.ClusterID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]peer.ClusterID, 0, len(s.byID))
	for id := range s.byID {
		out = append(out, id)
	}
	return out
}

func (s *store) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// wrote takes in the API server's answer to a write of ours.
func (s *store) wrote(fc *api.ForeignCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(fc)
}

// deleted takes in that the API server deleted an object for us.
func (s *store) deleted(a Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fc := s.objects[a.Name]; fc != nil && fc.UID == a.UID && len(fc.Finalizers) == 0 {
		s.drop(fc)
	}
}

// Add takes in an object that the reflector delivers.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes in an object that the reflector delivers.
func (s *store) Update(obj any) error {
	fc, ok := obj.(*api.ForeignCluster)
	if !ok {
		return nil
	}
	s.mu.Lock()
	s.seen = newer(s.seen, fc.ResourceVersion)
	before := s.objects[fc.Name]
	changed := s.put(fc)
	s.mu.Unlock()
	if changed {
		s.notify(before, fc)
	}
	return nil
}

// Delete takes in that an object is gone.
func (s *store) Delete(obj any) error {
	fc, ok := obj.(*api.ForeignCluster)
	if !ok {
		return nil
	}
	s.mu.Lock()
	s.seen = newer(s.seen, fc.ResourceVersion)
	before := s.objects[fc.Name]
	if before != nil && before.UID == fc.UID {
		s.drop(before)
	}
	s.mu.Unlock()
	s.notify(fc)
	return nil
}

// Replace takes in a complete list.
func (s *store) Replace(list []any, version string) error {
	s.mu.Lock()
	// The history went back: the server's store was restored from a backup. What
	// is known from the lost future is worth nothing.
	restored := older(version, s.seen)
	s.seen = version
	listed := make(map[string]struct{}, len(list))
	var touched []*api.ForeignCluster
	for _, obj := range list {
		fc, ok := obj.(*api.ForeignCluster)
		if !ok {
			continue
		}
		listed[fc.Name] = struct{}{}
		before := s.objects[fc.Name]
		if before != nil && restored {
			s.drop(before)
		}
		if s.put(fc) {
			touched = append(touched, before, fc)
		}
	}
	for name, fc := range s.objects {
		_, there := listed[name]
		// An object that we wrote after the list was made is not in it, and yet not
		// gone: the watch that follows will tell.
		if !there && (restored || !older(version, fc.ResourceVersion)) {
			s.drop(fc)
			touched = append(touched, fc)
		}
	}
	s.mu.Unlock()
	s.firstList.Do(func() { close(s.synced) })
	s.notify(touched...)
	return nil
}

// Resync does nothing: there is no other cache to compare with.
func (s *store) Resync() error { return nil }

// put stores fc unless the same or a newer version of it is there already.
func (s *store) put(fc *api.ForeignCluster) bool {
	if before := s.objects[fc.Name]; before != nil {
		if !older(before.ResourceVersion, fc.ResourceVersion) {
			return false
		}
		s.drop(before)
	}
	// Nobody here reads them, and they are most of the object.
	fc.ManagedFields = nil
	s.objects[fc.Name] = fc
	if id := peer.ClusterID(fc.ClusterID()); id != "" {
		s.byID[id] = append(s.byID[id], fc.Name)
	}
	return true
}

func (s *store) drop(fc *api.ForeignCluster) {
	delete(s.objects, fc.Name)
	id := peer.ClusterID(fc.ClusterID())
	names := slices.DeleteFunc(s.byID[id], func(name string) bool { return name == fc.Name })
	if len(names) == 0 {
		delete(s.byID, id)
	} else {
		s.byID[id] = names
	}
}

// notify reports the clusters that objects are about: by their spec, and by
// their name, which keeps that name from being used for another one.
func (s *store) notify(objects ...*api.ForeignCluster) {
	told := make(map[peer.ClusterID]struct{}, 2)
	for _, fc := range objects {
		if fc == nil {
			continue
		}
		for _, id := range []string{fc.ClusterID(), fc.Name} {
			id, err := peer.ParseClusterID(id)
			if _, done := told[id]; err == nil && !done {
				told[id] = struct{}{}
				s.changed(id)
			}
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

var _ cache.ReflectorStore = (*store)(nil)

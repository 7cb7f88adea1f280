package peering

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// store is the cache of all objects of one kind, by name and by the clusters that they
// are about.
type store[T kube.Object] struct {
	*kube.Cache[T]
	kind kind[T]
}

// newStore returns an empty store. changed is told of every object that is not what it
// was: as it was and as it is, either of which may be nil, and whether that is because the
// server's store was restored from a backup; failed, which may be nil, why a list or watch
// failed.
func newStore[T kube.Object](k kind[T], changed func(before, after T, restored bool), failed func(error)) *store[T] {
	var none T
	return &store[T]{kind: k, Cache: kube.NewCache(kube.Kind[T]{
		Fresh: k.fresh, Trim: k.trim, Inherit: k.inherit, Failed: failed,
		Index: func(o T) (ids []string) {
			for _, id := range k.about(o) {
				ids = append(ids, string(id))
			}
			return ids
		},
		Changed: func(before, after T) { changed(before, after, false) },
		Lost:    func(before T) { changed(before, none, true) },
	})}
}

// follow keeps the store up to date until ctx ends.
func (s *store[T]) follow(ctx context.Context, c *kube.Client) {
	s.Follow(ctx, c, kube.Query{Path: s.kind.path, Labels: s.kind.selector})
}

// get returns the object with that name, nil when there is none.
func (s *store[T]) get(name string) T { return s.Get(s.kind.namespace, name) }

// about returns the objects about a cluster.
func (s *store[T]) about(id peer.ClusterID) []T { return s.By(string(id)) }

// ids returns every cluster that some object is about.
func (s *store[T]) ids() []peer.ClusterID {
	var out []peer.ClusterID
	for _, id := range s.Indexes() {
		out = append(out, peer.ClusterID(id))
	}
	return out
}

// uid returns the UID of the object with that name, "" when there is none.
func (s *store[T]) uid(name string) types.UID {
	if o := s.get(name); !kube.IsNil(o) {
		return o.GetUID()
	}
	return ""
}

// deleted takes in that the API server deleted an object for us.
func (s *store[T]) deleted(name string, uid types.UID) { s.Deleted(s.kind.namespace, name, uid) }

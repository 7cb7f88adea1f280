package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// Store is the cache of all objects of one kind, by name and by the clusters that they
// are about.
type Store[T kube.Object] struct {
	*kube.Cache[T]
	Kind Kind[T]
}

// NewStore returns an empty store. changed is told of every object that is not what it
// was: as it was and as it is, either of which may be nil, and whether that is because the
// server's store was restored from a backup; failed, which may be nil, why a list or watch
// failed.
func NewStore[T kube.Object](k Kind[T], changed func(before, after T, restored bool), failed func(error)) *Store[T] {
	var none T
	return &Store[T]{Kind: k, Cache: kube.NewCache(kube.Kind[T]{
		Fresh: k.Fresh, Trim: k.Trim, Inherit: k.Inherit, Failed: failed,
		Index: func(o T) (ids []string) {
			if k.About == nil {
				return nil
			}
			for _, id := range k.About(o) {
				ids = append(ids, string(id))
			}
			return ids
		},
		Changed: func(before, after T) { changed(before, after, false) },
		Lost:    func(before T) { changed(before, none, true) },
	})}
}

// Follow keeps the store up to date until ctx ends.
func (s *Store[T]) Follow(ctx context.Context, c *kube.Client) {
	s.Cache.Follow(ctx, c, kube.Query{Path: s.Kind.Path, Labels: s.Kind.Selector})
}

// Get returns the object with that name, nil when there is none.
func (s *Store[T]) Get(name string) T { return s.Cache.Get(s.Kind.Namespace, name) }

// About returns the objects about a cluster.
func (s *Store[T]) About(id peer.ClusterID) []T { return s.By(string(id)) }

// IDs returns every cluster that some object is about.
func (s *Store[T]) IDs() []peer.ClusterID {
	var out []peer.ClusterID
	for _, id := range s.Indexes() {
		out = append(out, peer.ClusterID(id))
	}
	return out
}

// UID returns the UID of the object with that name, "" when there is none.
func (s *Store[T]) UID(name string) types.UID {
	if o := s.Get(name); !kube.IsNil(o) {
		return o.GetUID()
	}
	return ""
}

// Deleted takes in that the API server deleted an object for us.
func (s *Store[T]) Deleted(name string, uid types.UID) { s.Cache.Deleted(s.Kind.Namespace, name, uid) }

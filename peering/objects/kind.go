package objects

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// Kind is what has to be known about one kind of objects to watch it.
type Kind[T kube.Object] struct {
	GVK schema.GroupVersionKind
	// Path is that of the collection.
	Path string
	// Namespace is that of the objects, "" for a kind without.
	Namespace string
	// Selector chooses objects by their labels; "" for all.
	Selector string
	// Fresh returns an empty object.
	Fresh func() T
	// About, if not nil, returns the clusters that an object is about.
	About func(T) []peer.ClusterID
	// Trim drops what nobody reads. It may be called again with its own result.
	Trim func(T)
	// Inherit, if not nil, takes over from an older version of the same object what
	// only that tells.
	Inherit func(older, newer T)
}

// Object returns the path of one object.
func (k Kind[T]) Object(name string) string { return k.Path + "/" + name }

// ClusterIDs returns the valid cluster IDs among names, each once.
func ClusterIDs(names ...string) []peer.ClusterID {
	var out []peer.ClusterID
	for _, name := range names {
		if id, err := peer.ParseClusterID(name); err == nil && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Concerned returns the clusters that a changed object is or was about, each once. Either
// state of it may be nil; k.About may not.
func (k Kind[T]) Concerned(before, after T) []peer.ClusterID {
	var ids []peer.ClusterID
	for _, o := range []T{before, after} {
		if !kube.IsNil(o) {
			ids = append(ids, k.About(o)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

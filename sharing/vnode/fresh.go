package vnode

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// written is a node as a write returned it.
type written struct {
	*corev1.Node
	at time.Time
}

// freshFor is how long a written node may be missing in the cache.
const freshFor = 10 * time.Second

// put keeps a node as the API server returned it.
func (s *session) put(n *corev1.Node) {
	trimNode(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh[n.Name] = written{n, s.cfg.Now()}
}

// drop forgets a node that a write returned.
func (s *session) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fresh, name)
}

// latest returns the newest that is known of a node: what the last write returned
// until the cache has it.
func (s *session) latest(name string) *corev1.Node {
	cached := s.nodes.Get("", name)
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fresh[name]
	switch {
	case !ok:
		return cached
	case cached == nil && s.cfg.Now().Sub(f.at) < freshFor, cached != nil && older(cached, f.Node):
		return f.Node
	}
	delete(s.fresh, name)
	return cached
}

// older reports whether a is older than b. Resource versions of one kind are
// numbers that grow, as Kubernetes 1.35 promises and etcd and kine always did.
func older(a, b *corev1.Node) bool {
	va, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	vb, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && va < vb
}

package vnode

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer"
)

// written is a node as a write returned it.
type written struct {
	*corev1.Node
	at time.Time
}

// freshFor is how long a written node may be missing in the cache.
const freshFor = 10 * time.Second

// put keeps a node of ours as the API server returned it.
func (s *session) put(n *corev1.Node) {
	trimNode(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh[whose(n)] = written{n, s.cfg.Now()}
}

// drop forgets the node of a provider that a write returned.
func (s *session) drop(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fresh, id)
}

// latest returns the newest that is known of the node of a provider: what the last
// write returned until the cache has it.
func (s *session) latest(id peer.ClusterID) *corev1.Node {
	cached := s.own(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fresh[id]
	switch {
	case !ok:
		return cached
	case cached == nil && s.cfg.Now().Sub(f.at) < freshFor, cached != nil && cached.UID == f.UID && older(cached, f.Node):
		return f.Node
	}
	delete(s.fresh, id)
	return cached
}

// older reports whether a is older than b. Resource versions of one kind are
// numbers that grow, as Kubernetes 1.35 promises and etcd and kine always did.
func older(a, b *corev1.Node) bool {
	va, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	vb, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && va < vb
}

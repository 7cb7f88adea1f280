package registry

import (
	"maps"
	"slices"
	"sync"

	"liqo.io/agent/peer"
)

// Subscription hears which peers changed. A slow subscriber costs one map
// entry per changed peer and never holds up the registry.
type Subscription struct {
	views *views
	ready chan struct{}

	mu      sync.Mutex
	changed map[peer.ClusterID]struct{}
}

// Subscribe returns a Subscription to every change from now on. Close it.
func (r *Registry) Subscribe() *Subscription {
	s := &Subscription{views: r.views, ready: make(chan struct{}, 1), changed: make(map[peer.ClusterID]struct{})}
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	r.views.subscribers[s] = struct{}{}
	return s
}

// Ready receives a value when Take has something to return.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns the IDs of the peers that changed since the last Take.
func (s *Subscription) Take() []peer.ClusterID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	return out
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.views.mu.Lock()
	defer s.views.mu.Unlock()
	delete(s.views.subscribers, s)
}

func (s *Subscription) mark(id peer.ClusterID) {
	s.mu.Lock()
	s.changed[id] = struct{}{}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

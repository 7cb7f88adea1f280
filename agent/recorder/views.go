package recorder

import (
	"maps"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// Absence is why a source no longer sees a peer.
type Absence struct {
	Reason string // for people
	// Said: the peer said goodbye, or we stopped looking on purpose.
	Said bool
	// Expired: its records ended and nobody renewed them when asked.
	Expired bool
}

func (a Absence) kind() absence {
	switch {
	case a.Said:
		return absentSaid
	case a.Expired:
		return absentExpired
	}
	return absentUnknown
}

// views is the published side of the recorder: immutable snapshots behind one
// lock, and the subscribers that want to hear of changes.
type views struct {
	mu          sync.RWMutex
	peers       map[peer.ClusterID]peer.Peer
	self        *peer.Conflict
	subscribers map[*Subscription]struct{}
}

func newViews() *views {
	return &views{
		peers:       make(map[peer.ClusterID]peer.Peer),
		subscribers: make(map[*Subscription]struct{}),
	}
}

func (v *views) publish(p peer.Peer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known := v.peers[p.ID]
	v.peers[p.ID] = p
	if !known || !sameView(old, p) {
		v.tell(p.ID)
	}
}

func (v *views) publishSelf(c *peer.Conflict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self = c
}

func (v *views) remove(id peer.ClusterID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.peers[id]; ok {
		delete(v.peers, id)
		v.tell(id)
	}
}

func (v *views) all() map[peer.ClusterID]peer.Peer {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.peers)
}

// tell marks id as changed for every subscriber; v.mu is held, for reading at
// least.
func (v *views) tell(id peer.ClusterID) {
	for s := range v.subscribers {
		s.mark(id)
	}
}

// Peer returns the current view of one peer. The result is shared: do not
// change what it points to.
func (r *Recorder) Peer(id peer.ClusterID) (peer.Peer, bool) {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	p, ok := r.views.peers[id]
	return p, ok
}

// IDs returns the IDs of all peers, sorted.
func (r *Recorder) IDs() []peer.ClusterID {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.views.peers))
}

// Peers returns all peers, sorted by ID.
func (r *Recorder) Peers() []peer.Peer {
	all := r.views.all()
	out := make([]peer.Peer, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id])
	}
	return out
}

// SelfConflict returns the live cluster that uses our own ID with another key,
// nil when there is none.
func (r *Recorder) SelfConflict() *peer.Conflict {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	return r.views.self
}

// Settled reports whether discovery has had the time of three checks to see who
// is there since New.
func (r *Recorder) Settled() bool { return time.Since(r.start) >= failuresUntilLost*r.cfg.Interval }

// Refused returns how many sightings of unknown clusters were dropped because
// Config.Limit peers were there.
func (r *Recorder) Refused() uint64 { return r.refused.Load() }

// StoreError returns why the last attempt to store changes failed, nil when it
// worked.
func (r *Recorder) StoreError() error { return r.writer.err() }

// Touch tells the subscribers that something which belongs to a peer's view, and
// is kept elsewhere, has changed.
func (r *Recorder) Touch(id peer.ClusterID) {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	r.views.tell(id)
}

// Subscription hears which peers changed. A slow subscriber costs one map
// entry per changed peer and never holds up the recorder.
type Subscription struct {
	views *views
	ready chan struct{}

	mu      sync.Mutex
	changed map[peer.ClusterID]struct{}
}

// Subscribe returns a Subscription to every change from now on. Close it.
func (r *Recorder) Subscribe() *Subscription {
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

package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/discovery/journal"
	"liqo.io/agent/peer"
)

// views is the published side of the registry: immutable snapshots behind one
// lock, and the subscribers that want to hear of changes.
type views struct {
	mu          sync.RWMutex
	peers       map[peer.ClusterID]*peer.Peer
	unproved    map[peer.ClusterID]peer.Fingerprint // keys that clusters are known by and nobody proved
	candidates  map[peer.Key]*CandidateStatus
	self        *peer.Conflict
	subscribers map[*Subscription]struct{}
}

func newViews() *views {
	return &views{
		peers: make(map[peer.ClusterID]*peer.Peer), unproved: make(map[peer.ClusterID]peer.Fingerprint), candidates: make(map[peer.Key]*CandidateStatus),
		subscribers: make(map[*Subscription]struct{}),
	}
}

// publish publishes the view of a cluster and the key that it is known by.
func (v *views) publish(p *peer.Peer, known peer.Fingerprint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.peers[p.ID]
	v.peers[p.ID] = p
	if known == p.Fingerprint {
		delete(v.unproved, p.ID)
	} else {
		v.unproved[p.ID] = known
	}
	if old == nil || !journal.SameView(old, p) {
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
		delete(v.unproved, id)
		v.tell(id)
	}
}

// publishCandidate publishes what is known about a candidate; nil: there is none any more.
func (v *views) publishCandidate(k peer.Key, s *CandidateStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.candidates[k] = s; s == nil {
		delete(v.candidates, k)
	}
}

// peer returns the view of a cluster, nil if there is none.
func (v *views) peer(id peer.ClusterID) *peer.Peer {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.peers[id]
}

// key returns a cluster with the key it is known by; the zero value if none is.
func (v *views) key(id peer.ClusterID) holder {
	v.mu.RLock()
	defer v.mu.RUnlock()
	known := v.unproved[id]
	if p := v.peers[id]; p != nil && known.IsZero() {
		known = p.Fingerprint
	}
	if known.IsZero() {
		return holder{}
	}
	return holder{id, known}
}

// lastSeen returns when each peer was last seen.
func (v *views) lastSeen() map[peer.ClusterID]time.Time {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make(map[peer.ClusterID]time.Time, len(v.peers))
	for id, p := range v.peers {
		if !p.Fingerprint.IsZero() && !p.LastSeen.IsZero() {
			out[id] = p.LastSeen
		}
	}
	return out
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
func (r *Registry) Peer(id peer.ClusterID) (peer.Peer, bool) {
	p := r.views.peer(id)
	if p == nil {
		return peer.Peer{}, false
	}
	return *p, true
}

// IDs returns the IDs of all peers, sorted.
func (r *Registry) IDs() []peer.ClusterID {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.views.peers))
}

// Peers returns all peers, sorted by ID. What they point to is shared: do not change
// it.
func (r *Registry) Peers() []peer.Peer {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	out := make([]peer.Peer, 0, len(r.views.peers))
	for _, id := range slices.Sorted(maps.Keys(r.views.peers)) {
		out = append(out, *r.views.peers[id])
	}
	return out
}

// Candidate returns what is known about a candidate; false if there is none with that
// key, or it was not taken in yet.
func (r *Registry) Candidate(k peer.Key) (CandidateStatus, bool) {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	s := r.views.candidates[k]
	if s == nil {
		return CandidateStatus{}, false
	}
	return *s, true
}

// Candidates returns what is known about the candidates whose keys match, sorted by
// key. Their Addrs are shared: do not change them.
func (r *Registry) Candidates(match func(peer.Key) bool) []CandidateStatus {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	var out []CandidateStatus
	for k, s := range r.views.candidates {
		if match(k) {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b CandidateStatus) int { return a.Candidate.Key().Compare(b.Candidate.Key()) })
	return out
}

// SelfConflict returns the live cluster that uses our own ID with another key,
// nil when there is none.
func (r *Registry) SelfConflict() *peer.Conflict {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	return r.views.self
}

// Settled reports whether discovery has had the time of three checks to see who
// is there since New.
func (r *Registry) Settled() bool { return !time.Now().Before(r.machine.settled) }

// StoreError returns why the last attempt to store changes failed, nil when it
// worked.
func (r *Registry) StoreError() error { return r.machine.journal.Err() }

// StoreSeen stores when each peer was last seen, for who is about to drop those that
// were not seen for long: while nothing else changes, that is stored rarely.
func (r *Registry) StoreSeen(ctx context.Context) error {
	return r.machine.journal.Flush(ctx, r.views.lastSeen())
}

// Touch tells the subscribers that something which belongs to a peer's view, and
// is kept elsewhere, has changed.
func (r *Registry) Touch(id peer.ClusterID) {
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	r.views.tell(id)
}

package proofs

import (
	"context"
	"sync"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// Decisions is the decision store. Proved and Returned may write to the disk.
type Decisions interface {
	Pin(id peer.ClusterID) *peer.Pin
	Remembers(id peer.ClusterID) bool
	Proved(ctx context.Context, id peer.ClusterID, shown trust.Shown)
	Returned(id peer.ClusterID)
}

// Clock compares the clocks of peers with ours.
type Clock interface {
	Heard(id peer.ClusterID, at time.Time)
}

// Queue has at most one proven key and one return per peer.
type Queue struct {
	decisions Decisions
	clock     Clock
	ready     chan struct{} // the queue is not empty; capacity 1

	mu       sync.Mutex
	pending  map[peer.ClusterID]client.Result
	returned map[peer.ClusterID]struct{}
	away     map[peer.ClusterID]struct{} // lost peers that the registry knows, or about which something was decided
}

// New returns a queue for a decision store. remembered are the stored peers.
func New(d Decisions, c Clock, remembered []peer.Peer) *Queue {
	q := &Queue{decisions: d, clock: c, ready: make(chan struct{}, 1), away: make(map[peer.ClusterID]struct{})}
	q.take()
	for _, p := range remembered {
		q.returns(p.ID, p.Phase)
	}
	return q
}

func (q *Queue) put(id peer.ClusterID, res client.Result) {
	q.mu.Lock()
	q.pending[id] = res
	q.mu.Unlock()
	work.Wake(q.ready)
}

// Phase queues a peer if it returned after it was lost. It does not block.
func (q *Queue) Phase(id peer.ClusterID, phase peer.Phase) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.returns(id, phase) {
		q.returned[id] = struct{}{}
		work.Wake(q.ready)
	}
}

// Forget takes in that the registry knows a peer no more: it had to make room for others. Strangers can do that without end.
func (q *Queue) Forget(id peer.ClusterID) {
	if q.decisions.Remembers(id) {
		return // its return counts all the same
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.away, id)
}

// returns records a peer's phase, and reports whether the peer has just returned. The
// caller holds mu.
func (q *Queue) returns(id peer.ClusterID, phase peer.Phase) (returned bool) {
	switch phase {
	case peer.PhaseLost:
		q.away[id] = struct{}{}
	case peer.PhasePresent:
		_, returned = q.away[id]
		delete(q.away, id)
	}
	return returned
}

func (q *Queue) take() (proved map[peer.ClusterID]client.Result, returned map[peer.ClusterID]struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	proved, returned = q.pending, q.returned
	q.pending, q.returned = make(map[peer.ClusterID]client.Result), make(map[peer.ClusterID]struct{})
	return proved, returned
}

// Run passes the queued proofs and returns to the decision store until ctx ends.
func (q *Queue) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.ready:
		}
		proved, returned := q.take()
		for id := range returned {
			q.decisions.Returned(id)
		}
		for id, res := range proved {
			q.decisions.Proved(ctx, id, res.Shown)
		}
	}
}

// Reached queues the key that a peer showed in a call, if it is another than the trusted
// one.
func (q *Queue) Reached(id peer.ClusterID, res client.Result) {
	if pin := q.decisions.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
		q.put(id, res) // a successor of the pinned key
	}
}

// Proved queues the key that a cluster proved in a check. The time that the holder of
// the trusted key told goes to the clock.
func (q *Queue) Proved(id peer.ClusterID, res client.Result) {
	if pin := q.decisions.Pin(id); pin != nil && pin.Fingerprint == res.Fingerprint {
		q.clock.Heard(id, res.Date)
	}
	q.put(id, res)
}

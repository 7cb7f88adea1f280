package recorder

import (
	"sync"
	"time"

	"liqo.io/agent/peer"
)

// holds are the clusters that somebody depends on. Wishes are taken from any
// goroutine and carried out by the one that owns the peers.
type holds struct {
	mu     sync.Mutex
	wanted map[peer.ClusterID]bool
	ready  chan struct{} // wanted has something; capacity 1
}

func newHolds() *holds {
	return &holds{wanted: make(map[peer.ClusterID]bool), ready: make(chan struct{}, 1)}
}

func (h *holds) want(id peer.ClusterID, hold bool) {
	h.mu.Lock()
	h.wanted[id] = hold
	h.mu.Unlock()
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

func (h *holds) take() map[peer.ClusterID]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.wanted
	h.wanted = make(map[peer.ClusterID]bool)
	return out
}

// Hold says whether somebody depends on a cluster. One that is held is checked
// at the address it had even when nothing announces it any more, and is there as
// long as its endpoint answers: peers that are joined do not part because
// multicast fails, or because one of them no longer advertises itself. It never
// blocks and may be called for clusters of which nothing is known yet.
func (r *Recorder) Hold(id peer.ClusterID, hold bool) { r.holds.want(id, hold) }

// hold carries out what was wished with Hold.
func (r *Recorder) hold(id peer.ClusterID, hold bool) {
	if r.held[id] == hold {
		return
	}
	if hold {
		r.held[id] = true
	} else {
		delete(r.held, id)
	}
	e := r.entries[id]
	if e == nil {
		return
	}
	c := e.claims[e.known]
	if c == nil {
		return
	}
	c.held = hold
	switch {
	case hold && len(c.sightings) == 0:
		r.checkNow(c)
	case !hold && len(c.sightings) == 0 && c.absent != absentSaid:
		c.absent, c.absentReason = absentSaid, "nothing announces it, and nobody depends on it any more"
		r.schedule.plan(c, time.Time{})
	}
	r.update(e)
}

package agent

import (
	"context"
	"sync"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

// proofs queues proven keys and returned peers for the decision store, at most one of
// each per peer. The decision store may write to the disk, and neither a check nor the
// registry must wait for that.
type proofs struct {
	decisions *decisions.Store
	clock     *clock.Clock
	absences  absences

	mu       sync.Mutex
	pending  map[peer.ClusterID]client.Result
	returned map[peer.ClusterID]struct{}
	ready    chan struct{} // there is something; capacity 1
}

func newProofs(l *decisions.Store, c *clock.Clock) *proofs {
	p := &proofs{decisions: l, clock: c, ready: make(chan struct{}, 1)}
	p.take()
	return p
}

func (p *proofs) put(id peer.ClusterID, res client.Result) {
	p.mu.Lock()
	p.pending[id] = res
	p.mu.Unlock()
	work.Wake(p.ready)
}

// phase queues a peer if it came back after an absence. It is called on the goroutine
// of the registry, and does not block.
func (p *proofs) phase(id peer.ClusterID, phase peer.Phase) {
	if !p.absences.note(id, phase) {
		return
	}
	p.mu.Lock()
	p.returned[id] = struct{}{}
	p.mu.Unlock()
	work.Wake(p.ready)
}

func (p *proofs) take() (proved map[peer.ClusterID]client.Result, returned map[peer.ClusterID]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proved, returned = p.pending, p.returned
	p.pending, p.returned = make(map[peer.ClusterID]client.Result), make(map[peer.ClusterID]struct{})
	return proved, returned
}

// Run passes the queued proofs and returns to the decision store until ctx ends.
func (p *proofs) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.ready:
		}
		proved, returned := p.take()
		for id := range returned {
			p.decisions.Returned(id)
		}
		for id, res := range proved {
			p.decisions.Proved(ctx, id, res.Shown)
		}
	}
}

// reached is called after a successful call to a peer, with the address and the key.
func (p *proofs) reached(id peer.ClusterID, res client.Result) {
	if pin := p.decisions.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
		p.put(id, res) // a successor of the pinned key
	}
}

// proved is called after each check that proved the known key of a cluster.
func (p *proofs) proved(id peer.ClusterID, res client.Result) {
	if pin := p.decisions.Pin(id); pin != nil && pin.Fingerprint == res.Fingerprint {
		p.clock.Heard(id, res.Date)
	}
	p.put(id, res)
}

// absences records which peers are away, to notice when one returns.
type absences struct {
	mu   sync.Mutex
	away map[peer.ClusterID]struct{}
}

// note records a peer's phase, and reports whether the peer has just returned.
func (a *absences) note(id peer.ClusterID, phase peer.Phase) (returned bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch phase {
	case peer.PhaseLost:
		if a.away == nil {
			a.away = make(map[peer.ClusterID]struct{})
		}
		a.away[id] = struct{}{}
	case peer.PhasePresent:
		_, returned = a.away[id]
		delete(a.away, id)
	}
	return returned
}

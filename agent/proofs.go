package agent

import (
	"context"
	"sync"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// proofs holds what checks proved, and who came back, until the decision store has looked at
// it, which may take a write to the disk that neither a check nor the registry is to
// wait for. There is at most one of each for each peer.
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
	wake(p.ready)
}

// phase takes in a peer's phase. That it came back after an absence writes to the disk,
// which the registry, whose goroutine this is, is not to wait for.
func (p *proofs) phase(id peer.ClusterID, phase peer.Phase) {
	if !p.absences.note(id, phase) {
		return
	}
	p.mu.Lock()
	p.returned[id] = struct{}{}
	p.mu.Unlock()
	wake(p.ready)
}

func (p *proofs) take() (proved map[peer.ClusterID]client.Result, returned map[peer.ClusterID]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proved, returned = p.pending, p.returned
	p.pending, p.returned = make(map[peer.ClusterID]client.Result), make(map[peer.ClusterID]struct{})
	return proved, returned
}

// Run has the decision store look at what was proved, and at who came back.
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

// reached is told where a call to a peer worked, and with which key.
func (p *proofs) reached(id peer.ClusterID, res client.Result) {
	if pin := p.decisions.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
		p.put(id, res) // a successor of the pinned key
	}
}

// proved is told of every check that proved the key that a cluster is known by.
func (p *proofs) proved(id peer.ClusterID, res client.Result) {
	if pin := p.decisions.Pin(id); pin != nil && pin.Fingerprint == res.Fingerprint {
		p.clock.Heard(id, res.Date)
	}
	p.put(id, res)
}

// absences knows who is away, to see who comes back.
type absences struct {
	mu   sync.Mutex
	away map[peer.ClusterID]struct{}
}

// note takes in a peer's phase and reports whether the peer has just come back.
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

package agent

import (
	"context"
	"sync"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// proofs holds what checks proved until the ledger has looked at it, which may
// take a write to the disk that no check is to wait for. There is at most one
// for each peer.
type proofs struct {
	mu      sync.Mutex
	pending map[peer.ClusterID]endpoint.Result
	ready   chan struct{} // pending has something; capacity 1
}

func newProofs() *proofs {
	return &proofs{pending: make(map[peer.ClusterID]endpoint.Result), ready: make(chan struct{}, 1)}
}

func (p *proofs) put(id peer.ClusterID, res endpoint.Result) {
	p.mu.Lock()
	p.pending[id] = res
	p.mu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *proofs) take() map[peer.ClusterID]endpoint.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.pending
	p.pending = make(map[peer.ClusterID]endpoint.Result)
	return out
}

// feedProofs has the ledger look at what was proved.
func (s *session) feedProofs(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.proofs.ready:
		}
		for id, res := range s.proofs.take() {
			s.ledger.Proved(ctx, id, res.Shown)
		}
	}
}

// reached is told where a call to a peer worked, and with which key.
func (s *session) reached(id peer.ClusterID, res endpoint.Result) {
	if pin := s.ledger.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
		s.proofs.put(id, res) // a successor of the pinned key
	}
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

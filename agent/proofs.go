package agent

import (
	"context"
	"sync"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// proofs holds what checks proved, and who came back, until the ledger has looked at
// it, which may take a write to the disk that neither a check nor the recorder is to
// wait for. There is at most one of each for each peer.
type proofs struct {
	mu       sync.Mutex
	pending  map[peer.ClusterID]endpoint.Result
	returned map[peer.ClusterID]struct{}
	ready    chan struct{} // there is something; capacity 1
}

func newProofs() *proofs {
	p := &proofs{ready: make(chan struct{}, 1)}
	p.take()
	return p
}

func (p *proofs) put(id peer.ClusterID, res endpoint.Result) {
	p.mu.Lock()
	p.pending[id] = res
	p.mu.Unlock()
	wake(p.ready)
}

// putReturn takes in that a peer came back after an absence.
func (p *proofs) putReturn(id peer.ClusterID) {
	p.mu.Lock()
	p.returned[id] = struct{}{}
	p.mu.Unlock()
	wake(p.ready)
}

func (p *proofs) take() (proved map[peer.ClusterID]endpoint.Result, returned map[peer.ClusterID]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proved, returned = p.pending, p.returned
	p.pending, p.returned = make(map[peer.ClusterID]endpoint.Result), make(map[peer.ClusterID]struct{})
	return proved, returned
}

// feedProofs has the ledger look at what was proved, and at who came back.
func (s *session) feedProofs(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.proofs.ready:
		}
		proved, returned := s.proofs.take()
		for id := range returned {
			s.ledger.Returned(id)
		}
		for id, res := range proved {
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

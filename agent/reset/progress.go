package reset

import (
	"slices"
	"sync"

	"liqo.io/agent/agent/control"
)

// Progress is how far a reset of this process is, or how the last one ended. It
// outlives the session that parts with the peers. The zero value is that of a process
// that was not reset. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	now   control.Reset
	heard chan struct{} // closed when somebody was told that the peers were; nil: nobody waits for that
}

// Get returns it, for who asked.
func (p *Progress) Get() control.Reset {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.Phase == control.ResetClearing && p.heard != nil {
		close(p.heard)
		p.heard = nil
	}
	out := p.now
	out.Peers, out.Failed = slices.Clone(out.Peers), slices.Clone(out.Failed)
	return out
}

func (p *Progress) set(now control.Reset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

// parted takes in that the peers were told. The channel is closed when somebody got to
// know that.
func (p *Progress) parted(now control.Reset) (heard <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := make(chan struct{})
	p.now, p.heard = now, told
	return told
}

// of returns what became of the peers in a reset, if it is the one that this process
// carries out.
func (p *Progress) of(reset control.Reset) (peers []control.ResetPeer, failed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.now.StartedAt.Equal(reset.StartedAt) {
		return nil, nil
	}
	return p.now.Peers, slices.Clone(p.now.Failed)
}

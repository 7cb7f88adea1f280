package reset

import (
	"cmp"
	"slices"
	"sync"

	"liqo.io/agent/agent/control"
)

// Progress is the progress of the reset of this process, or the result of the last one.
// It outlives the session that notifies the peers. The zero value means that there was
// no reset. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	now   control.Reset
	heard chan struct{} // closed when a caller of Get saw ResetClearing; nil: nothing waits for that
}

// Get returns the progress.
func (p *Progress) Get() control.Reset {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.Phase == control.ResetClearing && p.heard != nil {
		close(p.heard)
		p.heard = nil
	}
	out := p.now
	out.Phase = cmp.Or(out.Phase, control.ResetNone)
	out.Peers, out.Failed = slices.Clone(out.Peers), slices.Clone(out.Failed)
	return out
}

func (p *Progress) set(now control.Reset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

// parted records that the peers were notified. The channel is closed when a caller of Get
// saw that.
func (p *Progress) parted(now control.Reset) (heard <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := make(chan struct{})
	p.now, p.heard = now, told
	return told
}

// of returns the states of the peers in a reset, if this process carries it out.
func (p *Progress) of(reset control.Reset) (peers []control.ResetPeer, failed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.now.StartedAt.Equal(reset.StartedAt) {
		return nil, nil
	}
	return p.now.Peers, slices.Clone(p.now.Failed)
}

package network

import (
	"errors"
	"fmt"
	"time"
)

// fail keeps why the path is not Connected.
func (p *path) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news = p.news || p.flaps == 0 && fmt.Sprint(p.failure) != fmt.Sprint(err)
	p.failure = err
}

// settle takes note of the state of the path, and tells of a change. The end of a path is no loss.
func (p *path) settle(s *stream, end bool) {
	state := Connecting
	p.mu.Lock()
	tunneled, rtt := p.tunnel.mtu > 0, p.tunnel.rtt
	p.mu.Unlock()
	if !tunneled && s != nil {
		rtt = time.Duration(s.rtt.Load())
	}
	switch {
	case tunneled && p.route.Load() != nil: // the agent of the peer may be about to be back
		state = Connected
	case s == nil:
	case s.silent() >= silentAfter:
		state = Silent
	case s.rtt.Load() > 0 && p.route.Load() != nil:
		state = Connected
	}
	now := time.Now()
	p.mu.Lock()
	if state == Connected {
		p.failure = nil
	}
	if end {
		p.up = time.Time{}
	}
	flapped, lost := p.flaps > 0, p.flaps
	state = p.damp(state, now)
	changed := state != p.state || p.news
	before, failure := p.state, p.failure
	if state != before {
		p.state, p.since = state, now
	}
	p.news = false
	flaps := p.flaps > 0
	p.mu.Unlock()
	logger := p.engine.cfg.Logger
	switch {
	case flaps && !flapped:
		logger.Warn("the connection with the network of a peer is lost again and again: it counts as down until it lasts",
			"peer", p.id, "lost", lossBurst+1, "lasts", steadyFor, "error", failure)
	case state == before:
	case state == Connected && flapped:
		logger.Info("connected with the network of a peer", "peer", p.id, "rtt", rtt, "lost", lost)
	case state == Connected:
		logger.Info("connected with the network of a peer", "peer", p.id, "rtt", rtt)
	case before == Connected && p.closed():
		logger.Info("disconnected from the network of a peer", "peer", p.id)
	case before == Connected && errors.Is(failure, ErrLeft):
		logger.Info("a peer has disconnected its network from that of this cluster", "peer", p.id)
	case before == Connected && !end:
		logger.Info("no packets pass between this cluster's network and that of a peer", "peer", p.id, "state", state, "error", failure)
	}
	if changed {
		p.engine.cfg.Changed(p.id)
	}
}

// damp returns the state that is shown for one that is. Each change is told, written to pods and logged, so a connection
// that is lost too often counts as down until it has lasted for steadyFor; packets pass all the same. p.mu is held.
func (p *path) damp(state State, now time.Time) State {
	switch {
	case state != Connected && !p.up.IsZero():
		p.up = time.Time{}
		if p.flaps > 0 {
			p.flaps++
		} else if p.losses.Take(struct{}{}, now) > 0 {
			p.flaps = lossBurst + 1
		}
	case state == Connected && p.up.IsZero():
		p.up = now
	}
	if p.flaps == 0 {
		return state
	}
	if state == Connected && now.Sub(p.up) >= steadyFor {
		p.flaps = 0
		return state
	}
	return Connecting
}

package agent

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/agent/ledger"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// callers answers the calls of other clusters for a session. All of it may be
// called from any goroutine.
type callers session

var _ endpoint.Peers = (*callers)(nil)

// Admit implements endpoint.Peers.
func (c *callers) Admit(id peer.ClusterID, shown trust.Shown) endpoint.Standing {
	return c.ledger.Admit(id, shown)
}

// Ask implements endpoint.Peers.
func (c *callers) Ask(ctx context.Context, caller endpoint.Caller, ask endpoint.Ask) endpoint.Answer {
	answer := c.ledger.Ask(ctx, caller, ask)
	if answer.Auth != api.AuthAccepted {
		return answer
	}
	c.heard(ctx, caller, ask.Greeting)
	c.calls.letIn(caller.ID)
	if err := c.peering.EnsureAccess(ctx, caller.ID); err != nil {
		// It is let in all the same; its next step will tell it what is missing.
		c.logger.Debug("a peer that was let in cannot use the API server yet", "peer", caller.ID, "error", err)
	}
	c.peering.Noticed(caller.ID) // it lets us in as well, whatever it said before
	return answer
}

// State implements endpoint.Peers.
func (c *callers) State(ctx context.Context, caller endpoint.Caller, g endpoint.Greeting) endpoint.State {
	if (*session)(c).business(caller.ID) {
		c.heard(ctx, caller, g)
	}
	c.peering.Called(caller.ID)
	return c.peering.State(caller.ID)
}

// Withdraw implements endpoint.Peers.
func (c *callers) Withdraw(_ context.Context, caller endpoint.Caller, w endpoint.Withdrawal) error {
	c.peering.Withdrawn(caller.ID, w)
	return nil
}

// Notice implements endpoint.Peers.
func (c *callers) Notice(caller endpoint.Caller) { c.peering.Noticed(caller.ID) }

// heard takes a peer's call as a sighting: it is where the call came from.
func (c *callers) heard(ctx context.Context, caller endpoint.Caller, g endpoint.Greeting) {
	s := peer.Sighting{
		Source: peer.IncomingPeering, Instance: string(caller.ID), ClusterID: caller.ID,
		ClusterName: g.Identity.ClusterName, Namespace: g.Identity.GuestNamespace,
		Fingerprint: caller.Shown.Fingerprint, URL: g.URL,
	}
	if g.Port != 0 && caller.Source.IsValid() {
		s.Addrs = []netip.AddrPort{netip.AddrPortFrom(caller.Source, g.Port)}
	}
	c.calls.note(caller.ID)
	// It fails only when the agent is stopping.
	_ = c.recorder.See(ctx, s)
}

const (
	// callsEvery is how often the sightings by calls are looked through.
	callsEvery = 30 * time.Second
	// callsLast is how long a call vouches for its caller: peers that have to do
	// with each other call every half minute.
	callsLast = 2 * time.Minute
)

// askLasts is after how long it is looked at whether who was let in still needs
// what that brought with it: a little longer than the ledger counts on a request.
const askLasts = 11 * time.Minute

// business reports whether there is, or is about to be, a peering with a cluster.
// That somebody calls to end one does not make it one that is there.
func (s *session) business(id peer.ClusterID) bool {
	view := s.peering.View(id)
	return view.Outgoing.Wanted || view.Outgoing.Joined || view.Incoming.Wanted || view.Incoming.Joined || s.ledger.Standing(id).Asked
}

// viewed is told of every peer whose peering may be another.
func (s *session) viewed(id peer.ClusterID) {
	s.recorder.Touch(id)
	s.remarked(id)
	if s.calls.look(id) {
		wake(s.parted)
	}
}

// calls knows when each peer called last, and when it was let in. Only peers with
// a trusted key get here.
type calls struct {
	mu    sync.Mutex
	last  map[peer.ClusterID]time.Time
	asked map[peer.ClusterID]time.Time
	looks map[peer.ClusterID]struct{} // callers whose peering may have ended
}

// look notes that the peering with a cluster may have ended, and reports whether
// it called lately.
func (c *calls) look(id peer.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, called := c.last[id]; !called {
		return false
	}
	if c.looks == nil {
		c.looks = make(map[peer.ClusterID]struct{})
	}
	c.looks[id] = struct{}{}
	return true
}

// toLook returns, and forgets, whose peering may have ended.
func (c *calls) toLook() []peer.ClusterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Collect(maps.Keys(c.looks))
	clear(c.looks)
	return out
}

// forget takes back that a cluster called, and reports whether it did.
func (c *calls) forget(id peer.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, called := c.last[id]
	delete(c.last, id)
	return called
}

func (c *calls) letIn(id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = make(map[peer.ClusterID]time.Time)
	}
	c.asked[id] = time.Now()
}

// lapsed returns, and forgets, who was let in before a moment.
func (c *calls) lapsed(before time.Time) []peer.ClusterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return expire(c.asked, before)
}

// expire takes what is from before a moment out of m.
func expire(m map[peer.ClusterID]time.Time, before time.Time) []peer.ClusterID {
	var out []peer.ClusterID
	for id, at := range m {
		if at.Before(before) {
			delete(m, id)
			out = append(out, id)
		}
	}
	return out
}

func (c *calls) note(id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = make(map[peer.ClusterID]time.Time)
	}
	c.last[id] = time.Now()
}

// silent returns, and forgets, who has not called since a moment.
func (c *calls) silent(since time.Time) []peer.ClusterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return expire(c.last, since)
}

// expireCalls takes back the sightings of peers that stopped calling, and of those
// with which there is no peering any more.
func (s *session) expireCalls(ctx context.Context) error {
	ticker := time.NewTicker(callsEvery)
	defer ticker.Stop()
	for {
		var gone []peer.ClusterID
		why := recorder.Absence{Reason: "it has stopped calling", Expired: true}
		select {
		case <-ctx.Done():
			return nil
		case <-s.parted:
			why.Reason = "there is no peering with it any more, and nothing else sees it"
			for _, id := range s.calls.toLook() {
				if !s.business(id) && s.calls.forget(id) {
					gone = append(gone, id)
				}
			}
		case <-ticker.C:
			for _, id := range s.calls.lapsed(time.Now().Add(-askLasts)) {
				s.decided(id)
			}
			gone = s.calls.silent(time.Now().Add(-callsLast))
		}
		for _, id := range gone {
			if err := s.recorder.Unsee(ctx, peer.Key{Source: peer.IncomingPeering, Instance: string(id)}, why); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

// callBackTimeout bounds the call that tells a peer that it was accepted.
const callBackTimeout = 5 * time.Second

// letIn has a cluster about which somebody decided told so, so that it need not wait
// until it asks the next time. When too many wait, it has to.
func (s *session) letIn(r ledger.Request) {
	select {
	case s.callbacks <- r:
	default:
	}
}

// callBack tells those who were let in to look again.
func (s *session) callBack(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-s.callbacks:
			s.notify(ctx, r)
		}
	}
}

func (s *session) notify(ctx context.Context, r ledger.Request) {
	target := endpoint.Target{ID: r.ID, Fingerprint: r.Fingerprint, URL: r.URL}
	if p, ok := s.recorder.Peer(r.ID); ok && p.Fingerprint == r.Fingerprint {
		target.Addrs = p.Addrs
		if target.URL == "" {
			target.URL = p.URL
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callBackTimeout)
	defer cancel()
	if _, err := s.client.Exchange(ctx, target, endpoint.Request{Method: http.MethodPost, Path: endpoint.PathNotice}); err != nil {
		s.logger.Debug("a peer that was let in could not be told; it asks again by itself", "peer", r.ID, "error", err)
	}
}

package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/trust"
)

// callers answers the calls of other clusters, and counts a call as a sighting of its
// caller. Run ends these sightings. All methods are safe for concurrent use.
type callers struct {
	decisions *decisions.Store
	registry  *registry.Registry
	peering   *peering.Controller
	// decided requeues a peer.
	decided func(id peer.ClusterID)
	logger  *slog.Logger

	calls  calls
	parted chan struct{} // a peering with a caller may have ended; capacity 1
}

var _ endpoint.Peers = (*callers)(nil)

// Admit implements endpoint.Peers.
func (c *callers) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	return c.decisions.Admit(id, shown)
}

// Ask implements endpoint.Peers.
func (c *callers) Ask(ctx context.Context, caller endpoint.Caller, ask wire.Ask) wire.Answer {
	answer := c.decisions.Ask(ctx, caller, ask)
	if answer.Auth != api.AuthAccepted {
		return answer
	}
	c.heard(ctx, caller, ask.Greeting)
	c.calls.letIn(caller.ID)
	if err := c.peering.EnsureAccess(ctx, caller.ID); err != nil {
		// It is accepted all the same, and its next request returns the error.
		c.logger.Debug("an accepted peer cannot use the API server yet", "peer", caller.ID, "error", err)
	}
	c.peering.Noticed(caller.ID) // it lets us in as well, whatever it said before
	return answer
}

// State implements endpoint.Peers.
func (c *callers) State(ctx context.Context, caller endpoint.Caller, g wire.Greeting) wire.State {
	if c.business(caller.ID) {
		c.heard(ctx, caller, g)
	}
	c.peering.Called(caller.ID)
	return c.peering.State(caller.ID)
}

// Withdraw implements endpoint.Peers.
func (c *callers) Withdraw(_ context.Context, caller endpoint.Caller, w wire.Withdrawal) error {
	c.peering.Withdrawn(caller.ID, w)
	return nil
}

// Notice implements endpoint.Peers.
func (c *callers) Notice(caller endpoint.Caller) { c.peering.Noticed(caller.ID) }

// heard records a peer's call as a sighting, at the address that the call came from.
func (c *callers) heard(ctx context.Context, caller endpoint.Caller, g wire.Greeting) {
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
	_ = c.registry.See(ctx, s)
}

const (
	// callsEvery is how often sightings by calls are checked for their age.
	callsEvery = 30 * time.Second
	// callsLast is how long a call counts as a sighting. Peers with a peering call
	// every half minute.
	callsLast = 2 * time.Minute
)

// askLasts is how long after it was accepted a peer is requeued, so that its access
// ends if it is not needed. It is a little longer than a request lasts in the decision
// store.
const askLasts = 11 * time.Minute

// business reports whether there is a peering with a cluster, or one is wanted or
// requested. A call that only ends one does not count.
func (c *callers) business(id peer.ClusterID) bool {
	view := c.peering.View(id)
	return view.Outgoing.Wanted || view.Outgoing.Joined || view.Incoming.Wanted || view.Incoming.Joined || c.decisions.Policy(id).Asked
}

// look has Run check whether the peering with a caller ended. It does not block.
func (c *callers) look(id peer.ClusterID) {
	if c.calls.look(id) {
		work.Wake(c.parted)
	}
}

// calls records when each peer called last, and when it was accepted. It is safe for
// concurrent use. Its size is bounded by trust: only calls with a trusted key count.
type calls struct {
	mu    sync.Mutex
	last  map[peer.ClusterID]time.Time
	asked map[peer.ClusterID]time.Time
	looks map[peer.ClusterID]struct{} // callers whose peering may have ended
}

// look records that the peering with a cluster may have ended, and reports whether the
// cluster called lately.
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

// toLook returns and clears the clusters whose peering may have ended.
func (c *calls) toLook() []peer.ClusterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Collect(maps.Keys(c.looks))
	clear(c.looks)
	return out
}

// forget removes the last call of a cluster, and reports whether there was one.
func (c *calls) forget(id peer.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, called := c.last[id]
	delete(c.last, id)
	return called
}

func (c *calls) note(id peer.ClusterID)  { c.stamp(&c.last, id) }
func (c *calls) letIn(id peer.ClusterID) { c.stamp(&c.asked, id) }

func (c *calls) stamp(m *map[peer.ClusterID]time.Time, id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *m == nil {
		*m = make(map[peer.ClusterID]time.Time)
	}
	(*m)[id] = time.Now()
}

// silent returns and removes the clusters that have not called since a time.
func (c *calls) silent(since time.Time) []peer.ClusterID { return c.expire(&c.last, since) }

// lapsed returns and removes the clusters that were accepted before a time.
func (c *calls) lapsed(before time.Time) []peer.ClusterID { return c.expire(&c.asked, before) }

// expire removes from m what is older than before, and returns it.
func (c *calls) expire(m *map[peer.ClusterID]time.Time, before time.Time) []peer.ClusterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []peer.ClusterID
	for id, at := range *m {
		if at.Before(before) {
			delete(*m, id)
			out = append(out, id)
		}
	}
	return out
}

// Run ends the sightings of peers that stopped calling, and of those without a
// peering, until ctx ends.
func (c *callers) Run(ctx context.Context) error {
	ticker := time.NewTicker(callsEvery)
	defer ticker.Stop()
	for {
		var gone []peer.ClusterID
		why := registry.Absence{Reason: "it stopped calling", Evidence: registry.Expired}
		select {
		case <-ctx.Done():
			return nil
		case <-c.parted:
			why.Reason = "there is no peering with it any more, and it is not discovered otherwise"
			for _, id := range c.calls.toLook() {
				if !c.business(id) && c.calls.forget(id) {
					gone = append(gone, id)
				}
			}
		case <-ticker.C:
			for _, id := range c.calls.lapsed(time.Now().Add(-askLasts)) {
				c.decided(id)
			}
			gone = c.calls.silent(time.Now().Add(-callsLast))
		}
		for _, id := range gone {
			if err := c.registry.Unsee(ctx, peer.Key{Source: peer.IncomingPeering, Instance: string(id)}, why); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

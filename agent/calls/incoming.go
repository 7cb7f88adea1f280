package calls

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/trust"
)

// Decisions says who may call, and answers requests for access.
type Decisions interface {
	Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel
	Ask(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer
	Policy(id peer.ClusterID) plan.Policy
}

// Registry takes the sightings.
type Registry interface {
	See(ctx context.Context, s peer.Sighting) error
	Unsee(ctx context.Context, k peer.Key, why registry.Absence) error
}

// Peering has the state of the peerings.
type Peering interface {
	EnsureAccess(ctx context.Context, id peer.ClusterID) error
	View(id peer.ClusterID) plan.View
	State(id peer.ClusterID) wire.State
	Called(id peer.ClusterID)
	Noticed(id peer.ClusterID)
	Withdrawn(id peer.ClusterID, w wire.Withdrawal)
}

// IncomingConfig is what an Incoming needs. All of it is required.
type IncomingConfig struct {
	Decisions Decisions
	Registry  Registry
	Peering   Peering
	// Decided requeues a peer.
	Decided func(id peer.ClusterID)
	Logger  *slog.Logger
}

// Incoming answers the calls of other clusters, and counts a call as a sighting of its
// caller. Run ends these sightings. All methods are safe for concurrent use.
type Incoming struct {
	cfg    IncomingConfig
	calls  *calls
	parted chan struct{} // a peering with a caller may have ended; capacity 1
}

var _ endpoint.Peers = (*Incoming)(nil)

// NewIncoming returns an Incoming. Run does the rest of the work.
func NewIncoming(cfg IncomingConfig) *Incoming {
	return &Incoming{cfg: cfg, calls: newCalls(), parted: make(chan struct{}, 1)}
}

// Admit implements endpoint.Peers.
func (c *Incoming) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	return c.cfg.Decisions.Admit(id, shown)
}

// Ask implements endpoint.Peers.
func (c *Incoming) Ask(ctx context.Context, caller endpoint.Caller, ask wire.Ask) wire.Answer {
	answer := c.cfg.Decisions.Ask(ctx, caller, ask)
	if answer.Auth != api.AuthAccepted {
		return answer
	}
	c.heard(ctx, caller, ask.Greeting)
	c.calls.stamp(c.calls.admitted, caller.ID)
	if err := c.cfg.Peering.EnsureAccess(ctx, caller.ID); err != nil {
		// It is accepted all the same, and its next request returns the error.
		c.cfg.Logger.Debug("an accepted peer cannot use the API server yet", "peer", caller.ID, "error", err)
	}
	c.cfg.Peering.Noticed(caller.ID) // it accepts us as well, whatever it answered before
	return answer
}

// State implements endpoint.Peers.
func (c *Incoming) State(ctx context.Context, caller endpoint.Caller, g wire.Greeting) wire.State {
	if c.business(caller.ID) {
		c.heard(ctx, caller, g)
	}
	c.cfg.Peering.Called(caller.ID)
	return c.cfg.Peering.State(caller.ID)
}

// Withdraw implements endpoint.Peers.
func (c *Incoming) Withdraw(_ context.Context, caller endpoint.Caller, w wire.Withdrawal) error {
	c.cfg.Peering.Withdrawn(caller.ID, w)
	return nil
}

// Notice implements endpoint.Peers.
func (c *Incoming) Notice(caller endpoint.Caller) { c.cfg.Peering.Noticed(caller.ID) }

// heard records a peer's call as a sighting, at the address that the call came from.
func (c *Incoming) heard(ctx context.Context, caller endpoint.Caller, g wire.Greeting) {
	s := peer.Sighting{
		Source: peer.IncomingPeering, Instance: string(caller.ID), ClusterID: caller.ID,
		ClusterName: g.Identity.ClusterName, Namespace: g.Identity.GuestNamespace,
		Fingerprint: caller.Shown.Fingerprint, URL: g.URL,
	}
	if g.Port != 0 && caller.Source.IsValid() {
		s.Addrs = []netip.AddrPort{netip.AddrPortFrom(caller.Source, g.Port)}
	}
	c.calls.stamp(c.calls.last, caller.ID)
	// It fails only when the agent is stopping.
	_ = c.cfg.Registry.See(ctx, s)
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
func (c *Incoming) business(id peer.ClusterID) bool {
	view := c.cfg.Peering.View(id)
	return view.Outgoing.Wanted || view.Outgoing.Joined || view.Incoming.Wanted || view.Incoming.Joined || c.cfg.Decisions.Policy(id).Asked
}

// PeeringChanged has Run check whether the peering with a caller ended. It does not
// block.
func (c *Incoming) PeeringChanged(id peer.ClusterID) {
	if c.calls.look(id) {
		work.Wake(c.parted)
	}
}

// calls records when each peer called last, and when it was accepted. It is safe for
// concurrent use. Its size is bounded by trust: only calls with a trusted key count.
type calls struct {
	mu       sync.Mutex
	last     stamps
	admitted stamps
	looks    map[peer.ClusterID]struct{} // callers whose peering may have ended
}

// stamps are times by cluster.
type stamps map[peer.ClusterID]time.Time

func newCalls() *calls {
	return &calls{last: make(stamps), admitted: make(stamps), looks: make(map[peer.ClusterID]struct{})}
}

// look records that the peering with a cluster may have ended, and reports whether the
// cluster called lately.
func (c *calls) look(id peer.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, called := c.last[id]
	if called {
		c.looks[id] = struct{}{}
	}
	return called
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

// stamp records the present time for a cluster.
func (c *calls) stamp(s stamps, id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s[id] = time.Now()
}

// expired returns and removes the clusters with a time in s before another one.
func (c *calls) expired(s stamps, before time.Time) (out []peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range s {
		if at.Before(before) {
			delete(s, id)
			out = append(out, id)
		}
	}
	return out
}

// Run ends the sightings of peers that stopped calling, and of those without a
// peering, until ctx ends.
func (c *Incoming) Run(ctx context.Context) error {
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
			for _, id := range c.calls.expired(c.calls.admitted, time.Now().Add(-askLasts)) {
				c.cfg.Decided(id)
			}
			gone = c.calls.expired(c.calls.last, time.Now().Add(-callsLast))
		}
		for _, id := range gone {
			if err := c.cfg.Registry.Unsee(ctx, peer.Key{Source: peer.IncomingPeering, Instance: string(id)}, why); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

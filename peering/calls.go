package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/access"
	"liqo.io/agent/peering/deletion"
	"liqo.io/agent/peering/install"
	"liqo.io/agent/peering/plan"
)

// This file is what the endpoint and the rest of the agent ask of a Controller.
// All of it may be called from any goroutine at any time.

// ErrNotConnected: there is no connection to the local API server.
var ErrNotConnected = errors.New("this cluster's API server cannot be reached now")

// State is the answer to a peer that asks for our state.
func (c *Controller) State(id peer.ClusterID) wire.State {
	return c.peek(c.current(), id).Answer()
}

// View returns the state of the peering with a cluster.
func (c *Controller) View(id peer.ClusterID) plan.View {
	return c.peek(c.current(), id).View()
}

// Noticed takes in that something changed at a peer's side: its state is asked
// for at once.
func (c *Controller) Noticed(id peer.ClusterID) { c.remote.Check(id) }

// Called takes in that a peer calls: if it could not be talked to at the last
// attempt, that is tried again at once.
func (c *Controller) Called(id peer.ClusterID) {
	if c.remote.Get(id).Err != nil {
		c.remote.Check(id)
	}
}

// Withdrawn takes in that a peer gives up its part of a peering. Its objects here
// are deleted as soon as the API server can be reached.
func (c *Controller) Withdrawn(id peer.ClusterID, w wire.Withdrawal) {
	c.peers.with(id, func(m *peerState) {
		m.withdrawal.Request = m.withdrawal.Request || w.Request
		m.withdrawal.Advertisement = m.withdrawal.Advertisement || w.Advertisement
		m.withdrawal.Reason, m.withdrawalAt = w.Reason, c.cfg.Now()
	})
	c.Enqueue(id)
}

// DeletedByPeer takes in that a peer is about to delete its object of that
// resource (its plural name) through the gateway, so that it is not taken for a
// person's doing. It returns once that is remembered. What it returns is to be called
// with the status of the API server's answer, 0 for none: who was refused did not
// delete what goes later.
func (c *Controller) DeletedByPeer(id peer.ClusterID, resource string) (answered func(status int)) {
	var trailOf func(*peerState) *deletion.Tracker
	switch resource {
	case api.PluralPeeringRequests:
		trailOf = func(m *peerState) *deletion.Tracker { return &m.request }
	case api.PluralAdvertisements:
		trailOf = func(m *peerState) *deletion.Tracker { return &m.offer }
	default:
		return func(int) {}
	}
	var n deletion.Pending
	c.peers.with(id, func(m *peerState) { n = trailOf(m).Begin(plan.DeletedByPeer, c.cfg.Now()) })
	if resource == api.PluralPeeringRequests {
		if err := recordUnserved(context.Background(), c.cfg.Decisions, id, "the peer took its request back"); err != nil {
			// The deletion goes on: only after a crash in this moment would it look like a
			// person's.
			c.cfg.Logger.Warn("a peer's decision could not be stored", "cluster", id, "error", err)
		}
	}
	return func(status int) {
		came := deletion.OutcomeOf(status)
		c.peers.with(id, func(m *peerState) { trailOf(m).Resolve(n, came) })
		if came != deletion.Taken {
			c.Enqueue(id) // the decision store was told of an end that did not come
		}
	}
}

// Upstream is the way to the local API server for what peers send through the
// gateway, with the agent's credentials; false while there is none. What goes
// that way is counted in APIStatus.PassedWrites.
func (c *Controller) Upstream() (gateway.Upstream, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.upstream, c.session != nil
}

// PeerUsers says as whom peers reach the local API server, on the last connection to it
// if there is none.
func (c *Controller) PeerUsers() api.PeerUsers {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.users
}

// accessTimeout bounds the time from the writing of a role until the API server goes by
// it, which it does a moment later.
const accessTimeout = 2 * time.Second

// EnsureAccess returns when a peer that may ask for a peering can: when the API
// server lets it reach its PeeringRequest. It takes two seconds at most; the error
// then says that the peer has to try again.
func (c *Controller) EnsureAccess(ctx context.Context, id peer.ClusterID) error {
	s := c.current()
	if s == nil {
		return ErrNotConnected
	}
	// It asks: what it gave up earlier is not the last word any more.
	c.peers.with(id, func(m *peerState) { m.withdrawal.Request = false })
	s.queue.Add(id)
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		allowed, err := access.MayReach(ctx, s.client, id, s.users)
		if allowed {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if work.Sleep(ctx, pause) != nil {
			return fmt.Errorf("the API server does not let cluster %s ask yet: %w", id, ctx.Err())
		}
	}
}

// Leftovers returns what is left between us and a peer. Without a connection to the
// API server that is not known, and known is false. Any goroutine may call it at
// any time.
func (c *Controller) Leftovers(id peer.ClusterID) (left plan.Leftovers, known bool) {
	s := c.current()
	if s == nil {
		return plan.Leftovers{}, false
	}
	return c.peek(s, id).Leftovers(c.cfg.Now()), true
}

// NewerCRDs returns the generation of the custom resource definitions when a newer
// agent brought them, and which one this agent has; 0 when they are its own, or
// nothing is known. Any goroutine may call it at any time.
func (c *Controller) NewerCRDs() (theirs, ours int) {
	if s := c.current(); s != nil {
		theirs = s.keeper.NewerCRDs()
	}
	return theirs, install.Generation
}

// SearchDomainChanged says that the status of the SearchDomain with that name may
// have to say something else. It never blocks. Without a connection nothing is
// done about it, because the next connection begins with looking at all of them.
// Any goroutine may call it at any time.
func (c *Controller) SearchDomainChanged(name string) {
	if s := c.current(); s != nil {
		s.domains.Changed(name)
	}
}

// HealthChanged says that Health or Effective of Config.People may answer otherwise than
// before. It never blocks. Any goroutine may call it at any time.
func (c *Controller) HealthChanged() {
	if s := c.current(); s != nil {
		s.settings.Changed()
	}
}

// ForeignCluster returns the name of the ForeignCluster that stands for a
// cluster in the local API server, and "" when there is none or no connection.
// Any goroutine may call it at any time.
func (c *Controller) ForeignCluster(id peer.ClusterID) string {
	s := c.current()
	if s == nil {
		return ""
	}
	name := ""
	for _, fc := range s.foreign.About(id) {
		if name == "" || fc.ClusterID() == string(id) {
			name = fc.Name
		}
	}
	return name
}

// Requests returns the PeeringRequests in the local API server, in no order, and
// none while there is no connection. They are shared: do not change them. Any
// goroutine may call it at any time.
func (c *Controller) Requests() []*api.PeeringRequest {
	s := c.current()
	if s == nil {
		return nil
	}
	return s.requests.All()
}

package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// This file is what the endpoint and the rest of the agent ask of a Controller.
// All of it may be called from any goroutine at any time.

// ErrNotConnected: there is no connection to the local API server.
var ErrNotConnected = errors.New("this cluster's API server cannot be reached now")

// State is the answer to a peer that asks for our state.
func (c *Controller) State(id peer.ClusterID) endpoint.State {
	return c.peek(c.current(), id).Answer()
}

// View tells how the peering with a cluster stands.
func (c *Controller) View(id peer.ClusterID) View {
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
func (c *Controller) Withdrawn(id peer.ClusterID, w endpoint.Withdrawal) {
	c.memory.with(id, func(m *memo) {
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
	var trailOf func(*memo) *trail
	switch resource {
	case api.PluralPeeringRequests:
		trailOf = func(m *memo) *trail { return &m.request }
	case api.PluralAdvertisements:
		trailOf = func(m *memo) *trail { return &m.offer }
	default:
		return func(int) {}
	}
	var n note
	c.memory.with(id, func(m *memo) { n = trailOf(m).deleting(DeletedByPeer, c.cfg.Now()) })
	if resource == api.PluralPeeringRequests {
		if err := tellUnserved(context.Background(), c.cfg.Ledger, id, "the peer took its request back"); err != nil {
			// The deletion goes on: only after a crash in this moment would it look like a
			// person's.
			c.cfg.Logger.Warn("a peer's decision could not be stored", "cluster", id, "error", err)
		}
	}
	return func(status int) {
		came := outcomeOf(status)
		c.memory.with(id, func(m *memo) { trailOf(m).ended(n, came) })
		if came != deletionTaken {
			c.Enqueue(id) // the ledger was told of an end that did not come
		}
	}
}

// Upstream is the way to the local API server for what peers send through the
// gateway, with the agent's credentials; false while there is none. What goes
// that way is counted in APIStatus.PeerWrites.
func (c *Controller) Upstream() (endpoint.Upstream, bool) {
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

// EnsureAccess returns when a peer that may ask for a peering can: when the API
// server lets it reach its PeeringRequest. It takes two seconds at most; the error
// then says that the peer has to try again.
func (c *Controller) EnsureAccess(ctx context.Context, id peer.ClusterID) error {
	s := c.current()
	if s == nil {
		return ErrNotConnected
	}
	// It asks: what it gave up earlier is not the last word any more.
	c.memory.with(id, func(m *memo) { m.withdrawal.Request = false })
	s.queue.Add(id)
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		allowed, err := s.client.mayReach(ctx, id, s.users)
		if allowed {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if sleep(ctx, pause) != nil {
			return fmt.Errorf("the API server does not let cluster %s ask yet: %w", id, ctx.Err())
		}
	}
}

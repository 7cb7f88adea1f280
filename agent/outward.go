package agent

import (
	"context"
	"errors"

	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// identifier asks endpoints who is there. The decision store is told of a key that took the place
// of the trusted one before anybody else is, so that the two are never seen to differ.
func identifier(c *client.Client, l *decisions.Store) func(context.Context, peer.Target) (client.Result, error) {
	return func(ctx context.Context, t peer.Target) (client.Result, error) {
		res, err := c.Identify(ctx, t)
		if err == nil {
			id := res.Identity.ClusterID
			if pin := l.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
				l.Proved(ctx, id, res.Shown)
			}
		}
		return res, err
	}
}

// outward calls the peers' endpoints. While trust in a peer is suspended, nothing is
// sent to it; also what was decided about it before, and cannot be decided anew while
// there is no API server.
type outward struct {
	client    *client.Client
	decisions *decisions.Store
}

// Exchange implements remote.Caller.
func (o outward) Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error) {
	if pin := o.decisions.Pin(t.ID); pin != nil && !pin.Suspended.IsZero() {
		return client.Response{}, errors.New("trust in the peer is suspended because its fleet certificate expired: nothing is sent to it")
	}
	return o.client.Exchange(ctx, t, r)
}

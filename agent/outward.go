package agent

import (
	"context"
	"errors"

	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// identifier returns a function that identifies the cluster at an endpoint. If the cluster has
// replaced its trusted key, the decision store learns of it before the caller does, so that nobody
// sees the two disagree.
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

// outward calls the endpoints of peers. It sends nothing to a peer whose trust is
// suspended. Without an API server, nothing plans anew after a suspension, and calls
// planned before must not go out either.
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

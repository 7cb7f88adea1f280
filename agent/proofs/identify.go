package proofs

import (
	"context"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// Identifier returns a function that identifies the cluster at an endpoint. If the cluster has
// replaced its trusted key, the decision store learns of it before the caller does, so that nobody
// sees the two disagree.
func Identifier(c *client.Client, d Decisions) func(context.Context, peer.Target) (client.Result, error) {
	return func(ctx context.Context, t peer.Target) (client.Result, error) {
		res, err := c.Identify(ctx, t)
		if err == nil {
			id := res.Identity.ClusterID
			if pin := d.Pin(id); pin != nil && pin.Fingerprint != res.Fingerprint {
				d.Proved(ctx, id, res.Shown)
			}
		}
		return res, err
	}
}

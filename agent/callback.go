package agent

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// callBackTimeout bounds the call that tells a peer that it was accepted.
const callBackTimeout = 5 * time.Second

// callBacks notifies clusters that they were accepted, so that they need not wait until
// they ask again.
type callBacks struct {
	seen    func(id peer.ClusterID) (peer.Peer, bool)
	client  *client.Client
	logger  *slog.Logger
	waiting chan decisions.Request
}

// maxCallBacks bounds the notifications that wait.
const maxCallBacks = 16

// letIn queues the notification of a cluster that was accepted. If too many wait, it is
// dropped: the cluster learns it when it asks again.
func (c *callBacks) letIn(r decisions.Request) {
	select {
	case c.waiting <- r:
	default:
	}
}

// Run sends the notifications until ctx ends.
func (c *callBacks) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-c.waiting:
			c.notify(ctx, r)
		}
	}
}

func (c *callBacks) notify(ctx context.Context, r decisions.Request) {
	target := peer.Target{ID: r.ID, Fingerprint: r.Fingerprint, URL: r.URL}
	if p, ok := c.seen(r.ID); ok && p.Fingerprint == r.Fingerprint {
		target.Addrs = p.Addrs
		if target.URL == "" {
			target.URL = p.URL
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callBackTimeout)
	defer cancel()
	if _, err := c.client.Exchange(ctx, target, client.Request{Method: http.MethodPost, Path: wire.PathNotice}); err != nil {
		c.logger.Debug("cannot notify an accepted peer; it will ask again", "peer", r.ID, "error", err)
	}
}

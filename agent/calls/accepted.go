package calls

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

const (
	// noticeTimeout bounds a notification.
	noticeTimeout = 5 * time.Second
	// maxNotices bounds the notifications that wait.
	maxNotices = 16
)

// Notifier notifies clusters that they were accepted, so that they need not wait until
// they ask again.
type Notifier struct {
	peer    func(id peer.ClusterID) (peer.Peer, bool)
	client  *client.Client
	logger  *slog.Logger
	waiting chan decisions.Request
}

// NewNotifier returns a Notifier that finds the addresses of a peer with peerOf.
func NewNotifier(peerOf func(id peer.ClusterID) (peer.Peer, bool), c *client.Client, logger *slog.Logger) *Notifier {
	return &Notifier{peer: peerOf, client: c, logger: logger, waiting: make(chan decisions.Request, maxNotices)}
}

// Accepted queues the notification of a cluster that was accepted. It does not block. If
// too many wait, it drops the notification: the cluster learns it when it asks again.
func (n *Notifier) Accepted(r decisions.Request) {
	select {
	case n.waiting <- r:
	default:
	}
}

// Run sends the notifications until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-n.waiting:
			n.notify(ctx, r)
		}
	}
}

func (n *Notifier) notify(ctx context.Context, r decisions.Request) {
	target := peer.Target{ID: r.ID, Fingerprint: r.Fingerprint, URL: r.URL}
	if p, ok := n.peer(r.ID); ok && p.Fingerprint == r.Fingerprint {
		target.Addrs = p.Addrs
		if target.URL == "" {
			target.URL = p.URL
		}
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	if _, err := n.client.Exchange(ctx, target, client.Request{Method: http.MethodPost, Path: wire.PathNotice}); err != nil {
		n.logger.Debug("cannot notify an accepted peer; it will ask again", "peer", r.ID, "error", err)
	}
}

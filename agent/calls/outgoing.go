package calls

import (
	"context"
	"errors"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// Outgoing calls the endpoints of peers. It sends nothing to a peer whose trust is
// suspended: without an API server, no new plan is made after a suspension, and calls
// that were planned before must not be sent.
type Outgoing struct {
	Client *client.Client
	// Pin returns the trusted key of a cluster, nil for none.
	Pin func(id peer.ClusterID) *peer.Pin
}

// Exchange implements remote.Caller.
func (o Outgoing) Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error) {
	if pin := o.Pin(t.ID); pin != nil && !pin.Suspended.IsZero() {
		return client.Response{}, errors.New("trust in the peer is suspended because its fleet certificate expired: nothing is sent to it")
	}
	return o.Client.Exchange(ctx, t, r)
}

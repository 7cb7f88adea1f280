package client

import (
	"context"
	"net"
	"net/http"

	"liqo.io/agent/endpoint/gapless"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/relay"
)

// Network connects to a peer for packets between the pods of both clusters; see package
// network. The target's Fingerprint must be set. The connection is the caller's, and its
// Close does not wait. A *wire.Refused says that the peer does not want that. ctx bounds the
// connecting only.
func (c *Client) Network(ctx context.Context, target peer.Target) (net.Conn, error) {
	k, err := c.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	conn, resp, err := k.Upgrade(ctx, http.MethodGet, wire.PathNetwork, http.Header{"Connection": {"Upgrade"}, "Upgrade": {wire.NetworkProtocol}})
	if err == nil && conn != nil {
		gapless.LimitUnsent(k.tcp, wire.NetworkUnsent)
		return &packetConn{Conn: conn, under: k}, nil
	}
	defer k.Close()
	if err != nil {
		return nil, k.Broken(err)
	}
	answer, err := ReadResponse(resp)
	if err != nil {
		return nil, k.Broken(err)
	}
	if answer.Status == http.StatusNotFound {
		return nil, &wire.Refused{Reason: wire.ReasonNoSuchPath, Message: "the agent of the peer cannot connect networks: update it"}
	}
	return nil, answer.Refused()
}

// packetConn is a connection for packets.
type packetConn struct {
	*relay.Conn
	under *Conn
}

// Close ends the connection without the farewell of TLS, which may have to wait.
func (p *packetConn) Close() error {
	p.under.Abort()
	return nil
}

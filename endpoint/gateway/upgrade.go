package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/peer"
	"liqo.io/agent/relay"
)

// Conn is the upgraded connection to the API server. net/http hands out only
// a body, which does not lead to the socket.
type Conn struct {
	io.ReadWriteCloser // the body
	conn               net.Conn
}

// CloseWrite ends what is sent to the API server.
func (u *Conn) CloseWrite() error { return relay.CloseWrite(u.ReadWriteCloser) }

// NetConn returns the connection below.
func (u *Conn) NetConn() net.Conn { return u.conn }

// Upgrade sends a request for an upgrade to the API server. The body of its answer,
// if that is 101, is a *Conn.
func (g *Gateway) Upgrade(ctx context.Context, id peer.ClusterID, call allow.Call, want allow.Upgrade) (*http.Response, *refusal.Refusal) {
	up, ok := g.cfg.Upstream()
	if !ok || up.Upgrade == nil {
		return nil, refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's API server cannot be reached for that now")
	}
	req, err := request(ctx, up, id, call.Request())
	if err != nil {
		return nil, refusal.Internal("the request for the API server cannot be made; please report this")
	}
	for name, values := range want.Header() {
		req.Header[name] = values
	}
	var conn net.Conn
	resp, err := up.Upgrade.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
	})))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, refusal.LostUpstream(err)
	}
	if body, ok := resp.Body.(io.ReadWriteCloser); ok && conn != nil {
		resp.Body = &Conn{ReadWriteCloser: body, conn: conn}
	}
	return resp, nil
}

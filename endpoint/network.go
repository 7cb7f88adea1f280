package endpoint

import (
	"context"
	"io"
	"net"
	"net/http"
	"syscall"

	"liqo.io/agent/endpoint/gapless"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// Network takes connections for packets between the pods of two clusters. Its methods are
// called on many goroutines.
type Network interface {
	// Wanted returns why a connection of that peer would not be taken, a sentence for the
	// peer; nil if it would. It must be quick.
	Wanted(id peer.ClusterID) error
	// Accept takes a connection, and returns when that has ended or ctx has. The
	// connection is closed by then.
	Accept(ctx context.Context, id peer.ClusterID, conn net.Conn) error
}

// serveNetwork makes the connection of r one that carries packets.
func (s *Server) serveNetwork(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	if no := checkSwitch(r, wire.NetworkProtocol); no != nil {
		return no
	}
	if err := s.cfg.Network.Wanted(caller.ID); err != nil {
		return &refusal.Refusal{Status: http.StatusForbidden, Counted: refusal.Network, Reason: wire.ReasonNoNetwork, Text: err.Error()}
	}
	if !s.limits.network.Take(caller.ID) {
		return refusal.TooMany("connections for packets")
	}
	defer s.limits.network.Release(caller.ID)
	if !s.streams.enter() {
		return refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's agent is about to stop")
	}
	defer s.streams.leave()
	carrier, no := s.takeOver(w, wire.NetworkProtocol)
	if carrier == nil {
		return no
	}
	if tcp, ok := c.NetConn().(syscall.Conn); ok {
		gapless.LimitUnsent(tcp, wire.NetworkUnsent)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer s.streams.add(&openStream{id: caller.ID, shown: caller.Shown, end: func() {
		cancel(errNotAnyMore)
		_ = c.Close()
	}})()
	if err := s.cfg.Network.Accept(ctx, caller.ID, &packetConn{Conn: carrier, under: c}); err != nil {
		s.cfg.Logger.Debug("a connection for packets has ended", "peer", caller.ID, "error", err)
	}
	return nil
}

// packetConn is a connection for packets, without the farewell of TLS, which may have to
// wait.
type packetConn struct {
	net.Conn
	under io.Closer
}

// Close is net.Conn.Close.
func (p *packetConn) Close() error { return p.under.Close() }

// NetConn returns the connection with TLS.
func (p *packetConn) NetConn() net.Conn { return p.Conn }

package endpoint

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"liqo.io/agent/endpoint/guard"
)

// conn is what the requests on one connection have in common.
type conn struct {
	*guard.Conn
	requests atomic.Int64 // so far

	// proof is who is at the other end, nil until that matters. It is set by the
	// goroutine that serves the connection, before there can be others that read it:
	// those of the requests in a tunnel.
	proof *proof
}

// connKey is where the context of a request has its *conn.
type connKey struct{}

// withConn is http.Server.ConnContext.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{Conn: nc.(*tls.Conn).NetConn().(*guard.Conn)})
}

// connOf returns the connection that r came on.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

package guard

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"liqo.io/agent/throttle"
)

// Listener returns a listener on top of l that hands out TLS connections to those the
// guard lets in, and closes the others. net/http does the handshake, in the connection's
// own goroutine.
func (g *Guard) Listener(l net.Listener, cfg *tls.Config, logger *slog.Logger) net.Listener {
	return &listener{Listener: l, guard: g, tls: cfg, logger: logger}
}

type listener struct {
	net.Listener
	guard  *Guard
	tls    *tls.Config
	logger *slog.Logger
	warn   throttle.Limiter
}

// Accept returns the next connection that is let in. http.Server calls it
// again, after a pause, when the error is a temporary one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.guard.Count(RefusedAccept)
				if n, ok := l.warn.Allow(time.Now(), 1, time.Minute); ok {
					l.logger.Warn("endpoint cannot accept connections for now", "error", err, "not_shown", n)
				}
			}
			return nil, err
		}
		c, reason := l.guard.admit(raw)
		if reason != "" {
			_ = raw.Close() // nothing was sent, nothing can be lost
			continue
		}
		return tls.Server(c, l.tls), nil
	}
}

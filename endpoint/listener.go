package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener hands out TLS connections to those the guard lets in, and closes
// the others. net/http does the handshake, in the connection's own goroutine.
type listener struct {
	net.Listener
	guard  *guard
	tls    *tls.Config
	logger *slog.Logger
	warn   limiter
}

// Accept returns the next connection that is let in. http.Server calls it
// again, after a pause, when the error is a temporary one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.guard.count(RefusedAccept)
				if n, ok := l.warn.allow(time.Now(), 1, time.Minute); ok {
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

// strangers takes the lines net/http logs about connections: failed
// handshakes, mostly, which anyone can cause at any rate. They go to the debug
// level, a few a second. A handler that panics is our fault and always shown.
type strangers struct {
	logger *slog.Logger
	limit  limiter
}

func (s *strangers) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if bytes.Contains(line, []byte("panic serving")) {
		s.logger.Error("endpoint: a request made the agent panic; please report this", "detail", text)
		return len(line), nil
	}
	if s.logger.Enabled(context.Background(), slog.LevelDebug) {
		if n, ok := s.limit.allow(time.Now(), 5, time.Second); ok {
			s.logger.Debug("endpoint: "+text, "not_shown", n)
		}
	}
	return len(line), nil
}

// limiter lets a number of things happen in each span of time.
type limiter struct {
	mu         sync.Mutex
	start      time.Time
	used       int
	suppressed int
}

// allow reports whether one more may happen at now, and if so how many were
// not allowed since the last that was.
func (l *limiter) allow(now time.Time, burst int, span time.Duration) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.start) >= span {
		l.start, l.used = now, 0
	}
	if l.used >= burst {
		l.suppressed++
		return 0, false
	}
	l.used++
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}

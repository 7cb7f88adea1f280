package endpoint

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"liqo.io/agent/throttle"
)

// strangers takes the lines net/http logs about connections: failed
// handshakes, mostly, which anyone can cause at any rate. They go to the debug
// level, a few a second. A handler that panics is our fault and always shown.
type strangers struct {
	logger *slog.Logger
	limit  throttle.Limiter
}

func (s *strangers) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if bytes.Contains(line, []byte("panic serving")) {
		s.logger.Error("endpoint: a request made the agent panic; please report this", "detail", text)
		return len(line), nil
	}
	if s.logger.Enabled(context.Background(), slog.LevelDebug) {
		if n, ok := s.limit.Allow(time.Now(), 5, time.Second); ok {
			s.logger.Debug("endpoint: "+text, "not_shown", n)
		}
	}
	return len(line), nil
}

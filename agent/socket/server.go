package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"liqo.io/agent/agent/control"
)

const (
	// DefaultGroup is the group that may use the socket, where it exists.
	DefaultGroup = "liqo-agent"

	maxConnections = 128
	maxHeader      = 16 << 10
	maxBody        = 64 << 10
	requestTimeout = 15 * time.Second
	idleTimeout    = time.Minute
	stopTimeout    = 2 * time.Second
)

// ServerConfig says where and how to serve.
type ServerConfig struct {
	Path    string // of the socket
	Group   string // that may use it; "" = DefaultGroup
	Backend Backend
	Level   *slog.LevelVar // changed by PUT /v1/log/level
	// Reloader reloads the configuration; nil: not supported.
	Reloader Reloader
	Metrics  http.Handler // answers GET /metrics; nil = nobody does
	// Explain writes the state and pending work of each peering, as text for people;
	// nil: not supported.
	Explain func(io.Writer) error
	Logger  *slog.Logger
	Now     func() time.Time // nil = time.Now
}

// Server serves the control socket.
type Server struct {
	cfg  ServerConfig
	hub  *hub
	sock *socket
}

// NewServer returns a server that does nothing yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Group == "" {
		cfg.Group = DefaultGroup
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Server{cfg: cfg, hub: newHub()}
}

// Publish tells all watchers about a change. It never blocks. It may be called
// from any goroutine, also before and after Run.
func (s *Server) Publish(ev control.WatchEvent) {
	if ev.At.IsZero() {
		ev.At = s.cfg.Now()
	}
	s.hub.publish(ev)
}

// Listen binds the socket, so that a failure is known before the agent says it
// is ready. A socket left behind by an agent that is gone is replaced; one
// that an agent answers on is an error that wraps ErrInUse. Call it once,
// before Run.
func (s *Server) Listen(ctx context.Context) error {
	sock, err := listenUnix(ctx, s.cfg.Path, s.cfg.Group)
	if err != nil {
		return err
	}
	s.sock = sock
	return nil
}

// Run serves until ctx ends, then tells the watchers so, removes the socket
// and returns nil. It binds the socket first if Listen was not called.
func (s *Server) Run(ctx context.Context) error {
	if s.sock == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	// Requests outlive ctx by up to stopTimeout, to end in an orderly way.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withCaller,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(netutil.LimitListener(s.sock, maxConnections)) }()
	select {
	case err := <-stopped:
		s.hub.close()
		return fmt.Errorf("control socket %s: %w", s.cfg.Path, errors.Join(err, srv.Close()))
	case <-ctx.Done():
	}
	s.hub.close()
	grace, cancelGrace := context.WithTimeout(requests, stopTimeout)
	defer cancelGrace()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		cancel()
		err = srv.Close()
	}
	<-stopped
	if err != nil {
		return fmt.Errorf("control socket %s: %w", s.cfg.Path, err)
	}
	return nil
}

package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"liqo.io/agent/kube/work"
)

const (
	// Whoever scrapes is near, asks for one small thing, and comes again soon.
	maxConns       = 16
	maxHeader      = 4 << 10
	requestTimeout = 5 * time.Second
	answerTimeout  = scrapeTimeout + 5*time.Second
	idleTimeout    = 2 * time.Minute // longer than any sensible interval between scrapes
	stopTimeout    = time.Second
)

// Listener serves the metrics on a TCP port, in plain HTTP and to anybody who can
// reach it: GET /metrics, and GET /healthz, which says "ok". Its methods may be
// called from any goroutine.
type Listener struct {
	handler http.Handler
	logger  *slog.Logger
	again   chan struct{} // bound is another; capacity 1
	patient time.Duration // with a request that does not come

	mu      sync.Mutex
	address string       // as it is to be; "" for none
	bound   net.Listener // nil: to be bound by Run, or none
}

// NewListener returns a Listener without a port. metrics answers at /metrics.
func NewListener(metrics http.Handler, logger *slog.Logger) *Listener {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n") // the client's loss
	})
	return &Listener{handler: mux, logger: logger, again: make(chan struct{}, 1), patient: requestTimeout}
}

// Listen binds another port, host:port, and gives the one before back; "" is for
// none. When that cannot be done, the one before stays in use and the error says
// why. Run serves what is bound.
func (l *Listener) Listen(ctx context.Context, address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == address && (address == "" || l.bound != nil) {
		return nil
	}
	before := l.address
	if l.bound != nil {
		// First, because the new one may be the same port at all addresses.
		_ = l.bound.Close()
		l.bound = nil
	}
	err := l.bind(ctx, address)
	if err != nil && before != "" && before != address {
		if again := l.bind(ctx, before); again != nil {
			err = errors.Join(err, again)
		}
	}
	work.Wake(l.again)
	return err
}

// bind takes a port. l.mu is held.
func (l *Listener) bind(ctx context.Context, address string) error {
	if address == "" {
		l.address = ""
		return nil
	}
	var config net.ListenConfig
	bound, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the port for metrics (metrics.listen = %q) cannot be used: %w", address, err)
	}
	l.address, l.bound = address, bound
	return nil
}

// Addr returns the address that is bound, nil while none is.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound == nil {
		return nil
	}
	return l.bound.Addr()
}

// Run serves until ctx ends, gives the port back and returns nil. An error means
// that the port was lost; Run may be called again then, and binds it anew.
func (l *Listener) Run(ctx context.Context) error {
	defer l.release()
	for {
		bound, err := l.current(ctx)
		if err != nil {
			return err
		}
		if bound == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-l.again:
				continue
			}
		}
		if err := l.serve(ctx, bound); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// current returns what is bound, and binds what is to be.
func (l *Listener) current(ctx context.Context) (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound == nil && l.address != "" {
		if err := l.bind(ctx, l.address); err != nil {
			return nil, err
		}
	}
	return l.bound, nil
}

// release gives the port back.
func (l *Listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound != nil {
		_ = l.bound.Close() // nobody serves it any more
		l.bound = nil
	}
}

// serve serves one port until ctx ends or another one is bound.
func (l *Listener) serve(ctx context.Context, bound net.Listener) error {
	srv := &http.Server{
		Handler:           l.handler,
		ReadHeaderTimeout: l.patient,
		ReadTimeout:       l.patient,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(netutil.LimitListener(bound, maxConns)) }()
	l.logger.Info("metrics are served", "address", bound.Addr().String())
	defer l.logger.Info("metrics are not served there any more", "address", bound.Addr().String())
	for {
		select {
		case <-ctx.Done():
		case <-l.again:
			if l.serves(bound) {
				continue // nothing changed after all
			}
		case err := <-stopped:
			if !l.serves(bound) {
				break // it was closed because another one is to be used
			}
			l.release()
			return fmt.Errorf("metrics at %s: %w", bound.Addr(), errors.Join(err, srv.Close()))
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // what was under way is cut off
		}
		return nil
	}
}

// serves reports whether bound is still what is to be served.
func (l *Listener) serves(bound net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound == bound
}

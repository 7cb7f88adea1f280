package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
	"liqo.io/agent/trust"
)

const (
	// DefaultMaxConns is the limit on open connections when ServerConfig sets
	// none: enough for a thousand neighbours that all see us appear at once.
	DefaultMaxConns = 1024

	// maxHeader is half of the 8 KiB wanted: net/http adds 4 KiB of its own.
	maxHeader = 4 << 10
)

// timeouts are how long things may take: generous for a loaded single-board
// computer behind bad Wi-Fi, short for somebody who holds connections open on
// purpose.
type timeouts struct {
	header   time.Duration // the TLS handshake, and then the request's header
	read     time.Duration // the whole request
	body     time.Duration // the body of a call, once its header is there
	call     time.Duration // what the agent does about a call
	gateway  time.Duration // what the API server does about a request
	write    time.Duration // the answer
	idle     time.Duration // until the next request
	turn     time.Duration // until a request about a namespace of a peer, or a tunnel, has its turn
	list     time.Duration // until the API server begins to answer with a list, a log or a stream
	upgrade  time.Duration // until it begins an upgraded connection
	stall    time.Duration // the other end of a stream does not read, or the API server goes on with a list
	quiet    time.Duration // nothing comes on a stream or an upgraded connection
	recheck  time.Duration // between two looks at what lasts
	shutdown time.Duration // requests under way when Run has to end
}

var defaultTimeouts = timeouts{
	header:   5 * time.Second,
	read:     10 * time.Second,
	body:     5 * time.Second,
	call:     6 * time.Second,
	gateway:  10 * time.Second,
	write:    10 * time.Second,
	idle:     75 * time.Second,
	turn:     5 * time.Second,
	list:     30 * time.Second,
	upgrade:  30 * time.Second,
	stall:    time.Minute,
	quiet:    4 * time.Hour,
	recheck:  30 * time.Second,
	shutdown: time.Second,
}

// ServerConfig says what a Server serves and where.
type ServerConfig struct {
	// Listen is the address to bind, "host:port". An empty host means every
	// address, IPv4 and IPv6 alike; port 0 picks a free port.
	Listen string
	// Issuer provides the server's certificate.
	Issuer *trust.Issuer
	// Identity is asked at every request for /ids, so a new name shows at
	// once. It must be quick and safe for concurrent use.
	Identity func() peer.Identity
	// MaxConns is the limit on open connections; 0 means DefaultMaxConns. A
	// sixteenth of it, but at least 8, may come from one source address.
	MaxConns int
	// Peers decides about callers and answers their calls. Without it the server
	// answers /ids only.
	Peers Peers
	// Reach calls back a known caller that asks for it, at the one address that it
	// can ask for; nil: callers are told that there is no such call. Its context ends
	// as that of a call of Peers.
	Reach func(ctx context.Context, c Caller, at netip.AddrPort) wire.Reached
	// Liqo answers the exchange by which Liqo peers two clusters; nil: callers are told that there
	// is no such call.
	Liqo LiqoExchange
	// Gateway leads known callers to the API server; nil when there is none to
	// lead to. It needs Peers.
	Gateway *gateway.Gateway
	// Guests decides what peers may do with the namespaces they have here, through the
	// Gateway; nil: they have none, and there are no paths for that.
	Guests Guests
	// Network takes connections for packets between pods; nil: there is no such path.
	Network Network
	// Logger gets one line when serving starts and when it cannot accept
	// connections, and a few a minute about what known peers may not do or the
	// agent failed to. What strangers do wrong is logged at debug level only, and
	// never more than a few lines a second.
	Logger *slog.Logger
}

// Peers decides about callers and answers their calls. The server calls its
// methods from many goroutines. The context of a call ends after a few seconds
// and when the caller goes away.
type Peers interface {
	// Admit says how far the holder of the key that was shown may go as cluster
	// id. It is asked again for every request, so that a decision takes effect at
	// once, on open connections too. It must be quick: no I/O.
	Admit(id peer.ClusterID, shown trust.Shown) AccessLevel
	// Ask answers a caller that is known or a stranger. The identity in a is
	// well-formed and has the ID of the caller's certificate.
	Ask(ctx context.Context, c Caller, a wire.Ask) wire.Answer
	// State answers a known caller, whose greeting is as in Ask.
	State(ctx context.Context, c Caller, g wire.Greeting) wire.State
	// Withdraw takes note of what a known caller gives up. After an error the
	// caller is told to try again, and the server logs it.
	Withdraw(ctx context.Context, c Caller, w wire.Withdrawal) error
	// Notice is told that something changed at a known caller. It must be quick.
	Notice(c Caller)
}

// Server is the HTTPS port of this cluster. Listen binds it, Run serves it.
type Server struct {
	cfg     ServerConfig
	times   timeouts
	guard   *guard.Guard
	limits  *limits
	streams openStreams
	tls     *tls.Config
	warn    throttle.Limiter // for what known peers and the agent do wrong

	mu       sync.Mutex
	listener net.Listener
}

// NewServer returns a Server that is not bound yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.Gateway == nil {
		cfg.Guests = nil
	}
	// One processor stays free for the rest of the agent, if there is one.
	processors := max(1, runtime.GOMAXPROCS(0)-1)
	s := &Server{
		cfg: cfg, times: defaultTimeouts, limits: newLimits(),
		guard: guard.New(cfg.MaxConns, max(8, cfg.MaxConns/16), processors),
	}
	if cfg.Peers != nil {
		s.guard.Reserved = cfg.MaxConns / 4
	}
	s.tls = &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetCertificate:     cfg.Issuer.GetCertificate,
		GetConfigForClient: s.guard.BeforeHandshake,
		ClientAuth:         tls.RequestClientCert,
		VerifyConnection:   s.verifyClient,
		CurvePreferences:   []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256},
		NextProtos:         []string{"http/1.1"},
	}
	return s
}

// Listen binds the address, so that Port is known before Run serves it. Its
// error says what to do about an address that cannot be had.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("the endpoint is listening already")
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // peers do not use it, and every accepted socket would pay for it
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return listenError(s.cfg.Listen, err)
	}
	s.listener = l
	return nil
}

func listenError(address string, err error) error {
	_, port, splitErr := net.SplitHostPort(address)
	advice := "set endpoint.listen to an address and port of this machine, such as \":6447\""
	switch {
	case splitErr != nil:
	case errors.Is(err, syscall.EADDRINUSE):
		advice = fmt.Sprintf("another program uses the port (`ss -ltnp 'sport = :%s'` shows which); stop it or set endpoint.listen to another port", port)
	case errors.Is(err, syscall.EACCES):
		advice = "ports below 1024 need root or CAP_NET_BIND_SERVICE; set endpoint.listen to a higher port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine does not have that address now; set endpoint.listen to one it has, or to \":" + port + "\" for all of them"
	}
	return fmt.Errorf("endpoint cannot listen on %q: %w; %s", address, err, advice)
}

// Port returns the bound TCP port, or 0 while the server does not listen.
func (s *Server) Port() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return 0
	}
	return s.listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// Run serves until ctx ends, then ends tunnels and streams, lets other requests
// under way finish for up to a second, closes everything and returns nil. It binds the address if Listen has
// not, and leaves it unbound, so Run may be called again after an error.
func (s *Server) Run(ctx context.Context) error {
	if s.Port() == 0 {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	raw := s.listener
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.listener = nil
		s.mu.Unlock()
	}()

	s.streams.begin()
	rechecking, endRechecks := context.WithCancel(ctx)
	var rechecks sync.WaitGroup
	rechecks.Go(func() { s.recheckAll(rechecking) })
	defer rechecks.Wait()
	defer endRechecks()

	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serveApart),
		Protocols:         protocols,
		ReadHeaderTimeout: s.times.header,
		ReadTimeout:       s.times.read,
		WriteTimeout:      s.times.write,
		IdleTimeout:       s.times.idle,
		MaxHeaderBytes:    maxHeader,
		ConnState:         s.guard.Observe,
		ErrorLog:          log.New(&strangers{logger: s.cfg.Logger}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withConn,

		DisableGeneralOptionsHandler: true,
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(s.guard.Listener(raw, s.tls, s.cfg.Logger))
	}()
	s.cfg.Logger.Info("endpoint is serving", "address", raw.Addr().String(), "fingerprint", s.cfg.Issuer.Fingerprint().String())

	select {
	case err := <-served:
		wait := s.streams.shut()
		s.guard.CloseAll()
		wait()
		return fmt.Errorf("endpoint stopped accepting on %s: %w", raw.Addr(), err)
	case <-ctx.Done():
	}
	s.guard.CloseWaiting()
	wait := s.streams.shut()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.times.shutdown)
	defer cancel()
	err := server.Shutdown(grace)
	<-served
	s.guard.CloseAll()
	wait()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close the endpoint: %w", err)
	}
	return nil
}

// Stats returns counters since NewServer. It may be called at any time.
func (s *Server) Stats() guard.Stats { return s.guard.Stats() }

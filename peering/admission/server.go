package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/throttle"
)

// DefaultListen is where the webhook listens when nothing else is said.
const DefaultListen = "127.0.0.1:6446"

const (
	maxConns = 64
	// maxHeader is half of the 8 KiB wanted: net/http adds 4 KiB of its own.
	maxHeader = 4 << 10
	// maxBody: an object and its predecessor with all the annotations that an API
	// server takes, 256 KiB each, and the rest.
	maxBody = 1 << 20
	// maxDecoding bounds the reviews that are taken apart at the same time, which
	// takes several times their size.
	maxDecoding = 4
)

// timeouts are how long things may take. All of it happens within one machine,
// and the API server gives up after timeoutSeconds. Its own idle connections end
// after 90 seconds: ours later, so that no request is sent into a connection that
// is being closed.
type timeouts struct {
	header   time.Duration // the TLS handshake, and then the request's header
	read     time.Duration // the whole request
	write    time.Duration // the answer
	idle     time.Duration // until the next request
	shutdown time.Duration // requests under way when Run has to end
}

var defaultTimeouts = timeouts{
	header:   timeoutSeconds * time.Second,
	read:     timeoutSeconds * time.Second,
	write:    2 * timeoutSeconds * time.Second,
	idle:     3 * time.Minute,
	shutdown: time.Second,
}

// Config says where a Server listens and whom it asks.
type Config struct {
	// Listen is the address to bind, a literal loopback address and a port; ""
	// means DefaultListen. When another program has the port, a free one is taken.
	Listen string
	// Dir is the state directory, where KeyFile is kept. It is made if needed.
	Dir string
	// Policy returns what is decided about a cluster, known or not. It is called
	// on several goroutines and must be quick.
	Policy func(peer.ClusterID) Policy
	// OwnClaims reports whether claims of a namespace may be at providers, so that pods which
	// mount them may be there. It asks the API server. Nil: none may.
	OwnClaims func(ctx context.Context, namespace string, names []string) bool
	// Logger gets a line when serving starts, and what is refused: at most a few
	// lines a minute.
	Logger *slog.Logger
}

// refusalsTold is how many refusals a minute are in the log.
const refusalsTold = 10

// Server is the port at which the API server asks about PeeringRequests and, where
// MutatingWebhook is installed, about pods. Its
// methods may be called from any goroutine.
type Server struct {
	cfg      Config
	listen   netip.AddrPort
	times    timeouts
	identity *identity
	refused  throttle.Limiter // of lines in the log
	decoding chan struct{}

	mu       sync.Mutex
	listener net.Listener
}

// NewServer returns a Server that is not bound yet. It reads the key, and makes
// one at the first time.
func NewServer(cfg Config) (*Server, error) {
	if cfg.Listen == "" {
		cfg.Listen = DefaultListen
	}
	address, err := netip.ParseAddrPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("the admission webhook cannot listen on %q: %w; an address looks like %q", cfg.Listen, err, DefaultListen)
	}
	// Its certificate is for these two.
	if a := address.Addr(); a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && a != netip.IPv6Loopback() {
		return nil, fmt.Errorf("the admission webhook cannot listen on %q: it is for the API server of this machine only; use 127.0.0.1 or [::1]", cfg.Listen)
	}
	identity, err := loadIdentity(cfg.Dir, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, listen: address, times: defaultTimeouts, identity: identity, decoding: make(chan struct{}, maxDecoding)}, nil
}

// Listen binds the address, or a free port of it when the port is taken, so that
// Port and Webhook are known before Run serves it.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("the admission webhook is listening already")
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // every accepted socket would pay for it
	l, err := lc.Listen(ctx, "tcp", s.listen.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		s.cfg.Logger.Warn("the port of the admission webhook is in use; using a free port", "address", s.listen.String())
		l, err = lc.Listen(ctx, "tcp", netip.AddrPortFrom(s.listen.Addr(), 0).String())
	}
	if err != nil {
		return fmt.Errorf("the admission webhook cannot listen on %s: %w; the machine needs its loopback interface (`ip link set lo up`), and a port below 1024 needs root", s.listen, err)
	}
	s.listener = l
	return nil
}

// Port returns the bound TCP port, or 0 while the server does not listen.
func (s *Server) Port() uint16 {
	address, _ := s.address()
	return address.Port()
}

func (s *Server) address() (netip.AddrPort, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return netip.AddrPort{}, false
	}
	return s.listener.Addr().(*net.TCPAddr).AddrPort(), true
}

// Run serves until ctx ends, then lets requests under way finish for up to a
// second, closes everything and returns nil. It binds the address if Listen has
// not, and leaves it unbound, so Run may be called again after an error; the
// port may then be another one, and Webhook with it.
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

	limited := newConns(raw, maxConns)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+admitPath, s.answering(s.decide))
	mux.HandleFunc("POST "+toleratePath, s.answering(s.tolerate))
	server := &http.Server{
		Handler:           limited.yielding(mux),
		Protocols:         protocols,
		ReadHeaderTimeout: s.times.header,
		ReadTimeout:       s.times.read,
		WriteTimeout:      s.times.write,
		IdleTimeout:       s.times.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(&connectionLog{logger: s.cfg.Logger}, "", 0),
	}
	secured := tls.NewListener(limited, &tls.Config{
		MinVersion:   tls.VersionTLS12, // API servers of any age
		Certificates: []tls.Certificate{s.identity.certificate},
		NextProtos:   []string{"http/1.1"},
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(secured) }()
	s.cfg.Logger.Info("admission webhook is serving", "address", raw.Addr().String())

	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("the admission webhook stopped accepting on %s: %w", raw.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.times.shutdown)
	defer cancel()
	err := server.Shutdown(grace)
	<-served
	if err != nil {
		// Whoever is not done by now is cut off.
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("close the admission webhook: %w", err)
	}
	return nil
}

// answering answers AdmissionReviews.
func (s *Server) answering(answer func(*reviewRequest) reviewResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.admit(w, r, answer) }
}

// admit answers one AdmissionReview.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, answer func(*reviewRequest) reviewResponse) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		s.reject(w, http.StatusUnsupportedMediaType, errors.New("an AdmissionReview is sent as application/json"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		s.reject(w, http.StatusRequestEntityTooLarge, fmt.Errorf("an AdmissionReview has at most %d bytes", tooLarge.Limit))
		return
	}
	if err != nil {
		s.reject(w, http.StatusBadRequest, fmt.Errorf("read an AdmissionReview: %w", err))
		return
	}
	select {
	case s.decoding <- struct{}{}:
		defer func() { <-s.decoding }()
	case <-r.Context().Done():
		return // nobody waits for the answer any more
	}
	request, err := decode(body)
	if err != nil {
		s.reject(w, http.StatusBadRequest, err)
		return
	}
	text, err := encode(answer(request))
	if err != nil {
		s.reject(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // whoever asked is gone if this fails
}

func (s *Server) decide(request *reviewRequest) reviewResponse {
	q, decided := request.question()
	if decided == nil {
		v := Decide(q, s.cfg.Policy(q.Subject()))
		decided = &v
	}
	if !decided.Allowed {
		if n, ok := s.refused.Allow(time.Now(), refusalsTold, time.Minute); ok {
			s.cfg.Logger.Info("a PeeringRequest was refused", "name", text.Excerpt(request.Name), "operation", text.Excerpt(request.Operation),
				"user", text.Excerpt(request.UserInfo.Username), "cause", decided.Cause, "message", decided.Message, "not_shown", n)
		}
	}
	return answerTo(request.UID, *decided)
}

// reject answers what is no review. The API server then refuses what it asked
// about, unless that is a pod.
func (s *Server) reject(w http.ResponseWriter, code int, err error) {
	if n, ok := s.refused.Allow(time.Now(), refusalsTold, time.Minute); ok {
		s.cfg.Logger.Warn("the admission webhook got a request that it does not understand", "error", err, "not_shown", n)
	}
	http.Error(w, err.Error(), code)
}

// connectionLog takes the lines that net/http logs about connections, which any
// program of this machine can cause: they go to the debug level. A handler that
// panics is our fault and always shown.
type connectionLog struct{ logger *slog.Logger }

func (l *connectionLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if bytes.Contains(line, []byte("panic serving")) {
		l.logger.Error("admission webhook: a request made the agent panic; please report this", "detail", text)
	} else {
		l.logger.Debug("admission webhook: " + text)
	}
	return len(line), nil
}

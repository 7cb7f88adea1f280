package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/kubelet/serving"
	"liqo.io/agent/sharing/usage"
	"liqo.io/agent/throttle"
)

// Upstream is the way to the API server of a provider. It is used by any number of
// goroutines.
type Upstream interface {
	// RoundTrip sends a request whose URL has a path of the API server's, such as
	// /api/v1/namespaces/shop/pods/web/log; scheme and host mean nothing. The body of
	// the answer is a stream that ends with the request's context.
	http.RoundTripper
	// Upgrade sends such a request, which asks for an upgrade, over a connection of
	// its own. When the answer is 101 (Switching Protocols), the connection is
	// returned with it: everything read from it comes after the answer's header, and
	// the caller closes it. Any other answer is returned without a connection, and
	// its body is the caller's to close. ctx bounds the time to the answer only.
	Upgrade(ctx context.Context, r *http.Request) (net.Conn, *http.Response, error)
}

// Place is where a pod of this cluster runs.
type Place struct {
	ID              peer.ClusterID // of the provider
	Node            string         // the virtual node
	Namespace, Name string         // of the pod in the provider
	Upstream        Upstream
}

// Usage measures what the pods of virtual nodes use. It is asked by any number of
// goroutines, and takes some seconds at most.
type Usage interface {
	// Node returns what the pods of a virtual node use, false if there is no such node.
	Node(ctx context.Context, name string) (usage.Report, bool)
	// All returns the same for all of them.
	All(ctx context.Context) []usage.Report
}

// Config is what a Server needs. All functions may be called from any goroutine
// and must be quick.
type Config struct {
	// Listen returns where to listen, as sharing.kubelet_listen has it: "" for an
	// address and a port of the server's choice.
	Listen func() string
	// Find returns where a pod of this cluster runs, false when it is on no virtual
	// node or nothing of it is at the provider.
	Find func(namespace, pod string) (Place, bool)
	// Usage measures what pods use.
	Usage Usage
	// Dir is the directory that key and certificate are kept in. It is made if need be.
	Dir string
	// Self returns the ID of this cluster.
	Self   func() peer.ClusterID
	Logger *slog.Logger
	// Changed, if not nil, is called when what Where or State return is another.
	Changed func()
}

// State is how the kubelet API stands.
type State struct {
	// Address is where it is reached; the zero value while it is not.
	Address netip.AddrPort
	// Signed is whether its certificate was signed by the cluster's signer for
	// kubelets. Without, it is signed by itself.
	Signed bool
	// NotAfter is when the certificate ends; the zero time while there is none.
	NotAfter time.Time
	// Problem is a sentence about what does not work, and Remedy one about what to do;
	// empty when everything does.
	Problem, Remedy string
}

const (
	headerIn = 10 * time.Second // handshake and header of a request, each
	idleConn = 90 * time.Second // between requests, as with a kubelet

	configMaps      = "/api/v1/namespaces/kube-system/configmaps"
	clientCAs       = "extension-apiserver-authentication"
	clientCAsBundle = "client-ca-file"
)

// errMoved: the address that the API server is reached from is another one now.
var errMoved = errors.New("the address of this box has changed")

// Server serves the kubelet API of all virtual nodes.
type Server struct {
	config Config
	keeper *serving.Keeper

	mu       sync.Mutex
	address  netip.AddrPort // told while it serves
	port     uint16         // used last; 0 before the first time
	pool     *x509.CertPool // of the client CA, known last
	failed   string         // why it does not serve, "" while it does
	rejected string         // the caller that did not accept the certificate last, "" after one that did
}

// New returns a server that does nothing until Run.
func New(config Config) *Server {
	if config.Changed == nil {
		config.Changed = func() {}
	}
	return &Server{config: config, keeper: serving.NewKeeper(config.Dir, config.Logger, config.Changed)}
}

// Where returns what to write into the status of virtual nodes: an address, and
// the port of the kubelet endpoint. It is false while nothing listens.
//
// The address belongs there with type Hostname, and there should be none of type
// InternalIP or ExternalIP: K3s, whose API server reaches kubelets through tunnels,
// takes every node with one of these for a node with a K3s agent, and finds no
// tunnel to it; it even takes the address for that of the other node which has it.
// All API servers dial an address of type Hostname as well, and one that is an IP
// address directly.
func (s *Server) Where() (addr netip.Addr, port uint16, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address.Addr(), s.address.Port(), s.address.IsValid()
}

// State returns how the kubelet API stands.
func (s *Server) State() State {
	certificate := s.keeper.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{Address: s.address, Signed: certificate.Signed, NotAfter: certificate.NotAfter}
	switch {
	case s.failed != "":
		state.Problem = "kubectl logs, exec and port-forward do not work for offloaded pods: " + s.failed
		state.Remedy = "Give sharing.kubelet_listen an address and port that the API server of this cluster can reach."
	case s.address.IsValid() && s.pool == nil:
		state.Problem = "The client CA of the API server is not known (yet), so what it asks the kubelet API is refused"
		state.Remedy = "The agent must be able to read ConfigMap kube-system/" + clientCAs + "."
	case s.rejected != "":
		state.Problem = "A caller at " + s.rejected + " does not accept the certificate of the kubelet API"
		if certificate.Problem != "" {
			state.Problem += "; it is not signed: " + certificate.Problem
		}
		state.Remedy = "The signer kubernetes.io/kubelet-serving of the controller-manager must use the CA that the API server is started with (--kubelet-certificate-authority)."
	case certificate.Problem != "":
		state.Problem = "The certificate of the kubelet API is not signed, and an API server with --kubelet-certificate-authority does not accept it: " + certificate.Problem
		state.Remedy = "Let the controller-manager sign for kubernetes.io/kubelet-serving; K3s does so by itself."
	}
	return state
}

// Run serves until ctx ends, while there is a connection to the local API server,
// which local leads to. It is to run once at a time. The port stays the same from
// one run to the next unless somebody else took it.
func (s *Server) Run(ctx context.Context, local *rest.Config) error {
	config, route := observe(local)
	client, err := kube.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	gate := newGate(client, s.clientPool())

	followed, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { s.followClientCA(followed, client, gate) })
	defer group.Wait()
	defer cancel()
	for {
		err := s.serve(ctx, client, gate, route)
		s.tell(netip.AddrPort{}, err)
		if !errors.Is(err, errMoved) {
			return err
		}
		s.config.Logger.Info("The kubelet API moves with the address of this box.", "to", route.last())
	}
}

// serve serves at the address that is right now.
func (s *Server) serve(ctx context.Context, client *kube.Client, gate *gate, route *route) error {
	listener, where, err := s.listen(ctx, route)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	handler := &handler{ctx: ctx, find: s.config.Find, usage: s.config.Usage, gate: gate, logger: s.config.Logger, proven: func() { s.reject("") }, streams: throttle.NewSlots[string](streamsPerCaller, maxStreams)}
	server := &http.Server{
		Handler:     handler,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: withConn,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.keeper.Certificate() }},
		ReadHeaderTimeout: headerIn,
		IdleTimeout:       idleConn,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(complaints{s}, "", 0),
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only: upgrades need it
	}
	var group sync.WaitGroup
	defer func() {
		cancel()
		_ = server.Close() // there is nothing to flush
		handler.wait()
		group.Wait()
	}()
	group.Go(func() {
		s.keeper.Run(ctx, client, serving.Subject{Name: string(s.config.Self()), Address: where.Addr()})
	})
	ended := make(chan error, 1)
	group.Go(func() { ended <- server.ServeTLS(newConns(listener), "", "") })
	s.tell(where, nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("the kubelet API at %s ended: %w", where, err)
		case <-route.news:
			if s.config.Listen() == "" && gone(where.Addr()) {
				return errMoved
			}
		}
	}
}

// listen opens the port, on the goroutine of Run. It waits for the first
// connection to the API server where that tells the address.
func (s *Server) listen(ctx context.Context, route *route) (net.Listener, netip.AddrPort, error) {
	for !route.last().IsValid() {
		select {
		case <-ctx.Done():
			return nil, netip.AddrPort{}, ctx.Err()
		case <-route.news:
		}
	}
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	spot, err := choose(s.config.Listen(), route.last(), port)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	var settings net.ListenConfig
	listener, err := settings.Listen(ctx, "tcp", spot.listen)
	if err != nil && port != 0 { // somebody else took it meanwhile
		if spot, err = choose(s.config.Listen(), route.last(), 0); err == nil {
			listener, err = settings.Listen(ctx, "tcp", spot.listen)
		}
	}
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("listen at %s: %w", spot.listen, err)
	}
	port = listener.Addr().(*net.TCPAddr).AddrPort().Port()
	s.mu.Lock()
	s.port = port
	s.mu.Unlock()
	return listener, netip.AddrPortFrom(spot.addr, port), nil
}

// gone is whether an address is not this box's any more.
func gone(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return false
	}
	var settings net.ListenConfig
	l, err := settings.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return true
	}
	_ = l.Close() // it was only tried
	return false
}

// tell takes in where the server is reached, or why it is not.
func (s *Server) tell(where netip.AddrPort, err error) {
	failed := ""
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errMoved) {
		failed = err.Error()
	}
	s.mu.Lock()
	news := s.address != where || s.failed != failed
	s.address, s.failed = where, failed
	s.mu.Unlock()
	if news {
		s.config.Changed()
	}
}

// reject takes in that a caller did not accept the certificate, or with "" that
// one did.
func (s *Server) reject(caller string) {
	s.mu.Lock()
	news := s.rejected != caller
	s.rejected = caller
	s.mu.Unlock()
	if news {
		s.config.Changed()
	}
}

// complaints takes in what the HTTP server has to complain about: handshakes that
// fail, mostly.
type complaints struct{ server *Server }

// Write implements io.Writer, for a log.Logger.
func (c complaints) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	c.server.config.Logger.Debug("The kubelet API could not serve a caller.", "error", text)
	rest, handshake := strings.CutPrefix(text, "http: TLS handshake error from ")
	if from, why, ok := strings.Cut(rest, ": "); ok && handshake && strings.Contains(why, "certificate") && strings.HasPrefix(why, "remote error: ") {
		host, _, err := net.SplitHostPort(from)
		if err == nil {
			c.server.reject(host)
		}
	}
	return len(p), nil
}

func (s *Server) clientPool() *x509.CertPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool
}

// followClientCA keeps the client CA of the API server until ctx ends. What it was
// last stays when it cannot be read.
func (s *Server) followClientCA(ctx context.Context, client *kube.Client, gate *gate) {
	kind := kube.Kind[*corev1.ConfigMap]{
		Fresh: func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		Changed: func(_, now *corev1.ConfigMap) {
			if now == nil {
				return // the API server makes it again
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM([]byte(now.Data[clientCAsBundle])) {
				s.config.Logger.Warn("The client CA of the API server cannot be read; the last one stays.",
					"configmap", "kube-system/"+clientCAs, "key", clientCAsBundle)
				return
			}
			gate.pool.Store(pool)
			s.mu.Lock()
			first := s.pool == nil
			s.pool = pool
			s.mu.Unlock()
			if first {
				s.config.Changed()
			}
		},
	}
	kube.NewCache(kind).Follow(ctx, client, kube.Query{Path: configMaps, Fields: "metadata.name=" + clientCAs})
}

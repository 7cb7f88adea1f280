package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/peer"
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
	ID              peer.ClusterID // of the provider, and name of its virtual node
	Namespace, Name string         // of the pod in the provider
	Upstream        Upstream
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
	// Address is where it listens for the API server; the zero value while it does not.
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

// Server serves the kubelet API of all virtual nodes.
type Server struct {
	config Config
}

// New returns a server that does nothing until Run.
func New(config Config) *Server { return &Server{config: config} }

// Run serves until ctx ends, while there is a connection to the local API server,
// which local leads to. It is to run once at a time. The port stays the same from
// one run to the next unless somebody else took it.
func (s *Server) Run(ctx context.Context, local *rest.Config) error {
	return errors.New("the kubelet API is not there yet")
}

// Where returns what to write into the status of virtual nodes: the InternalIP,
// which must be the only address there that API servers may prefer, and the port
// of the kubelet endpoint. It is false while nothing listens.
func (s *Server) Where() (addr netip.Addr, port uint16, ok bool) { return netip.Addr{}, 0, false }

// State returns how the kubelet API stands.
func (s *Server) State() State { return State{} }

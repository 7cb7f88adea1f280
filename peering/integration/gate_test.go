package integration

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
)

// gate stands in front of an API server, and shuts at once when it is told to, or
// after so many writes to ForeignClusters.
type gate struct {
	path   string // of a kubeconfig that leads to it
	server *httptest.Server

	mu     sync.Mutex
	closed bool
	left   int // writes until it shuts; negative for never
	writes []string
	full   chan struct{} // closed when left reaches zero
}

func newGate(t *testing.T, k *bed.Kube) *gate {
	t.Helper()
	config := rest.CopyConfig(k.RESTConfig())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{left: -1}
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.pass(r) {
			panic(http.ErrAbortHandler)
		}
		through.ServeHTTP(w, r)
	}))
	g.server.EnableHTTP2 = true
	g.server.StartTLS()
	t.Cleanup(func() { g.server.CloseClientConnections(); g.server.Close() })
	g.path = filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	writeKubeconfig(t, g.path, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, g.server.URL)
	return g
}

// pass reports whether a request may go on.
func (g *gate) pass(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, fcPath) || g.left < 0 {
		return true
	}
	if g.left == 0 {
		g.closed = true
		close(g.full)
		return false
	}
	g.left--
	g.writes = append(g.writes, r.Method+" "+strings.TrimPrefix(r.URL.Path, fcPath)+" "+r.URL.Query().Get("fieldManager"))
	return true
}

// shutAfter has the gate shut before the write after n more of them. The channel is
// closed then.
func (g *gate) shutAfter(n int) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.writes, g.full = n, nil, make(chan struct{})
	return g.full
}

// passed returns the writes since shutAfter.
func (g *gate) passed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string{}, g.writes...)
}

func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.server.CloseClientConnections()
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.left = false, -1
}

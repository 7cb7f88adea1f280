package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

func TestMain(m *testing.M) { leak.Main(m) }

// apiServer answers as it is told.
type apiServer struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
}

func newAPIServer(t *testing.T) *apiServer {
	a := new(apiServer)
	a.answering(object)
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata;") { // whose is it? The caller's
			w.Header().Set("Content-Type", "application/json")
			_, id, _ := strings.Cut(r.Header.Get("Impersonate-User"), "liqo-peer-")
			_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","metadata":{"uid":"the-uid","labels":{"liqo.io/origin-cluster-id":%q}}}`, id)
			return
		}
		body, err := io.ReadAll(r.Body) // else nobody sees that the caller hangs up
		if err != nil {
			t.Errorf("upstream: %v", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		a.mu.Lock()
		answer := a.answer
		a.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// object answers with some object.
func object(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func (a *apiServer) answering(f http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = f
}

// watchable has a answer with what is sent to the returned channel, a line each, until
// that is closed.
func (a *apiServer) watchable() chan<- string {
	event := make(chan string)
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e, ok := <-event:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, e+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	return event
}

// hosting returns a server for home that lets everybody work in any namespace.
func (a *apiServer) hosting(t *testing.T, home *endpointtest.Box) *endpoint.Server {
	t.Helper()
	base, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	plain := &http.Transport{TLSClientConfig: a.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	plain.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Cleanup(plain.CloseIdleConnections)
	s := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: home.Issuer, Identity: home.Identify, Logger: home.Logger(), Peers: everybody{},
		Gateway: gateway.New(gateway.Config{
			Upstream: func() (gateway.Upstream, bool) {
				return gateway.Upstream{Base: base, Transport: a.Client().Transport, Upgrade: plain}, true
			},
			Logger: slog.New(slog.DiscardHandler),
		}),
		Guests: anything{},
	})
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	endpointtest.Start(t, s)
	return s
}

// everybody is known.
type everybody struct{ endpoint.Peers }

func (everybody) Admit(peer.ClusterID, trust.Shown) endpoint.AccessLevel { return endpoint.Known }

// anything goes.
type anything struct{ endpoint.Guests }

func (anything) Owns(peer.ClusterID, string) error { return nil }

func (anything) Namespace(_ context.Context, id peer.ClusterID, origin string) (string, error) {
	return string(id) + "-" + origin, nil
}

func (anything) Pod(_ context.Context, _ peer.ClusterID, _ string, body []byte) ([]byte, func([]byte), error) {
	return body, func([]byte) {}, nil
}

func (anything) Named([]byte) (map[string][]string, error) { return nil, nil }

// at returns the address of s on this machine.
func at(s *endpoint.Server) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())
}

// newLink returns a Link of b to s that ends with the test.
func newLink(t testing.TB, b *endpointtest.Box, s *endpoint.Server, home *endpointtest.Box) *Link {
	t.Helper()
	c := client.New(client.Config{Issuer: b.Issuer, Timeout: endpointtest.Hang})
	l := New(c, Config{Target: func() (peer.Target, bool) {
		return peer.Target{ID: home.Identity.ClusterID, Fingerprint: home.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s))}, true
	}})
	t.Cleanup(func() {
		l.Close()
		c.Close()
	})
	return l
}

package endpoint

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"testing"

	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/internal/endpointtest"
)

// BenchmarkLink is a small GET through a warm tunnel, with both ends and an API
// server that answers at once in this process.
func BenchmarkLink(b *testing.B) {
	l := benchLink(b)
	b.ReportAllocs()
	for b.Loop() {
		benchGet(b, l)
	}
}

// BenchmarkIdleTunnel is what a tunnel without requests takes at both ends together.
func BenchmarkIdleTunnel(b *testing.B) {
	const tunnels = 50
	links := make([]*tunnel.Link, tunnels)
	for i := range links {
		links[i] = benchLink(b)
	}
	before := endpointtest.InUse()
	for _, l := range links {
		benchGet(b, l)
	}
	held := endpointtest.InUse() - before
	for b.Loop() { // memory is measured, not time
	}
	b.ReportMetric(float64(held)/tunnels, "B/tunnel")
	runtime.KeepAlive(links)
}

// instantly is an API server that answers at once.
type instantly struct{}

func (instantly) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(io.LimitReader(zeros{}, 2000)), Request: r}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func benchLink(b *testing.B) *tunnel.Link {
	home, other := endpointtest.New(b, endpointtest.IDA), endpointtest.New(b, endpointtest.IDB)
	g := gateway.New(gateway.Config{Logger: home.Logger(), Upstream: func() (gateway.Upstream, bool) {
		return gateway.Upstream{Base: &url.URL{Scheme: "https", Host: "x"}, Transport: instantly{}}, true
	}})
	s := servePeers(b, home, pin(other), g, func(s *Server) { s.cfg.Guests = &inn{} })
	return newLink(b, other, s, home)
}

func benchGet(b *testing.B, l *tunnel.Link) {
	r, err := http.NewRequestWithContext(context.Background(), "GET", "https://x"+endpointtest.PodsOfB+"/web", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := l.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 2000 {
		b.Fatalf("%d, %v", n, err)
	}
	resp.Body.Close()
}

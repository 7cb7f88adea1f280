package endpoint

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"testing"
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
	links := make([]*Link, tunnels)
	for i := range links {
		links[i] = benchLink(b)
	}
	before := inUse()
	for _, l := range links {
		benchGet(b, l)
	}
	held := inUse() - before
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

func benchLink(b *testing.B) *Link {
	home, other := newBox(b, idA), newBox(b, idB)
	g := NewGateway(GatewayConfig{Logger: home.logger(), Guests: &inn{}, Upstream: func() (Upstream, bool) {
		return Upstream{Base: &url.URL{Scheme: "https", Host: "x"}, Transport: instantly{}}, true
	}})
	s := home.servePeers(b, pin(other), g, nil)
	return other.link(b, s, home)
}

func benchGet(b *testing.B, l *Link) {
	r, err := http.NewRequestWithContext(context.Background(), "GET", "https://x"+podsOfB+"/web", nil)
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

package endpointtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Through sends a request through a link and reads the answer.
func Through(t testing.TB, l http.RoundTripper, method, target, mediaType, body string) (int, string, http.Header) {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+target, from)
	if err != nil {
		t.Fatal(err)
	}
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	for _, name := range []string{"Impersonate-User", "Authorization", "X-Remote-User", "Accept-Encoding"} {
		r.Header.Set(name, "system:admin")
	}
	resp, err := l.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// PodsOfB is where the pods of cluster b are, in the namespace that stands for its own.
const PodsOfB = "/api/v1/namespaces/b-shop/pods"

// Watch opens a watch through l.
func Watch(t *testing.T, l http.RoundTripper, target string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://x"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// UpgradeRequest returns a request for an upgrade with these names and values in its
// header, and credentials that nobody may pass on.
func UpgradeRequest(t *testing.T, method, target string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Authorization", "Bearer secret")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// SwitchTo101 takes a request's connection over, as SPDY.
func SwitchTo101(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	return c, rw
}

// MustGet gets a pod through l.
func MustGet(t *testing.T, l http.RoundTripper) {
	t.Helper()
	if status, body, _ := Through(t, l, "GET", PodsOfB+"/web", "", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
}

const execOfB = PodsOfB + "/web/exec?command=sh"

// upgrader is a Link, as far as its upgraded connections go.
type upgrader interface {
	Upgrade(ctx context.Context, r *http.Request) (net.Conn, *http.Response, error)
}

// MustUpgrade runs a command in a pod of cluster b.
func MustUpgrade(t *testing.T, l upgrader) net.Conn {
	t.Helper()
	conn, resp, err := l.Upgrade(t.Context(), UpgradeRequest(t, "POST", execOfB, "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"))
	if err != nil || conn == nil {
		t.Fatalf("%v, %v, %v", conn, resp, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TCPOf returns the connection below TLS.
func TCPOf(t *testing.T, conn net.Conn) *net.TCPConn {
	t.Helper()
	for {
		switch c := conn.(type) {
		case *net.TCPConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			t.Fatalf("nothing is known below a %T", conn)
		}
	}
}

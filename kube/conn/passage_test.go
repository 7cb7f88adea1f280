package conn

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestUpgradesShareNoConnection: an API server closes the connection of an upgrade that its kubelet refused, but does not say so in its
// answer. The next upgrade must not be sent on that connection.
func TestUpgradesShareNoConnection(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(buf, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno")
		if err := buf.Flush(); err != nil {
			t.Error(err)
		}
		_, _ = buf.ReadByte() // what comes on this connection now is not answered
		conn.Close()
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	l := &Link{now: time.Now, started: time.Now()}
	p, err := l.passage(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for i := range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/namespaces/shop/pods/web/exec", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		resp, err := p.Upgrade.RoundTrip(req)
		if err != nil {
			t.Fatalf("upgrade %d: %v", i, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 500 || string(body) != "no" || err != nil {
			t.Fatalf("upgrade %d: %s, body %q, %v", i, resp.Status, body, err)
		}
	}
}

package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/internal/endpointtest"
)

// What a trusted peer should not even try is told to the log, a little of it.
func TestGatewayTellsTheLog(t *testing.T) {
	var out bytes.Buffer
	g := New(Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	r := httptest.NewRequestWithContext(context.Background(), "GET", "/kube/api/v1/secrets", nil)
	r.RequestURI = "/kube/\x1b[2J" + strings.Repeat("x", 5000)
	for range 100 {
		g.Complain(endpointtest.IDB, r, refusal.NotPermitted("no"))
	}
	if n := strings.Count(out.String(), "\n"); n != 5 || out.Len() > 5000 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%d lines, %d bytes:\n%.2000s", n, out.Len(), &out)
	}
}

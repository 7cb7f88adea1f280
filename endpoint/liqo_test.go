package endpoint

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// TestLiqo: the exchange is for peers whose key is trusted, and says no in words; one that asks again
// and again has to wait.
func TestLiqo(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	s := servePeers(t, home, pin(other), nil, func(s *Server) {
		s.cfg.Liqo = func(_ context.Context, id peer.ClusterID, from netip.Addr, body []byte) (any, error) {
			switch string(body) {
			case "refuse":
				return nil, &wire.Refused{Reason: wire.ReasonNotAdmitted, Message: "not you"}
			case "later":
				return nil, &wire.Refused{Reason: wire.ReasonFailed, Message: "not now", Retry: 3 * time.Second}
			case "bad":
				return nil, errors.New("it is no JSON")
			}
			return map[string]any{"for": id, "from": from.IsValid(), "said": string(body)}, nil
		}
	})
	for _, tc := range []struct {
		name, request, says string
		status              int
	}{
		{"answered", post(wire.PathLiqo, "hello"), `{"for":"` + string(endpointtest.IDB) + `","from":true,"said":"hello"}`, 200},
		{"refused", post(wire.PathLiqo, "refuse"), "not you", 403},
		{"later", post(wire.PathLiqo, "later"), "not now", 503},
		{"bad", post(wire.PathLiqo, "bad"), "the call for Liqo cannot be used: it is no JSON", 400},
		{"not a POST", get(wire.PathLiqo), "use POST", 405},
		{"large", post(wire.PathLiqo, strings.Repeat(" ", maxCallBody+1)), "at most", 413},
	} {
		got := visit(t, s, other).send(tc.request)
		if got.status != tc.status || !strings.Contains(got.body, tc.says) || tc.status == 503 && got.header.Get("Retry-After") != "3" {
			t.Errorf("%s: %d %s", tc.name, got.status, got.body)
		}
	}
	if got := visit(t, s, third).send(post(wire.PathLiqo, "hello")); got.status != http.StatusForbidden {
		t.Errorf("a stranger: %d %s", got.status, got.body)
	}
	refused := 0
	for range 2 * liqoBurst {
		got := visit(t, s, other).send(post(wire.PathLiqo, "hello"))
		if got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "" {
			refused++
		}
	}
	if refused < liqoBurst {
		t.Errorf("%d of %d calls are refused", refused, 2*liqoBurst)
	}
}

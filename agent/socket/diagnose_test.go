package socket

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
)

// Reach implements Diagnoser: what it returns says whether it may take its time.
func (m *memory) Reach(ctx context.Context) ([]control.Reach, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > requestTimeout {
		return nil, errors.New("the request has no deadline")
	}
	var out []control.Reach
	for _, p := range m.peers {
		skew := 1.5
		out = append(out, control.Reach{ID: p.ID, Name: p.Name, Outcome: "refused", Address: "10.0.0.1:6447", Detail: "connection refused", SkewSeconds: &skew})
	}
	return out, m.fail
}

func TestReach(t *testing.T) {
	b := &memory{peers: []control.Peer{{ID: "x", Name: "barn"}}}
	_, client := serve(t, b)
	skew := 1.5
	want := []control.Reach{{ID: "x", Name: "barn", Outcome: "refused", Address: "10.0.0.1:6447", Detail: "connection refused", SkewSeconds: &skew}}
	got, err := client.Reach(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Reach: %v\n%s", err, diff)
	}
	b.peers = nil
	if got, err := client.Reach(t.Context()); err != nil || got == nil || len(got) != 0 {
		t.Errorf("without peers: %v, %v; want an empty list", got, err)
	}
	b.fail = &control.Error{Kind: control.ErrUnavailable, Message: "not now"}
	if _, err := client.Reach(t.Context()); !errors.Is(err, control.ErrUnavailable) {
		t.Errorf("error %v, want the backend's", err)
	}
}

func TestFetch(t *testing.T) {
	_, client := serve(t, &memory{status: control.Status{Version: "v1"}})
	raw, err := client.Fetch(t.Context(), "/v1/status", 1<<20)
	if err != nil || !strings.Contains(string(raw), `"version":"v1"`) {
		t.Errorf("Fetch: %q, %v", raw, err)
	}
	if raw, err := client.Fetch(t.Context(), "/v1/status", 10); err == nil {
		t.Errorf("more than was asked for: %q", raw)
	}
	if _, err := client.Fetch(t.Context(), "/nothing", 10); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

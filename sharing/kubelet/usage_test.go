package kubelet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/sharing/usage"
)

// meters are Usage of two nodes.
type meters struct{}

func (meters) Node(_ context.Context, name string) (usage.Report, bool) {
	amount := usage.Amount{Since: time.Unix(1_800_000_000, 0), Seconds: 2, Cores: 0.5, Memory: 1024}
	return usage.Report{Node: name, Time: time.Unix(1_800_000_060, 0), Whole: true, Total: amount, Pods: []usage.Pod{
		{Namespace: "shop", Name: "on-" + name, UID: "u", Containers: []usage.Container{{Name: "main", Amount: amount}}},
	}}, name == "liqo-far" || name == "liqo-near"
}

func (m meters) All(ctx context.Context) []usage.Report {
	far, _ := m.Node(ctx, "liqo-far")
	near, _ := m.Node(ctx, "liqo-near")
	return []usage.Report{far, near}
}

// What pods use is told by node to whoever may read that of the node, and of all nodes to
// whoever may read that of any.
func TestUsageByNode(t *testing.T) {
	h := newHandler(t, t.Context(), provider{})
	h.usage = meters{}
	h.gate = newGate(clientOf(t, &reviewer{tokens: map[string]string{"server": "metrics-server", "one": "one", "stranger": "stranger"}, allowed: map[string]bool{
		"metrics-server get nodes/metrics ": true, "metrics-server get nodes/metrics liqo-far": true, "metrics-server get nodes/metrics liqo-gone": true,
		"metrics-server get nodes/stats ": true, "metrics-server get nodes/stats liqo-near": true,
		"one get nodes/metrics liqo-far": true, "one get nodes/stats liqo-far": true}}), nil)
	server := httptest.NewServer(h)
	defer server.Close()
	const proxied = "/api/v1/nodes/liqo-near/proxy/stats/summary"
	for _, test := range []struct {
		token, path, forwarded string
		status                 int
		far, near, total       bool // what there is in the answer
	}{
		{"server", "/metrics/resource/liqo-far", "", 200, true, false, true},
		{"server", "/metrics/resource", "", 200, true, true, false},
		{"server", "/metrics/resource/liqo-gone", "", 404, false, false, false},
		{"server", "/metrics/resource/Liqo_Far", "", 404, false, false, false},
		{"server", "/metrics/resource/liqo-far/x", "", 404, false, false, false},
		{"server", "/stats/summary", "", 200, true, true, false},
		{"server", "/stats/summary", proxied, 200, false, true, true},
		{"server", "/stats/summary", "/api/v1/nodes/https:liqo-near:10250/proxy/stats/summary", 200, true, true, false},
		{"server", "/metrics/resource/liqo-far", proxied, 200, true, false, true},
		{"server", "/metrics", "", 200, false, false, false},
		{"one", "/metrics/resource/liqo-far", "", 200, true, false, true},
		{"one", "/metrics/resource/liqo-near", "", 403, false, false, false},
		{"one", "/metrics/resource/liqo-gone", "", 403, false, false, false}, // nor whether there is one
		{"one", "/metrics/resource", "", 403, false, false, false},
		{"one", "/stats/summary", proxied, 403, false, false, false},
		{"one", "/stats/summary", strings.Replace(proxied, "near", "far", 1), 200, true, false, true},
		{"stranger", "/metrics/resource/liqo-far", "", 403, false, false, false},
		{"stranger", "/stats/summary", "", 403, false, false, false},
		{"nobody", "/metrics/resource/liqo-far", "", 401, false, false, false},
		{"", "/stats/summary", "", 401, false, false, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-Uri", test.forwarded)
		r.Header.Set("Authorization", "Bearer "+test.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		text := string(body)
		total := strings.Contains(text, "node_cpu_usage_seconds_total 2 1800000060000") || strings.Contains(text, `"node":{"nodeName":"liqo-`)
		if err != nil || answer.StatusCode != test.status || strings.Contains(text, "on-liqo-far") != test.far || strings.Contains(text, "on-liqo-near") != test.near || total != test.total {
			t.Errorf("%s asks for %s, forwarded from %q: %d %v\n%s", test.token, test.path, test.forwarded, answer.StatusCode, err, text)
		}
	}
}

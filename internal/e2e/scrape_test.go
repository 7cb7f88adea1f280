//go:build linux

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// measureAs has the test be the metrics API of a box: its pods use what use returns, as CPU and memory.
func (x *box) measureAs(use func() (cpu, memory string)) {
	x.t.Helper()
	var listener net.Listener
	if err := x.host.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", bed.MetricsPort))
		return err
	}); err != nil {
		x.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const root = "/apis/metrics.k8s.io/v1beta1"
		namespace, isPods := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/pods"), root+"/namespaces/")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == root:
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[{"name":"pods","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`)
		case isPods:
			pods, err := list[corev1.Pod](x, "/api/v1/namespaces/"+namespace+"/pods?"+r.URL.RawQuery)
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			items := []any{}
			for _, pod := range pods {
				cpu, memory := use()
				items = append(items, map[string]any{
					"metadata": map[string]any{"name": pod.Name, "namespace": namespace}, "timestamp": "9999-12-31T23:59:59Z", "window": "1s",
					"containers": []any{map[string]any{"name": pod.Spec.Containers[0].Name, "usage": map[string]any{"cpu": cpu, "memory": memory}}}})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": items})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	x.t.Cleanup(server.Close)
	if err := x.kube.RegisterMetrics(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// stamped is a sample with its time, in milliseconds.
type stamped struct{ value, at float64 }

// scraped reads the samples of an answer of a kubelet that have a time, by name and labels.
func scraped(text string) map[string]stamped {
	out := make(map[string]stamped)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		var s stamped
		if len(f) != 3 || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(f[1]+" "+f[2], &s.value, &s.at); err == nil {
			out[f[0]] = s
		}
	}
	return out
}

// scrape: who scrapes a virtual node as metrics-server does, with the token of an account that may, learns what its pods
// use as the provider's metrics API has it, and nothing of what makes no sense. Strangers learn nothing.
func (p *pair) scrape(t *testing.T) {
	a, b := p.a, p.b
	var node *corev1.Node
	a.apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {liqo.io/type: virtual-node}
      containers: [{name: main, image: registry.k8s.io/pause:3.10, resources: {requests: {cpu: 10m, memory: 8Mi}}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: kube-system}]
`)
	a.eventually("the pods run", func() error {
		pods, err := list[corev1.Pod](a, "/api/v1/namespaces/shop/pods")
		running := 0
		for i := range pods {
			if podReady(pods[i]) && pods[i].Spec.NodeName == b.asNode() {
				running++
			}
		}
		if err == nil && running != 2 {
			err = fmt.Errorf("%d of %d do", running, len(pods))
		}
		return err
	})
	a.eventually("the node says where it is scraped", func() (err error) {
		node, err = a.node(b.asNode())
		if err == nil && (node.Annotations["metrics.k8s.io/resource-metrics-path"] == "" || node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0) {
			err = fmt.Errorf("it has the annotations %v, and its kubelet API is at %+v", node.Annotations, node.Status.DaemonEndpoints)
		}
		return err
	})
	url := fmt.Sprintf("https://%s:%d%s", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port, node.Annotations["metrics.k8s.io/resource-metrics-path"])
	transport := &http.Transport{DialContext: a.host.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // as metrics-server of K3s does
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: soon}
	scrape := func(token string) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	tokenOf := func(account string) string {
		t.Helper()
		return strings.TrimSpace(a.kubectl("create", "token", "-n", "kube-system", account))
	}
	if status, text := scrape("nobody"); status != http.StatusUnauthorized {
		t.Errorf("a stranger gets %d %s", status, text)
	}
	without, scraper := tokenOf("default"), tokenOf("scraper")
	a.eventually("an account without a role is refused", func() error {
		if status, text := scrape(without); status != http.StatusForbidden {
			return fmt.Errorf("it gets %d %s", status, text)
		}
		return nil
	})
	status, text := scrape(scraper)
	if status != http.StatusOK || len(scraped(text)) > 0 || !strings.Contains(text, "resource_scrape_error 1") {
		t.Errorf("without metrics at the provider: %d %s", status, text)
	}

	var sense atomic.Bool
	sense.Store(true)
	b.measureAs(func() (cpu, memory string) {
		if sense.Load() {
			return "250m", "64Mi"
		}
		return "-250m", "18446744073709551615"
	})
	// rates waits for two answers with n counters, and returns what they say in cores, as metrics-server does.
	rates := func(n int) (cores []float64, node float64) {
		t.Helper()
		var first, second map[string]stamped
		a.eventually("two measurements", func() error {
			_, text := scrape(scraper)
			now := scraped(text)
			const total = "node_cpu_usage_seconds_total"
			switch {
			case now[total].at == 0 || strings.Count(text, "\ncontainer_cpu_usage_seconds_total{") != n:
				return errors.New(text)
			case first == nil:
				first = now
				return errors.New("there is only one yet")
			case now[total].at == first[total].at:
				return errors.New("it is the same")
			}
			second = now
			return nil
		})
		for name, s := range second {
			rate := (s.value - first[name].value) / (s.at - first[name].at) * 1000
			switch {
			case strings.HasPrefix(name, "container_cpu"):
				cores = append(cores, rate)
			case strings.HasPrefix(name, "node_cpu"):
				node = rate
			}
		}
		return cores, node
	}
	near := func(v, want float64) bool { return math.Abs(v-want) < 0.01 }
	if cores, node := rates(2); len(cores) != 2 || !near(cores[0], 0.25) || !near(cores[1], 0.25) || !near(node, 0.5) {
		t.Errorf("the pods use %v cores, and the node %v", cores, node)
	}
	sense.Store(false)
	if cores, node := rates(0); len(cores) != 0 || node != 0 {
		t.Errorf("of what makes no sense comes %v, and of the node %v", cores, node)
	}
	sense.Store(true)
	if cores, _ := rates(2); len(cores) != 2 || !near(cores[0], 0.25) {
		t.Errorf("after that, the pods use %v cores", cores)
	}
	// The role that lets the consumer ask lets it read metrics in its own namespaces, and no others.
	for namespace, want := range map[string]string{workload.Namespace("liqo", peer.ClusterID(p.aID), "shop"): "yes", "default": "no"} {
		out, _ := b.tryShell("kubectl auth can-i list pods.metrics.k8s.io -n " + namespace + " --as=system:serviceaccount:liqo:liqo-peer-" + p.aID + " --as-group=liqo:peers 2>/dev/null")
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("in %s: %s", namespace, got)
		}
	}
	a.kubectl("delete", "deployment", "-n", "shop", "web", "--wait=false")
	p.settled(0)
}

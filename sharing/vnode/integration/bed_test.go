package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/sharing/vnode"
)

func TestMain(m *testing.M) {
	peering.BridgeKlog(slog.New(slog.DiscardHandler))
	bed.Main(m)
}

const (
	barnID = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	shedID = peer.ClusterID("11111111-1111-4111-8111-111111111111")

	nodesPath  = "/api/v1/nodes/"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
	jsonMIME   = "application/json"
	merge      = "application/merge-patch+json"
	strategic  = "application/strategic-merge-patch+json"
)

// offer is one with that much cpu.
func offer(cpu string, images int) *api.AdvertisementSpec {
	made := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	o := &api.AdvertisementSpec{
		ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": cpu, "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "50", "example.com/gpu": "2"}},
		Labels: map[string]string{
			"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "liqo.io/provider-version": "v1.36.3+k3s1",
			"topology.kubernetes.io/zone": "barn", "node-role.kubernetes.io/control-plane": "true", "color": "red",
		},
		Timestamp: made, TimeToLive: metav1.NewTime(made.Add(6 * time.Hour)),
	}
	for i := range images {
		o.Images = append(o.Images, api.ContainerImage{Names: []string{fmt.Sprintf("example.com/image-%d:1", i)}, SizeBytes: int64(1000 - i)})
	}
	return o
}

func provider(id peer.ClusterID) vnode.Provider {
	return vnode.Provider{ID: id, Name: "barn", Wanted: true, Offer: offer("4", 3), Reachable: true}
}

// running are Nodes at work.
type running struct {
	*vnode.Nodes
	log  *logBuffer
	stop func()

	mu      sync.Mutex
	changed map[peer.ClusterID]int
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// run runs Nodes until the test ends or stop is called.
func run(t *testing.T, k *bed.Kube, change func(*vnode.Config)) *running {
	t.Helper()
	r := &running{log: &logBuffer{}, changed: make(map[peer.ClusterID]int)}
	config := vnode.Config{
		Settings: func() vnode.Settings { return vnode.Settings{Heartbeat: 5 * time.Second, DrainTimeout: time.Minute} },
		Kubelet: func() vnode.Kubelet {
			return vnode.Kubelet{Address: netip.MustParseAddr("10.77.0.1"), Port: 10350}
		},
		Changed: func(id peer.ClusterID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed[id]++
		},
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&config)
	}
	r.Nodes = vnode.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, k.RESTConfig()) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("Run does not end")
			}
		})
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	return r
}

// within polls until check succeeds.
func within(t *testing.T, span time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	if err := bed.Poll(ctx, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func request(t *testing.T, k *bed.Kube, method, path, contentType, body string) string {
	t.Helper()
	out, err := k.Request(t.Context(), method, path, contentType, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func getNode(t *testing.T, k *bed.Kube, id peer.ClusterID) (*corev1.Node, error) {
	t.Helper()
	return get[corev1.Node](t, k, nodesPath+string(id))
}

func get[T any](t *testing.T, k *bed.Kube, path string) (*T, error) {
	t.Helper()
	text, err := k.Request(t.Context(), "GET", path, "", nil)
	if err != nil {
		return nil, err
	}
	into := new(T)
	return into, json.Unmarshal(text, into)
}

// gone returns nil when there is nothing at a path.
func gone(t *testing.T, k *bed.Kube, path string) error {
	t.Helper()
	text, err := k.Request(t.Context(), "GET", path, "", nil)
	switch {
	case err == nil:
		return fmt.Errorf("it is there: %.2000s", text)
	case !strings.Contains(err.Error(), "404"):
		return err
	}
	return nil
}

// ready awaits that the node is ready and Set says so.
func (r *running) ready(t *testing.T, k *bed.Kube, p vnode.Provider) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	within(t, 10*time.Second, "ready node", func() error {
		if s := r.Set(p); !s.Ready || s.Node != string(p.ID) || !s.Busy {
			return fmt.Errorf("%+v", s)
		}
		var err error
		node, err = getNode(t, k, p.ID)
		if err == nil && status(node) != corev1.ConditionTrue {
			err = errors.New("not ready")
		}
		return err
	})
	return node
}

func status(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func reason(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Reason
		}
	}
	return ""
}

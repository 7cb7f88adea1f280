package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/sharing/host"
)

func TestMain(m *testing.M) {
	peering.BridgeKlog(slog.New(slog.DiscardHandler))
	bed.Main(m)
}

const (
	barn   = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	cellar = peer.ClusterID("0558de48-1111-4b7d-ba04-6bd2a0f9d24f") // begins like barn
	node   = "provider"
)

// consumer is another one.
func consumer(n int) peer.ClusterID {
	return peer.ClusterID(fmt.Sprintf("%08d-097b-4b7d-ba04-6bd2a0f9d24f", n))
}

// startKube returns a control plane with controllers that is ready.
func startKube(t *testing.T) *bed.Kube {
	t.Helper()
	k := bed.New(t).AddCluster(t.Context(), node, "10.77.0.1/24")
	if err := k.StartControllers(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// running is a Host at work.
type running struct {
	*host.Host
	log  *buffer
	stop func()

	mu       sync.Mutex
	settings host.Settings
	writes   []string
	changed  map[peer.ClusterID]int
	skew     time.Duration
}

// RoundTrip notes writes. It is wrapped around the transport of the Host.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newHost returns a Host that is not connected yet.
func newHost() *running {
	r := &running{log: &buffer{}, stop: func() {}, changed: make(map[peer.ClusterID]int)}
	r.settings = host.Settings{Prefix: "liqo", PodSecurity: "baseline", Enforce: "requests", MaxNamespaces: 8}
	r.Host = host.New(host.Config{
		Settings: func() host.Settings {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.settings
		},
		User: func(id peer.ClusterID) string { return api.PeerUser(string(id)) },
		Changed: func(id peer.ClusterID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed[id]++
		},
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Now: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return time.Now().Add(r.skew)
		},
	})
	return r
}

// connect runs the Host against a control plane.
func (r *running) connect(t *testing.T, k *bed.Kube) {
	t.Helper()
	config := k.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				r.mu.Lock()
				r.writes = append(r.writes, request.Method+" "+request.URL.Path)
				r.mu.Unlock()
			}
			return next.RoundTrip(request)
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, config) }()
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
	stop := r.stop
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("log of the host:\n%s", r.log.String())
		}
	})
}

// start returns a Host that is connected.
func start(t *testing.T, k *bed.Kube) *running {
	t.Helper()
	r := newHost()
	r.connect(t, k)
	return r
}

// taken returns what was written since it was called last.
func (r *running) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.writes
	r.writes = nil
	return out
}

func (r *running) set(change func(*host.Settings)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.settings)
}

// jump moves the clock of the Host.
func (r *running) jump(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skew += d
}

func tenancy(id peer.ClusterID, offer map[string]string) host.Tenancy {
	return host.Tenancy{ID: id, Name: "a neighbour", Admitted: true, Offer: offer}
}

// some is an offer.
func some() map[string]string {
	return map[string]string{"cpu": "2", "memory": "2Gi", "pods": "10"}
}

// namespace asks until the answer is a namespace.
func (r *running) namespace(t *testing.T, id peer.ClusterID, origin string) string {
	t.Helper()
	var name string
	within(t, "namespace "+origin, func() (err error) {
		name, err = r.Namespace(t.Context(), id, origin)
		return err
	})
	return name
}

// refusedWith is an error unless err is a Refused with that reason.
func refusedWith(err error, reason string) error {
	var refused *host.Refused
	if !errors.As(err, &refused) || refused.Reason != reason {
		return fmt.Errorf("it is %w, want a Refused with reason %s", orNil(err), reason)
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// as returns a client of the API server as a consumer reaches it.
func as(t *testing.T, k *bed.Kube, id peer.ClusterID) *kube.Client {
	t.Helper()
	config := k.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: api.PeerUser(string(id)), Groups: []string{api.PeerGroup}}
	return client(t, config)
}

func admin(t *testing.T, k *bed.Kube) *kube.Client {
	t.Helper()
	return client(t, k.RESTConfig())
}

func client(t *testing.T, config *rest.Config) *kube.Client {
	t.Helper()
	c, err := kube.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type object = map[string]any

// read returns what is at a path.
func read(t *testing.T, c *kube.Client, path string) (object, error) {
	t.Helper()
	out := object{}
	err := c.Get(t.Context(), path, &out)
	return out, err
}

// pick returns the field of an object at a path of names.
func pick(o any, names ...string) any {
	for _, name := range names {
		m, _ := o.(object)
		o = m[name]
	}
	return o
}

func gone(t *testing.T, c *kube.Client, path string) error {
	t.Helper()
	_, err := read(t, c, path)
	switch {
	case err == nil:
		return fmt.Errorf("%s is still there", path)
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}

// pod is a document of a pod. Its resources are those of its one container.
func pod(namespace, name string, requests object) object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": namespace, "name": name},
		"spec": object{"containers": []any{object{"name": "main", "image": "example.com/main:1", "resources": object{"requests": requests}}}},
	}
}

func text(t *testing.T, o any) []byte {
	t.Helper()
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within polls condition until it holds, for a generous time.
func within(t *testing.T, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// troubles are the lines of the log that are warnings or worse.
func (b *buffer) troubles() []string {
	var out []string
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			out = append(out, line)
		}
	}
	return out
}

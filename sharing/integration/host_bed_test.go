package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

const (
	barn     = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	cellar   = peer.ClusterID("0558de48-1111-4b7d-ba04-6bd2a0f9d24f") // begins like barn
	hostNode = "provider"

	namespaces = "/api/v1/namespaces/"
	rbac       = "/apis/rbac.authorization.k8s.io/v1/namespaces/"
	networking = "/apis/networking.k8s.io/v1/namespaces/"
)

// consumer is another one.
func consumer(n int) peer.ClusterID {
	return peer.ClusterID(fmt.Sprintf("%08d-097b-4b7d-ba04-6bd2a0f9d24f", n))
}

// startHostKube returns a control plane with controllers that is ready. Pods get no node: no kubelet runs that would end those
// that have one.
func startHostKube(t *testing.T) *bed.Kube {
	t.Helper()
	k := bed.New(t).AddCluster(t.Context(), hostNode, "10.77.0.1/24")
	must(t, k.StartControllersWith(t.Context(), bed.ControllerConfig{NoScheduler: true}))
	return k
}

// runningHost is a Host at work.
type runningHost struct {
	*host.Host
	// serving is the same for the endpoint, which may still have requests from before it was made anew.
	serving atomic.Pointer[host.Host]

	log  *bedtest.Log
	stop func()
	// through is what its requests go through, and node where pods of consumers run; they may be nil and "".
	through func(http.RoundTripper) http.RoundTripper
	node    string

	mu       sync.Mutex
	settings host.Settings
	writes   []string
	changed  map[peer.ClusterID]int
	skew     time.Duration
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newHost returns a Host that is not connected yet.
func newHost() *runningHost {
	r := &runningHost{log: &bedtest.Log{}, stop: func() {}, changed: make(map[peer.ClusterID]int)}
	r.settings = host.Settings{Prefix: "liqo", PodSecurity: "baseline", Enforce: "requests", MaxNamespaces: 8, GuestEgress: host.EgressInternet}
	r.renew()
	return r
}

// lenient is a handler that takes down, but not as a warning, that an API server was too slow: it is tried again.
type lenient struct{ slog.Handler }

// Handle implements slog.Handler.
func (h lenient) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is && tooSlow(err) && record.Level == slog.LevelWarn {
			record.Level = slog.LevelDebug
		}
		return true
	})
	return h.Handler.Handle(ctx, record)
}

// tooSlow reports whether err says nothing but that an API server did not do something in time, as on a busy machine.
func tooSlow(err error) bool {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !tooSlow(err) })
	}
	var status apierrors.APIStatus
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError ||
		strings.Contains(err.Error(), "the API server does not show it in time") ||
		strings.Contains(err.Error(), "the API server has not answered yet")
}

// renew makes the Host anew, which remembers nothing. It is not connected.
func (r *runningHost) renew() {
	r.Host = host.New(host.Config{
		Settings: func() host.Settings {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.settings
		},
		Registries: func() registry.List { return registry.List{Entries: []string{"docker.io"}} },
		OnlyNode:   func() string { return r.node },
		Users:      func() api.PeerUsers { return api.PeerUsers{Namespace: "liqo"} },
		Changed: func(id peer.ClusterID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed[id]++
		},
		Logger: slog.New(lenient{r.log.Logger().Handler()}),
		Now: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return time.Now().Add(r.skew)
		},
	})
	r.serving.Store(r.Host)
}

// connect runs the Host against a control plane.
func (r *runningHost) connect(t *testing.T, k *bed.Kube) {
	t.Helper()
	config := k.RESTConfig()
	if r.through != nil {
		config.Wrap(r.through)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet && !strings.HasPrefix(request.URL.Path, "/apis/authorization.k8s.io/") { // nothing is stored of a question
				r.mu.Lock()
				r.writes = append(r.writes, request.Method+" "+request.URL.Path)
				r.mu.Unlock()
			}
			return next.RoundTrip(request)
		})
	})
	r.stop = bedtest.Run(t, r.log, nil, func(ctx context.Context) error { return r.Run(ctx, config) })
}

// startHost returns a Host that is connected.
func startHost(t *testing.T, k *bed.Kube) *runningHost {
	t.Helper()
	r := newHost()
	r.connect(t, k)
	return r
}

// awaitConsumers waits until it is known that consumers have namespaces.
func (r *runningHost) awaitConsumers(t *testing.T, ids ...peer.ClusterID) {
	t.Helper()
	bedtest.Within(t, "it is known who is here", func() error {
		for _, id := range ids {
			if r.Stands(id).Namespaces == 0 {
				return fmt.Errorf("%s has no namespaces", id)
			}
		}
		return nil
	})
}

// taken returns what was written since it was called last. What labels the namespaces of others than these consumers is left
// out: another test on the same API server makes them, and where their quotas are seen first, they seem to lack their labels.
func (r *runningHost) taken(ids ...peer.ClusterID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.DeleteFunc(r.writes, func(write string) bool {
		name, labels := strings.CutPrefix(write, "PATCH "+namespaces)
		return labels && strings.HasPrefix(name, "liqo-") && !strings.Contains(name, "/") &&
			!slices.ContainsFunc(ids, func(id peer.ClusterID) bool { return strings.HasPrefix(name, workload.Namespace("liqo", id, "")) })
	})
	r.writes = nil
	return out
}

func (r *runningHost) set(change func(*host.Settings)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.settings)
}

// jump moves the clock of the Host.
func (r *runningHost) jump(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skew += d
}

func tenancy(id peer.ClusterID, offer map[string]string) spec.Tenant {
	return spec.Tenant{ID: id, Name: "a neighbour", Admitted: true, Offer: offer}
}

// smallOffer has room for ten small pods.
func smallOffer() map[string]string {
	return map[string]string{"cpu": "2", "memory": "2Gi", "pods": "10"}
}

// namespace asks until the answer is a namespace.
func (r *runningHost) namespace(t *testing.T, id peer.ClusterID, origin string) string {
	t.Helper()
	var name string
	bedtest.Within(t, "namespace "+origin, func() (err error) {
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

// asConsumer returns a client of the API server as a consumer reaches it.
func asConsumer(t *testing.T, k *bed.Kube, id peer.ClusterID) *kube.Client {
	t.Helper()
	config := k.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: api.PeerUsers{Namespace: "liqo"}.Name(string(id)), Groups: []string{api.PeerGroup}}
	return newClient(t, config)
}

// hostPod is a document of a pod. Its resources are those of its one container.
func hostPod(namespace, name string, requests object) object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": namespace, "name": name},
		"spec": object{"containers": []any{object{"name": "main", "image": "main:1", "resources": object{"requests": requests}}}},
	}
}

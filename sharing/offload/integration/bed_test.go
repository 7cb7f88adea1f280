package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	bed.Main(m)
}

const (
	consumer = peer.ClusterID("11111111-1111-4111-8111-111111111111")
	provider = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	user     = "liqo:cluster:" + string(consumer)
)

// pair is a consumer (A) and a provider (B).
type pair struct {
	t      *testing.T
	kubeA  *bed.Kube
	kubeB  *bed.Kube
	a, b   *kube.Client
	remote *remote
	log    *logger
}

// start returns two clusters that are ready.
func start(t *testing.T) *pair {
	t.Helper()
	kubes := bed.New(t).AddClusters(t.Context(), bed.HostSpec{Name: "a", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "b", Prefix: "10.77.0.2/24"})
	errs := make([]error, len(kubes))
	var group sync.WaitGroup
	for i, k := range kubes {
		group.Go(func() { errs[i] = k.StartControllers(t.Context()) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, kubeA: kubes[0], kubeB: kubes[1], log: &logger{}}
	p.a, p.b = client(t, p.kubeA), client(t, p.kubeB)
	transport, err := rest.TransportFor(p.kubeB.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(p.kubeB.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	p.remote = &remote{host: host, transport: transport, admin: p.b}
	p.must(p.a.Create(t.Context(), "/api/v1/nodes", node(), nil))
	p.must(p.a.Patch(t.Context(), "/api/v1/nodes/"+string(provider)+"/status", "", types.MergePatchType, marshal(t, map[string]any{"status": node().Status}), nil))
	p.must(p.b.Patch(t.Context(), "/api/v1/nodes/b/status", "", types.MergePatchType,
		[]byte(`{"status":{"capacity":{"pods":"1000"},"allocatable":{"pods":"1000"}}}`), nil))
	for _, k := range []*kube.Client{p.a, p.b} {
		within(t, "the default service account", func() error {
			return k.Get(t.Context(), "/api/v1/namespaces/default/serviceaccounts/default", nil)
		})
	}
	return p
}

func client(t *testing.T, k *bed.Kube) *kube.Client {
	c, err := kube.New(k.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// node is the virtual node.
func node() *corev1.Node {
	amount := corev1.ResourceList{"cpu": quantity("100"), "memory": quantity("100Gi"), "pods": quantity("1000")}
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: string(provider), Labels: map[string]string{workload.LabelType: workload.VirtualNode}},
		Status: corev1.NodeStatus{
			Capacity: amount, Allocatable: amount,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "ProviderReady"}},
		},
	}
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// sub is p for a subtest, with a namespace of its own.
func (p *pair) sub(t *testing.T, namespace string) *pair {
	q := *p
	q.t = t
	q.must(p.a.Create(t.Context(), "/api/v1/namespaces",
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}}, nil))
	within(t, "the service account of "+namespace, func() error {
		return p.a.Get(t.Context(), "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", nil)
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent:\n%s", p.log.String())
		}
	})
	return &q
}

// remote stands for the endpoint of the provider.
type remote struct {
	host      *url.URL
	transport http.RoundTripper
	admin     *kube.Client
	creations atomic.Int64
	away      atomic.Bool
}

func (r *remote) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.away.Load() {
		return nil, errors.New("the cable is out")
	}
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host = r.host.Scheme, r.host.Host
	request.Header.Set("Impersonate-User", user)
	if request.Method == http.MethodPost {
		r.creations.Add(1)
	}
	return r.transport.RoundTrip(request)
}

func guestNamespace(origin string) string { return workload.Namespace("liqo", consumer, origin) }

func (r *remote) Namespace(ctx context.Context, origin string) (string, error) {
	name := guestNamespace(origin)
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{workload.LabelOriginCluster: string(consumer), workload.LabelOriginNamespace: origin},
	}}
	if err := r.admin.Create(ctx, "/api/v1/namespaces", ns, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	} else if err != nil {
		if err := r.admin.Get(ctx, "/api/v1/namespaces/"+name, ns); err != nil {
			return "", err
		}
	}
	if ns.DeletionTimestamp != nil {
		return "", errors.New("the namespace is terminating")
	}
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + name
	for path, object := range map[string]map[string]any{
		rbac + "/roles": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": "consumer"}, "rules": []any{
			map[string]any{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get", "list", "watch", "create", "patch", "delete"}},
			map[string]any{"apiGroups": []string{""}, "resources": []string{"configmaps", "secrets"}, "verbs": []string{"get", "list", "watch", "create", "patch", "delete"}},
			map[string]any{"apiGroups": []string{""}, "resources": []string{"events"}, "verbs": []string{"get", "list", "watch"}},
		}},
		rbac + "/rolebindings": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "consumer"},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "consumer"},
			"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}}},
	} {
		if err := r.admin.Create(ctx, path, object, nil); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	err := r.admin.Get(ctx, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil)
	return name, err
}

func (r *remote) Release(ctx context.Context, origin string) error {
	err := r.admin.Delete(ctx, "/api/v1/namespaces/"+guestNamespace(origin), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hanging is a remote that never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func (hanging) Namespace(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (hanging) Release(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// agent is an Offload at work.
type agent struct {
	*offload.Offload
	stop func()
}

// run starts an Offload that has the provider.
func (p *pair) run() *agent {
	o := offload.New(offload.Config{
		Self:   func() peer.ClusterID { return consumer },
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	o.Set(p.provider())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := o.Run(ctx, p.kubeA.RESTConfig()); !errors.Is(err, context.Canceled) {
			p.t.Errorf("Run: %v", err)
		}
	}()
	a := &agent{o, sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			p.t.Error("Run does not end")
		}
	})}
	p.t.Cleanup(a.stop)
	return a
}

func (p *pair) provider() offload.Provider {
	return offload.Provider{ID: provider, Node: string(provider), Remote: p.remote, Address: netip.MustParseAddr("10.77.0.1"), Offer: "1", Reachable: true}
}

// logger keeps a log.
type logger struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logger) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	return len(b), nil
}

func (l *logger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-20000):])
}

func within(t *testing.T, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func marshal(t *testing.T, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// pod returns a pod for the virtual node.
func pod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:   string(provider),
			Containers: []corev1.Container{{Name: "main", Image: "registry.test/web:1"}},
		},
	}
	for _, c := range change {
		c(out)
	}
	return out
}

func (p *pair) create(o *corev1.Pod) *corev1.Pod {
	p.t.Helper()
	out := &corev1.Pod{}
	p.must(p.a.Create(p.t.Context(), "/api/v1/namespaces/"+o.Namespace+"/pods", o, out))
	return out
}

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// await waits until the pod is as check wants it.
func await(t *testing.T, c *kube.Client, namespace, name string, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var out *corev1.Pod
	within(t, "pod "+namespace+"/"+name, func() error {
		out = &corev1.Pod{}
		if err := c.Get(t.Context(), podPath(namespace, name), out); err != nil {
			return err
		}
		return check(out)
	})
	return out
}

func gone(t *testing.T, c *kube.Client, path string) {
	t.Helper()
	within(t, path+" to be gone", func() error {
		err := c.Get(t.Context(), path, nil)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is still there")
		}
		return err
	})
}

func there(*corev1.Pod) error { return nil }

func phase(want corev1.PodPhase) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Status.Phase != want {
			return fmt.Errorf("phase %s (%s), want %s", p.Status.Phase, p.Status.Reason, want)
		}
		return nil
	}
}

func waiting(reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
				return phase(corev1.PodPending)(p)
			}
		}
		return fmt.Errorf("no container waits for %s: %s %+v", reason, p.Status.Phase, p.Status.ContainerStatuses)
	}
}

// setStatus writes a status at the provider.
func (p *pair) setStatus(namespace, name string, s corev1.PodStatus) {
	p.t.Helper()
	p.must(p.b.Patch(p.t.Context(), podPath(namespace, name)+"/status", "kubelet", types.StrategicMergePatchType, marshal(p.t, map[string]any{"status": s}), nil))
}

// list returns the pods of a namespace.
func (p *pair) list(c *kube.Client, namespace string) []corev1.Pod {
	p.t.Helper()
	var out corev1.PodList
	p.must(c.Get(p.t.Context(), "/api/v1/namespaces/"+namespace+"/pods", &out))
	return out.Items
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

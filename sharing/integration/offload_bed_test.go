package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

// pair is a consumer (A) and a provider (B).
type pair struct {
	t      *testing.T
	kubeA  *bed.Kube
	kubeB  *bed.Kube
	a, b   *kube.Client
	remote *remote
}

// startPair returns two clusters that are ready.
func startPair(t *testing.T) *pair {
	t.Helper()
	return startPairs(t, nil, nil)[0]
}

// startPairs returns a consumer with several providers, that have these ranges of pods, nil for those of K3s without options.
func startPairs(t *testing.T, ofA bed.Ranges, providers ...bed.Ranges) []*pair {
	t.Helper()
	specs := []bed.HostSpec{{Name: "a", Prefix: "10.77.0.1/24", Pods: ofA}}
	for i, pods := range providers {
		specs = append(specs, bed.HostSpec{Name: string(rune('b' + i)), Prefix: fmt.Sprintf("10.77.0.%d/24", i+2), Pods: pods})
	}
	kubes := bed.New(t).AddClusters(t.Context(), specs...)
	errs := make([]error, len(kubes))
	var group sync.WaitGroup
	for i, k := range kubes {
		group.Go(func() { errs[i] = k.StartControllers(t.Context()) })
	}
	group.Wait()
	must(t, errors.Join(errs...))
	a := admin(t, kubes[0])
	must(t, a.Create(t.Context(), "/api/v1/nodes", virtualNode(), nil))
	must(t, a.Patch(t.Context(), nodesPath+barnNode+"/status", "", types.MergePatchType, marshal(t, map[string]any{"status": virtualNode().Status}), nil))
	var out []*pair
	for _, kubeB := range kubes[1:] {
		p := &pair{t: t, kubeA: kubes[0], kubeB: kubeB, a: a, b: admin(t, kubeB)}
		transport, err := rest.TransportFor(kubeB.RESTConfig())
		must(t, err)
		host, err := url.Parse(kubeB.RESTConfig().Host)
		must(t, err)
		p.remote = &remote{host: host, transport: transport, admin: p.b}
		p.remote.mend()
		must(t, p.b.Patch(t.Context(), nodesPath+kubeB.Host.Name+"/status", "", types.MergePatchType,
			[]byte(`{"status":{"capacity":{"pods":"1000"},"allocatable":{"pods":"1000"}}}`), nil))
		for _, k := range []*kube.Client{p.a, p.b} {
			bedtest.Within(t, "the default service account", func() error {
				return k.Get(t.Context(), "/api/v1/namespaces/default/serviceaccounts/default", nil)
			})
		}
		out = append(out, p)
	}
	return out
}

// virtualNode is the virtual node.
func virtualNode() *corev1.Node {
	amount := corev1.ResourceList{"cpu": quantity("100"), "memory": quantity("100Gi"), "pods": quantity("1000")}
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: barnNode, Labels: map[string]string{workload.LabelType: workload.VirtualNode}},
		Status: corev1.NodeStatus{
			Capacity: amount, Allocatable: amount,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "ProviderReady"}},
		},
	}
}

func (p *pair) must(err error) {
	p.t.Helper()
	must(p.t, err)
}

// with is p for a subtest.
func (p *pair) with(t *testing.T) *pair {
	q := *p
	q.t = t
	return &q
}

// sub is with, and makes a namespace.
func (p *pair) sub(t *testing.T, namespace string) *pair {
	q := p.with(t)
	q.namespace(namespace, nil)
	return q
}

// enabled are the labels of a namespace that is offloaded.
func enabled() object { return object{workload.LabelEnabled: "true"} }

// namespace makes a namespace at home, in which pods can be made.
func (p *pair) namespace(name string, labels object) {
	p.t.Helper()
	path := namespaces + name
	p.must(p.a.Create(p.t.Context(), "/api/v1/namespaces", object{"metadata": object{"name": name, "labels": labels}}, nil))
	bedtest.Within(p.t, "the service account of "+name, func() error { return p.a.Get(p.t.Context(), path+"/serviceaccounts/default", nil) })
}

// leave ends a namespace in both clusters after the agents have ended, and its pods, which no kubelet ends, so that those of
// other tests find nothing of it.
func (p *pair) leave(namespace string) {
	p.t.Helper()
	now := int64(0)
	for _, x := range []struct {
		kube   *bed.Kube
		client *kube.Client
		name   string
	}{{p.kubeA, p.a, namespace}, {p.kubeB, p.b, guestNamespace(namespace)}} {
		path := namespaces + x.name
		if err := x.client.Delete(p.t.Context(), path, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			p.t.Fatal(err)
		}
		bedtest.Within(p.t, path+" to be gone", func() error {
			if err := x.client.Delete(p.t.Context(), path+"/pods", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				return err
			}
			return gone(p.t, x.kube, path)
		})
	}
}

// remote stands for the endpoint of the provider.
type remote struct {
	host      *url.URL
	transport http.RoundTripper
	admin     *kube.Client
	cable     atomic.Pointer[cable]
}

// cable is over when it is cut, and with it the watches that go through it.
type cable struct {
	context.Context
	cut context.CancelFunc
}

// mend has requests go through a new cable.
func (r *remote) mend() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cable.Store(&cable{ctx, cancel})
}

func (r *remote) RoundTrip(request *http.Request) (*http.Response, error) {
	cable := r.cable.Load()
	if cable.Err() != nil {
		return nil, errors.New("the cable is out")
	}
	ctx, cancel := context.WithCancel(request.Context())
	uncut := context.AfterFunc(cable, cancel)
	context.AfterFunc(ctx, func() { uncut() })
	request = request.Clone(ctx)
	request.URL.Scheme, request.URL.Host = r.host.Scheme, r.host.Host
	request.Header.Set("Impersonate-User", api.PeerUsers{Namespace: "liqo"}.Name(string(consumerID)))
	return r.transport.RoundTrip(request)
}

func guestNamespace(origin string) string { return workload.Namespace("liqo", consumerID, origin) }

func (r *remote) Namespace(ctx context.Context, origin string) (string, error) {
	name := guestNamespace(origin)
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{workload.LabelOriginCluster: string(consumerID), workload.LabelOriginNamespace: origin},
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
			"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": api.PeerUsers{Namespace: "liqo"}.Name(string(consumerID))}}},
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

// runningOffload is an Offload at work.
type runningOffload struct {
	*offload.Offload
	stop func()
}

// run starts an Offload that has the provider.
func (p *pair) run() *runningOffload {
	log := &bedtest.Log{}
	o := offload.New(offload.Config{Self: func() peer.ClusterID { return consumerID }, Logger: log.Logger()})
	o.Set(p.provider())
	return &runningOffload{o, bedtest.Run(p.t, log, context.Canceled, func(ctx context.Context) error {
		return o.Run(ctx, p.kubeA.RESTConfig())
	})}
}

func (p *pair) provider() offload.Provider {
	return offload.Provider{ID: providerID, Node: barnNode, Remote: p.remote, Offer: "1", Reachable: true}
}

// virtualPod returns a pod for the virtual node.
func virtualPod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:   barnNode,
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

// endPod deletes a pod at once, which no kubelet ends. Kubernetes may have done so: it removes those whose node is not there.
func endPod(ctx context.Context, c *kube.Client, path string) error {
	zero := int64(0)
	err := c.Delete(ctx, path, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// await waits until the pod is as check wants it.
func await(t *testing.T, c *kube.Client, namespace, name string, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var out *corev1.Pod
	bedtest.Within(t, "pod "+namespace+"/"+name, func() error {
		out = &corev1.Pod{}
		if err := c.Get(t.Context(), podPath(namespace, name), out); err != nil {
			return err
		}
		return check(out)
	})
	return out
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

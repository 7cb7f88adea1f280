package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
)

// landlord lets mill do anything in the namespace mill-shop, as far as RBAC does.
type landlord struct{ endpoint.Guests }

func (landlord) Owns(id peer.ClusterID, namespace string) error {
	if namespace != string(id)+"-shop" {
		return &wire.Refused{Reason: "NotYours"}
	}
	return nil
}

func (landlord) Pod(_ context.Context, _ peer.ClusterID, _ string, body []byte) ([]byte, func([]byte), error) {
	return body, func([]byte) {}, nil
}

func (landlord) Named([]byte) (map[string][]string, error) { return nil, nil }

func (landlord) PodPatch(_ peer.ClusterID, _, _ string, body []byte) ([]byte, string, error) {
	return body, "application/strategic-merge-patch+json", nil
}

func (landlord) Ephemeral(_ context.Context, _ peer.ClusterID, _, _ string, body []byte) ([]byte, func([]byte), error) {
	return body, func([]byte) {}, nil
}

func (landlord) Object(_ peer.ClusterID, _, _, _ string, body []byte) ([]byte, error) {
	return body, nil
}

// transports returns the ways to a real API server, with HTTP/2 and without.
func transports(t *testing.T, config *rest.Config) (gateway.Upstream, error) {
	t.Helper()
	base, err := url.Parse(config.Host)
	if err != nil {
		return gateway.Upstream{}, err
	}
	up := gateway.Upstream{Base: base, Users: api.PeerUsers{Namespace: "liqo"}}
	if up.Transport, err = rest.TransportFor(config); err != nil {
		return gateway.Upstream{}, err
	}
	plain := rest.CopyConfig(config)
	plain.NextProtos = []string{"http/1.1"}
	up.Upgrade, err = rest.TransportFor(plain)
	return up, err
}

// A consumer works in its namespace as with any API server, through a client and a
// cache that know nothing about the way.
func TestGuests(t *testing.T) {
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	if err := k.Apply(t.Context(), `
apiVersion: v1
kind: Namespace
metadata: {name: mill-shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: mill-shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: liqo-consumer, namespace: mill-shop}
rules:
- {apiGroups: [""], resources: [pods, pods/log, pods/exec, configmaps, events], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-consumer, namespace: mill-shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: liqo-consumer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:liqo:liqo-peer-mill"}]
`); err != nil {
		t.Fatal(err)
	}
	up, err := transports(t, k.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	home, mill := newCluster(t, "home"), newCluster(t, "mill")
	server := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: home.issuer, Peers: everybody{}, Logger: slog.New(slog.DiscardHandler),
		Identity: func() peer.Identity { return peer.Identity{ClusterID: home.id} },
		Gateway: gateway.New(gateway.Config{
			Upstream: func() (gateway.Upstream, bool) { return up, true },
			Logger:   slog.New(slog.DiscardHandler),
		}),
		Guests: landlord{},
	})
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	bedtest.Run(t, nil, nil, server.Run)
	caller := client.New(client.Config{Issuer: mill.issuer, Timeout: bedtest.RequestTimeout})
	t.Cleanup(caller.Close)
	link := tunnel.New(caller, tunnel.Config{Target: func() (peer.Target, bool) {
		return peer.Target{ID: home.id, Fingerprint: home.key.Fingerprint(),
			Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), server.Port())}}, true
	}})
	t.Cleanup(link.Close)
	remote, err := kube.New(&rest.Config{Host: "https://peer", Transport: link, Timeout: bedtest.RequestTimeout})
	if err != nil {
		t.Fatal(err)
	}

	const pods = "/api/v1/namespaces/mill-shop/pods"
	pod := func(i int) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{api.LabelOriginCluster: "mill"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: did not happen", what)
			}
		}
	}
	eventually("RBAC", func() bool { return remote.Create(t.Context(), pods, pod(0), nil) == nil })
	cache := kube.NewCache(kube.Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }})
	following, stop := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		cache.Follow(following, remote, kube.Query{Path: pods})
	}()
	defer func() {
		stop()
		<-followed
	}()
	<-cache.Synced()
	if cache.Len() != 1 {
		t.Errorf("%d pods in the list", cache.Len())
	}
	var made corev1.Pod
	if err := remote.Create(t.Context(), pods, pod(1), &made); err != nil || made.UID == "" {
		t.Fatal(err)
	}
	eventually("see the pod", func() bool { return cache.Get("mill-shop", "web-1") != nil })
	if err := remote.Patch(t.Context(), pods+"/web-1", "x", "application/strategic-merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), &made); err != nil || made.Labels["a"] != "b" {
		t.Errorf("%v, %v", made.Labels, err)
	}
	eventually("see the label", func() bool { return cache.Get("mill-shop", "web-1").Labels["a"] == "b" })
	if err := remote.Get(t.Context(), pods+"/nobody", nil); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "v: - \"\u2028"}}
	var applied corev1.ConfigMap
	if err := remote.Apply(t.Context(), "/api/v1/namespaces/mill-shop/configmaps/c", "me", true, config, &applied); err != nil || applied.Data["k"] != config.Data["k"] {
		t.Errorf("%q, %v", applied.Data, err)
	}
	// RBAC has the last word, and no one else's namespace is reached.
	var status *apierrors.StatusError
	if err := remote.Get(t.Context(), "/api/v1/namespaces/mill-shop/secrets/s", nil); !apierrors.IsForbidden(err) || !errors.As(err, &status) || !strings.Contains(err.Error(), "system:serviceaccount:liqo:liqo-peer-mill") {
		t.Errorf("%v", err)
	}
	if err := remote.Get(t.Context(), "/api/v1/namespaces/default/pods/x", nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "none of yours") {
		t.Errorf("%v", err)
	}
	// There is no kubelet: what the API server says about that arrives.
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://peer"+pods+"/web-1/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := link.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode < 400 || !strings.Contains(string(text), `"Status"`) {
		t.Errorf("log: %s %s", resp.Status, text)
	}
	r, err = http.NewRequestWithContext(t.Context(), "POST", "https://peer"+pods+"/web-1/exec?command=sh&stdout=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	conn, resp, err := link.Upgrade(t.Context(), r)
	if err != nil || conn != nil {
		t.Fatalf("%v, %v", conn, err)
	}
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode < 400 || !strings.Contains(string(text), "does not have a host assigned") {
		t.Errorf("exec: %s %s", resp.Status, text)
	}
	zero := int64(0)
	wrong := metav1.Preconditions{UID: new(made.UID + "x")}
	if err := remote.Delete(t.Context(), pods+"/web-1", metav1.DeleteOptions{Preconditions: &wrong}); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
	if err := remote.Delete(t.Context(), pods+"/web-1", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		t.Error(err)
	}
	eventually("see that it is gone", func() bool { return cache.Get("mill-shop", "web-1") == nil })
	if st := server.Stats(); st.Accepted > 2 {
		t.Errorf("%+v: all but the upgrade takes one connection", st)
	}
}

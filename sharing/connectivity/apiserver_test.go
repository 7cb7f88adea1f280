package connectivity

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/sharing/workload"
)

// addNamespace adds a namespace that is enabled for sharing.
func (b *bench) addNamespace(name string, labels map[string]string) {
	b.w.namespaces.Wrote(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1", Labels: maps.Clone(labels)}})
}

// serve says where the API server is.
func (b *bench) serve(version string, port int32, addresses ...string) {
	b.w.servers.Wrote(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "u", ResourceVersion: version},
		Ports:      []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	})
}

// TestWhoReachesTheAPIServer: those of our pods elsewhere whose namespace says so.
func TestWhoReachesTheAPIServer(t *testing.T) {
	b := newBench()
	off := ""
	b.cfg.Tokens = func(namespace string) bool { return namespace != "kube-system" && namespace != off }
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "10.42.8.0/24")
	yes := map[string]string{workload.LabelTokens: "true", workload.LabelEnabled: "true"}
	b.addNamespace("shop", yes)
	b.addNamespace("kube-system", yes)
	b.addNamespace("plain", map[string]string{workload.LabelEnabled: "true"})
	b.addNamespace("no", map[string]string{workload.LabelEnabled: "true", workload.LabelTokens: "false"})
	b.addPod("shop", "home", "box", "10.42.0.10", nil)
	for i, namespace := range []string{"shop", "kube-system", "plain", "no", "other"} {
		b.addPod(namespace, "away", "liqo-barn", netip.AddrFrom4([4]byte{241, 1, 0, byte(5 + i)}).String(), nil)
	}
	b.addPod("shop", "ended", "liqo-barn", "241.1.0.20", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	b.addPod("shop", "lies", "liqo-barn", "241.2.0.5", nil)
	b.Use(barn, true)
	b.Serve(mill, true)

	b.decide(b.w)
	if api := b.net.peers[barn].API; len(api.From) > 0 || api.At.IsValid() {
		t.Errorf("%+v before it is known where the API server is", api)
	}
	b.serve("1", 6443, "192.0.2.99") // another machine
	b.decide(b.w)
	if api := b.net.peers[barn].API; api.At.IsValid() {
		t.Errorf("%+v, on another machine", api)
	}
	b.serve("2", 6443, "nonsense", "192.0.2.99", "192.0.2.7")
	b.decide(b.w)
	api := b.net.peers[barn].API
	if api.At != netip.MustParseAddrPort("192.0.2.7:6443") || !slices.Equal(api.From, prefixes("241.1.0.5/32")) {
		t.Errorf("%+v", api)
	}
	if api := b.net.peers[mill].API; api.At.IsValid() || api.From != nil {
		t.Errorf("a consumer has %+v", api)
	}
	off = "shop"
	b.decide(b.w)
	if api := b.net.peers[barn].API; api.At.IsValid() {
		t.Errorf("%+v, switched off", api)
	}
}

// TestGuestsWhoKnowTheirAPIServer: the name leads to the consumer's host, for those that were told of it.
func TestGuestsWhoKnowTheirAPIServer(t *testing.T) {
	b := newBench()
	b.addNode("box", "", "10.42.0.0/24")
	b.addPod("kube-system", "coredns", "box", "10.42.0.3", func(p *corev1.Pod) { p.Labels = map[string]string{"k8s-app": "kube-dns"} })
	told := func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b", Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: workload.APIServer}}}}
	}
	b.addPod("guests-of-barn", "told", "box", "10.42.0.20", told)
	b.addPod("guests-of-barn", "plain", "box", "10.42.0.21", nil)
	b.addPod("guests-of-mill", "other", "box", "10.42.0.30", told)
	b.addPod("shop", "own", "box", "10.42.0.40", told)
	b.Serve(barn, true)
	b.Serve(mill, true)
	delete(b.net.blocks, mill)
	b.decide(b.w)
	if got := b.names.Guests[addr("10.42.0.20")].Server; !slices.Equal(got, []netip.Addr{addr("241.1.0.1")}) {
		t.Errorf("the API server of barn is at %v", got)
	}
	for _, a := range []string{"10.42.0.21", "10.42.0.30", "10.42.0.40"} {
		if got := b.names.Guests[addr(a)].Server; got != nil {
			t.Errorf("%s is told %v", a, got)
		}
	}
}

package netpol

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What a provider has: two guests, its own pods, and the cluster's DNS. All pods have
// addresses of both families.
var places = []place{
	{"barn", "liqo-barn-shop", "web", nil, "10.42.0.11", "fd42::11"},
	{"barn", "liqo-barn-shop", "db", nil, "10.42.0.12", "fd42::12"},
	{"barn", "liqo-barn-office", "desk", nil, "10.42.0.13", "fd42::13"},
	{"barn", "liqo-barn-office", "fake-dns", map[string]string{"k8s-app": "kube-dns"}, "10.42.0.14", "fd42::14"},
	{"cellar", "liqo-cellar-wine", "rack", nil, "10.42.0.21", "fd42::21"},
	{"", "shop", "till", nil, "10.42.0.31", "fd42::31"},
	{"", "kube-system", "dns", map[string]string{"k8s-app": "kube-dns"}, "10.42.0.41", "fd42::41"},
	{"", "kube-system", "metrics", nil, "10.42.0.42", "fd42::42"},
}

// Addresses without a pod.
var around = map[string][]string{
	"the box on the LAN":             {"192.168.7.1", "fd07::1"},
	"a printer on the LAN":           {"192.168.7.9", "fd07::9"},
	"another private network":        {"172.16.3.4", "fc00::3:4"},
	"a private network of 10/8":      {"10.1.2.3"},
	"a carrier's or a VPN's range":   {"100.64.1.1"},
	"the cloud's metadata":           {"169.254.169.254"},
	"a range that is reserved":       {"241.1.2.3"},
	"the LAN by way of NAT64":        {"64:ff9b::c0a8:701"},
	"the LAN by way of 6to4":         {"2002:c0a8:701::1"},
	"a host on the internet":         {"198.51.100.7", "2001:db8:7::7"},
	"the internet by way of NAT64":   {"64:ff9b::c633:6407"},
	"next to a private range":        {"172.32.0.1", "192.169.0.1"},
	"the API server's service range": {"10.43.0.1", "fd43::1"},
}

type place struct {
	consumer, namespace, name string
	labels                    map[string]string
	v4, v6                    string
}

// addresses of something by its name in the tables above: pods are "namespace/name".
func addresses(name string) []string {
	for _, p := range places {
		if p.namespace+"/"+p.name == name {
			return []string{p.v4, p.v6}
		}
	}
	return around[name]
}

// policy is the one that guests' namespaces get.
func policy(t *testing.T, egress, consumer, namespace string) networkingv1.NetworkPolicy {
	t.Helper()
	text, err := os.ReadFile("../../../../sharing/host/testdata/policy-" + egress + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out networkingv1.NetworkPolicy
	named := strings.NewReplacer("liqo-barn-shop", namespace, "barn", consumer).Replace(string(text))
	if err := yaml.UnmarshalStrict([]byte(named), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// cluster returns what the API server has.
func cluster(t *testing.T, egress string) objects {
	t.Helper()
	var out objects
	known := map[string]bool{}
	for i, p := range places {
		if !known[p.namespace] {
			known[p.namespace] = true
			ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: map[string]string{corev1.LabelMetadataName: p.namespace}}}
			if p.consumer != "" {
				made := policy(t, egress, p.consumer, p.namespace)
				for key, value := range made.Labels {
					ns.Labels[key] = value
				}
				out.policies = append(out.policies, made)
			}
			out.namespaces = append(out.namespaces, ns)
		}
		out.pods = append(out.pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: p.namespace, Labels: p.labels, ResourceVersion: fmt.Sprint(i + 1)},
			Spec:       corev1.PodSpec{NodeName: node},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: p.v4}, {IP: p.v6}}},
		})
	}
	return out
}

const (
	through = "arrives"
	held    = "is dropped"
)

// TestAttackGuestsNetwork has pods of guests reach for everything, and everything reach
// for them, with each setting of sharing.guest_egress.
func TestAttackGuestsNetwork(t *testing.T) {
	const me = "liqo-barn-shop/web"
	type attempt struct {
		from, to  string
		protocol  string
		port      uint16
		internet  string // with sharing.guest_egress = "internet"
		all, none string
	}
	attempts := []attempt{
		{me, "liqo-barn-shop/db", "udp", 5432, through, through, through},
		{me, "liqo-barn-shop/db", "tcp", 5432, through, through, through},
		{me, "liqo-barn-office/desk", "tcp", 80, through, through, through},
		{me, "liqo-cellar-wine/rack", "tcp", 80, held, held, held},
		{me, "liqo-cellar-wine/rack", "udp", 53, held, held, held},
		{"liqo-cellar-wine/rack", "liqo-barn-office/fake-dns", "udp", 53, held, held, held},
		{me, "shop/till", "tcp", 80, held, through, held},
		{me, "shop/till", "udp", 53, held, through, held},
		{me, "kube-system/dns", "udp", 53, through, through, held},
		{me, "kube-system/dns", "tcp", 53, through, through, held},
		{me, "kube-system/dns", "tcp", 9153, held, through, held},
		{me, "kube-system/metrics", "udp", 53, held, through, held},
		{me, "the API server's service range", "tcp", 443, held, through, held},
		{me, "the box on the LAN", "tcp", 6443, held, through, held},
		{me, "the box on the LAN", "tcp", 10250, held, through, held},
		{me, "the box on the LAN", "udp", 53, held, through, held},
		{me, "a printer on the LAN", "tcp", 9100, held, through, held},
		{me, "another private network", "tcp", 80, held, through, held},
		{me, "a private network of 10/8", "tcp", 80, held, through, held},
		{me, "a carrier's or a VPN's range", "tcp", 80, held, through, held},
		{me, "the cloud's metadata", "tcp", 80, held, through, held},
		{me, "a range that is reserved", "udp", 80, held, through, held},
		{me, "the LAN by way of NAT64", "tcp", 80, held, through, held},
		{me, "the LAN by way of 6to4", "tcp", 80, held, through, held},
		{me, "a host on the internet", "tcp", 443, through, through, held},
		{me, "a host on the internet", "udp", 443, through, through, held},
		{me, "the internet by way of NAT64", "tcp", 443, through, through, held},
		{me, "next to a private range", "tcp", 443, through, through, held},

		{"shop/till", me, "tcp", 80, held, held, held},
		{"kube-system/metrics", me, "tcp", 80, held, held, held},
		{"a printer on the LAN", me, "tcp", 80, held, held, held},
		{"a host on the internet", me, "udp", 80, held, held, held},
		{"liqo-cellar-wine/rack", me, "udp", 80, held, held, held},

		// Nobody else is held up.
		{"shop/till", "kube-system/dns", "udp", 53, through, through, through},
		{"shop/till", "a printer on the LAN", "tcp", 9100, through, through, through},
	}
	all := []string{}
	for _, p := range places {
		all = append(all, p.v4, p.v6)
	}
	for _, addresses := range around {
		all = append(all, addresses...)
	}
	n := network(t, all)
	for _, egress := range []string{"internet", "all", "none"} {
		t.Run(egress, func(t *testing.T) {
			n.enforce(t, cluster(t, egress))
			for _, a := range attempts {
				want := map[string]string{"internet": a.internet, "all": a.all, "none": a.none}[egress]
				for _, from := range addresses(a.from) {
					for _, to := range addresses(a.to) {
						source, target := netip.MustParseAddr(from), netip.MustParseAddr(to)
						if source.Is4() != target.Is4() {
							continue
						}
						got := n.send(t, a.protocol, source, netip.AddrPortFrom(target, a.port))
						saw(t, fmt.Sprintf("reach %s from %s, at %s %s, with guest_egress %q", a.to, a.from, a.protocol, netip.AddrPortFrom(target, a.port), egress), want, got)
					}
				}
			}
		})
	}
}

// saw reports an attempt in the form that internal/attack has, which is in another module.
func saw(t *testing.T, what, want, got string) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"what": what, "as": "guest's pod", "want": want, "got": got})
	if err != nil {
		t.Fatal(err)
	}
	t.Attr("attack", string(text))
	if got != want {
		t.Errorf("%s: it %s, want that it %s", what, got, want)
	}
}

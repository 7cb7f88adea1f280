package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var (
	block = netip.MustParsePrefix("241.7.4.0/24")
	// connected is a guest whose pods are known in a block of IPv4 and one of IPv6.
	connected = func() Guest {
		g := guest
		g.Network = []netip.Prefix{netip.MustParsePrefix("241.7.4.0/23"), netip.MustParsePrefix("fd12::/64")}
		return g
	}()
	// reaching is an origin whose pods have addresses of 10.42.0.0/24, known as those of block, and one at another provider.
	reaching = func() Origin {
		o := origin
		o.Network = &Network{There: func(a netip.Addr) (netip.Addr, bool) {
			if !netip.MustParsePrefix("10.42.0.0/24").Contains(a) {
				return netip.Addr{}, false
			}
			b := a.As4()
			return netip.AddrFrom4([4]byte{241, 7, 4, b[3]}), true
		}, Thirds: map[netip.Addr]netip.Addr{netip.MustParseAddr("241.99.0.9"): netip.MustParseAddr("241.7.5.200")}}
		return o
	}()
)

// serviceOf returns a Service as the consumer's API server has it, with a spec in YAML.
func serviceOf(t testing.TB, spec string) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &svc.Spec); err != nil {
		t.Fatal(err)
	}
	return svc
}

// jsonOf returns a document in YAML as JSON.
func jsonOf(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestServiceOf: what is sent is what a provider admits, and what is left of the Service is what
// means the same there.
func TestServiceOf(t *testing.T) {
	const selects = "selector: {app: web, liqo.io/origin-cluster-id: " + string(consumer) + "}"
	for name, tc := range map[string]struct{ spec, want string }{
		"ordinary": {
			"{type: ClusterIP, clusterIP: 10.43.0.9, clusterIPs: [10.43.0.9], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, internalTrafficPolicy: Cluster, selector: {app: web}, sessionAffinity: None, ports: [{name: http, port: 80, protocol: TCP, targetPort: web, appProtocol: example.com/h2}]}",
			"{type: ClusterIP, " + selects + ", sessionAffinity: None, ports: [{name: http, port: 80, protocol: TCP, targetPort: web, appProtocol: example.com/h2}]}",
		},
		"headless": {
			"{clusterIP: None, clusterIPs: [None], selector: {app: web}, publishNotReadyAddresses: true, ports: [{port: 5432, targetPort: 0}]}",
			"{type: ClusterIP, clusterIP: None, " + selects + ", publishNotReadyAddresses: true, sessionAffinity: None, ports: [{port: 5432, targetPort: 0}]}",
		},
		"headless without ports": {"{clusterIP: None, selector: {app: web}}", "{type: ClusterIP, clusterIP: None, " + selects + ", sessionAffinity: None}"},
		"reached from outside": {
			"{type: LoadBalancer, clusterIP: 10.43.0.9, externalTrafficPolicy: Local, externalIPs: [192.0.2.1], loadBalancerIP: 192.0.2.2, loadBalancerClass: x.io/y, healthCheckNodePort: 30001, allocateLoadBalancerNodePorts: true, loadBalancerSourceRanges: [0.0.0.0/0], selector: {app: web}, ports: [{port: 80, nodePort: 30000, targetPort: 80}]}",
			"{type: ClusterIP, " + selects + ", sessionAffinity: None, ports: [{port: 80, targetPort: 80}]}",
		},
		"sticky": {
			"{selector: {app: web}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, ports: [{port: 53, protocol: UDP, targetPort: 53}]}",
			"{type: ClusterIP, " + selects + ", sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, ports: [{port: 53, protocol: UDP, targetPort: 53}]}",
		},
		"without selector": {"{ports: [{port: 80, targetPort: 80}]}", "{type: ClusterIP, sessionAffinity: None, ports: [{port: 80, targetPort: 80}]}"},
	} {
		sent, r := ServiceOf(serviceOf(t, tc.spec), origin)
		if r != nil {
			t.Errorf("%s: %v", name, r)
			continue
		}
		clean, r := AdmitService(sent, "web", guest)
		if r != nil {
			t.Errorf("%s: %v", name, r)
			continue
		}
		got := decode[corev1.Service](t, clean)
		if d := cmp.Diff(serviceOf(t, tc.want).Spec, got.Spec); d != "" || got.Namespace != guest.Namespace || got.Labels[LabelOriginCluster] != string(consumer) || got.Annotations[AnnotationOriginUID] != "u" {
			t.Errorf("%s: %s, %+v", name, d, got.ObjectMeta)
		}
		// All that may change is there, so that it replaces what was.
		var all struct{ Spec map[string]json.RawMessage }
		if err := json.Unmarshal(clean, &all); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"type", "ports", "selector", "sessionAffinity", "sessionAffinityConfig", "publishNotReadyAddresses"} {
			if all.Spec[field] == nil {
				t.Errorf("%s: no %s in %s", name, field, clean)
			}
		}
	}
	for spec, word := range map[string]string{
		"{type: ExternalName, externalName: example.com}":                    "ExternalName",
		"{selector: {istio.io/rev: a}, ports: [{port: 80}]}":                 "istio.io/rev",
		"{selector: {kubernetes.io/x: a}, ports: [{port: 80}]}":              "kubernetes.io/x",
		"{ports: [" + strings.Repeat("{port: 1},", maxPorts) + "{port: 2}]}": "101 ports",
	} {
		if _, r := ServiceOf(serviceOf(t, spec), origin); r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, word) || sentence(r) != "" {
			t.Errorf("%.100s: %v", spec, r)
		}
	}
}

// TestFamiliesOfService: a Service has the families at a provider that it has here, if both clusters have both, and the one
// that they have in common otherwise.
func TestFamiliesOfService(t *testing.T) {
	four, six := netip.MustParsePrefix("241.83.20.0/24"), netip.MustParsePrefix("fd83::/64")
	const only4, only6 = "ipFamilies: [IPv4], ipFamilyPolicy: SingleStack", "ipFamilies: [IPv6], ipFamilyPolicy: SingleStack"
	for _, tc := range []struct{ here, both, one4, one6 string }{
		{only4, only4, only4, only6},
		{only6, only6, only4, only6},
		{"ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack", only4, only4, only6}, // as this cluster has no more
		{"ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack", "ipFamilyPolicy: PreferDualStack", only4, only6},
		{"ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack", "ipFamilyPolicy: PreferDualStack", only4, only6},
		{"", "", "", ""},
	} {
		for _, n := range []struct {
			blocks []netip.Prefix
			want   string
		}{{[]netip.Prefix{four, six}, tc.both}, {[]netip.Prefix{six, four}, tc.both}, {[]netip.Prefix{four}, tc.one4}, {[]netip.Prefix{six}, tc.one6}, {nil, ""}} {
			in := origin
			in.Network = &Network{Blocks: n.blocks}
			sent, r := ServiceOf(serviceOf(t, "{"+tc.here+"}"), in)
			if r != nil {
				t.Fatal(r)
			}
			clean, r := AdmitService(sent, "web", guest)
			if r != nil {
				t.Errorf("%q, blocks %v: %v", tc.here, n.blocks, r)
				continue
			}
			want, got := serviceOf(t, "{"+n.want+"}").Spec, decode[corev1.Service](t, clean).Spec
			if d := cmp.Diff(want.IPFamilies, got.IPFamilies) + cmp.Diff(want.IPFamilyPolicy, got.IPFamilyPolicy); d != "" {
				t.Errorf("%q, blocks %v: %s", tc.here, n.blocks, d)
			}
		}
	}
	sent, _ := ServiceOf(serviceOf(t, "{ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack}"), origin)
	if got := decode[corev1.Service](t, sent).Spec; got.IPFamilyPolicy != nil || got.IPFamilies != nil {
		t.Errorf("to who is not connected: %s", sent)
	}
}

func TestSkipped(t *testing.T) {
	for value, want := range map[string]bool{"": true, "true": true, "false": false} {
		for _, meta := range []metav1.ObjectMeta{{Labels: map[string]string{SkipReflection: value}}, {Annotations: map[string]string{SkipReflection: value}}} {
			if Skipped(&meta) != want {
				t.Errorf("%q is skipped: %t", value, !want)
			}
		}
	}
	if Skipped(&metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}) {
		t.Error("any Service is skipped")
	}
}

// TestAttackServices: what a Service of a consumer must not be.
func TestAttackServices(t *testing.T) {
	const meta = "apiVersion: v1, kind: Service, metadata: {name: web, annotations: {liqo.io/origin-uid: u}}"
	with := func(spec string) string { return "{" + meta + ", spec: " + spec + "}" }
	if _, r := AdmitService(jsonOf(t, with("{ports: [{port: 80}]}")), "web", guest); r != nil {
		t.Fatal(r)
	}
	for doc, word := range map[string]string{
		with("{type: NodePort, ports: [{port: 80}]}"):                                                           "NodePort",
		with("{type: LoadBalancer, ports: [{port: 80}]}"):                                                       "LoadBalancer",
		with("{type: ExternalName, externalName: kubernetes.default}"):                                          "ExternalName",
		with("{externalName: kubernetes.default}"):                                                              "externalName",
		with("{externalIPs: [10.43.0.1], ports: [{port: 443}]}"):                                                "externalIPs",
		with("{loadBalancerClass: x.io/y, ports: [{port: 80}]}"):                                                "load balancers",
		with("{loadBalancerIP: 192.0.2.1, ports: [{port: 80}]}"):                                                "load balancers",
		with("{loadBalancerSourceRanges: [0.0.0.0/0], ports: [{port: 80}]}"):                                    "load balancers",
		with("{allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}"):                                     "load balancers",
		with("{clusterIP: 10.43.0.10, ports: [{port: 53}]}"):                                                    "choose the address",
		with("{clusterIPs: [10.43.0.10], ports: [{port: 53}]}"):                                                 "choose the address",
		with("{ports: [{port: 80, nodePort: 30000}]}"):                                                          "nodePort",
		with("{externalTrafficPolicy: Local, ports: [{port: 80}]}"):                                             "fields",
		with("{internalTrafficPolicy: Local, ports: [{port: 80}]}"):                                             "fields",
		with("{healthCheckNodePort: 30000, ports: [{port: 80}]}"):                                               "fields",
		with("{ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}"):                                         "SingleStack or PreferDualStack",
		with("{ipFamilies: [IPv6, IPv6], ports: [{port: 80}]}"):                                                 "IPv4, IPv6 or both",
		with("{ipFamilies: [IPX], ports: [{port: 80}]}"):                                                        "IPv4, IPv6 or both",
		with("{trafficDistribution: PreferClose, ports: [{port: 80}]}"):                                         "fields",
		with("{ports: [{port: 0}]}"):                                                                            "65535",
		with("{ports: [{port: 65536}]}"):                                                                        "65535",
		with("{ports: [{port: 80, targetPort: -1}]}"):                                                           "65535",
		with("{ports: [{port: 80, targetPort: 'a b'}]}"):                                                        "targetPort",
		with("{ports: [{port: 80, name: 'a b'}]}"):                                                              "name",
		with("{ports: [{port: 80, protocol: ICMP}]}"):                                                           "protocol",
		with("{ports: [{port: 80, appProtocol: 'a b'}]}"):                                                       "appProtocol",
		with("{ports: [" + strings.Repeat("{port: 1},", maxPorts+1) + "]}"):                                     "101 ports",
		with("{sessionAffinity: Always}"):                                                                       "affinity",
		with("{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 100000}}}"):        "86400",
		with("{sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}}"):                                        "sessionAffinity",
		with("{selector: {liqo.io/origin-cluster-id: other}}"):                                                  "another cluster",
		with("{selector: {app: 'a b'}}"):                                                                        "value",
		with("{selector: {$patch: replace}}"):                                                                   "key",
		with("{selector: {istio.io/rev: a}}"):                                                                   "istio.io/rev",
		"{apiVersion: v1, kind: Pod, metadata: {name: web}}":                                                    "v1 Service",
		"{apiVersion: v1, kind: Service, metadata: {name: web}}":                                                "liqo.io/origin-uid",
		"{apiVersion: v1, kind: Service, metadata: {name: api, annotations: {liqo.io/origin-uid: u}}}":          "api",
		strings.Replace(with("{}"), "name: web", "name: web, labels: {service.kubernetes.io/headless: ''}", 1):  "label",
		strings.Replace(with("{}"), "liqo.io/origin-uid: u", "liqo.io/origin-uid: u, metallb.io/pool: home", 1): "annotation",
		strings.Replace(with("{}"), "name: web", "name: web, namespace: kube-system", 1):                        "kube-system",
		strings.Replace(with("{}"), "name: web", "name: web, finalizers: [a.io/b]", 1):                          "finalizers",
	} {
		if clean, r := AdmitService(jsonOf(t, doc), "web", guest); r == nil || !strings.Contains(r.Message, word) || sentence(r) != "" {
			t.Errorf("%.200s: %v\n%s", doc, r, clean)
		}
	}
	for _, raw := range []string{strings.Repeat(" ", maxService+1), "x", `{"spec":{"ports":{}}}`} {
		if _, r := AdmitService([]byte(raw), "web", guest); r == nil || sentence(r) != "" {
			t.Errorf("%.100s: %v", raw, r)
		}
	}
}

// slice returns an EndpointSlice as a consumer's API server has it.
func slice(t testing.TB, text string) *discoveryv1.EndpointSlice {
	t.Helper()
	return decode[discoveryv1.EndpointSlice](t, jsonOf(t, text))
}

// TestSlices: the provider lists what runs here by its own addresses for it, and nothing else.
func TestSlices(t *testing.T) {
	const pod = "targetRef: {kind: Pod, namespace: shop, name: p}"
	svc := serviceOf(t, "{ports: [{port: 80}]}")
	local := []*discoveryv1.EndpointSlice{
		slice(t, `{addressType: IPv4, ports: [{name: http, port: 8080, protocol: TCP}], endpoints: [
			{addresses: [10.42.0.17], nodeName: alder, `+pod+`, hostname: web-1, zone: z, conditions: {ready: true, serving: true, terminating: false}},
			{addresses: [10.42.0.9], `+pod+`, conditions: {ready: false, serving: true, terminating: true}},
			{addresses: [10.42.0.9], `+pod+`, conditions: {ready: false, serving: true, terminating: true}},
			{addresses: [241.83.20.9], nodeName: barn, `+pod+`},
			{addresses: [241.99.0.9], nodeName: another-provider, `+pod+`},
			{addresses: [241.99.0.10], nodeName: another-provider, `+pod+`},
			{addresses: [10.42.0.18]},
			{addresses: [10.42.0.19], targetRef: {kind: Pod, namespace: bank, name: p}},
			{addresses: [10.42.0.20], targetRef: {kind: Node, namespace: shop, name: p}},
			{addresses: [192.168.1.1], `+pod+`}]}`),
		slice(t, `{addressType: IPv4, ports: [{name: http, port: 9090, protocol: TCP}], endpoints: [{addresses: [10.42.0.21], `+pod+`}]}`),
		slice(t, `{addressType: FQDN, endpoints: [{addresses: [example.com]}]}`),
	}
	bodies, left, r := Slices(svc, local, reaching)
	if r != nil || left != 6 {
		t.Fatalf("%d left out, %v", left, r)
	}
	if d := cmp.Diff([]string{"web-liqo-4-0", "web-liqo-4-1"}, slices.Sorted(maps.Keys(bodies))); d != "" {
		t.Fatal(d)
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		clean, service, r := AdmitSlice(bodies[name], name, connected)
		if r != nil || service != "web" {
			t.Fatalf("%s: %q, %v", name, service, r)
		}
		s := decode[discoveryv1.EndpointSlice](t, clean)
		if s.Labels[discoveryv1.LabelServiceName] != "web" || s.Labels[discoveryv1.LabelManagedBy] != "liqo-agent" || s.Labels[LabelOriginCluster] != string(consumer) || len(s.Labels) != 3 {
			t.Errorf("%s: %v", name, s.Labels)
		}
		for _, e := range s.Endpoints {
			host := ""
			if e.Hostname != nil {
				host = *e.Hostname
			}
			got = append(got, fmt.Sprintf("%s:%d %s %t %t %t", e.Addresses[0], *s.Ports[0].Port, host, *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating))
			if e.TargetRef != nil || e.NodeName != nil || e.Zone != nil {
				t.Errorf("%+v", e)
			}
		}
	}
	if d := cmp.Diff([]string{"241.7.4.17:8080 web-1 true true false", "241.7.4.9:8080  false true true", "241.7.5.200:8080  true true false", "241.7.4.21:9090  true true false"}, got); d != "" {
		t.Error(d)
	}
	if bodies, left, r := Slices(svc, local[1:2], origin); len(bodies) != 0 || left != 1 || r != nil {
		t.Errorf("without a network: %v, %d, %v", bodies, left, r)
	}
}

// TestManySlices: what one EndpointSlice cannot hold is in the next, up to a limit.
func TestManySlices(t *testing.T) {
	in := origin
	in.Network = &Network{There: func(a netip.Addr) (netip.Addr, bool) { return a, true }}
	many := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range maxEndpoints + 7 {
		many.Endpoints = append(many.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{netip.AddrFrom4([4]byte{241, 7, byte(i >> 8), byte(i)}).String()}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop"},
		})
	}
	bodies, left, r := Slices(serviceOf(t, "{}"), []*discoveryv1.EndpointSlice{many}, in)
	if r != nil || len(bodies) != maxEndpoints/maxSliceEndpoints || left != 7 {
		t.Errorf("%d slices, %d left out, %v", len(bodies), left, r)
	}
	big := connected
	big.Network = []netip.Prefix{netip.MustParsePrefix("241.7.0.0/16")}
	for name, body := range bodies {
		if _, _, r := AdmitSlice(body, name, big); r != nil || SliceService(name) != "web" {
			t.Errorf("%s: %v", name, r)
		}
	}
	// The same endpoints are the same documents.
	slices.Reverse(many.Endpoints[:maxEndpoints])
	again, _, _ := Slices(serviceOf(t, "{}"), []*discoveryv1.EndpointSlice{many}, in)
	for name, body := range bodies {
		if !bytes.Equal(body, again[name]) {
			t.Errorf("%s changes with the order", name)
		}
	}
}

func TestSliceService(t *testing.T) {
	for name, want := range map[string]string{
		"web-liqo-4-0": "web", "web-liqo-6-19": "web", "a-liqo-4-1-liqo-4-0": "a-liqo-4-1", "web-x7k2b": "", "web-liqo-4-24567": "", "web-liqo-5-0": "", "-liqo-4-0": "", "web": "", "": "",
	} {
		if got := SliceService(name); got != want {
			t.Errorf("%q is for %q, want %q", name, got, want)
		}
	}
}

// TestAttackSlices: what an EndpointSlice of a consumer must not be.
func TestAttackSlices(t *testing.T) {
	doc := func(endpoints string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-liqo-4-0, labels: {kubernetes.io/service-name: web}, annotations: {liqo.io/origin-uid: u}}, " +
			"addressType: IPv4, ports: [{port: 80}], endpoints: [" + endpoints + "]}"
	}
	good := doc("{addresses: [241.7.4.9]}")
	if _, _, r := AdmitSlice(jsonOf(t, good), "web-liqo-4-0", connected); r != nil {
		t.Fatal(r)
	}
	const address = "other addresses"
	for text, word := range map[string]string{
		doc("{addresses: [10.43.0.1]}"):                                          address, // the provider's API server
		doc("{addresses: [10.42.0.9]}"):                                          address, // a pod of its own
		doc("{addresses: [192.168.1.1]}"):                                        address,
		doc("{addresses: [127.0.0.1]}"):                                          address,
		doc("{addresses: [169.254.169.254]}"):                                    address,
		doc("{addresses: [241.7.6.0]}"):                                          address, // another consumer's
		doc("{addresses: [241.7.3.255]}"):                                        address,
		doc("{addresses: ['::ffff:241.7.4.9']}"):                                 address,
		doc("{addresses: ['241.7.4.09']}"):                                       address,
		doc("{addresses: [example.com]}"):                                        address,
		doc("{addresses: [241.7.4.9, 241.7.4.10]}"):                              address,
		doc("{addresses: []}"):                                                   address,
		doc("{addresses: ['fd12:0::1']}"):                                        address,
		doc("{addresses: ['fd12::1']}"):                                          "not of type IPv4",
		doc("{addresses: [241.7.4.9], nodeName: birch}"):                         "fields",
		doc("{addresses: [241.7.4.9], zone: a}"):                                 "fields",
		doc("{addresses: [241.7.4.9], targetRef: {kind: Pod, name: p}}"):         "fields",
		doc("{addresses: [241.7.4.9], hints: {forZones: [{name: a}]}}"):          "fields",
		doc("{addresses: [241.7.4.9], deprecatedTopology: {a: b}}"):              "fields",
		doc("{addresses: [241.7.4.9], hostname: 'a.b'}"):                         "hostname",
		doc(strings.Repeat("{addresses: [241.7.4.9]},", maxSliceEndpoints+1)):    "101 endpoints",
		strings.Replace(good, "IPv4", "FQDN", 1):                                 "FQDN",
		strings.Replace(good, "IPv4", "IPv6", 1):                                 "not of type IPv6",
		strings.Replace(good, "service-name: web", "service-name: api", 1):       `"api"`,
		strings.Replace(good, "kubernetes.io/service-name: web", "", 1):          "Service",
		strings.Replace(good, "port: 80", "name: a", 1):                          "65535",
		strings.Replace(good, "port: 80", "port: 0", 1):                          "65535",
		strings.Replace(good, "port: 80", "port: 80, protocol: ICMP", 1):         "protocol",
		strings.Replace(good, "port: 80", "port: 80, name: 'a b'", 1):            "name",
		strings.Replace(good, "service-name: web", "service-name: web, a: b", 1): `label "a"`,
		strings.Replace(good, "name: web-liqo-4-0", "name: web-x7k2b", 1):        "web-x7k2b",
		strings.Replace(good, "kind: EndpointSlice", "kind: Endpoints", 1):       "EndpointSlice",
		strings.Replace(good, "discovery.k8s.io/v1", "discovery.k8s.io/v2", 1):   "EndpointSlice",
	} {
		if clean, _, r := AdmitSlice(jsonOf(t, text), "web-liqo-4-0", connected); r == nil || !strings.Contains(r.Message, word) || sentence(r) != "" {
			t.Errorf("%.300s: %v\n%s", text, r, clean)
		}
	}
	if _, _, r := AdmitSlice(jsonOf(t, good), "web-liqo-4-0", guest); r == nil || r.Reason != ReasonNoNetwork || sentence(r) != "" {
		t.Errorf("without a network: %v", r)
	}
	// The name of a slice of Kubernetes' own controller is not to be had.
	if _, _, r := AdmitSlice(jsonOf(t, strings.Replace(good, "web-liqo-4-0", "web-x7k2b", 1)), "web-x7k2b", connected); r == nil {
		t.Error("it takes the name of another's slice")
	}
	down := connected
	down.Down = true
	clean, _, r := AdmitSlice(jsonOf(t, good), "web-liqo-4-0", down)
	if r != nil {
		t.Fatal(r)
	}
	if c := decode[discoveryv1.EndpointSlice](t, clean).Endpoints[0].Conditions; *c.Ready || !*c.Serving || *c.Terminating {
		t.Errorf("while no packets pass: %+v", c)
	}
}

// TestReachable: endpoints follow the path, and what the Service says about pods that are not
// ready; others than those of the block go.
func TestReachable(t *testing.T) {
	within := []netip.Prefix{block}
	endpoints := slice(t, `{endpoints: [
		{addresses: [241.7.4.1], conditions: {ready: true, serving: true, terminating: false}},
		{addresses: [241.7.4.2], conditions: {ready: false, serving: false, terminating: false}},
		{addresses: [241.7.4.3], conditions: {ready: false, serving: true, terminating: true}}]}`).Endpoints
	for _, tc := range []struct {
		what          string
		publish, down bool
		want          string
	}{
		{"all is well", false, false, "[true false false]"},
		{"no packets pass", false, true, "[false false false]"},
		{"all are published", true, false, "[true true true]"},
		{"all are published, no packets pass", true, true, "[false false false]"},
	} {
		before := stored(t, &endpoints)
		got, changed := Reachable(endpoints, within, tc.publish, tc.down)
		var ready []bool
		for _, e := range got {
			ready = append(ready, *e.Conditions.Ready)
		}
		if fmt.Sprint(ready) != tc.want || changed != (tc.publish || tc.down) {
			t.Errorf("%s: %v, changed: %t", tc.what, ready, changed)
		}
		if d := cmp.Diff(*before, endpoints); d != "" {
			t.Errorf("%s: changed what is shared: %s", tc.what, d)
		}
		if back, _ := Reachable(got, within, false, false); !cmp.Equal(back, endpoints) {
			t.Errorf("%s, and then again: %s", tc.what, cmp.Diff(endpoints, back))
		}
	}
	if got, changed := Reachable(endpoints, []netip.Prefix{netip.MustParsePrefix("241.9.0.0/24")}, false, false); len(got) != 0 || !changed {
		t.Errorf("in another block: %v", got)
	}
}

func FuzzAdmitService(f *testing.F) {
	for _, spec := range []string{"{clusterIP: None}", "{selector: {app: web}, ports: [{port: 80, targetPort: web}]}", "{type: LoadBalancer, sessionAffinity: ClientIP, ports: [{port: 1, nodePort: 2}]}",
		"{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6, IPv4]}"} {
		sent, r := ServiceOf(serviceOf(f, spec), origin)
		if r != nil {
			f.Fatal(r)
		}
		f.Add(sent)
		f.Add(bytes.Replace(sent, []byte(`"type":"ClusterIP"`), []byte(`"Type":"NodePort","externalIPs":["10.0.0.1"]`), 1))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean, r := AdmitService(raw, "web", guest)
		if r != nil {
			if s := sentence(r); s != "" {
				t.Fatalf("%q: %s", r.Message, s)
			}
			return
		}
		if twice, r := AdmitService(clean, "web", guest); r != nil || !bytes.Equal(twice, clean) {
			t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
		}
		got := decode[corev1.Service](t, clean)
		if got.Name != "web" || got.Namespace != guest.Namespace || len(got.Labels) != 1 || len(got.Annotations) != 1 || got.OwnerReferences != nil || got.Finalizers != nil ||
			got.Spec.Type != corev1.ServiceTypeClusterIP || got.Spec.ExternalIPs != nil || got.Spec.ClusterIP != "" && got.Spec.ClusterIP != "None" || got.Spec.ExternalName != "" ||
			len(got.Spec.Ports) > maxPorts || len(got.Spec.Selector) > 0 && got.Spec.Selector[LabelOriginCluster] != string(consumer) {
			t.Fatalf("admitted %s", clean)
		}
		for _, p := range got.Spec.Ports {
			if p.NodePort != 0 || p.Port < 1 || p.Port > 65535 {
				t.Fatalf("admitted %s", clean)
			}
		}
	})
}

func FuzzAdmitSlice(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"web-liqo-4-0","labels":{"kubernetes.io/service-name":"web"},"annotations":{"liqo.io/origin-uid":"u"}},` +
		`"addressType":"IPv4","ports":[{"port":80,"protocol":"TCP","name":""}],"endpoints":[{"addresses":["241.7.4.9"],"hostname":"web-0","conditions":{"ready":true}}]}`))
	f.Add([]byte(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"web-liqo-4-0","labels":{"kubernetes.io/service-name":"web"},"annotations":{"liqo.io/origin-uid":"u"}},` +
		`"addressType":"IPv6","endpoints":[{"addresses":["fd12::9"],"Addresses":["10.0.0.1"],"conditions":{"terminating":true}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean, service, r := AdmitSlice(raw, "web-liqo-4-0", connected)
		if r != nil {
			if s := sentence(r); s != "" {
				t.Fatalf("%q: %s", r.Message, s)
			}
			return
		}
		if twice, _, r := AdmitSlice(clean, "web-liqo-4-0", connected); r != nil || !bytes.Equal(twice, clean) {
			t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
		}
		got := decode[discoveryv1.EndpointSlice](t, clean)
		if service != "web" || got.Name != "web-liqo-4-0" || got.Namespace != guest.Namespace || len(got.Labels) != 3 || got.Labels[discoveryv1.LabelManagedBy] != "liqo-agent" ||
			got.Labels[discoveryv1.LabelServiceName] != "web" || got.OwnerReferences != nil || got.Finalizers != nil || len(got.Endpoints) > maxSliceEndpoints {
			t.Fatalf("admitted %s", clean)
		}
		for _, e := range got.Endpoints {
			if len(e.Addresses) != 1 || !contains(connected.Network, e.Addresses[0]) || e.TargetRef != nil || e.NodeName != nil || e.Conditions.Ready == nil {
				t.Fatalf("admitted %s", clean)
			}
			if (got.AddressType == discoveryv1.AddressTypeIPv4) != netip.MustParseAddr(e.Addresses[0]).Is4() {
				t.Fatalf("admitted %s", clean)
			}
		}
	})
}

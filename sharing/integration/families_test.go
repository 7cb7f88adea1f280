package integration

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

// families are what two clusters have of both, and what Services of the dual-stack one become at its provider, with the
// pods of both behind them.
type families struct {
	blocks network.Blocks
	theirs []string // addresses of the guest there
	here   []string // and here
	// families of the Services at the provider, and where they lead
	families map[string]string
	leads    map[string][]string
}

const (
	near4, near6 = "IPv4 10.42.0.9", "IPv6 fd42::9"   // of the guest, there
	far4, far6   = "IPv4 241.7.4.17", "IPv6 fd99::17" // of the pod at home, there
)

// bothRanges are the ranges of a dual-stack cluster.
func bothRanges() bed.Ranges { return bed.RangesOf("10.42.0.0/16,fd42::/56") }

// blocksOf are blocks of a path between a dual-stack cluster and another one, in its first n families.
func blocksOf(n int) network.Blocks {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts[:n] {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	return network.Blocks{Pods: prefixes("10.42.0.0/24", "fd42::/64"), Theirs: prefixes("241.83.20.0/24", "fd83::/64"), Ours: prefixes("241.7.4.0/24", "fd99::/64")}
}

// reflectionInBothFamilies: the Services of a dual-stack cluster have the same families at a provider that has both, with
// the pods of both clusters in each.
func reflectionInBothFamilies(p *pair) {
	reflectFamilies(p, families{
		blocksOf(2), []string{"10.42.0.9", "fd42::9"}, []string{"241.83.20.9", "fd83::9"},
		map[string]string{"four": "[IPv4]", "six": "[IPv6]", "prefers": "[IPv4 IPv6]", "requires": "[IPv4 IPv6]", "headless": "[IPv4 IPv6]"},
		map[string][]string{
			"four": {near4, far4}, "six": {near6, far6}, "prefers": {near4, far4, near6, far6},
			"requires": {near4, far4, near6, far6}, "headless": {near4, far4, near6, far6},
		},
	})
}

// reflectionInIPv4: at a provider without IPv6, the Services of a dual-stack cluster are there with IPv4.
func reflectionInIPv4(p *pair) {
	reflectFamilies(p, families{
		blocksOf(1), []string{"10.42.0.9"}, []string{"241.83.20.9"},
		map[string]string{"four": "[IPv4]", "six": "[IPv4]", "prefers": "[IPv4]", "requires": "[IPv4]", "headless": "[IPv4]"},
		map[string][]string{"four": {near4, far4}, "six": {near4}, "prefers": {near4, far4}, "requires": {near4, far4}, "headless": {near4, far4}},
	})
}

// reflectFamilies has the consumer's Services reflected.
func reflectFamilies(p *pair, tc families) {
	t, ctx := p.t, p.t.Context()
	r := startHost(t, p.kubeB)
	tenant := tenancy(consumerID, smallOffer())
	tenant.Network = network.Blocks{Theirs: tc.blocks.Ours}.Whole() // as the provider sees it
	r.Set(tenant)
	link := startEndpoint(t, p, r)

	const ns, home = "families", "/api/v1/namespaces/families"
	p.namespace(ns, enabled())
	log := &bedtest.Log{}
	o := offload.New(offload.Config{Self: func() peer.ClusterID { return consumerID }, Logger: log.Logger()})
	o.Set(offload.Provider{ID: providerID, Node: barnNode, Remote: link, Offer: "1", Reachable: true, Network: &workload.Network{
		Here: tc.blocks.Here, Blocks: tc.blocks.Theirs, Thirds: map[netip.Addr]netip.Addr{}, Version: 1,
		There: func(a netip.Addr) (netip.Addr, bool) { return tc.blocks.There(a, blocksOf(2).Pods) },
	}})
	bedtest.Run(t, log, context.Canceled, func(ctx context.Context) error { return o.Run(ctx, p.kubeA.RESTConfig()) })

	for name, families := range map[string]object{
		"four": {"ipFamilyPolicy": "SingleStack", "ipFamilies": []string{"IPv4"}}, "six": {"ipFamilyPolicy": "SingleStack", "ipFamilies": []string{"IPv6"}},
		"prefers": {"ipFamilyPolicy": "PreferDualStack"}, "requires": {"ipFamilyPolicy": "RequireDualStack"},
		"headless": {"ipFamilyPolicy": "PreferDualStack", "clusterIP": "None"},
	} {
		families["selector"], families["ports"] = object{"app": "web"}, []any{object{"port": 80, "targetPort": 8080}}
		p.must(p.a.Create(ctx, home+"/services", object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name}, "spec": families}, nil))
	}
	guests := guestNamespace(ns)
	for name, node := range map[string]string{"web-0": "a", "web-1": barnNode} {
		p.must(p.a.Create(ctx, home+"/pods", object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": object{"app": "web"}},
			"spec": object{"nodeName": node, "containers": []any{object{"name": "main", "image": "docker.io/web:1"}}},
		}, nil))
	}
	run := func(pod *corev1.Pod, addresses ...string) []byte {
		status := runningStatus(pod)
		status.PodIPs = nil
		for _, a := range addresses {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a})
		}
		status.PodIP = addresses[0]
		return marshal(t, object{"status": status})
	}
	atHome := await(t, p.a, ns, "web-0", there)
	p.must(p.a.Patch(ctx, podPath(ns, "web-0")+"/status", "kubelet", types.StrategicMergePatchType, run(atHome, "10.42.0.17", "fd42::17"), nil))
	guest := await(t, p.b, guests, "web-1", there)
	p.must(p.b.Patch(ctx, podPath(guests, "web-1")+"/status", "kubelet", types.StrategicMergePatchType, run(guest, tc.theirs...), nil))
	await(t, p.a, ns, "web-1", func(pod *corev1.Pod) error {
		var got []string
		for _, ip := range pod.Status.PodIPs {
			got = append(got, ip.IP)
		}
		if !slices.Equal(got, tc.here) || pod.Status.PodIP != tc.here[0] {
			return fmt.Errorf("it has %v and %q here, want %v", got, pod.Status.PodIP, tc.here)
		}
		return nil
	})

	check := func(name, families string, leads []string) error {
		var svc corev1.Service
		if err := p.b.Get(ctx, "/api/v1/namespaces/"+guests+"/services/"+name, &svc); err != nil {
			return err
		}
		if fmt.Sprint(svc.Spec.IPFamilies) != families || len(svc.Spec.ClusterIPs) != len(svc.Spec.IPFamilies) && name != "headless" {
			return fmt.Errorf("it has %v and the addresses %v, want %s", svc.Spec.IPFamilies, svc.Spec.ClusterIPs, families)
		}
		var list discoveryv1.EndpointSliceList
		p.must(p.b.Get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+guests+"/endpointslices", &list))
		var got []string
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				if s.Labels[discoveryv1.LabelServiceName] == name {
					got = append(got, fmt.Sprintf("%s %s", s.AddressType, e.Addresses[0]))
				}
			}
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(leads))
		if !slices.Equal(got, want) {
			return fmt.Errorf("it leads to %q, want %q", got, want)
		}
		return nil
	}
	for name, families := range tc.families {
		bedtest.Within(t, "Service "+name, func() error { return check(name, families, tc.leads[name]) })
	}

	// Families come and go with those of the Service here, and its first address stays.
	addresses := func() string {
		var svc corev1.Service
		p.must(p.b.Get(ctx, "/api/v1/namespaces/"+guests+"/services/prefers", &svc))
		return svc.Spec.ClusterIP
	}
	before := addresses()
	for _, change := range []struct{ spec, like string }{
		{`{"ipFamilyPolicy":"SingleStack"}`, "four"}, {`{"ipFamilyPolicy":"PreferDualStack"}`, "prefers"},
	} {
		p.must(p.a.Patch(ctx, home+"/services/prefers", "", types.MergePatchType, []byte(`{"spec":`+change.spec+`}`), nil))
		bedtest.Within(t, "a Service that becomes like "+change.like, func() error {
			return check("prefers", tc.families[change.like], tc.leads[change.like])
		})
	}
	if after := addresses(); after != before {
		t.Errorf("the address of the Service was %s and is %s", before, after)
	}
}

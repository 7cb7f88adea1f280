package connectivity

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/network/filter"
	"liqo.io/agent/sharing/names"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestWhoAsks: guests of consumers ask the agent, which asks the cluster DNS.
func TestWhoAsks(t *testing.T) {
	b := newBench()
	b.domain = "birch.lan"
	b.addNode("box", "", "10.42.0.0/24")
	b.addNode("liqo-barn", "liqo://barn", "10.42.8.0/24")
	dns := func(p *corev1.Pod) { p.Labels = map[string]string{"k8s-app": "kube-dns"} }
	asks := func(searches ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{names.Addresses[0].String()}, Searches: searches}
		}
	}
	b.addPod("guests-of-barn", "first", "box", "10.42.0.20", asks("shop.svc.barn.lan", "svc.barn.lan", "barn.lan"))
	b.addPod("guests-of-barn", "second", "box", "10.42.0.21", nil)
	b.addPod("guests-of-mill", "other", "box", "10.42.0.30", nil)
	b.addPod("guests-of-mill", "ended", "box", "10.42.0.31", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	b.addPod("guests-of-mill", "starts", "box", "", nil)
	b.addPod("guests-of-barn", "twice", "box", "10.42.0.40", nil)
	b.addPod("shop", "twice", "box", "10.42.0.40", nil)
	b.addPod("shop", "own", "box", "10.42.0.50", dns) // not in kube-system
	b.addPod("shop", "host", "box", "192.0.2.7", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	b.addPod("shop", "away", "liqo-barn", "241.1.0.5", nil)
	b.Serve(barn, true)
	b.Serve(mill, true)

	// Without a cluster DNS, those that were told to ask before still do.
	b.decide(b.w)
	if len(b.names.Addresses) != 1 || len(b.names.Servers) != 0 {
		t.Errorf("%+v", b.names)
	}
	b.w.pods.Deleted("guests-of-barn", "first", "u")
	b.decide(b.w)
	if len(b.names.Addresses) != 0 || len(b.net.names.Addresses) != 0 {
		t.Errorf("%+v %+v", b.names, b.net.names)
	}

	// One that is to be there, and has no address yet.
	b.addPod("kube-system", "coredns-starting", "box", "", dns)
	b.decide(b.w)
	if len(b.names.Addresses) != 0 || !b.names.Starting {
		t.Errorf("%+v", b.names)
	}
	b.w.pods.Deleted("kube-system", "coredns-starting", "u")

	b.addPod("kube-system", "coredns", "box", "10.42.0.3", dns)
	b.addPod("guests-of-barn", "again", "box", "10.42.0.20", asks("shop.svc.barn.lan", "svc.barn.lan", "barn.lan"))
	b.decide(b.w)
	state := &names.State{
		Addresses: []netip.Addr{addr("169.254.241.53")}, Pods: prefixes("10.42.0.0/24"), Domain: "birch.lan",
		Servers: []netip.AddrPort{netip.MustParseAddrPort("10.42.0.3:53")},
		Guests: map[netip.Addr]names.Guest{
			addr("10.42.0.20"): {Consumer: barn, Domain: "barn.lan"}, addr("10.42.0.21"): {Consumer: barn, Domain: "cluster.local"},
			addr("10.42.0.30"): {Consumer: mill, Domain: "cluster.local"},
		},
		Others: map[netip.Addr]bool{addr("10.42.0.3"): true, addr("10.42.0.50"): true},
		Nodes:  map[string]bool{"box": true},
	}
	same := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})
	if d := cmp.Diff(state, b.names, same); d != "" {
		t.Error(d)
	}
	reached := filter.Names{Addresses: state.Addresses, AskPort: 53, Port: 6453, From: state.Pods, Except: prefixes("10.42.0.3/32", "10.42.0.50/32")}
	if d := cmp.Diff(reached, b.net.names, same); d != "" {
		t.Error(d)
	}

	// Switched off, with a guest that was told to ask: it gets answers as before.
	b.on = false
	b.decide(b.w)
	if d := cmp.Diff(state, b.names, same); d != "" || len(b.net.node.Pods) != 0 {
		t.Error(d)
	}
	b.w.pods.Deleted("guests-of-barn", "again", "u")
	b.decide(b.w)
	if len(b.names.Addresses) != 0 || len(b.names.Guests) != 0 || len(b.net.names.From) != 0 {
		t.Errorf("%+v %+v", b.names, b.net.names)
	}

	// The guests of who is no consumer any more are guests until they are gone.
	b.on = true
	b.Serve(mill, false)
	b.decide(b.w)
	if b.names.Guests[addr("10.42.0.30")].Consumer != mill || b.names.Others[addr("10.42.0.30")] {
		t.Errorf("%+v", b.names)
	}
	b.Serve(barn, false)
	b.decide(b.w)
	if len(b.names.Addresses) != 0 {
		t.Errorf("nobody can ask at %v", b.names.Addresses)
	}

	// Both families.
	b.w.nodes.Deleted("", "box", "u")
	b.addNode("box2", "", "nonsense", "fd42::/64", "10.42.0.0/24", "10.42.0.0/16")
	if got := b.ranges(b.w.nodes.All()); !slices.Equal(got, prefixes("10.42.0.0/24")) {
		t.Errorf("ranges %v", got)
	}
	b.address = "fd42::1/64"
	if got := b.ranges(b.w.nodes.All()); !slices.Equal(got, prefixes("fd42::/64")) {
		t.Errorf("ranges %v", got)
	}
}

func TestTrimPod(t *testing.T) {
	whole := func() *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "box", DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"n"}, Searches: []string{"s"}, Options: []corev1.PodDNSConfigOption{{Name: "o"}}}}}
		p.Namespace, p.Labels = "kube-system", map[string]string{"k8s-app": "kube-dns", "x": "y"}
		return p
	}
	p := whole()
	trimPod(p)
	if p.Labels["k8s-app"] != "kube-dns" || len(p.Labels) != 1 || p.Spec.DNSConfig.Nameservers[0] != "n" || p.Spec.DNSConfig.Searches[0] != "s" || p.Spec.DNSConfig.Options != nil {
		t.Errorf("%+v", p)
	}
	other := whole()
	other.Namespace = "shop"
	trimPod(other)
	if other.Labels != nil || samePod(p, other) {
		t.Errorf("%+v", other)
	}
}

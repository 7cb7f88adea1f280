package host

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/generated"
	"liqo.io/agent/peer"
)

// TestPolicies keeps in testdata what guests' NetworkPolicies are, for
// internal/bed/kube/netpol, which shows what they let through with an engine that
// enforces them. After a change: go test ./sharing/host -run TestPolicies -update
func TestPolicies(t *testing.T) {
	for _, egress := range []string{EgressInternet, EgressAll, EgressNone} {
		text, err := yaml.Marshal(policyFor("liqo-barn-shop", peer.ClusterID("barn"), nil, true, Settings{GuestEgress: egress}))
		if err != nil {
			t.Fatal(err)
		}
		generated.File(t, "testdata/policy-"+egress+".yaml", string(text))
	}
}

// TestInternet: the exceptions of a range lie in it, which an API server insists on, and
// no address of one of these is let through in the other ways to write it.
func TestInternet(t *testing.T) {
	allowed := func(a netip.Addr) bool {
		for _, p := range internet() {
			in := netip.MustParsePrefix(p.IPBlock.CIDR).Contains(a)
			for _, except := range p.IPBlock.Except {
				in = in && !netip.MustParsePrefix(except).Contains(a)
			}
			if in {
				return true
			}
		}
		return false
	}
	for _, p := range internet() {
		cidr := netip.MustParsePrefix(p.IPBlock.CIDR)
		for _, text := range p.IPBlock.Except {
			if except := netip.MustParsePrefix(text); !cidr.Overlaps(except) || except.Bits() <= cidr.Bits() || except != except.Masked() {
				t.Errorf("%s is no part of %s", text, cidr)
			}
		}
	}
	for text, want := range map[string]bool{
		"192.0.2.1": true, "1.1.1.1": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true, "100.128.0.0": true, "169.253.255.255": true,
		"223.255.255.255": true, "11.0.0.0": true, "192.167.255.255": true, "2a00::1": true, "2001:db8::1": true, "2001:1::1": true, "64:ff9b::102:304": true,
		"10.0.0.0": false, "10.255.255.255": false, "172.16.0.0": false, "172.31.255.255": false, "192.168.0.0": false, "192.168.255.255": false,
		"169.254.169.254": false, "100.64.0.0": false, "100.127.255.255": false, "127.0.0.1": false, "0.0.0.0": false, "224.0.0.251": false, "255.255.255.255": false, "241.1.2.3": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "fdff::1": false, "fec0::1": false, "ff02::fb": false, "::ffff:8.8.8.8": false, "::10.0.0.1": false,
		"64:ff9b::a00:1": false, "64:ff9b::c0a8:101": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:a00:1::1": false, "2001::1": false,
	} {
		if got := allowed(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: let through is %v", text, got)
		}
	}
}

func TestSamePolicy(t *testing.T) {
	policy := policyFor("ns", barn, nil, true, Settings{GuestEgress: EgressInternet})
	for name, change := range map[string]func(*networkingv1.NetworkPolicy){
		"more egress": func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		},
		"more ingress": func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From = nil },
		"one way":      func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = p.Spec.PolicyTypes[:1] },
		"other pods":   func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} },
		"no label":     func(p *networkingv1.NetworkPolicy) { p.Labels = nil },
	} {
		other := policy.DeepCopy()
		change(other)
		if samePolicy(other, policy) || !samePolicy(policy.DeepCopy(), policy) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

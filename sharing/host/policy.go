package host

import (
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/names"
)

// What Settings.GuestEgress may be.
const (
	EgressInternet = "internet"
	EgressAll      = "all"
	EgressNone     = "none"
)

// PolicyName is what a consumer's NetworkPolicy is called in each of its namespaces.
const PolicyName = "liqo-guests"

// notInternet are the ranges of IPv4 that lead to this box, to networks around it, or
// to several receivers: those of the IANA's special purpose registry that are not
// reached globally, but for the ones that nobody uses (RFC 6890).
var notInternet = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"224.0.0.0/4", "240.0.0.0/4",
}

// internet is what is neither private nor link-local. Of IPv6 that is the global
// unicast range without the two tunnels that have addresses of IPv4 in theirs, and
// what NAT64 makes of IPv4 (RFC 6052).
func internet() []networkingv1.NetworkPolicyPeer {
	nat64 := &networkingv1.IPBlock{CIDR: "64:ff9b::/96"}
	for _, text := range notInternet {
		p := netip.MustParsePrefix(text)
		b := netip.MustParsePrefix(nat64.CIDR).Addr().As16()
		v4 := p.Addr().As4()
		copy(b[12:], v4[:])
		nat64.Except = append(nat64.Except, netip.PrefixFrom(netip.AddrFrom16(b), 96+p.Bits()).String())
	}
	return []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: notInternet}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "2000::/3", Except: []string{"2001::/32", "2002::/16"}}},
		{IPBlock: nat64},
	}
}

// namesEgress lets guests ask for names as in their own cluster. Whether a policy is applied
// before or after the port is redirected depends on who applies it.
func namesEgress() networkingv1.NetworkPolicyEgressRule {
	var out networkingv1.NetworkPolicyEgressRule
	for _, port := range []int32{names.AskPort, names.Port} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
			number := intstr.FromInt32(port)
			out.Ports = append(out.Ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number})
		}
	}
	for _, addr := range names.Addresses {
		out.To = append(out.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(addr, addr.BitLen()).String()}})
	}
	return out
}

// policyFor keeps the pods of a consumer among themselves and those in the consumer's own
// cluster, which has the addresses of network here, and lets them out as far as settings
// say, to the cluster DNS only if some of them ask it. Others may add policies that allow more.
func policyFor(namespace string, id peer.ClusterID, network []netip.Prefix, clusterDNS bool, settings Settings) *networkingv1.NetworkPolicy {
	guests := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels(id)}}
	own := []networkingv1.NetworkPolicyPeer{guests}
	for _, p := range network {
		own = append(own, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: p.String()}})
	}
	out := []networkingv1.NetworkPolicyEgressRule{{To: own}, namesEgress()}
	switch {
	case settings.GuestEgress == EgressAll:
		out = []networkingv1.NetworkPolicyEgressRule{{}}
	case settings.GuestEgress == EgressInternet && clusterDNS:
		udp, tcp, domain := corev1.ProtocolUDP, corev1.ProtocolTCP, intstr.FromInt32(53)
		// The labels that CoreDNS has in K3s, as cluster DNS has everywhere.
		dns := networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		}
		out = append(out,
			networkingv1.NetworkPolicyEgressRule{
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &domain}, {Protocol: &tcp, Port: &domain}},
				To:    []networkingv1.NetworkPolicyPeer{dns},
			})
	}
	if settings.GuestEgress == EgressInternet {
		out = append(out, networkingv1.NetworkPolicyEgressRule{To: internet()})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Namespace: namespace, Labels: labels(id)},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: own}},
			Egress:      out,
		},
	}
}

// networkOf returns the addresses of the consumer's own cluster that a policy lets in.
func networkOf(policy *networkingv1.NetworkPolicy) (network []netip.Prefix) {
	if policy == nil || len(policy.Spec.Ingress) != 1 {
		return nil
	}
	for _, from := range policy.Spec.Ingress[0].From {
		if from.IPBlock == nil || len(from.IPBlock.Except) > 0 {
			continue
		}
		if p, err := netip.ParsePrefix(from.IPBlock.CIDR); err == nil {
			network = append(network, p)
		}
	}
	return network
}

func samePolicy(found, wanted *networkingv1.NetworkPolicy) bool {
	return covers(found.Labels, wanted.Labels) && reflect.DeepEqual(found.Spec, wanted.Spec)
}

package workload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultDomain is the domain of a cluster that does not say otherwise.
const DefaultDomain = "cluster.local"

// Limits of what the API server takes in dnsConfig.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// maxDomain is the longest cluster domain, so that there is room for names of Services.
const maxDomain = 128

// ValidDomain reports whether a cluster can have a domain.
func ValidDomain(domain string) bool {
	return len(domain) <= maxDomain && len(validation.IsDNS1123Subdomain(domain)) == 0
}

// clusterSearch returns what the kubelet of a cluster with that domain has pods of a namespace
// search first.
func clusterSearch(namespace, domain string) []string {
	return []string{namespace + ".svc." + domain, "svc." + domain, domain}
}

// ClusterDomain returns the domain of the cluster that a pod's search list is made for,
// [DefaultDomain] if it is for none, and the rest of the list.
func ClusterDomain(searches []string) (domain string, rest []string) {
	if len(searches) >= 3 && ValidDomain(searches[2]) {
		namespace, ok := strings.CutSuffix(searches[0], ".svc."+searches[2])
		if ok && len(validation.IsDNS1123Label(namespace)) == 0 && slices.Equal(searches[:3], clusterSearch(namespace, searches[2])) {
			return searches[2], searches[3:]
		}
	}
	return DefaultDomain, searches
}

// searchList joins a cluster's search list with a pod's own, which is cut off where it is too
// long, as by kubelets.
func searchList(first, own []string) []string {
	out := slices.Clone(first)
	chars := len(strings.Join(out, " "))
	for _, s := range own {
		if chars += 1 + len(s); len(out) == maxSearches || chars > maxSearchChars {
			break
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// UsesClusterDNS reports whether a pod asks the DNS of the cluster that it runs in.
func UsesClusterDNS(spec *corev1.PodSpec) bool {
	switch spec.DNSPolicy {
	case corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, "":
		return true
	}
	return false
}

// sayDomain adds the domain of this cluster to a pod's search list, for the provider, unless
// the provider assumes it anyway.
func sayDomain(spec *corev1.PodSpec, namespace string, n *Network) {
	if n == nil || n.Domain == "" || n.Domain == DefaultDomain || !UsesClusterDNS(spec) {
		return
	}
	if spec.DNSConfig == nil {
		spec.DNSConfig = &corev1.PodDNSConfig{}
	}
	spec.DNSConfig.Searches = searchList(clusterSearch(namespace, n.Domain), spec.DNSConfig.Searches)
}

// resolve has a guest's pod look names up where they mean what they mean at home. With policy
// None, the pod says itself whom to ask; with Default, it searches no cluster.
func resolve(spec *corev1.PodSpec, in Guest) {
	if spec.DNSPolicy == corev1.DNSNone {
		return
	}
	var config corev1.PodDNSConfig
	if spec.DNSConfig != nil {
		config = *spec.DNSConfig.DeepCopy()
	}
	domain, own := ClusterDomain(config.Searches)
	if len(in.Nameservers) == 0 {
		if spec.DNSConfig != nil {
			spec.DNSConfig.Searches = own // the kubelet here puts its own cluster first
		}
		return
	}
	config.Searches = searchList(nil, own)
	if UsesClusterDNS(spec) {
		config.Searches = searchList(clusterSearch(in.Origin, domain), own)
		if !slices.ContainsFunc(config.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" }) {
			five := "5"
			config.Options = append(config.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: &five})
		}
	}
	servers := slices.Clone(in.Nameservers)
	for _, s := range config.Nameservers {
		if len(servers) < maxNameservers && !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	config.Nameservers = servers
	spec.DNSPolicy, spec.DNSConfig = corev1.DNSNone, &config
}

package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

const (
	// SkipReflection, as a label or annotation of a Service with any value but "false", keeps
	// the Service from providers.
	SkipReflection = "liqo.io/skip-reflection"

	// maxService is how many bytes a Service or EndpointSlice of a consumer may have.
	maxService = 64 << 10
	// maxPorts is how many ports a Service may have, as an EndpointSlice.
	maxPorts = 100
	// maxSliceEndpoints is how many endpoints one EndpointSlice of a consumer may have, and
	// maxEndpoints how many of each family are sent of one Service.
	maxSliceEndpoints = 100
	maxEndpoints      = 1000
	// maxSelector is how many labels a Service may select by.
	maxSelector = 32
	// maxAffinity is the longest session affinity that API servers accept, in seconds.
	maxAffinity = 86400
)

// slicePattern matches the names of the EndpointSlices that agents write: "<service>-liqo-<family>-<number>".
// The names that Kubernetes generates end in five characters.
var slicePattern = regexp.MustCompile(`^(.+)-liqo-[46]-[0-9]{1,2}$`)

// SliceService returns the Service that an EndpointSlice of an agent is for, by its name; "" for
// the name of another's.
func SliceService(slice string) string {
	if m := slicePattern.FindStringSubmatch(slice); m != nil {
		return m[1]
	}
	return ""
}

// serviceBody is a Service in the body of an apply. It has all fields that a consumer may set,
// so that it replaces what they were.
type serviceBody struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        bodyMeta    `json:"metadata"`
	Spec            serviceSpec `json:"spec"`
}

type serviceSpec struct {
	Type                     corev1.ServiceType            `json:"type"`
	ClusterIP                string                        `json:"clusterIP,omitempty"` // None, or the provider chooses
	Ports                    []servicePort                 `json:"ports"`
	Selector                 map[string]string             `json:"selector"`
	SessionAffinity          corev1.ServiceAffinity        `json:"sessionAffinity"`
	SessionAffinityConfig    *corev1.SessionAffinityConfig `json:"sessionAffinityConfig"`
	PublishNotReadyAddresses bool                          `json:"publishNotReadyAddresses"`
	// Left out where there is no network with the provider, as with one that is older.
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	IPFamilies     []corev1.IPFamily      `json:"ipFamilies,omitempty"`
}

type servicePort = corev1.ServicePort

// sliceBody is an EndpointSlice in the body of an apply.
type sliceBody struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        bodyMeta                   `json:"metadata"`
	AddressType     discoveryv1.AddressType    `json:"addressType"`
	Endpoints       []discoveryv1.Endpoint     `json:"endpoints"`
	Ports           []discoveryv1.EndpointPort `json:"ports"`
}

// ServiceOf returns the body (JSON) of the apply of the provider's copy of a Service, or why it
// is not sent. What it selects by are the labels that [Translate] keeps.
func ServiceOf(svc *corev1.Service, in Origin) ([]byte, *Refusal) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, notOffloadable("A Service of type ExternalName is an alias for a name outside of the cluster, which may mean something else at a provider: " +
			"use the name itself in pods that run there.")
	}
	for key := range svc.Spec.Selector {
		if !carries(key) {
			return nil, notOffloadable(fmt.Sprintf("The Service selects pods by the label %q, which is not sent to other clusters: select by another label.", text.Line(key, 317)))
		}
	}
	body := serviceBody{
		TypeMeta: typeMeta("Service"), Metadata: bodyOf("Service", &svc.ObjectMeta, in).Metadata,
		Spec: serviceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: ownSelector(svc.Spec.Selector, string(in.Cluster)),
			SessionAffinity: cmp.Or(svc.Spec.SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityConfig: svc.Spec.SessionAffinityConfig,
			PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses,
		},
	}
	if Headless(svc) {
		body.Spec.ClusterIP = corev1.ClusterIPNone
	}
	body.Spec.IPFamilyPolicy, body.Spec.IPFamilies = families(svc, in.Network)
	for _, p := range svc.Spec.Ports {
		p.NodePort = 0
		body.Spec.Ports = append(body.Spec.Ports, p)
	}
	if len(body.Spec.Ports) > maxPorts {
		return nil, notOffloadable(fmt.Sprintf("The Service has %d ports, and providers accept %d: divide it.", len(body.Spec.Ports), maxPorts))
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, invalid("The Service %s cannot be encoded: %s.", text.Line(svc.Name, 253), text.Line(err.Error(), 200))
	}
	return raw, nil
}

// families returns which IP families the provider's copy of a Service is to have: those of the Service, where both clusters
// have both, and the only one by which their pods reach each other otherwise, which need not be the provider's first. A Service
// with both has the provider's order, which may not be ours.
func families(svc *corev1.Service, n *Network) (*corev1.IPFamilyPolicy, []corev1.IPFamily) {
	if n == nil || len(n.Blocks) == 0 || svc.Spec.IPFamilyPolicy == nil {
		return nil, nil
	}
	policy := corev1.IPFamilyPolicySingleStack
	if !n.dualStack() {
		only := corev1.IPv4Protocol
		if n.Blocks[0].Addr().Is6() {
			only = corev1.IPv6Protocol
		}
		return &policy, []corev1.IPFamily{only}
	}
	if len(svc.Spec.IPFamilies) == 1 {
		return &policy, svc.Spec.IPFamilies
	}
	// What cannot be had is not required: a Service with one family is better than none.
	policy = corev1.IPFamilyPolicyPreferDualStack
	return &policy, nil
}

// Headless reports whether a Service has no address of its own.
func Headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// ownSelector returns a selector that selects pods of a consumer only; nil for none.
func ownSelector(selector map[string]string, consumer string) map[string]string {
	if len(selector) == 0 {
		return nil
	}
	out := map[string]string{LabelOriginCluster: consumer}
	for key, value := range selector {
		if key != LabelOriginCluster {
			out[key] = value
		}
	}
	return out
}

// Skipped reports whether a Service is to stay in its cluster.
func Skipped(meta *metav1.ObjectMeta) bool {
	for _, keys := range []map[string]string{meta.Labels, meta.Annotations} {
		if value, there := keys[SkipReflection]; there && value != "false" {
			return true
		}
	}
	return false
}

// Slices returns the bodies (JSON), by name, of the applies of the EndpointSlices at the provider
// that list the pods of a Service which run elsewhere, by the addresses that they have there. local are the EndpointSlices of the Service here. left is how many endpoints are not
// sent because they are not pods of the Service's namespace that the provider can reach;
// those that run at the provider do not count.
func Slices(svc *corev1.Service, local []*discoveryv1.EndpointSlice, in Origin) (bodies map[string][]byte, left int, why *Refusal) {
	type group struct {
		family    discoveryv1.AddressType
		ports     []discoveryv1.EndpointPort
		endpoints []discoveryv1.Endpoint
	}
	groups := make(map[string]*group)
	for _, s := range local {
		if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
			left += len(s.Endpoints)
			continue
		}
		g := &group{family: s.AddressType}
		for _, p := range s.Ports {
			if p.Port != nil {
				g.ports = append(g.ports, p)
			}
		}
		by, err := json.Marshal([]any{g.family, g.ports})
		if err != nil {
			return nil, 0, invalid("The EndpointSlice %s cannot be encoded: %s.", text.Line(s.Name, 253), text.Line(err.Error(), 200))
		}
		if known := groups[string(by)]; known != nil {
			g = known
		} else {
			groups[string(by)] = g
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.NodeName != nil && *e.NodeName == in.Node {
				continue // the provider's own controller lists it
			}
			there, ok := sentEndpoint(e, svc.Namespace, in)
			if !ok || len(g.endpoints) == maxEndpoints {
				left++
				continue
			}
			g.endpoints = append(g.endpoints, there)
		}
	}
	bodies = make(map[string][]byte)
	number := make(map[discoveryv1.AddressType]int)
	keys := make([]string, 0, len(groups))
	for by := range groups {
		keys = append(keys, by)
	}
	slices.Sort(keys)
	for _, by := range keys {
		g := groups[by]
		address := func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) }
		slices.SortFunc(g.endpoints, address)
		g.endpoints = slices.CompactFunc(g.endpoints, func(a, b discoveryv1.Endpoint) bool { return address(a, b) == 0 })
		for part := range slices.Chunk(g.endpoints, maxSliceEndpoints) {
			if number[g.family] >= 2*maxEndpoints/maxSliceEndpoints {
				left += len(part)
				continue
			}
			name := fmt.Sprintf("%s-liqo-%c-%d", svc.Name, g.family[len(g.family)-1], number[g.family])
			number[g.family]++
			meta := bodyOf("EndpointSlice", &svc.ObjectMeta, in).Metadata
			meta.Name = name
			sliceLabels(meta.Labels, svc.Name)
			raw, err := json.Marshal(sliceBody{TypeMeta: sliceType(), Metadata: meta, AddressType: g.family, Endpoints: part, Ports: g.ports})
			if err != nil {
				return nil, 0, invalid("The EndpointSlice %s cannot be encoded: %s.", text.Line(name, 253), text.Line(err.Error(), 200))
			}
			bodies[name] = raw
		}
	}
	return bodies, left, nil
}

// sentEndpoint returns an endpoint as the provider knows it; false for one that is not a pod of
// that namespace which the provider reaches.
func sentEndpoint(e *discoveryv1.Endpoint, namespace string, in Origin) (discoveryv1.Endpoint, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.Namespace != namespace || len(e.Addresses) == 0 || in.Network == nil || in.Network.There == nil {
		return discoveryv1.Endpoint{}, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return discoveryv1.Endpoint{}, false
	}
	there, ok := in.Network.There(addr)
	if !ok {
		there, ok = in.Network.Thirds[addr]
	}
	if !ok {
		return discoveryv1.Endpoint{}, false
	}
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
	serving := ready
	if e.Conditions.Serving != nil {
		serving = *e.Conditions.Serving
	}
	return discoveryv1.Endpoint{
		Addresses: []string{there.String()}, Hostname: e.Hostname,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}, true
}

// sliceLabels adds the labels by which an EndpointSlice belongs to a Service, and to no
// controller of Kubernetes.
func sliceLabels(labels map[string]string, service string) {
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = service, api.ManagedByAgent
}

func sliceType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
}

// Reachable returns the endpoints of an EndpointSlice of a consumer as they are to be while its
// network has those addresses: others are left out, unless none are known. Ready is what the API server's own
// controller says of its pods (publish is that of the Service), and false while no packets
// pass (down). It returns the same slice if nothing changes.
func Reachable(endpoints []discoveryv1.Endpoint, within []netip.Prefix, publish, down bool) (out []discoveryv1.Endpoint, changed bool) {
	for _, e := range endpoints {
		if len(e.Addresses) != 1 || len(within) > 0 && !contains(within, e.Addresses[0]) {
			changed = true
			continue
		}
		is := func(b *bool) bool { return b != nil && *b }
		ready := !down && (publish || is(e.Conditions.Serving) && !is(e.Conditions.Terminating))
		if is(e.Conditions.Ready) != ready {
			e.Conditions.Ready, changed = &ready, true
		}
		out = append(out, e)
	}
	if !changed {
		return endpoints, false
	}
	return out, true
}

// contains reports whether an address, in its usual notation, is in one of some ranges.
func contains(within []netip.Prefix, address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && addr.Zone() == "" && addr.String() == address && slices.ContainsFunc(within, func(p netip.Prefix) bool { return p.Contains(addr) })
}

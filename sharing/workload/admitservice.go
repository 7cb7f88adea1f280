package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer/text"
)

// ReasonNoNetwork: the clusters are not connected, so nothing in the consumer's can be an
// endpoint here.
const ReasonNoNetwork = "NoNetwork"

// admitDocument decodes a Service or EndpointSlice, and returns what is admitted of its
// metadata. Of its labels, those of others are refused.
func admitDocument[T any](raw []byte, t metav1.TypeMeta, name string, in Guest, object *T, of func(*T) (*metav1.TypeMeta, *metav1.ObjectMeta), others ...string) (*bodyMeta, *Refusal) {
	if len(raw) > maxService {
		return nil, invalid("The %s is larger than %d KiB: divide it.", t.Kind, maxService>>10)
	}
	if err := scan(raw, nil, maxNested); err != nil {
		return nil, invalid("The %s %s: send a valid object, as JSON.", t.Kind, text.Line(err.Error(), 200))
	}
	if err := utiljson.Unmarshal(raw, object); err != nil {
		return nil, invalid("The document is not valid for a %s: %s.", t.Kind, text.Line(err.Error(), 200))
	}
	kind, meta := of(object)
	if *kind != t {
		return nil, invalid("The document is not a %s %s: send it to the path of its kind.", t.APIVersion, t.Kind)
	}
	for _, key := range others {
		delete(meta.Labels, key)
	}
	return admitOwnMeta(meta, t.Kind, name, in)
}

// AdmitService checks the body of an apply of the Service with that name, and returns the body
// (JSON) that may be written instead, or why it is refused. It is reached inside this cluster
// only, and selects the consumer's own pods only.
func AdmitService(raw []byte, name string, in Guest) (clean []byte, r *Refusal) {
	var svc corev1.Service
	meta, r := admitDocument(raw, typeMeta("Service"), name, in, &svc, func(s *corev1.Service) (*metav1.TypeMeta, *metav1.ObjectMeta) { return &s.TypeMeta, &s.ObjectMeta })
	if r != nil {
		return nil, r
	}
	spec := svc.Spec
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		return nil, invalid("%q is not a valid name of a Service: use the name that it has in its own cluster.", text.Line(name, 253))
	case spec.Type != "" && spec.Type != corev1.ServiceTypeClusterIP:
		return nil, forbidden("Guests may not have Services of type %s, which are reached from outside or lead there: send one of type ClusterIP.", text.Line(string(spec.Type), 32))
	case spec.ExternalName != "":
		return nil, forbidden("Guests may not set externalName: remove it.")
	case len(spec.ExternalIPs) > 0:
		return nil, forbidden("Guests may not set externalIPs, which take addresses away from others: remove them.")
	case spec.LoadBalancerClass != nil, spec.LoadBalancerIP != "", len(spec.LoadBalancerSourceRanges) > 0, spec.AllocateLoadBalancerNodePorts != nil:
		return nil, forbidden("Guests may not have load balancers: remove the fields for them.")
	case spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone, len(spec.ClusterIPs) > 0:
		return nil, forbidden("Guests may not choose the address of a Service: remove it, or set clusterIP to None.")
	case len(spec.Ports) > maxPorts:
		return nil, forbidden("The Service has %d ports, and the limit is %d: divide it.", len(spec.Ports), maxPorts)
	case len(spec.Selector) > maxSelector:
		return nil, forbidden("The Service selects by %d labels, and the limit is %d: remove some.", len(spec.Selector), maxSelector)
	}
	out := serviceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: spec.ClusterIP, PublishNotReadyAddresses: spec.PublishNotReadyAddresses, SessionAffinity: corev1.ServiceAffinityNone}
	for _, p := range spec.Ports {
		if r := admitServicePort(p); r != nil {
			return nil, r
		}
		out.Ports = append(out.Ports, p)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Selector)) {
		value := spec.Selector[key]
		switch {
		case key == LabelOriginCluster && value != string(in.Cluster):
			return nil, forbidden("The Service selects pods of another cluster: select those of the caller.")
		case len(validation.IsValidLabelValue(value)) > 0:
			return nil, invalid("The Service selects by the value %q, which no label can have: correct it.", text.Line(value, 63))
		case key == LabelOriginCluster:
			continue
		}
		if r := admitKey("selector", key, carries(key)); r != nil {
			return nil, r
		}
	}
	out.Selector = ownSelector(spec.Selector, string(in.Cluster))
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		if spec.SessionAffinityConfig != nil {
			return nil, invalid("The Service has a sessionAffinityConfig without sessionAffinity: remove it.")
		}
	case corev1.ServiceAffinityClientIP:
		out.SessionAffinity = corev1.ServiceAffinityClientIP
		if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			seconds := *c.ClientIP.TimeoutSeconds
			if seconds < 1 || seconds > maxAffinity {
				return nil, invalid("The session affinity lasts %d seconds: use 1 to %d.", seconds, maxAffinity)
			}
			out.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	default:
		return nil, invalid("The Service has the session affinity %q: use None or ClientIP.", text.Line(string(spec.SessionAffinity), 32))
	}
	if r := admitFamilies(&spec); r != nil {
		return nil, r
	}
	out.IPFamilyPolicy, out.IPFamilies = spec.IPFamilyPolicy, spec.IPFamilies
	spec.IPFamilyPolicy, spec.IPFamilies = nil, nil
	spec.Type, spec.ClusterIP, spec.Ports, spec.Selector, spec.SessionAffinity, spec.SessionAffinityConfig, spec.PublishNotReadyAddresses = "", "", nil, nil, "", nil, false
	if !reflect.DeepEqual(spec, corev1.ServiceSpec{}) {
		return nil, forbidden("The Service has fields that guests may not set: set only ports, selector, clusterIP (None), ipFamilyPolicy, ipFamilies, sessionAffinity and publishNotReadyAddresses.")
	}
	return encoded("Service", serviceBody{TypeMeta: typeMeta("Service"), Metadata: *meta, Spec: out})
}

// admitFamilies checks which IP families a Service is to have.
func admitFamilies(spec *corev1.ServiceSpec) *Refusal {
	if p := spec.IPFamilyPolicy; p != nil && *p != corev1.IPFamilyPolicySingleStack && *p != corev1.IPFamilyPolicyPreferDualStack {
		return invalid("The Service has the ipFamilyPolicy %q: use SingleStack or PreferDualStack.", text.Line(string(*p), 32))
	}
	for i, f := range spec.IPFamilies {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol || slices.Contains(spec.IPFamilies[:i], f) {
			return invalid("The Service has the ipFamilies %q: use IPv4, IPv6 or both.", text.Line(fmt.Sprint(spec.IPFamilies), 64))
		}
	}
	return nil
}

// admitServicePort checks a port of a Service.
func admitServicePort(p corev1.ServicePort) *Refusal {
	switch {
	case p.NodePort != 0:
		return forbidden("Guests may not have ports on nodes: remove nodePort.")
	case !portNumber(p.Port), p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 && !portNumber(p.TargetPort.IntVal),
		p.TargetPort.Type == intstr.String && len(validation.IsValidPortName(p.TargetPort.StrVal)) > 0:
		return invalid("The Service has a port that is none: use 1 to 65535, or the name of a container's port as targetPort.")
	case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0:
		return invalid("The Service has a port with the name %q: use small letters, digits and hyphens.", text.Line(p.Name, 63))
	}
	return admitProtocol(p.Protocol, p.AppProtocol)
}

func portNumber(n int32) bool { return 1 <= n && n <= 65535 }

func admitProtocol(protocol corev1.Protocol, app *string) *Refusal {
	switch protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return invalid("A port has the protocol %q: use TCP, UDP or SCTP.", text.Line(string(protocol), 32))
	}
	if app != nil && len(validation.IsQualifiedName(*app)) > 0 {
		return invalid("A port has the appProtocol %q: use a name like http or example.com/name.", text.Line(*app, 63))
	}
	return nil
}

// AdmitSlice is [AdmitService] for the EndpointSlice with that name, which it says to belong to
// service. Every endpoint is in the block that this cluster gave to the consumer, and is not
// ready while no packets pass.
func AdmitSlice(raw []byte, name string, in Guest) (clean []byte, service string, r *Refusal) {
	var s discoveryv1.EndpointSlice
	of := func(s *discoveryv1.EndpointSlice) (*metav1.TypeMeta, *metav1.ObjectMeta) {
		service = s.Labels[discoveryv1.LabelServiceName]
		return &s.TypeMeta, &s.ObjectMeta
	}
	meta, r := admitDocument(raw, sliceType(), name, in, &s, of, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy)
	if r != nil {
		return nil, "", r
	}
	switch {
	case len(validation.IsDNS1123Label(service)) > 0 || SliceService(name) != service:
		return nil, "", forbidden("The EndpointSlice is called %q, and is for the Service %q: call it SERVICE-liqo-4-0.", text.Line(name, 253), text.Line(service, 63))
	case len(in.Network) == 0:
		return nil, "", &Refusal{ReasonNoNetwork, "The networks of the two clusters are not connected, so nothing of yours can be reached here: connect them."}
	case s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6:
		return nil, "", forbidden("The EndpointSlice has addresses of type %q: use IPv4 or IPv6.", text.Line(string(s.AddressType), 32))
	case len(s.Endpoints) > maxSliceEndpoints:
		return nil, "", forbidden("The EndpointSlice has %d endpoints, and the limit is %d: divide it.", len(s.Endpoints), maxSliceEndpoints)
	case len(s.Ports) > maxPorts:
		return nil, "", forbidden("The EndpointSlice has %d ports, and the limit is %d: divide it.", len(s.Ports), maxPorts)
	}
	out := sliceBody{TypeMeta: sliceType(), Metadata: *meta, AddressType: s.AddressType, Endpoints: []discoveryv1.Endpoint{}, Ports: []discoveryv1.EndpointPort{}}
	sliceLabels(out.Metadata.Labels, service)
	for _, e := range s.Endpoints {
		if r := admitEndpoint(&e, s.AddressType, in); r != nil {
			return nil, "", r
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	for _, p := range s.Ports {
		switch {
		case p.Port == nil || !portNumber(*p.Port):
			return nil, "", invalid("The EndpointSlice has a port that is none: use 1 to 65535.")
		case p.Name != nil && *p.Name != "" && len(validation.IsDNS1123Label(*p.Name)) > 0:
			return nil, "", invalid("The EndpointSlice has a port with the name %q: use small letters, digits and hyphens.", text.Line(*p.Name, 63))
		}
		var protocol corev1.Protocol
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if r := admitProtocol(protocol, p.AppProtocol); r != nil {
			return nil, "", r
		}
		out.Ports = append(out.Ports, p)
	}
	clean, r = encoded("EndpointSlice", out)
	return clean, service, r
}

// admitEndpoint checks an endpoint, and makes it not ready while no packets pass.
func admitEndpoint(e *discoveryv1.Endpoint, family discoveryv1.AddressType, in Guest) *Refusal {
	if len(e.Addresses) != 1 || !contains(in.Network, e.Addresses[0]) {
		return forbidden("An endpoint has other addresses than one of those by which pods of your cluster are known here: remove it.")
	}
	if v6 := strings.Contains(e.Addresses[0], ":"); v6 != (family == discoveryv1.AddressTypeIPv6) {
		return invalid("An endpoint has an address that is not of type %s: put it into another EndpointSlice.", family)
	}
	if e.Hostname != nil && len(validation.IsDNS1123Label(*e.Hostname)) > 0 {
		return invalid("An endpoint has the hostname %q: use small letters, digits and hyphens.", text.Line(*e.Hostname, 63))
	}
	is := func(b *bool, otherwise bool) *bool {
		if b == nil {
			return &otherwise
		}
		return b
	}
	ready := *is(e.Conditions.Ready, true)
	clean := discoveryv1.Endpoint{Addresses: e.Addresses, Hostname: e.Hostname, Conditions: discoveryv1.EndpointConditions{
		Serving: is(e.Conditions.Serving, ready), Terminating: is(e.Conditions.Terminating, false),
	}}
	sent := *e
	sent.Conditions = clean.Conditions
	if !reflect.DeepEqual(sent, clean) {
		return forbidden("An endpoint has fields that guests may not set: set only addresses, conditions and hostname.")
	}
	ready = ready && !in.Down
	clean.Conditions.Ready = &ready
	*e = clean
	return nil
}

func encoded(kind string, object any) ([]byte, *Refusal) {
	clean, err := json.Marshal(object)
	if err != nil {
		return nil, invalid("The %s cannot be encoded: %s.", kind, text.Line(err.Error(), 200))
	}
	return clean, nil
}

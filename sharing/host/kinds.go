package host

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

const (
	// labelManagedBy is on everything that the agent makes for consumers.
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "liqo-agent"

	// selector is what all of it has.
	selector = labelManagedBy + "=" + managedBy + "," + workload.LabelOriginCluster
)

// owner returns whose namespace, quota, role or role binding o is, "" if the agent
// did not make it for anybody.
func owner(o metav1.Object) peer.ClusterID {
	if o.GetLabels()[labelManagedBy] != managedBy {
		return ""
	}
	return origin(o)
}

// origin returns the consumer that o says it is for, "" for none.
func origin(o metav1.Object) peer.ClusterID {
	id, err := peer.ParseClusterID(o.GetLabels()[workload.LabelOriginCluster])
	if err != nil {
		return ""
	}
	return id
}

// guestPod is what matters of a pod. It is decoded from a whole one.
type guestPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   json.RawMessage `json:"spec,omitempty"` // nil once weighed
	Status struct {
		Phase corev1.PodPhase `json:"phase,omitempty"`
	} `json:"status,omitempty"`

	amounts corev1.ResourceList
	size    int64 // of the document, without what this cluster notes in it, in bytes
	grace   int64 // in seconds
	// clusterDNS: it asks the DNS of this cluster for names.
	clusterDNS bool
	ephemeral  int // how many ephemeral containers it has
}

// DeepCopyObject implements runtime.Object.
func (p *guestPod) DeepCopyObject() runtime.Object {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec, out.amounts = slices.Clone(p.Spec), p.amounts.DeepCopy()
	return &out
}

// ended is whether the pod uses nothing any more.
func (p *guestPod) ended() bool { return workload.Ended(p.Status.Phase) }

// weigh takes down what the pod counts for, and drops everything else.
func (p *guestPod) weigh() {
	var pod corev1.Pod
	if p.Spec != nil && json.Unmarshal(p.Spec, &pod.Spec) == nil { // it is an API server's
		p.amounts, p.clusterDNS = amountsOf(&pod), workload.UsesClusterDNS(&pod.Spec)
		p.grace = corev1.DefaultTerminationGracePeriodSeconds
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
			p.grace = *grace
		}
		p.ephemeral = len(pod.Spec.EphemeralContainers)
		p.size = int64(len(p.Spec)) + length(p.Labels) + length(p.Annotations)
	}
	p.Spec = nil
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
		DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		Labels: map[string]string{workload.LabelOriginCluster: p.Labels[workload.LabelOriginCluster]},
	}
}

// guestObject is what matters of a ConfigMap, Secret, Service or EndpointSlice.
type guestObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string]string `json:"binaryData,omitempty"`

	Spec      json.RawMessage        `json:"spec,omitempty"`      // of a Service; nil once weighed
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"` // of an EndpointSlice
	Ports     []json.RawMessage      `json:"ports,omitempty"`     // the same; nil once weighed

	weight
	publish bool // what a Service says about addresses that are not ready
}

// DeepCopyObject implements runtime.Object.
func (o *guestObject) DeepCopyObject() runtime.Object {
	out := *o
	out.ObjectMeta = *o.ObjectMeta.DeepCopy()
	out.Data, out.BinaryData, out.Spec, out.Ports, out.Endpoints = nil, nil, nil, nil, slices.Clone(o.Endpoints)
	return &out
}

// weigh takes down what the object costs, and drops everything else.
func (o *guestObject) weigh() {
	var spec struct {
		Ports                    []json.RawMessage `json:"ports"`
		PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses"`
	}
	if o.Spec != nil && json.Unmarshal(o.Spec, &spec) == nil { // it is an API server's
		o.publish = spec.PublishNotReadyAddresses
	}
	o.bytes, o.rules = int64(len(o.Spec)), int64(len(spec.Ports)+len(o.Endpoints)*len(o.Ports))
	for _, part := range []map[string]string{o.Data, o.BinaryData, o.Labels, o.Annotations} {
		o.bytes += length(part)
	}
	o.bytes += int64(len(o.Endpoints)) * endpointSize
	for _, port := range o.Ports {
		o.bytes += int64(len(port))
	}
	o.Data, o.BinaryData, o.Spec, o.Ports = nil, nil, nil, nil
	labels := map[string]string{workload.LabelOriginCluster: o.Labels[workload.LabelOriginCluster]}
	if service, there := o.Labels[discoveryv1.LabelServiceName]; there {
		labels[discoveryv1.LabelServiceName] = service
	}
	o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: labels}
}

// endpointSize is about how many bytes an endpoint has.
const endpointSize = 200

// length is how long keys and values are, in bytes.
func length(m map[string]string) (n int64) {
	for key, value := range m {
		n += int64(len(key) + len(value))
	}
	return n
}

// weighObject returns what the object in a document costs.
func weighObject(text []byte) (weight, error) {
	var o guestObject
	if err := json.Unmarshal(text, &o); err != nil {
		return weight{}, err
	}
	o.weigh()
	return o.weight, nil
}

// slim drops what the API server notes for itself.
func slim(o metav1.Object) { o.SetManagedFields(nil) }

func (s *session) makeCaches() {
	s.namespaces = kube.NewCache(kube.Kind[*corev1.Namespace]{
		Fresh: func() *corev1.Namespace { return new(corev1.Namespace) }, Trim: func(o *corev1.Namespace) { slim(o) }, Changed: tell[*corev1.Namespace](s),
	})
	s.quotas = kube.NewCache(kube.Kind[*corev1.ResourceQuota]{
		Fresh: func() *corev1.ResourceQuota { return new(corev1.ResourceQuota) }, Trim: func(o *corev1.ResourceQuota) { slim(o) }, Changed: tell[*corev1.ResourceQuota](s),
	})
	s.policies = kube.NewCache(kube.Kind[*networkingv1.NetworkPolicy]{
		Fresh: func() *networkingv1.NetworkPolicy { return new(networkingv1.NetworkPolicy) }, Trim: func(o *networkingv1.NetworkPolicy) { slim(o) }, Changed: tell[*networkingv1.NetworkPolicy](s),
	})
	s.roles = kube.NewCache(kube.Kind[*rbacv1.Role]{
		Fresh: func() *rbacv1.Role { return new(rbacv1.Role) }, Trim: func(o *rbacv1.Role) { slim(o) }, Changed: tell[*rbacv1.Role](s),
	})
	s.bindings = kube.NewCache(kube.Kind[*rbacv1.RoleBinding]{
		Fresh: func() *rbacv1.RoleBinding { return new(rbacv1.RoleBinding) }, Trim: func(o *rbacv1.RoleBinding) { slim(o) }, Changed: tell[*rbacv1.RoleBinding](s),
	})
	s.pods = kube.NewCache(kube.Kind[*guestPod]{
		Fresh: func() *guestPod { return new(guestPod) }, Trim: (*guestPod).weigh, Changed: s.countPod,
	})
	object := func(resource string, failed func(error)) *kube.Cache[*guestObject] {
		return kube.NewCache(kube.Kind[*guestObject]{
			Fresh: func() *guestObject { return new(guestObject) }, Trim: (*guestObject).weigh, Failed: failed,
			Changed: func(before, after *guestObject) { s.countObject(resource, before, after) },
		})
	}
	s.configMaps, s.secrets = object(resourceConfigMaps, nil), object(resourceSecrets, nil)
	s.services, s.slices = object(resourceServices, s.cannotRead), object(resourceSlices, s.cannotRead)
	s.makeClaimCaches()
}

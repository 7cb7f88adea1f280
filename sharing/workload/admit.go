package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
)

// Limits of what a consumer may send, in bytes of the body.
const (
	MaxPod    = 256 << 10
	MaxPatch  = 128 << 10
	MaxObject = 1200 << 10
)

// PatchType is the only type of patch for pods that consumers send and providers
// take.
const PatchType = types.StrategicMergePatchType

// EnforceLimits as Guest.Enforce: every container must have limits.
const EnforceLimits = "limits"

// Guest is the place that a provider lets a consumer use: what a document is
// checked against.
type Guest struct {
	// Cluster is the consumer, by the key that it proved itself with.
	Cluster peer.ClusterID
	// Namespace is the one of this cluster that the call is for.
	Namespace string
	// Arch, if not empty, is the architecture that was offered: pods run on nodes
	// with this value of the label kubernetes.io/arch.
	Arch string
	// Enforce is EnforceLimits if containers must have limits of cpu and memory.
	Enforce string
	// Offer is what the consumer may use altogether: the limit of what is written to
	// disk, and to volumes in memory, where a pod gives none.
	Offer corev1.ResourceList
	// Registries are those that images may come from.
	Registries registry.List
	// LocalImages: pods pull their images as they say, and may run what is on the node
	// already. Else each image is pulled, so that whoever runs it may have it.
	LocalImages bool
}

// Admit checks the document of a pod that a consumer wants to create. It returns
// the document and the pod that may be created instead, which has nothing that
// Admit does not know and everything that a provider insists on, or why it may not
// be. Of errors in raw only the first is told.
func Admit(raw []byte, in Guest) (clean []byte, pod *corev1.Pod, r *Refusal) {
	if len(raw) > MaxPod {
		return nil, nil, invalid("The pod is more than %d KiB long: move long texts into ConfigMaps.", MaxPod>>10)
	}
	sent, err := decodePod(raw)
	if err != nil {
		return nil, nil, invalid("The pod %s: send what an API server takes as a pod.", text(err.Error(), 200))
	}
	if sent.APIVersion != "v1" || sent.Kind != "Pod" {
		return nil, nil, invalid("The document is of another kind than a v1 Pod: only pods can be created here.")
	}
	meta, r := admitMeta(&sent.ObjectMeta, "", in)
	if r != nil {
		return nil, nil, r
	}
	if r := admitKeys(sent, meta, in); r != nil {
		return nil, nil, r
	}
	if s := outside(&sent.Spec); s != "" {
		return nil, nil, forbidden("%s", s)
	}
	if s := unportable(&sent.Spec); s != "" {
		return nil, nil, forbidden("%s", s)
	}
	pod = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: *meta, Spec: portable(&sent.Spec)}
	if in.Arch != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: in.Arch}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if r := admitResources(&list[i], &pod.Spec, in); r != nil {
				return nil, nil, r
			}
		}
	}
	if res := pod.Spec.Resources; res != nil {
		if r := admitQuantities("The pod", *res); r != nil {
			return nil, nil, r
		}
	}
	if r := admitImages(&pod.Spec, in); r != nil {
		return nil, nil, r
	}
	harden(&pod.Spec, in)
	if clean, err = json.Marshal(pod); err != nil {
		return nil, nil, invalid("The pod cannot be written down: %s.", text(err.Error(), 200))
	}
	return clean, pod, nil
}

func invalid(format string, args ...any) *Refusal {
	return &Refusal{Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

func forbidden(format string, args ...any) *Refusal {
	return &Refusal{Reason: ReasonForbidden, Message: fmt.Sprintf(format, args...)}
}

// admitMeta checks what all objects of consumers have in common and returns what may
// be of it, without labels and annotations. name is what it must be called, "" for
// any name.
func admitMeta(sent *metav1.ObjectMeta, name string, in Guest) (*metav1.ObjectMeta, *Refusal) {
	switch {
	case sent.GenerateName != "":
		return nil, forbidden("generateName is not for guests: give the name that the object has in its own cluster.")
	case len(validation.IsDNS1123Subdomain(sent.Name)) > 0:
		return nil, invalid("%q is no name of an object: give the name that the object has in its own cluster.", text(sent.Name, 253))
	case name != "" && sent.Name != name:
		return nil, invalid("The object is called %q, but the request is for %q: send it there.", text(sent.Name, 253), text(name, 253))
	case sent.Namespace != "" && sent.Namespace != in.Namespace:
		return nil, forbidden("The object is for namespace %q, but the request for %q: send it there.", text(sent.Namespace, 63), in.Namespace)
	case len(sent.OwnerReferences) > 0:
		return nil, forbidden("ownerReferences name objects of another cluster: leave them out.")
	case len(sent.Finalizers) > 0:
		return nil, forbidden("finalizers are not for guests, whose objects must go when they are told to: leave them out.")
	}
	if owner, ok := sent.Labels[LabelOriginCluster]; ok && owner != string(in.Cluster) {
		return nil, forbidden("The label %s says %q, but this is %s: set it to the cluster's own ID.", LabelOriginCluster, text(owner, 63), in.Cluster)
	}
	if uid := sent.Annotations[AnnotationOriginUID]; !uidPattern.MatchString(uid) {
		return nil, invalid("The annotation %s has to be the UID of the object that this one stands for: set it.", AnnotationOriginUID)
	}
	return &metav1.ObjectMeta{
		Name: sent.Name, Namespace: in.Namespace,
		Labels:      map[string]string{LabelOriginCluster: string(in.Cluster)},
		Annotations: map[string]string{AnnotationOriginUID: sent.Annotations[AnnotationOriginUID]},
	}, nil
}

// uidPattern is what UIDs of Kubernetes look like, and a little more.
var uidPattern = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z._-]{0,126}[0-9A-Za-z])?$`)

// admitKeys adds the labels and annotations of a pod to what it may have.
func admitKeys(sent *corev1.Pod, meta *metav1.ObjectMeta, in Guest) *Refusal {
	for _, key := range slices.Sorted(maps.Keys(sent.Labels)) {
		if r := admitKey("label", key, key == LabelOriginCluster || carries(key)); r != nil {
			return r
		}
		meta.Labels[key] = sent.Labels[key]
	}
	for _, key := range slices.Sorted(maps.Keys(sent.Annotations)) {
		if r := admitKey("annotation", key, key == AnnotationOriginUID || ownAnnotation(key) || carriesAnnotation(key)); r != nil {
			return r
		}
		meta.Annotations[key] = sent.Annotations[key]
	}
	if ns, ok := meta.Annotations[AnnotationOriginNamespace]; ok && len(validation.IsDNS1123Label(ns)) > 0 {
		return invalid("The annotation %s has to be the name of a namespace: set it to that of the origin pod.", AnnotationOriginNamespace)
	}
	return nil
}

// ownAnnotation reports whether key is one of ours that a consumer sets for itself.
func ownAnnotation(key string) bool {
	return key == AnnotationOriginNamespace || key == AnnotationApplied
}

func admitKey(what, key string, known bool) *Refusal {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 { // $patch too, which is a directive
		return invalid("%q cannot be the key of a %s: give one like example.com/name.", text(key, 317), what)
	}
	if known {
		return nil
	}
	return forbidden("The %s %q may mean something to this cluster, and is not for guests: leave it out.", what, text(key, 317))
}

// outside returns a sentence about the first thing of a spec that is about the
// cluster around the pod: where it runs, as whom, before whom.
func outside(s *corev1.PodSpec) string {
	switch {
	case s.NodeName != "":
		return "nodeName is not for guests, whose pods this cluster's scheduler places: leave it out."
	case len(s.NodeSelector) > 0, s.Affinity != nil, len(s.TopologySpreadConstraints) > 0:
		return "nodeSelector, affinity and topologySpreadConstraints are not for guests, who do not choose among this cluster's nodes: leave them out."
	case len(s.Tolerations) > 0:
		return "tolerations are not for guests, who run on untainted nodes: leave them out."
	case s.ServiceAccountName != "" && s.ServiceAccountName != "default", s.DeprecatedServiceAccount != "" && s.DeprecatedServiceAccount != "default":
		return "serviceAccountName is not for guests, who have no identity in this cluster: leave it out."
	case s.AutomountServiceAccountToken != nil && *s.AutomountServiceAccountToken:
		return "automountServiceAccountToken is not for guests, who have no identity in this cluster: set it to false."
	case s.Priority != nil, s.PriorityClassName != "", s.PreemptionPolicy != nil:
		return "priorityClassName, priority and preemptionPolicy are not for guests: leave them out."
	case s.RuntimeClassName != nil, len(s.Overhead) > 0:
		return "runtimeClassName and overhead are not for guests, as runtime classes are the cluster's own: leave them out."
	case s.SchedulerName != "" && s.SchedulerName != corev1.DefaultSchedulerName, len(s.SchedulingGates) > 0, s.SchedulingGroup != nil:
		return "schedulerName, schedulingGates and schedulingGroup are not for guests: leave them out."
	case len(s.ReadinessGates) > 0:
		return "readinessGates are not for guests, as nothing here opens them: leave them out, and look them up in the pod's own cluster."
	case len(s.EphemeralContainers) > 0:
		return "ephemeralContainers are not for guests: leave them out."
	}
	return ""
}

// counted are the resources that every container must say something about, so that
// quotas count it (https://kubernetes.io/docs/concepts/policy/resource-quotas/).
var counted = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// admitResources checks what a container asks for and fills in what it left out.
func admitResources(c *corev1.Container, spec *corev1.PodSpec, in Guest) *Refusal {
	who := fmt.Sprintf("Container %q", text(c.Name, 63))
	if r := admitQuantities(who, c.Resources); r != nil {
		return r
	}
	if in.Enforce == EnforceLimits {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			if !ok && spec.Resources != nil {
				limit, ok = spec.Resources.Limits[name]
			}
			if !ok || limit.IsZero() {
				return forbidden("%s has no limit of %s, and this cluster takes no guests without: set resources.limits.%s.", who, name, name)
			}
		}
	}
	requests := maps.Clone(c.Resources.Requests)
	if requests == nil {
		requests = make(corev1.ResourceList)
	}
	for _, name := range counted {
		if _, ok := requests[name]; ok {
			continue
		}
		requests[name] = resource.MustParse("0")
		if limit, ok := c.Resources.Limits[name]; ok {
			requests[name] = limit.DeepCopy()
		}
	}
	c.Resources.Requests = requests
	return nil
}

// admitQuantities checks that amounts add up.
func admitQuantities(who string, r corev1.ResourceRequirements) *Refusal {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if q := list[name]; q.Sign() < 0 {
				return invalid("%s asks for a negative amount of %s: ask for none or some.", who, text(string(name), 253))
			}
		}
	}
	return nil
}

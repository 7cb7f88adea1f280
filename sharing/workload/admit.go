package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/registry"
)

// Limits of what a consumer may send, in bytes of the body.
const (
	MaxPod    = 256 << 10
	MaxPatch  = 128 << 10
	MaxObject = 1200 << 10
)

// PatchType is the only type of patch for pods that consumers send and providers
// accept.
const PatchType = types.StrategicMergePatchType

// EnforceLimits as Guest.Enforce: every container must have limits.
const EnforceLimits = "limits"

// Guest is what a document of a consumer is checked against.
type Guest struct {
	// Cluster is the consumer, as its key proved.
	Cluster peer.ClusterID
	// Namespace is the namespace of this cluster that the request is for, and Origin the
	// one of the consumer that it stands for.
	Namespace, Origin string
	// Nameservers are the addresses at which guests ask for names as in their own cluster;
	// none: they ask the DNS of this cluster.
	Nameservers []string
	// Arch, if not empty, is the architecture that was offered: pods run on nodes
	// with this value of the label kubernetes.io/arch.
	Arch string
	// Enforce is EnforceLimits if containers must have limits of cpu and memory.
	Enforce string
	// Offer is what the consumer may use in total. It limits what a pod without limits of
	// its own writes to disk, and to volumes in memory.
	Offer corev1.ResourceList
	// Registries are those that images may come from.
	Registries registry.List
	// LocalImages: the imagePullPolicy of pods stays, so they may use images that are on the
	// node. Otherwise it becomes Always, so the registry checks who may have an image.
	LocalImages bool
	// Network are the addresses by which the consumer's pods are known here, none while the
	// clusters are not connected. Down: no packets pass at present.
	Network []netip.Prefix
	Down    bool
	// Class is the storage class of the consumer's claims, "" for the default one.
	Class string
	// HasClaim reports whether the consumer has made a claim of that name in Namespace. Nil: it
	// has none.
	HasClaim func(name string) bool
}

// Admit checks a pod that a consumer wants to create. It returns the pod that may be created
// instead, as JSON and decoded, or why it is refused: only fields that Admit knows, with what
// the provider enforces. Only the first error in raw is reported.
func Admit(raw []byte, in Guest) (clean []byte, pod *corev1.Pod, r *Refusal) {
	if len(raw) > MaxPod {
		return nil, nil, invalid("The pod is larger than %d KiB: move long texts into ConfigMaps.", MaxPod>>10)
	}
	sent, err := decodePod(raw)
	if err != nil {
		return nil, nil, invalid("The pod %s: send a valid v1 Pod.", text.Line(err.Error(), 200))
	}
	if sent.APIVersion != "v1" || sent.Kind != "Pod" {
		return nil, nil, invalid("The document is not a v1 Pod: only pods can be created here.")
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
	if r := ownClaims(&sent.Spec, in); r != nil {
		return nil, nil, r
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
	resolve(&pod.Spec, in)
	if clean, err = json.Marshal(pod); err != nil {
		return nil, nil, invalid("The pod cannot be encoded: %s.", text.Line(err.Error(), 200))
	}
	return clean, pod, nil
}

func invalid(format string, args ...any) *Refusal {
	return &Refusal{Reason: ReasonInvalid, Message: fmt.Sprintf(format, args...)}
}

func forbidden(format string, args ...any) *Refusal {
	return &Refusal{Reason: ReasonForbidden, Message: fmt.Sprintf(format, args...)}
}

// admitMeta checks the metadata of an object, and returns what is admitted of it, without
// labels and annotations of its own. name is the required name, "" for any.
func admitMeta(sent *metav1.ObjectMeta, name string, in Guest) (*metav1.ObjectMeta, *Refusal) {
	switch {
	case sent.GenerateName != "":
		return nil, forbidden("Guests may not set generateName: use the name that the object has in its own cluster.")
	case len(validation.IsDNS1123Subdomain(sent.Name)) > 0:
		return nil, invalid("%q is not a valid name of an object: use the name that the object has in its own cluster.", text.Line(sent.Name, 253))
	case name != "" && sent.Name != name:
		return nil, invalid("The object has the name %q, but the request is for %q: use the same name.", text.Line(sent.Name, 253), text.Line(name, 253))
	case sent.Namespace != "" && sent.Namespace != in.Namespace:
		return nil, forbidden("The object is for namespace %q, but the request is for %q: use the same namespace.", text.Line(sent.Namespace, 63), in.Namespace)
	case len(sent.OwnerReferences) > 0:
		return nil, forbidden("ownerReferences refer to objects of another cluster: remove them.")
	case len(sent.Finalizers) > 0:
		return nil, forbidden("Guests may not set finalizers, because their objects must be deletable at any time: remove them.")
	}
	if owner, ok := sent.Labels[LabelOriginCluster]; ok && owner != string(in.Cluster) {
		return nil, forbidden("The label %s is %q, but the caller is %s: set it to the ID of the caller.", LabelOriginCluster, text.Line(owner, 63), in.Cluster)
	}
	if uid := sent.Annotations[AnnotationOriginUID]; !uidPattern.MatchString(uid) {
		return nil, invalid("The annotation %s must be the UID of the origin object: set it.", AnnotationOriginUID)
	}
	return &metav1.ObjectMeta{
		Name: sent.Name, Namespace: in.Namespace,
		Labels:      map[string]string{LabelOriginCluster: string(in.Cluster)},
		Annotations: map[string]string{AnnotationOriginUID: sent.Annotations[AnnotationOriginUID]},
	}, nil
}

// uidPattern matches UIDs of Kubernetes, and a little more.
var uidPattern = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z._-]{0,126}[0-9A-Za-z])?$`)

// admitKeys checks the labels and annotations of a pod, and adds them to meta.
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
		return invalid("The annotation %s must be the name of a namespace: set it to that of the origin pod.", AnnotationOriginNamespace)
	}
	return nil
}

// ownAnnotation reports whether key is an annotation of the agent that consumers set.
func ownAnnotation(key string) bool {
	return key == AnnotationOriginNamespace || key == AnnotationApplied
}

func admitKey(what, key string, known bool) *Refusal {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 { // $patch too, which is a directive
		return invalid("%q is not a valid key of a %s: use one like example.com/name.", text.Line(key, 317), what)
	}
	if known {
		return nil
	}
	return forbidden("Guests may not set the %s %q, because it may have a meaning in this cluster: remove it.", what, text.Line(key, 317))
}

// outside returns a sentence about the first field of a spec that refers to the cluster
// around the pod: scheduling, identity, priority. It returns "" if there is none.
func outside(s *corev1.PodSpec) string {
	switch {
	case s.NodeName != "":
		return "Guests may not set nodeName, because the scheduler of this cluster places their pods: remove it."
	case len(s.NodeSelector) > 0, s.Affinity != nil, len(s.TopologySpreadConstraints) > 0:
		return "Guests may not set nodeSelector, affinity and topologySpreadConstraints, because they cannot select nodes of this cluster: remove them."
	case len(s.Tolerations) > 0:
		return "Guests may not set tolerations, because they run only on untainted nodes: remove them."
	case s.ServiceAccountName != "" && s.ServiceAccountName != "default", s.DeprecatedServiceAccount != "" && s.DeprecatedServiceAccount != "default":
		return "Guests may not set serviceAccountName, because they have no identity in this cluster: remove it."
	case s.AutomountServiceAccountToken != nil && *s.AutomountServiceAccountToken:
		return "Guests may not use automountServiceAccountToken, because they have no identity in this cluster: set it to false."
	case s.Priority != nil, s.PriorityClassName != "", s.PreemptionPolicy != nil:
		return "Guests may not set priorityClassName, priority and preemptionPolicy: remove them."
	case s.RuntimeClassName != nil, len(s.Overhead) > 0:
		return "Guests may not set runtimeClassName and overhead, because they cannot select runtime classes of this cluster: remove them."
	case s.SchedulerName != "" && s.SchedulerName != corev1.DefaultSchedulerName, len(s.SchedulingGates) > 0, s.SchedulingGroup != nil:
		return "Guests may not set schedulerName, schedulingGates and schedulingGroup: remove them."
	case len(s.ReadinessGates) > 0:
		return "Guests may not set readinessGates, because nothing in this cluster sets their conditions: remove them, and evaluate them in the cluster of the pod."
	case len(s.EphemeralContainers) > 0:
		return "Guests may not set ephemeralContainers: remove them."
	}
	return ""
}

// counted are the resources that every container must request, so that quotas count it
// (https://kubernetes.io/docs/concepts/policy/resource-quotas/).
var counted = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// admitResources checks the resources of a container, and adds missing requests.
func admitResources(c *corev1.Container, spec *corev1.PodSpec, in Guest) *Refusal {
	who := fmt.Sprintf("Container %q", text.Line(c.Name, 63))
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
				return forbidden("%s has no limit of %s, which this cluster requires of guests: set resources.limits.%s.", who, name, name)
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

// admitQuantities refuses negative amounts.
func admitQuantities(who string, r corev1.ResourceRequirements) *Refusal {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if q := list[name]; q.Sign() < 0 {
				return invalid("%s requests a negative amount of %s: set zero or more.", who, text.Line(string(name), 253))
			}
		}
	}
	return nil
}

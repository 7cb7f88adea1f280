package workload

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// AnnotationOriginNamespace on a pod of a provider is the namespace of the pod
	// that it stands for.
	AnnotationOriginNamespace = "liqo.io/origin-namespace"
	// AnnotationApplied on a pod of a provider is what the consumer set that may
	// change later, for itself to compare with: what else there is belongs to the
	// provider.
	AnnotationApplied = "liqo.io/applied"

	// own is the domain of our keys.
	own = "liqo.io"

	// maxAnnotations is how many bytes of a pod's annotations go along.
	maxAnnotations = 64 << 10
)

// carried are the labels and annotations in domains of Kubernetes that go along with
// a pod, because those who run in it read them. All others there are directions to
// controllers, admission or kubelets of one cluster.
var carried = map[string]bool{
	"apps.kubernetes.io/pod-index":                true,
	"batch.kubernetes.io/controller-uid":          true,
	"batch.kubernetes.io/job-completion-index":    true,
	"batch.kubernetes.io/job-index-failure-count": true,
	"batch.kubernetes.io/job-name":                true,
	"kubectl.kubernetes.io/default-container":     true,
	"kubectl.kubernetes.io/restartedAt":           true,
	"kubernetes.io/description":                   true,
	"statefulset.kubernetes.io/pod-name":          true,
}

// reserved are the domains, with all below them, whose labels attach
// pods to networks, devices or identities of the cluster that they run in, or belong
// to what runs there.
var reserved = []string{
	"kubernetes.io", "k8s.io", own,
	"cncf.io", "multus-cni.io", "projectcalico.org", "cilium.io", "antrea.io", "kube-ovn.io", "ovn.org", "openshift.io",
	"katacontainers.io", "containerd.io", "cri-o.io", "istio.io", "linkerd.io", "datadoghq.com", "dapr.io", "hashicorp.com", "knative.dev",
	"nvidia.com", "amazonaws.com", "azure.com", "workload.identity", "gke.io",
}

// reversed are beginnings of keys that name container runtimes and what belongs to
// them the other way round, without a domain in front of a slash.
var reversed = []string{"io.kubernetes.", "io.cilium.", "io.containerd.", "io.katacontainers.", "io.cri-o.", "org.systemd."}

// carries reports whether a label goes from consumer to provider as it is. Those of
// ours are set on their own.
func carries(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	for _, begin := range reversed {
		if strings.HasPrefix(key, begin) {
			return false
		}
	}
	if !prefixed {
		return true
	}
	if domain == "app.kubernetes.io" || carried[key] {
		return true
	}
	for _, r := range reserved {
		if domain == r || strings.HasSuffix(domain, "."+r) {
			return false
		}
	}
	return true
}

// carriesAnnotation reports whether an annotation goes from consumer to provider as
// it is. Annotations direct what runs in a cluster, and nobody knows all that does:
// only those go along that are known to be read in the pod, and those without a
// slash or dot, which are private to whoever wrote them.
func carriesAnnotation(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return !strings.Contains(key, ".")
	}
	return domain == "app.kubernetes.io" || carried[key]
}

// carriedLabels returns what goes along of labels.
func carriedLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	for key, value := range labels {
		if carries(key) {
			out[key] = value
		}
	}
	return out
}

// carriedAnnotations returns what goes along of annotations: of more than
// maxAnnotations bytes the small ones.
func carriedAnnotations(annotations map[string]string) map[string]string {
	keys := foreign(annotations, carriesAnnotation)
	size := func(key string) int { return len(key) + len(annotations[key]) }
	slices.SortStableFunc(keys, func(a, b string) int { return size(a) - size(b) })
	out, total := make(map[string]string, len(keys)+3), 0
	for _, key := range keys {
		if total += size(key); total > maxAnnotations {
			break
		}
		out[key] = annotations[key]
	}
	return out
}

// applied is what AnnotationApplied holds, as JSON.
type applied struct {
	Labels      []string          `json:"labels,omitempty"`
	Annotations []string          `json:"annotations,omitempty"`
	Images      map[string]string `json:"images,omitempty"` // by container
}

// appliedOf returns what a translated pod is going to have applied.
func appliedOf(out *corev1.Pod) applied {
	a := applied{Labels: foreign(out.Labels, carries), Annotations: foreign(out.Annotations, carriesAnnotation), Images: make(map[string]string)}
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			a.Images[list[i].Name] = list[i].Image
		}
	}
	return a
}

// foreign returns the keys that go along as they are, in order.
func foreign(m map[string]string, carries func(key string) bool) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if carries(key) {
			out = append(out, key)
		}
	}
	return out
}

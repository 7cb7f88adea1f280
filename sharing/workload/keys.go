package workload

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// AnnotationOriginNamespace on a pod of a provider is the namespace of the origin
	// pod.
	AnnotationOriginNamespace = "liqo.io/origin-namespace"
	// AnnotationApplied on a pod of a provider lists the changeable fields that the consumer
	// set. It tells them apart from those that the provider set.
	AnnotationApplied = "liqo.io/applied"

	// own is the domain of the agent's keys.
	own = "liqo.io"

	// maxAnnotations is how many bytes of a pod's annotations are sent.
	maxAnnotations = 64 << 10
)

// carried are the labels and annotations in domains of Kubernetes that are sent with a pod,
// because programs in the pod read them. All others there are for controllers, admission or
// kubelets of one cluster.
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

// reserved are domains, with their subdomains, whose labels attach pods to networks, devices or
// identities of the cluster that they run in, or belong to software there.
var reserved = []string{
	"kubernetes.io", "k8s.io", own,
	"cncf.io", "multus-cni.io", "projectcalico.org", "cilium.io", "antrea.io", "kube-ovn.io", "ovn.org", "openshift.io",
	"katacontainers.io", "containerd.io", "cri-o.io", "istio.io", "linkerd.io", "datadoghq.com", "dapr.io", "hashicorp.com", "knative.dev",
	"nvidia.com", "amazonaws.com", "azure.com", "workload.identity", "gke.io",
}

// reversed are prefixes of keys of container runtimes, written as reversed domains without a
// slash.
var reversed = []string{"io.kubernetes.", "io.cilium.", "io.containerd.", "io.katacontainers.", "io.cri-o.", "org.systemd."}

// carries reports whether a label is sent to the provider as it is. The agent's own labels are
// set separately.
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

// carriesAnnotation reports whether an annotation is sent to the provider as it is. Annotations
// configure the software of a cluster, and there is no list of all of them. So only two kinds
// are sent: those that programs in the pod are known to read, and those without a slash or
// dot, which are private to their author.
func carriesAnnotation(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return !strings.Contains(key, ".")
	}
	return domain == "app.kubernetes.io" || carried[key]
}

// carriedLabels returns the labels that are sent.
func carriedLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	for key, value := range labels {
		if carries(key) {
			out[key] = value
		}
	}
	return out
}

// carriedAnnotations returns the annotations that are sent; the smallest ones, if there are more
// than maxAnnotations bytes.
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

// applied is the content of AnnotationApplied, as JSON.
type applied struct {
	Labels      []string          `json:"labels,omitempty"`
	Annotations []string          `json:"annotations,omitempty"`
	Images      map[string]string `json:"images,omitempty"` // by container
	Tokens      bool              `json:"tokens,omitempty"` // the pod mounts its TokenSecret
}

// appliedOf returns the changeable fields that a translated pod sets.
func appliedOf(out *corev1.Pod) applied {
	a := applied{Labels: foreign(out.Labels, carries), Annotations: foreign(out.Annotations, carriesAnnotation), Images: make(map[string]string)}
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			a.Images[list[i].Name] = list[i].Image
		}
	}
	return a
}

// foreign returns the keys that are sent as they are, in order.
func foreign(m map[string]string, carries func(key string) bool) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if carries(key) {
			out = append(out, key)
		}
	}
	return out
}

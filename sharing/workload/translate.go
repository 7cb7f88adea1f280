package workload

import (
	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer"
)

// Origin is what a consumer knows about the place that a pod is sent to.
type Origin struct {
	// Cluster is the consumer: this cluster.
	Cluster peer.ClusterID
	// Namespace is the provider's namespace that stands for the pod's.
	Namespace string
	// Node is the name of the virtual node, and Addresses are its IP addresses: at
	// most one of each family, the primary one first.
	Node      string
	Addresses []string
}

// Translate returns the pod that is sent to the provider for pod, which is bound to
// in.Node, or why it cannot run there. The result shares nothing with pod, which
// is not changed, and is the same for the same arguments.
func Translate(pod *corev1.Pod, in Origin) (*corev1.Pod, *Refusal) {
	out := pod.DeepCopy()
	out.Namespace = in.Namespace
	return out, nil
}

// Change returns what to send to the provider so that theirs, its copy of mine,
// follows what may change in a pod: labels, annotations, images and
// activeDeadlineSeconds. The patch is of type [PatchType] and holds the UID of
// theirs as a precondition. ok is false if there is nothing to send.
func Change(mine, theirs *corev1.Pod, in Origin) (patch []byte, ok bool) {
	return nil, false
}

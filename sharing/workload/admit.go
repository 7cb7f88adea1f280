package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer"
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
}

// Admit checks the document of a pod that a consumer wants to create. It returns
// the document and the pod that may be created instead, which has nothing that
// Admit does not know and everything that a provider insists on, or why it may not
// be. Of errors in raw only the first is told.
func Admit(raw []byte, in Guest) (clean []byte, pod *corev1.Pod, r *Refusal) {
	return nil, nil, &Refusal{Reason: ReasonInvalid}
}

// AdmitPatch checks a patch of type [PatchType] of a pod, and returns the one that
// may be applied instead, or why there is none. Labels, annotations, images and
// activeDeadlineSeconds can be changed, and a UID can be given as a precondition.
func AdmitPatch(raw []byte, in Guest) (clean []byte, r *Refusal) {
	return nil, &Refusal{Reason: ReasonInvalid}
}

// AdmitObject checks the body of a server-side apply of a ConfigMap or Secret, as
// kind says, called name, and returns the body (JSON) that may be applied instead,
// or why there is none.
func AdmitObject(raw []byte, kind, name string, in Guest) (clean []byte, r *Refusal) {
	return nil, &Refusal{Reason: ReasonInvalid}
}

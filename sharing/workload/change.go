package workload

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podPatch has the fields that consumers may change in their pods at a provider. All patches
// of pods have this form.
type podPatch struct {
	Metadata patchMeta  `json:"metadata"`
	Spec     *patchSpec `json:"spec,omitempty"`
}

type patchMeta struct {
	UID         types.UID          `json:"uid,omitempty"` // a precondition
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

type patchSpec struct {
	ActiveDeadlineSeconds *int64       `json:"activeDeadlineSeconds,omitempty"`
	InitContainers        []patchImage `json:"initContainers,omitempty"`
	Containers            []patchImage `json:"containers,omitempty"`
}

type patchImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Change returns the patch that makes theirs, the provider's copy, follow mine in what can
// change: labels, annotations, images and activeDeadlineSeconds. The patch is of type
// [PatchType], with the UID of theirs as a precondition. ok is false if there is nothing to
// change.
//
// Labels and annotations that the provider added stay, and so does an image that it
// replaced.
func Change(mine, theirs *corev1.Pod, in Origin) (patch []byte, ok bool) {
	if !IsCopy(mine, theirs) {
		return nil, false
	}
	before := appliedTo(theirs)
	in.Tokens = before.Tokens // what a pod mounts does not change
	want, refused := Translate(mine, in)
	if refused != nil {
		return nil, false
	}
	p := podPatch{Metadata: patchMeta{
		UID:         theirs.UID,
		Labels:      changedKeys(want.Labels, theirs.Labels, before.Labels, carries),
		Annotations: changedKeys(want.Annotations, theirs.Annotations, before.Annotations, carriesAnnotation),
	}}
	spec := patchSpec{
		InitContainers: changedImages(want.Spec.InitContainers, theirs.Spec.InitContainers, before.Images),
		Containers:     changedImages(want.Spec.Containers, theirs.Spec.Containers, before.Images),
	}
	// API servers allow only to set or to shorten a deadline.
	if now, then := want.Spec.ActiveDeadlineSeconds, theirs.Spec.ActiveDeadlineSeconds; now != nil && (then == nil || *now < *then) {
		spec.ActiveDeadlineSeconds = now
	}
	if spec.InitContainers != nil || spec.Containers != nil || spec.ActiveDeadlineSeconds != nil {
		p.Spec = &spec
	}
	if p.Spec == nil && p.Metadata.Labels == nil && p.Metadata.Annotations == nil {
		return nil, false
	}
	patch, err := json.Marshal(p)
	return patch, err == nil
}

// appliedTo returns what was set in a provider's copy; nothing if the provider damaged that, so that
// nothing is removed then.
func appliedTo(theirs *corev1.Pod) applied {
	var before applied
	if err := json.Unmarshal([]byte(theirs.Annotations[AnnotationApplied]), &before); err != nil {
		return applied{}
	}
	return before
}

func changedKeys(want, have map[string]string, before []string, carries func(key string) bool) map[string]*string {
	out := make(map[string]*string)
	for key, value := range want {
		if now, ok := have[key]; !ok || now != value {
			out[key] = &value
		}
	}
	for _, key := range before {
		_, wanted := want[key]
		if _, ok := have[key]; ok && !wanted && carries(key) {
			out[key] = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func changedImages(want, have []corev1.Container, before map[string]string) []patchImage {
	var out []patchImage
	for i := range want {
		name, image := want[i].Name, want[i].Image
		at := slices.IndexFunc(have, func(c corev1.Container) bool { return c.Name == name })
		if at < 0 || have[at].Image == image {
			continue
		}
		// If this image was sent and theirs differs, the provider replaced it.
		if sent, ok := before[name]; ok && sent == image {
			continue
		}
		out = append(out, patchImage{Name: name, Image: image})
	}
	return out
}

package volumes

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
)

const (
	// AnnotationPolicy on a volume is the reclaim policy that it had before its hand-over, and gets
	// back after it; AnnotationClaim is the name of the claim that it is handed over to.
	AnnotationPolicy = "storage.liqo.io/reclaim-policy"
	AnnotationClaim  = "storage.liqo.io/claim"

	// BehindPrefix begins the name of the claim behind one at home; the UID of that follows.
	BehindPrefix = "liqo-"
	// BehindPattern matches the names of claims behind those at home, and nothing else (RE2).
	BehindPattern = "^" + BehindPrefix + "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
)

var behindName = regexp.MustCompile(BehindPattern)

// owner returns the claim that another one stands behind; false for claims that the agent did not
// make for that.
func owner(behind *corev1.PersistentVolumeClaim) (metav1.OwnerReference, bool) {
	if behind.Labels[api.LabelManagedBy] != api.ManagedByAgent || !behindName.MatchString(behind.Name) || len(behind.OwnerReferences) != 1 {
		return metav1.OwnerReference{}, false
	}
	ref := behind.OwnerReferences[0]
	return ref, ref.Kind == "PersistentVolumeClaim" && behind.Name == BehindPrefix+string(ref.UID)
}

// handover is how far a claim at home is: its volume is made for the claim behind it, and then
// handed over to it.
type handover struct {
	uid    types.UID                     // of the claim
	behind *corev1.PersistentVolumeClaim // nil if there is none
	volume *corev1.PersistentVolume      // that the claim behind has, or had; nil if there is none
}

// handedTo returns the claim for which a volume has a note; false for volumes without one.
func handedTo(volume *corev1.PersistentVolume) (namespace, name string, uid types.UID, ok bool) {
	ref := volume.Spec.ClaimRef
	name = volume.Annotations[AnnotationClaim]
	if ref == nil || name == "" || volume.Annotations[AnnotationPolicy] == "" {
		return "", "", "", false
	}
	if ref.Name == name {
		return ref.Namespace, name, ref.UID, true
	}
	uid = types.UID(strings.TrimPrefix(ref.Name, BehindPrefix))
	return ref.Namespace, name, uid, behindName.MatchString(ref.Name)
}

// choice is where the scheduler wants a claim.
type choice int

const (
	undecided choice = iota // it has not said so
	home                    // on a node of this cluster
	elsewhere               // at a provider; or the claim has a volume, or is gone
)

// step is what is to be done next about a claim at home.
type step int

const (
	wait    step = iota // others act, or it is done
	create              // make the claim behind
	protect             // have the volume outlive the claim behind
	drop                // delete the claim behind
	hand                // give the volume to the claim
	restore             // give the volume its reclaim policy back
	refuse              // the provisioner cannot make the volume on the chosen node
)

// next returns the next step. claim is nil if it is gone, and node the one that the scheduler chose.
//
// The order makes sure that whoever is killed between two steps loses nothing and leaves nothing
// behind: the volume has the policy Retain, and a note of its own, from before the claim behind it
// goes until it is bound to the claim. While it is Released and has the policy Delete, its
// provisioner deletes it.
func (h handover) next(claim *corev1.PersistentVolumeClaim, want choice, node string) step {
	if h.volume != nil && h.volume.Annotations[AnnotationPolicy] != "" {
		return h.nextOfProtected(claim, want, node)
	}
	b := h.behind
	switch {
	case b == nil && want == home:
		return create
	case b == nil || b.DeletionTimestamp != nil:
		return wait
	case !h.fits(want, node), b.Status.Phase == corev1.ClaimLost:
		return drop
	case h.volume != nil && h.volume.Status.Phase == corev1.VolumeBound && b.Status.Phase == corev1.ClaimBound && h.volume.DeletionTimestamp == nil && refersTo(h.volume, b):
		return protect
	case b.Spec.VolumeName == "" && b.Annotations[annotationSelected] == "":
		return refuse
	}
	return wait
}

// nextOfProtected is next for a volume with a note.
func (h handover) nextOfProtected(claim *corev1.PersistentVolumeClaim, want choice, node string) step {
	_, name, _, known := handedTo(h.volume)
	switch {
	case !known:
		return wait // somebody changed to whom it refers, or the note: it is theirs
	case h.volume.Spec.ClaimRef.Name == name:
		bound := claim != nil && claim.Spec.VolumeName != ""
		if claim != nil && !bound || bound && claim.Spec.VolumeName == h.volume.Name && (claim.Status.Phase != corev1.ClaimBound || h.volume.Status.Phase != corev1.VolumeBound) {
			return wait // for Kubernetes to bind it
		}
		return restore
	case h.behind != nil && refersTo(h.volume, h.behind):
		switch {
		case !h.fits(want, node):
			return restore
		case h.behind.DeletionTimestamp != nil:
			return wait
		}
		return drop
	case want == elsewhere || h.volume.DeletionTimestamp != nil || h.volume.Status.Phase == corev1.VolumeFailed ||
		h.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return restore
	}
	return hand
}

// fits reports whether the claim behind is still wanted as it is.
func (h handover) fits(want choice, node string) bool {
	made := h.behind.Annotations[annotationSelected]
	switch want {
	case home:
		return made == "" || made == node
	case undecided:
		return made != "" || h.behind.Spec.VolumeName != ""
	}
	return false
}

// refersTo reports whether a volume is for a claim.
func refersTo(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Namespace == claim.Namespace && ref.Name == claim.Name
}

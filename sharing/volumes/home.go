package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

// reasonWaiting is the reason of the event about a claim at home whose volume takes long.
const reasonWaiting = "WaitingForProvisioner"

// slowAfter is how long a provisioner of this cluster may take for a volume before people are told.
const slowAfter = time.Minute

// keyOf returns what is to be reconciled when a claim changes: itself, or the one that it stands behind.
func keyOf(c *corev1.PersistentVolumeClaim) key {
	if ref, is := owner(c); is {
		return key{aClaim, c.Namespace, ref.Name}
	}
	return key{aClaim, c.Namespace, c.Name}
}

// handovers returns what there is behind the claims that have, or had, a name, by UID.
func (s *session) handovers(namespace, name string) map[types.UID]handover {
	out := make(map[types.UID]handover)
	for _, b := range s.claims.By(namespace + "/" + name) {
		ref, _ := owner(b)
		out[ref.UID] = handover{uid: ref.UID, behind: b, volume: s.volumes.Get("", b.Spec.VolumeName)}
	}
	for _, v := range s.volumes.By(namespace + "/" + name) {
		_, _, uid, _ := handedTo(v)
		out[uid] = handover{uid: uid, behind: out[uid].behind, volume: v}
	}
	return out
}

// choose returns where the scheduler wants a claim, and the node; claim may be nil.
func (s *session) choose(claim *corev1.PersistentVolumeClaim) (choice, string) {
	if claim == nil || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || s.volumes.Get("", volumeName(claim.UID)) != nil || !s.ofOwnClass(claim) {
		return elsewhere, ""
	}
	node := claim.Annotations[annotationSelected]
	n := s.nodes.Get("", node)
	if n == nil || claim.Annotations[annotationFor] != workload.Provisioner {
		return undecided, ""
	}
	if _, virtual := n.provider(); virtual {
		return elsewhere, ""
	}
	return home, node
}

// reconcileHome takes the next step about the claims at home that have, or had, a name. done reports
// whether the claim, which is nil if there is none, is not to be kept at home, and nothing is left of
// an attempt to.
func (s *session) reconcileHome(ctx context.Context, namespace, name string, claim *corev1.PersistentVolumeClaim) (done bool, again time.Duration, err error) {
	var uid types.UID
	if claim != nil {
		uid = claim.UID
	}
	known := s.handovers(namespace, name)
	for _, h := range known {
		if h.uid != uid {
			later, err := s.take(ctx, h, h.next(nil, elsewhere, ""), nil, "")
			if err != nil {
				return false, 0, err
			}
			again = work.Sooner(again, later)
		}
	}
	want, node := s.choose(claim)
	h, there := known[uid]
	if claim == nil || want != home && !there {
		return true, again, nil
	}
	if at := peer.ClusterID(claim.Annotations[annotationProvider]); want == home && at != "" { // it was tried there before
		gone, err := s.withdraw(ctx, at, claim)
		if err == nil && gone {
			err = s.settle(ctx, claim)
		}
		if err != nil || !gone {
			return false, again, err
		}
	}
	h.uid = uid
	later, err := s.take(ctx, h, h.next(claim, want, node), claim, node)
	return want == undecided, work.Sooner(again, later), err
}

// take takes a step about the claim at home with a UID, which is nil if it is gone.
func (s *session) take(ctx context.Context, h handover, next step, claim *corev1.PersistentVolumeClaim, node string) (again time.Duration, err error) {
	switch next {
	case create:
		return s.createBehind(ctx, claim, node)
	case drop:
		return 0, s.deleteBehind(ctx, h.behind)
	case refuse:
		again, err = s.refuse(ctx, claim, &workload.Refusal{Reason: reasonProvisioning, Message: fmt.Sprintf(
			"The provisioner of the storage class %s cannot make the volume on node %s: see the events of the claim %s.", *h.behind.Spec.StorageClassName, node, h.behind.Name)})
		if err == nil && again == 0 { // the scheduler was asked to choose again, maybe the same node
			err = s.deleteBehind(ctx, h.behind)
		}
	case protect:
		_, err = s.changeVolume(ctx, h.volume, map[string]any{
			AnnotationPolicy: h.volume.Spec.PersistentVolumeReclaimPolicy, AnnotationClaim: claimNameOf(h.behind),
		}, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case hand:
		s.v.cfg.Logger.Info("a claim is kept in this cluster", "namespace", h.volume.Spec.ClaimRef.Namespace, "claim", h.volume.Annotations[AnnotationClaim], "volume", h.volume.Name)
		_, err = s.changeVolume(ctx, h.volume, nil, map[string]any{"claimRef": map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": h.volume.Spec.ClaimRef.Namespace, "name": h.volume.Annotations[AnnotationClaim], "uid": h.uid, "resourceVersion": nil,
		}})
	case restore:
		return s.restorePolicy(ctx, h, claim)
	case wait:
		if claim != nil && h.behind != nil && h.volume == nil && h.behind.DeletionTimestamp == nil {
			again = s.tellIfSlow(ctx, claim, h.behind)
		}
	}
	return again, err
}

func claimNameOf(behind *corev1.PersistentVolumeClaim) string {
	ref, _ := owner(behind)
	return ref.Name
}

// createBehind makes the claim behind one at home, in the class for that, for the node that the scheduler
// chose. It goes with the claim, also if there is no agent any more.
func (s *session) createBehind(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) (again time.Duration, err error) {
	class, why := s.homeClass()
	if why != "" {
		return s.refuse(ctx, claim, &workload.Refusal{Reason: reasonProvisioning, Message: fmt.Sprintf(
			"The node %s is in this cluster, and no claim of class %s can be there: %s. Or let the pod run at a provider, with the label %s=true on its namespace.", node, s.class, why, workload.LabelEnabled)})
	}
	if _, refused := workload.ClaimOf(claim, s.origin("")); refused != nil {
		refused.Reason = reasonProvisioning
		return s.refuse(ctx, claim, refused)
	}
	behind := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: BehindPrefix + string(claim.UID), Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent},
			Annotations:     map[string]string{annotationSelected: node},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.Spec.AccessModes, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}},
		},
	}
	made := &corev1.PersistentVolumeClaim{}
	err = s.client.CreateAs(ctx, namespacesPath+claim.Namespace+"/persistentvolumeclaims", manager, behind, made)
	switch {
	case apierrors.IsAlreadyExists(err):
		err = s.client.Get(ctx, claimPath(behind.Namespace, behind.Name), made)
		if _, ours := owner(made); err != nil || ours {
			return 0, err // from before: the watch tells soon
		}
		return s.refuse(ctx, claim, &workload.Refusal{Reason: reasonProvisioning, Message: "There is another claim of the name " + behind.Name + ", which the agent needs: delete that."})
	case err != nil:
		if said, permanent := offload.Refused(err); permanent {
			return s.refuse(ctx, claim, &workload.Refusal{Reason: reasonProvisioning, Message: "The claim " + behind.Name + ", which is to get the volume, cannot be made: " + said})
		}
		return 0, err
	}
	s.claims.Wrote(made)
	return slowAfter, nil
}

// deleteBehind deletes the claim behind one at home.
func (s *session) deleteBehind(ctx context.Context, behind *corev1.PersistentVolumeClaim) error {
	err := s.client.Delete(ctx, claimPath(behind.Namespace, behind.Name), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &behind.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch tells
	}
	return err
}

// restorePolicy gives a volume the reclaim policy back that it had, after which it is an ordinary one of its
// provisioner.
func (s *session) restorePolicy(ctx context.Context, h handover, claim *corev1.PersistentVolumeClaim) (again time.Duration, err error) {
	ref := h.volume.Spec.ClaimRef
	if claim == nil && ref.Name == h.volume.Annotations[AnnotationClaim] {
		// Its data may be deleted then: the API server is asked itself whether the claim is gone.
		found := &corev1.PersistentVolumeClaim{}
		err := s.client.Get(ctx, claimPath(ref.Namespace, ref.Name), found)
		switch {
		case err == nil && found.UID == ref.UID && h.next(found, elsewhere, "") != restore:
			return retryMax, nil // the watch tells of it before
		case err != nil && !apierrors.IsNotFound(err):
			return 0, err
		}
	}
	_, err = s.changeVolume(ctx, h.volume, map[string]any{AnnotationPolicy: nil, AnnotationClaim: nil},
		map[string]any{"persistentVolumeReclaimPolicy": h.volume.Annotations[AnnotationPolicy]})
	return 0, err
}

// changeVolume changes annotations and spec of a volume, if it is as it was seen last. It returns the
// volume as it is then.
func (s *session) changeVolume(ctx context.Context, volume *corev1.PersistentVolume, annotations, spec map[string]any) (*corev1.PersistentVolume, error) {
	metadata := map[string]any{"uid": volume.UID, "resourceVersion": volume.ResourceVersion}
	if annotations != nil { // null would be the end of all
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return volume, err
	}
	now := &corev1.PersistentVolume{}
	err = s.client.Patch(ctx, volumesPath+"/"+volume.Name, manager, types.MergePatchType, patch, now)
	switch {
	case apierrors.IsNotFound(err):
		return volume, nil
	case err != nil:
		return volume, err
	case ofVolumes(now):
		s.volumes.Wrote(now)
	}
	return now, nil
}

// tellIfSlow says on a claim whose volume takes long what it waits for. It returns when to look again.
func (s *session) tellIfSlow(ctx context.Context, claim, behind *corev1.PersistentVolumeClaim) time.Duration {
	if left := slowAfter - s.v.cfg.Now().Sub(behind.CreationTimestamp.Time); left > 0 {
		return left
	}
	s.tell(ctx, claim, &workload.Refusal{Reason: reasonWaiting, Message: text.Line(fmt.Sprintf(
		"The claim %s of the storage class %s has no volume yet, which is to become that of this claim: see its events, and whether the provisioner of the class works.", behind.Name, *behind.Spec.StorageClassName), 1000)})
	return 0
}

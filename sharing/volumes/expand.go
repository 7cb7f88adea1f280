package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

// reasonResize is the reason of the events about claims that cannot grow, as of other resizers.
const reasonResize = "VolumeResizeFailed"

// remoteClaim is what matters of the copy of a claim. Amounts are text, as nobody has checked them.
type remoteClaim struct {
	Spec struct {
		Resources struct {
			Requests map[string]string `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
	Status struct {
		Phase    corev1.PersistentVolumeClaimPhase `json:"phase"`
		Capacity map[string]string                 `json:"capacity"`
	} `json:"status"`
}

// requested returns how many bytes a claim asks for.
func requested(claim *corev1.PersistentVolumeClaim) int64 {
	return claim.Spec.Resources.Requests.Storage().Value()
}

// expand passes on that a claim grows, and takes over what the provider made of it: never more than the
// claim asks for, and never less than before. It returns the volume as it is then.
func (s *session) expand(ctx context.Context, client *kube.Client, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, found *remoteClaim, st *state) (*corev1.PersistentVolume, error) {
	if found.Status.Phase != corev1.ClaimBound {
		return volume, nil // nothing can grow yet
	}
	asked := requested(claim)
	if there, known := workload.Bytes(found.Spec.Resources.Requests["storage"]); !known || there != asked {
		namespace, name := volume.Annotations[annotationRemoteNamespace], volume.Annotations[annotationRemoteClaim]
		body, why := workload.ClaimOf(claim, s.origin(namespace))
		if why == nil {
			err := client.Apply(ctx, claimPath(namespace, name), manager, true, json.RawMessage(body), nil)
			said, permanent := "", false
			if err != nil {
				if said, permanent = offload.Refused(err); !permanent {
					return volume, err
				}
				why = &workload.Refusal{Message: "The provider does not expand the claim: " + said}
			}
		}
		if why == nil {
			st.growing, st.said = true, ""
			return volume, nil
		}
		if st.said != why.Message {
			st.said = why.Message
			s.tell(ctx, claim, &workload.Refusal{Reason: reasonResize, Message: strings.TrimRight(why.Message, ".") + ". Until that changes, the claim has as much as before."})
		}
		return volume, nil
	}
	given, known := workload.Bytes(found.Status.Capacity["storage"])
	given = min(given, asked)
	st.growing = !known || given < asked
	if !known || given <= volume.Spec.Capacity.Storage().Value() {
		return volume, nil
	}
	return s.changeVolume(ctx, volume, nil, map[string]any{"capacity": map[string]any{"storage": resource.NewQuantity(given, resource.BinarySI)}})
}

// showSize shows on a claim how much its volume has, and whether that grows.
func (s *session) showSize(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, growing bool) error {
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != volume.Name {
		return nil
	}
	resizing := func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimResizing
	}
	has, before := volume.Spec.Capacity.Storage(), claim.Status.Capacity.Storage()
	if has.Cmp(*before) <= 0 && slices.ContainsFunc(claim.Status.Conditions, resizing) == growing {
		return nil
	}
	if has.Cmp(*before) < 0 {
		has = before
	}
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions), resizing)
	if growing {
		conditions = append(conditions, corev1.PersistentVolumeClaimCondition{
			Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.v.cfg.Now()),
		})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"status":   map[string]any{"capacity": map[string]any{"storage": has}, "conditions": conditions},
	})
	if err != nil {
		return err
	}
	now := &corev1.PersistentVolumeClaim{}
	err = s.client.Patch(ctx, claimPath(claim.Namespace, claim.Name)+"/status", manager, types.MergePatchType, patch, now)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.claims.Wrote(now)
	}
	return err
}

// checkExpansionAtHome says on a claim at home that grows if its class cannot do that: otherwise the resizer
// of its provisioner does.
func (s *session) checkExpansionAtHome(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if !atHome(claim) || !s.ofOwnClass(claim) || claim.Status.Phase != corev1.ClaimBound || requested(claim) <= claim.Status.Capacity.Storage().Value() {
		return nil
	}
	volume := &corev1.PersistentVolume{}
	if err := s.client.Get(ctx, volumesPath+"/"+claim.Spec.VolumeName, volume); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if class := s.classes.Get("", volume.Spec.StorageClassName); class != nil && class.AllowVolumeExpansion {
		return nil
	}
	s.tell(ctx, claim, &workload.Refusal{Reason: reasonResize, Message: fmt.Sprintf(
		"The volume %s of this claim is of the storage class %s of this cluster, which cannot expand volumes. Make a larger claim, and copy the data.", volume.Name, volume.Spec.StorageClassName)})
	return nil
}

package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// reasonDataMissing is the reason of the event about a claim that the provider does not have.
const reasonDataMissing = "DataMissing"

// reconcileVolume deletes the copy of a claim that was deleted, and otherwise looks whether the
// provider still has it.
func (s *session) reconcileVolume(ctx context.Context, name string) (again time.Duration, err error) {
	volume := s.volumes.Get("", name)
	if volume == nil || volume.Spec.ClaimRef == nil {
		return 0, nil
	}
	p, there := s.v.provider(providerOf(volume))
	if !there || !p.Reachable {
		return 0, nil // enqueued again when that changes
	}
	ref := volume.Spec.ClaimRef
	if claim := s.claims.Get(ref.Namespace, ref.Name); claim != nil && claim.UID == ref.UID {
		return s.check(ctx, p, volume, claim)
	}
	if volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || !slices.Contains(volume.Finalizers, Finalizer) {
		return 0, nil
	}
	// What is deleted here is gone: the API server is asked itself whether the claim is.
	found := &metav1.PartialObjectMetadata{}
	err = s.client.Get(ctx, claimPath(ref.Namespace, ref.Name), found)
	switch {
	case err == nil && found.UID == ref.UID:
		return retryMax, nil // the watch tells of it before
	case err != nil && !apierrors.IsNotFound(err):
		return 0, err
	}
	namespace, err := s.namespace(ctx, p, ref.Namespace)
	if err != nil {
		return 0, err
	}
	if namespace == volume.Annotations[annotationRemoteNamespace] { // else it is gone with its namespace
		if err := s.deleteCopy(ctx, p, namespace, volume.Annotations[annotationRemoteClaim]); err != nil {
			return 0, fmt.Errorf("delete claim %s/%s at %s: %w", namespace, volume.Annotations[annotationRemoteClaim], p.ID, err)
		}
	}
	return 0, s.removeVolume(ctx, volume)
}

// removeVolume removes a volume of which nothing is left at the provider.
func (s *session) removeVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	path := volumesPath + "/" + volume.Name
	if volume.DeletionTimestamp == nil {
		err := s.client.Delete(ctx, path, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &volume.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	now := &corev1.PersistentVolume{}
	err := s.client.Get(ctx, path, now)
	if err == nil && now.UID == volume.UID && slices.Contains(now.Finalizers, Finalizer) {
		var patch []byte
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": now.UID, "resourceVersion": now.ResourceVersion,
			"finalizers": slices.DeleteFunc(append([]string{}, now.Finalizers...), func(f string) bool { return f == Finalizer }),
		}})
		if err == nil {
			err = s.client.Patch(ctx, path, manager, types.MergePatchType, patch, nil)
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// check asks the provider for the copy of a claim, now and then.
func (s *session) check(ctx context.Context, p Provider, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (again time.Duration, err error) {
	asked, grows := requested(claim), requested(claim) > volume.Spec.Capacity.Storage().Value()
	now := s.v.cfg.Now()
	s.mu.Lock()
	state, known := s.states[volume.UID]
	s.mu.Unlock()
	if left := state.pause(grows) - now.Sub(state.at); known && left > 0 && (!grows || state.asked == asked) {
		return left, s.showSize(ctx, volume, claim, state.growing)
	}
	client, err := remoteClient(p)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var found remoteClaim
	at := volume.Annotations[annotationRemoteNamespace]
	path := claimPath(at, volume.Annotations[annotationRemoteClaim])
	err = client.Get(ctx, path, &found)
	missing := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	if apierrors.IsForbidden(err) && !state.missing {
		// The namespace is gone with its claims, or the provider does not admit this cluster now and keeps them: only when asked for
		// the namespace does it say which.
		namespace, failed := s.namespace(ctx, p, claim.Namespace)
		if failed != nil {
			return 0, failed
		}
		if missing = namespace != at; !missing {
			err = client.Get(ctx, path, &found)
			missing = apierrors.IsNotFound(err)
		}
	}
	if err != nil && !missing {
		return 0, err
	}
	if missing && !state.missing {
		s.tell(ctx, claim, &workload.Refusal{Reason: reasonDataMissing, Message: "The provider does not have the data of this claim any more, because it was removed there, or kept for as long as sharing.storage_keep says. " +
			"Pods that mount the claim cannot start. Delete the claim to begin anew."})
	}
	if state.asked != asked {
		state.tries, state.said = 0, ""
	}
	state.at, state.missing, state.asked, state.growing = now, missing, asked, false
	if state.phase = found.Status.Phase; state.phase != corev1.ClaimPending && state.phase != corev1.ClaimBound && state.phase != corev1.ClaimLost {
		state.phase = ""
	}
	if grows && !missing {
		state.tries++
		if volume, err = s.expand(ctx, client, volume, claim, &found, &state); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	if latest := s.states[volume.UID].wanted; latest != state.wanted {
		state.at, state.wanted = time.Time{}, latest // what the provider said may be from before
	}
	s.states[volume.UID] = state
	s.mu.Unlock()
	return state.pause(grows), s.showSize(ctx, volume, claim, state.growing)
}

// describe returns a volume for people.
func (s *session) describe(volume *corev1.PersistentVolume) Volume {
	out := Volume{Provider: providerOf(volume), Storage: volume.Spec.Capacity.Storage().Value(), Since: volume.CreationTimestamp.Time, State: StateBound}
	ref := volume.Spec.ClaimRef
	if ref == nil {
		ref = &corev1.ObjectReference{}
	}
	out.Namespace, out.Name = ref.Namespace, ref.Name
	p, there := s.v.provider(out.Provider)
	s.mu.Lock()
	state, asked := s.states[volume.UID]
	s.mu.Unlock()
	switch claim := s.claims.Get(ref.Namespace, ref.Name); {
	case claim == nil || claim.UID != ref.UID:
		out.State, out.Message = StateDeleting, "The claim was deleted, and the provider is told when it answers."
		if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			out.State, out.Message = StateReleased, "The claim was deleted, and the reclaim policy of the volume keeps the data."
		}
	case !there:
		out.State, out.Message = StateParted, "There is no peering with the provider, which keeps the data for some days (sharing.storage_keep there, 7 days by default). Connect again to use it."
	case !p.Reachable:
		out.State, out.Message = StateUnknown, "The provider does not answer."
	case asked && state.missing:
		out.State, out.Message = StateMissing, "The provider does not have the data any more."
	case asked && state.phase == corev1.ClaimPending:
		out.Message = "At the provider, the claim has no volume yet: it gets one with its first pod."
	case asked && state.phase == corev1.ClaimLost:
		out.State, out.Message = StateMissing, "At the provider, the claim has lost its volume."
	}
	return out
}

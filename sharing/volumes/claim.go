package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

const (
	volumesPath    = "/api/v1/persistentvolumes"
	namespacesPath = "/api/v1/namespaces/"

	// reasonProvisioning is the reason of the events about claims that no provider takes, as of
	// other provisioners.
	reasonProvisioning = "ProvisioningFailed"
)

func claimPath(namespace, name string) string {
	return namespacesPath + namespace + "/persistentvolumeclaims/" + name
}

// volumeName returns the name of the volume of a claim.
func volumeName(claim types.UID) string { return "liqo-" + string(claim) }

// reconcileClaim provisions a claim for which the scheduler chose a node.
func (s *session) reconcileClaim(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	claim := s.claims.Get(namespace, name).DeepCopy() // note changes it
	done, again, err := s.reconcileHome(ctx, namespace, name, claim)
	if err != nil || !done || claim == nil {
		return again, err
	}
	at := peer.ClusterID(claim.Annotations[annotationProvider])
	if claim.Spec.VolumeName != "" || s.volumes.Get("", volumeName(claim.UID)) != nil {
		s.admitted(claim)
		if err := s.settle(ctx, claim); err != nil { // the volume remembers the rest
			return 0, err
		}
		return 0, s.checkExpansionAtHome(ctx, claim)
	}
	if claim.DeletionTimestamp != nil {
		if at == "" {
			return 0, nil
		}
		gone, err := s.withdraw(ctx, at, claim)
		if err != nil || !gone {
			return 0, err
		}
		return 0, s.settle(ctx, claim)
	}
	selected := claim.Annotations[annotationSelected]
	if selected == "" || claim.Annotations[annotationFor] != workload.Provisioner || !s.ofOwnClass(claim) {
		return 0, nil // Kubernetes says when it is our turn
	}
	id, why := s.chosen(claim, selected)
	if why != nil {
		return s.refuse(ctx, claim, why)
	}
	if at != "" && at != id { // it was tried there before
		if gone, err := s.withdraw(ctx, at, claim); err != nil || !gone {
			return 0, err
		}
	}
	p, _ := s.v.provider(id)
	if !p.Reachable {
		return 0, nil // enqueued again when that changes
	}
	why, err = s.provision(ctx, p, claim)
	if why != nil {
		return s.refuse(ctx, claim, why)
	}
	return 0, err
}

// ofOwnClass reports whether a claim is of the storage class.
func (s *session) ofOwnClass(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName == s.class
}

// chosen returns the provider whose node the scheduler chose for a claim, or why the claim
// cannot be there.
func (s *session) chosen(claim *corev1.PersistentVolumeClaim, selected string) (peer.ClusterID, *workload.Refusal) {
	failed := func(format string, args ...any) (peer.ClusterID, *workload.Refusal) {
		return "", &workload.Refusal{Reason: reasonProvisioning, Message: fmt.Sprintf(format, args...)}
	}
	n := s.nodes.Get("", selected)
	if n == nil {
		return failed("The node %s, which the scheduler chose, does not exist any more.", text.Line(selected, 253))
	}
	id, virtual := n.provider()
	if !virtual {
		return failed("The node %s has become one of this cluster.", selected)
	}
	if _, why := workload.ClaimOf(claim, s.origin("")); why != nil {
		return failed("%s", why.Message)
	}
	// One that was not heard since the start may offer some: the claim waits for it.
	if p, there := s.v.provider(id); there && p.Storage == 0 || !there && s.v.complete() {
		return failed("The provider of node %s offers no storage. It can offer some with the setting sharing.storage.", selected)
	}
	return id, nil
}

func (s *session) origin(namespace string) workload.Origin {
	return workload.Origin{Cluster: s.v.cfg.Self(), Namespace: namespace}
}

// provision makes the copy of a claim at a provider, and then the volume. It returns why the
// provider does not take it.
func (s *session) provision(ctx context.Context, p Provider, claim *corev1.PersistentVolumeClaim) (*workload.Refusal, error) {
	if err := s.remember(ctx, claim, p.ID); err != nil {
		return nil, err
	}
	refused := func(err error) (*workload.Refusal, error) {
		said, permanent := offload.Refused(err)
		if !permanent || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, err
		}
		return &workload.Refusal{Reason: reasonProvisioning, Message: "The provider does not take the claim: " + said}, nil
	}
	namespace, err := s.namespace(ctx, p, claim.Namespace)
	if err != nil {
		return nil, err
	}
	client, err := remoteClient(p)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	body, why := workload.ClaimOf(claim, s.origin(namespace))
	if why != nil {
		return why, nil
	}
	name := workload.ClaimName(claim.Name, string(claim.UID))
	if err := client.Apply(ctx, claimPath(namespace, name), manager, true, json.RawMessage(body), nil); err != nil {
		return refused(err)
	}
	volume := volumeFor(claim, p.ID, namespace, name)
	var made corev1.PersistentVolume
	err = s.client.CreateAs(ctx, volumesPath, manager, volume, &made)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil // our own, from before: the watch tells soon
	}
	if err != nil {
		return nil, err
	}
	s.volumes.Wrote(&made)
	s.v.cfg.Logger.Info("a claim is kept at a provider", "namespace", claim.Namespace, "claim", claim.Name, "peer", p.ID)
	return nil, nil
}

// remoteClient returns a client for the API server of a provider.
func remoteClient(p Provider) (*kube.Client, error) {
	return kube.New(&rest.Config{Host: "https://provider", Transport: p.Remote})
}

// namespace returns the provider's namespace for a local one, which is noted there, so that it
// is given back when nothing needs it any more.
func (s *session) namespace(ctx context.Context, p Provider, origin string) (string, error) {
	name, err := p.Remote.Namespace(ctx, origin)
	if err != nil {
		return "", fmt.Errorf("ask %s for a namespace for %s: %w", p.ID, origin, err)
	}
	if name == "" || strings.ContainsAny(name, "/?#%") {
		return "", fmt.Errorf("%s answered with the invalid namespace name %q for %s", p.ID, name, origin)
	}
	local, note := &metav1.PartialObjectMetadata{}, workload.AnnotationPlacePrefix+string(p.ID)
	if err := s.client.Get(ctx, namespacesPath+origin, local); err != nil {
		if apierrors.IsNotFound(err) {
			return name, nil // the volume outlived it
		}
		return "", err
	}
	if local.Annotations[note] == name {
		return name, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": local.UID, "annotations": map[string]any{note: name}}})
	if err != nil {
		return "", err
	}
	return name, s.client.Patch(ctx, namespacesPath+origin, manager, types.MergePatchType, patch, nil)
}

// volumeFor returns the volume that stands for the copy of a claim.
func volumeFor(claim *corev1.PersistentVolumeClaim, id peer.ClusterID, namespace, name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: volumeName(claim.UID), Finalizers: []string{Finalizer},
			Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent},
			Annotations: map[string]string{
				annotationProvisioner: workload.Provisioner, annotationProvider: string(id),
				annotationRemoteNamespace: namespace, annotationRemoteClaim: name,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/liqo/" + string(id) + "/" + namespace + "/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: workload.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{workload.VirtualNode}},
					{Key: workload.LabelClusterID, Operator: corev1.NodeSelectorOpIn, Values: []string{string(id)}},
				},
			}}}},
		},
	}
}

// remember notes on a claim that it may be at a provider from now on.
func (s *session) remember(ctx context.Context, claim *corev1.PersistentVolumeClaim, id peer.ClusterID) error {
	if claim.Annotations[annotationProvider] == string(id) && slices.Contains(claim.Finalizers, Finalizer) {
		return nil
	}
	finalizers := claim.Finalizers
	if !slices.Contains(finalizers, Finalizer) {
		finalizers = append(slices.Clone(finalizers), Finalizer)
	}
	return s.note(ctx, claim, finalizers, map[string]any{annotationProvider: string(id)})
}

// settle takes our notes from a claim.
func (s *session) settle(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[annotationProvider] == "" && !slices.Contains(claim.Finalizers, Finalizer) {
		return nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == Finalizer })
	return s.note(ctx, claim, finalizers, map[string]any{annotationProvider: nil})
}

// note changes finalizers and annotations of a claim, if it is as it was seen last. claim becomes
// what it is then, so it must not be the cache's.
func (s *session) note(ctx context.Context, claim *corev1.PersistentVolumeClaim, finalizers []string, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "finalizers": append([]string{}, finalizers...), "annotations": annotations,
	}})
	if err != nil {
		return err
	}
	now := &corev1.PersistentVolumeClaim{}
	err = s.client.Patch(ctx, claimPath(claim.Namespace, claim.Name), manager, types.MergePatchType, patch, now)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err // after a conflict it is tried again with what is there by then
	case now.DeletionTimestamp != nil && len(now.Finalizers) == 0:
		return nil // that was the end of it
	}
	now.DeepCopyInto(claim)
	s.claims.Wrote(now)
	return nil
}

// withdraw deletes the copy of a claim at a provider. It reports whether there is none, or
// nobody to ask any more.
func (s *session) withdraw(ctx context.Context, id peer.ClusterID, claim *corev1.PersistentVolumeClaim) (gone bool, err error) {
	p, there := s.v.provider(id)
	if !there {
		s.v.mu.Lock()
		defer s.v.mu.Unlock()
		return s.v.settled, nil // the provider keeps what is nobody's for a while
	}
	if !p.Reachable {
		return false, nil
	}
	namespace, err := s.namespace(ctx, p, claim.Namespace)
	if err != nil {
		return false, err
	}
	return true, s.deleteCopy(ctx, p, namespace, workload.ClaimName(claim.Name, string(claim.UID)))
}

// deleteCopy deletes a claim at a provider.
func (s *session) deleteCopy(ctx context.Context, p Provider, namespace, name string) error {
	client, err := remoteClient(p)
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Delete(ctx, claimPath(namespace, name), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// refuse says in an event why a claim cannot be where the scheduler wants it, and after a pause
// has the scheduler choose again.
func (s *session) refuse(ctx context.Context, claim *corev1.PersistentVolumeClaim, why *workload.Refusal) (again time.Duration, err error) {
	now := s.v.cfg.Now()
	s.mu.Lock()
	r := s.refused[claim.UID]
	if r.until.IsZero() {
		r.times++
		r.until = now.Add(work.Backoff{First: refusedFirst, Max: refusedMax}.Pause(r.times))
	}
	left, news := r.until.Sub(now), r.why != why.Message
	if r.why = why.Message; left <= 0 {
		r.until = time.Time{} // the next refusal is another one
	}
	s.refused[claim.UID] = r
	s.mu.Unlock()
	if news {
		s.tell(ctx, claim, why)
	}
	if left > 0 {
		return left, nil
	}
	return 0, s.note(ctx, claim, claim.Finalizers, map[string]any{annotationSelected: nil})
}

// admitted ends the backoff of a claim.
func (s *session) admitted(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, claim.UID)
}

// tell writes a Warning event about a claim. Those with the same text are one.
func (s *session) tell(ctx context.Context, claim *corev1.PersistentVolumeClaim, why *workload.Refusal) {
	event := workload.Notice(corev1.EventTypeWarning, "PersistentVolumeClaim", &claim.ObjectMeta, why.Reason+why.Message, why, s.v.cfg.Now())
	err := s.client.Create(ctx, namespacesPath+claim.Namespace+"/events", event, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.v.cfg.Logger.Debug("an event cannot be written", "namespace", claim.Namespace, "claim", claim.Name, "error", err)
	}
}

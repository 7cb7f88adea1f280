package host

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/storageclass"
)

const (
	// annotationSelected on a claim is the node that its volume is for. The scheduler chooses it with the first pod, and
	// provisioners begin then.
	annotationSelected = "volume.kubernetes.io/selected-node"
	// annotationFor on a claim is the provisioner that is to act. Kubernetes notes it after a node was chosen; it stays when
	// the choice is taken back.
	annotationFor = "volume.kubernetes.io/storage-provisioner"
)

// placeable reports whether a claim waits for its node, has not had one yet, and can be on any.
func (s *session) placeable(c *guestClaim) bool {
	class := s.classes.Get("", c.Spec.StorageClassName)
	return c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && c.Annotations[annotationSelected] == "" && c.Annotations[annotationFor] == "" &&
		class != nil && class.VolumeBindingMode == storageclass.WaitForFirstConsumer && class.Provisioner != storageclass.NoProvisioner && len(class.AllowedTopologies) == 0
}

// placeClaims chooses the node of a consumer's new claims where there is no choice, as the scheduler will: the first pod comes
// when the consumer's own scheduler has seen the claim bound there, a second later, and the volume is made meanwhile. A claim is
// placed once; if the provisioner cannot make the volume, or the node is gone, the scheduler chooses the next one.
func (s *session) placeClaims(ctx context.Context, id peer.ClusterID) error {
	node := s.host.cfg.OnlyNode()
	if node == "" || !s.claimsKnown() {
		return nil
	}
	var errs []error
	for _, c := range s.claims.All() {
		guest := s.namespaces.Get("", c.Namespace)
		if guest == nil || owner(guest) != id || guest.DeletionTimestamp != nil || origin(c) != id || !s.placeable(c) {
			continue
		}
		now := new(guestClaim)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": c.UID, "resourceVersion": c.ResourceVersion, "annotations": map[string]any{annotationSelected: node},
		}})
		if err == nil {
			err = s.client.Patch(ctx, namespacesPath+c.Namespace+"/"+resourceClaims+"/"+c.Name, Manager, types.MergePatchType, patch, now)
		}
		if err == nil {
			s.claims.Wrote(now)
		}
		errs = append(errs, ifThere(err))
	}
	return errors.Join(errs...)
}

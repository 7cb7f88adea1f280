package foreign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
)

// ErrMadeByOthers: the object came into being while the agent was about to
// create it.
var ErrMadeByOthers = errors.New("somebody else created it at the same moment")

// Edited reports whether somebody deleted an object or set what people set in it,
// between two states of it.
func Edited(before, after *Cluster) bool {
	return before.Owners.Join != after.Owners.Join || before.Owners.TrustMode != after.Owners.TrustMode ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

// Send sends an action on a ForeignCluster, but for Delete, and returns the
// object as it is then. found is the object as it is known.
func Send(ctx context.Context, c *kube.Client, a plan.Action, found *Cluster) (*Cluster, error) {
	object := objects.Applied{Metadata: objects.Meta{Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	subresource, manager, force := "", fields.ManagerDiscovery, true
	switch a.Kind {
	case plan.Create:
		return create(ctx, c, a)
	case plan.UpdateSpec:
		object.Metadata.Labels, object.Spec = a.Spec.Labels, a.Spec
	case plan.Identify:
		// What somebody sets at the same moment stays theirs.
		object.Spec, force = a.Identity, false
	case plan.UpdateStatus:
		subresource, object.Status = "status", a.Status
	case plan.ApplyIntent:
		manager, object.Spec = fields.ManagerIntent, a.Intent
	case plan.AddFinalizer:
		manager, object.Metadata.Finalizers = fields.ManagerForeignCluster, []string{api.FinalizerPeering}
	case plan.RemoveFinalizer:
		return removeFinalizer(ctx, c, found, a)
	case plan.UpdatePeering:
		subresource, manager, object.Status = "status", fields.ManagerForeignCluster, a.Peering
	case plan.RequestRef:
		subresource, manager = "status", fields.ManagerPeeringRequest
		if a.Ref != nil {
			object.Status = map[string]any{"incoming": map[string]any{"peeringRequest": a.Ref}}
		}
	case plan.AdvertisementRef:
		subresource, manager = "status", fields.ManagerAdvertisement
		if a.Ref != nil {
			object.Status = map[string]any{"outgoing": map[string]any{"advertisement": a.Ref}}
		}
	default:
		return nil, fmt.Errorf("unknown kind of action %q on ForeignCluster %s", a.Kind, a.Name)
	}
	fc, err := objects.Apply(ctx, c, Kind(), subresource, object, manager, force)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind, err)
	}
	return fc, nil
}

// create applies an object that does not exist yet. Server-side apply would
// merge into one that somebody else made a moment ago; such an object keeps what
// its author wrote, and what was merged into it is taken back.
func create(ctx context.Context, c *kube.Client, a plan.Action) (*Cluster, error) {
	object := objects.Applied{Metadata: objects.Meta{Name: a.Name, Labels: a.Spec.Labels}, Spec: a.Spec}
	made, err := objects.Apply(ctx, c, Kind(), "", object, fields.ManagerDiscovery, false)
	if err != nil || !slices.ContainsFunc(made.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != fields.ManagerDiscovery
	}) {
		return made, err
	}
	object = objects.Applied{Metadata: objects.Meta{Name: a.Name, UID: made.UID}}
	if _, err := objects.Apply(ctx, c, Kind(), "", object, fields.ManagerDiscovery, true); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("create ForeignCluster %s: %w", a.Name, ErrMadeByOthers)
}

// removeFinalizer takes our finalizer from an object, whoever put it there: what
// several managers applied stays until the last of them gives it up, and then
// nobody could delete the object.
func removeFinalizer(ctx context.Context, c *kube.Client, found *Cluster, a plan.Action) (*Cluster, error) {
	if found == nil || found.UID != a.UID {
		return nil, Conflict(a.Name, errors.New("the object was replaced"))
	}
	rest := slices.DeleteFunc(slices.Clone(found.Finalizers), func(f string) bool { return f == api.FinalizerPeering })
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": found.UID, "resourceVersion": found.ResourceVersion, "finalizers": append([]string{}, rest...),
	}})
	if err != nil {
		return nil, err
	}
	out := &Cluster{}
	if err := c.Patch(ctx, Kind().Object(a.Name), fields.ManagerForeignCluster, types.MergePatchType, text, out); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind, err)
	}
	return out, nil
}

// Conflict is what the API server would say about an object that is not the one
// that was looked at.
func Conflict(name string, err error) error {
	return apierrors.NewConflict(api.GroupVersion.WithResource(api.PluralForeignClusters).GroupResource(), name, err)
}

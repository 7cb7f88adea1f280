package peering

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
)

// ManagerAccess owns the roles that let peers reach their own objects, and the Secrets
// with their certificates. The field managers of the other objects about peers are in
// package plan.
const ManagerAccess = "liqo-agent-access"

// appliedMeta holds the fields of metadata that the agent applies. A UID makes
// the API server refuse to apply to another object than the one meant, and a
// resource version to another state of it.
type appliedMeta struct {
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"`
}

// applied is the body of a server-side apply: its fields, and no others, are to
// be as it says and to belong to the manager who applies it.
type applied struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        appliedMeta `json:"metadata"`
	Spec            any         `json:"spec,omitempty"`
	Status          any         `json:"status,omitempty"`
}

// applyKind applies an object of a kind, or its subresource, and returns it as
// it is then.
func applyKind[T kube.Object](ctx context.Context, c *kube.Client, k kind[T], subresource string, object applied, manager string, force bool) (T, error) {
	object.APIVersion, object.Kind = k.gvk.GroupVersion().String(), k.gvk.Kind
	path := k.object(object.Metadata.Name)
	if subresource != "" {
		path += "/" + subresource
	}
	out := k.fresh()
	if err := c.Apply(ctx, path, manager, force, object, out); err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// remove deletes the object with that UID, and if a resource version is given
// only in that version. An object that is gone already is no error.
func remove[T kube.Object](ctx context.Context, c *kube.Client, k kind[T], name string, uid types.UID, version string) error {
	preconditions := &metav1.Preconditions{UID: &uid}
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	err := c.Delete(ctx, k.object(name), metav1.DeleteOptions{Preconditions: preconditions})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

package objects

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
)

// Meta holds the fields of metadata that the agent applies. A UID makes
// the API server refuse to apply to another object than the one meant, and a
// resource version to another state of it.
type Meta struct {
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Finalizers      []string          `json:"finalizers,omitempty"`
}

// Applied is the body of a server-side apply: its fields, and no others, are to
// be as it says and to belong to the manager who applies it.
type Applied struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        Meta `json:"metadata"`
	Spec            any  `json:"spec,omitempty"`
	Status          any  `json:"status,omitempty"`
}

// Apply applies an object of a kind, or its subresource, and returns it as
// it is then.
func Apply[T kube.Object](ctx context.Context, c *kube.Client, k Kind[T], subresource string, object Applied, manager string, force bool) (T, error) {
	object.APIVersion, object.Kind = k.GVK.GroupVersion().String(), k.GVK.Kind
	path := k.Object(object.Metadata.Name)
	if subresource != "" {
		path += "/" + subresource
	}
	out := k.Fresh()
	if err := c.Apply(ctx, path, manager, force, object, out); err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// Remove deletes the object with that UID, and if a resource version is given
// only in that version. An object that is gone already is no error.
func Remove[T kube.Object](ctx context.Context, c *kube.Client, k Kind[T], name string, uid types.UID, version string) error {
	preconditions := &metav1.Preconditions{UID: &uid}
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	err := c.Delete(ctx, k.Object(name), metav1.DeleteOptions{Preconditions: preconditions})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

package peering

import (
	"context"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
)

// The field managers of what the agent installs and keeps for itself. Those of the
// objects about peers are in package plan.
const (
	// ManagerAccess owns the roles that let peers reach their own objects, and the
	// Secrets with their certificates.
	ManagerAccess = "liqo-agent-access"
	// ManagerWebhook owns the configuration of the admission webhook.
	ManagerWebhook = "liqo-agent-webhook"
	// ManagerCRDs owns the custom resource definitions.
	ManagerCRDs = "liqo-agent-crds"
	// ManagerIdentity owns the namespace and the ConfigMap with the cluster ID.
	ManagerIdentity = "liqo-agent-identity"
)

// client speaks to the local API server.
type client struct {
	*kube.Client
	// newerCRDs is the generation of the custom resource definitions if it is above
	// ours, else 0.
	newerCRDs atomic.Int64
}

// openClient returns a client by the kubeconfig for a setting as in Config.
func openClient(kubeconfig string) (*client, error) {
	config, _, err := conn.LoadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	return newClient(c), nil
}

func newClient(c *kube.Client) *client { return &client{Client: c} }

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
func applyKind[T kube.Object](ctx context.Context, c *client, k kind[T], subresource string, object applied, manager string, force bool) (T, error) {
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
func remove[T kube.Object](ctx context.Context, c *client, k kind[T], name string, uid types.UID, version string) error {
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

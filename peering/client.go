package peering

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
)

// The field managers the agent applies with: one per owner of fields.
const (
	// ManagerDiscovery owns the discovered fields of ForeignClusters.
	ManagerDiscovery = "liqo-agent-discovery"
	// ManagerIntent owns spec.join and spec.trustMode where the agent set them for
	// a person or the configuration.
	ManagerIntent = "liqo-agent-intent"
	// ManagerForeignCluster owns the finalizer of ForeignClusters, and in their
	// status what became of the peering, but for the two references below.
	ManagerForeignCluster = "liqo-agent-foreigncluster"
	// ManagerPeeringRequest owns the status of PeeringRequests and, in that of
	// ForeignClusters, incoming.peeringRequest.
	ManagerPeeringRequest = "liqo-agent-peeringrequest"
	// ManagerAdvertisement owns the status of Advertisements and, in that of
	// ForeignClusters, outgoing.advertisement.
	ManagerAdvertisement = "liqo-agent-advertisement"
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

const (
	// requestTimeout bounds every request but lists and watches.
	requestTimeout = 10 * time.Second
	// listTimeout bounds a list; some thousand objects from a slow machine take
	// longer than one.
	listTimeout = 30 * time.Second

	// A thousand new neighbours are two thousand requests, and the number of workers
	// bounds how many of them there are at a time. The rate is only limited in case
	// of a mistake of ours.
	clientQPS   = 500
	clientBurst = 1000
	// maxAnswer bounds an answer in bytes. The longest there are list ForeignClusters:
	// ten thousand of them take some 40 MiB.
	maxAnswer = 64 << 20
)

// client speaks to one API server with small structs of our own.
type client struct {
	rest      *rest.RESTClient
	transport http.RoundTripper
	// newerCRDs is the generation of the custom resource definitions if it is above
	// ours, else 0.
	newerCRDs atomic.Int64
}

func newClient(config *rest.Config, link *link) (*client, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &api.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.QPS, config.Burst = clientQPS, clientBurst
	config.UserAgent = api.ManagedByAgent
	config.Timeout = 0 // set per request: a watch has none
	config.DisableCompression = true
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return kube.Bounded(next, maxAnswer) })
	if link != nil {
		config.Wrap(link.wrap)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	restClient, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return &client{rest: restClient, transport: httpClient.Transport}, nil
}

// close closes the connections that are not in use.
func (c *client) close() { utilnet.CloseIdleConnectionsFor(c.transport) }

// listKind lists the objects of a kind.
func listKind[T object](ctx context.Context, c *client, k kind[T], opts metav1.ListOptions) (*list[T], error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	opts.LabelSelector = k.selector
	out := &list[T]{}
	text, err := kube.Body(c.rest.Get().AbsPath(k.path).VersionedParams(&opts, metav1.ParameterCodec).MaxRetries(0).Do(ctx))
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", k.gvk.Kind, err)
	}
	return out, nil
}

// watchKind watches the objects of a kind.
func watchKind[T object](ctx context.Context, c *client, k kind[T], opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch, opts.LabelSelector = true, k.selector
	return c.rest.Get().AbsPath(k.path).VersionedParams(&opts, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
}

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
func applyKind[T object](ctx context.Context, c *client, k kind[T], subresource string, object applied, manager string, force bool) (T, error) {
	object.APIVersion, object.Kind = k.gvk.GroupVersion().String(), k.gvk.Kind
	return applyAs(ctx, c, k, object.Metadata.Name, subresource, object, manager, force)
}

// applyAs is applyKind for an object with a form of its own.
func applyAs[T object](ctx context.Context, c *client, k kind[T], name, subresource string, object any, manager string, force bool) (T, error) {
	out := k.fresh()
	path := []string{k.object(name)}
	if subresource != "" {
		path = append(path, subresource)
	}
	text, err := patch(ctx, c.rest.Patch(types.ApplyPatchType).AbsPath(path...), object, manager, force)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("apply %s %s: %w", k.gvk.Kind, name, err)
	}
	return out, nil
}

// remove deletes the object with that UID, and if a resource version is given
// only in that version. An object that is gone already is no error.
func remove[T object](ctx context.Context, c *client, k kind[T], name string, uid types.UID, version string) error {
	preconditions := &metav1.Preconditions{UID: &uid}
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	options, err := json.Marshal(metav1.DeleteOptions{Preconditions: preconditions})
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", k.gvk.Kind, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = kube.Body(c.rest.Delete().AbsPath(k.object(name)).Body(options).
		SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", k.gvk.Kind, name, err)
	}
	return nil
}

// patch sends a server-side apply and returns the object as it is then.
func patch(ctx context.Context, request *rest.Request, object any, manager string, force bool) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	if force {
		request = request.Param("force", "true")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return kube.Body(request.Param("fieldManager", manager).Body(text).MaxRetries(0).Do(ctx))
}

// getJSON reads any other resource into a struct of ours.
func (c *client) getJSON(ctx context.Context, path string, params map[string]string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0)
	for k, v := range params {
		request = request.Param(k, v)
	}
	text, err := kube.Body(request.Do(ctx))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// applyJSON applies any other resource.
func (c *client) applyJSON(ctx context.Context, path string, object any, manager string, force bool) error {
	request := c.rest.Patch(types.ApplyPatchType).AbsPath(path)
	if _, err := patch(ctx, request, object, manager, force); err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

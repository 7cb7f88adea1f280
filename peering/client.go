package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
)

// The field managers the agent applies with: one per owner of fields.
const (
	// ManagerDiscovery owns the discovered fields of ForeignClusters.
	ManagerDiscovery = "liqo-agent-discovery"
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
)

// client speaks to one API server with small structs of our own.
type client struct {
	rest      *rest.RESTClient
	transport http.RoundTripper
}

func newClient(config *rest.Config, link *link) (*client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(api.GroupVersion, &api.ForeignCluster{}, &api.ForeignClusterList{})
	metav1.AddToGroupVersion(scheme, api.GroupVersion)

	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &api.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.QPS, config.Burst = clientQPS, clientBurst
	config.UserAgent = api.ManagedByAgent
	config.Timeout = 0 // set per request: a watch has none
	config.DisableCompression = true
	config.WarningHandlerWithContext = rest.NoWarnings{}
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

// list is a cache.ListWithContextFunc.
func (c *client) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := &api.ForeignClusterList{}
	err := c.rest.Get().Resource(api.PluralForeignClusters).VersionedParams(&opts, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Into(out)
	return out, err
}

// watch is a cache.WatchFuncWithContext.
func (c *client) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.rest.Get().Resource(api.PluralForeignClusters).VersionedParams(&opts, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
}

// do carries out an action and returns the object as it is then; nil after a
// Delete.
func (c *client) do(ctx context.Context, a Action) (*api.ForeignCluster, error) {
	switch a.Kind {
	case Create:
		return c.create(ctx, a)
	case UpdateSpec:
		return c.apply(ctx, a, "", true)
	case UpdateStatus:
		return c.apply(ctx, a, "status", true)
	case Delete:
		options, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion}})
		if err != nil {
			return nil, fmt.Errorf("delete ForeignCluster %s: %w", a.Name, err)
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err = body(c.rest.Delete().Resource(api.PluralForeignClusters).Name(a.Name).Body(options).
			SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx))
		if err != nil {
			return nil, fmt.Errorf("delete ForeignCluster %s: %w", a.Name, err)
		}
		return nil, nil
	}
	return nil, errors.New("unknown kind of action: " + string(a.Kind))
}

// errMadeByOthers: the object came into being while the agent was about to
// create it.
var errMadeByOthers = errors.New("somebody else created it at the same moment")

// create applies an object that does not exist yet. Server-side apply would
// merge into one that somebody else made a moment ago; such an object keeps what
// its author wrote, and what was merged into it is taken back.
func (c *client) create(ctx context.Context, a Action) (*api.ForeignCluster, error) {
	made, err := c.apply(ctx, a, "", false)
	if err != nil || !slices.ContainsFunc(made.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != ManagerDiscovery
	}) {
		return made, err
	}
	if _, err := c.apply(ctx, Action{Kind: a.Kind, Name: a.Name, UID: made.UID}, "", true); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("create ForeignCluster %s: %w", a.Name, errMadeByOthers)
}

// applied is the body of a server-side apply of the discovered fields.
type applied struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        appliedMeta       `json:"metadata"`
	Spec            *DiscoveredSpec   `json:"spec,omitempty"`
	Status          *DiscoveredStatus `json:"status,omitempty"`
}

// appliedMeta holds the fields of metadata that the agent applies. A UID makes
// the API server refuse to apply to another object than the one meant.
type appliedMeta struct {
	Name   string            `json:"name"`
	UID    types.UID         `json:"uid,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

func (c *client) apply(ctx context.Context, a Action, subresource string, force bool) (*api.ForeignCluster, error) {
	object := applied{
		TypeMeta: metav1.TypeMeta{APIVersion: api.GroupVersion.String(), Kind: api.KindForeignCluster},
		Metadata: appliedMeta{Name: a.Name, UID: a.UID},
		Spec:     a.Spec,
		Status:   a.Status,
	}
	if a.Spec != nil {
		object.Metadata.Labels = a.Spec.Labels
	}
	out := &api.ForeignCluster{}
	request := c.rest.Patch(types.ApplyPatchType).Resource(api.PluralForeignClusters).Name(a.Name).SubResource(subresource)
	text, err := patch(ctx, request, object, ManagerDiscovery, force)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s ForeignCluster %s: %w", a.Kind, a.Name, err)
	}
	return out, nil
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
	return body(request.Param("fieldManager", manager).Body(text).MaxRetries(0).Do(ctx))
}

// body returns the body of a successful answer, and the server's own words
// about one that is not, together with the pause that it asks for.
func body(answer rest.Result) ([]byte, error) {
	text, err := answer.Raw()
	if err == nil {
		return text, nil
	}
	// The first error knows the headers and the second one the body.
	seconds, asked := apierrors.SuggestsClientDelay(err)
	err = answer.Error()
	if status := (*apierrors.StatusError)(nil); asked && errors.As(err, &status) {
		if status.ErrStatus.Details == nil {
			status.ErrStatus.Details = &metav1.StatusDetails{}
		}
		status.ErrStatus.Details.RetryAfterSeconds = int32(seconds)
	}
	return nil, err
}

// getJSON reads any other resource into a struct of ours.
func (c *client) getJSON(ctx context.Context, path string, params map[string]string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0)
	for k, v := range params {
		request = request.Param(k, v)
	}
	text, err := body(request.Do(ctx))
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

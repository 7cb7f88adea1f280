package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// requestTimeout bounds every request but lists and watches, unless the
	// configuration says otherwise.
	requestTimeout = 10 * time.Second
	// listTimeout bounds a list; some thousand objects from a slow machine take
	// longer than one.
	listTimeout = 30 * time.Second

	// maxAnswer and maxList bound answers in bytes. An object is at most 1.5 MiB in
	// etcd.
	maxAnswer = 4 << 20
	maxList   = 128 << 20
	// maxRefusal bounds the answer when it is no success.
	maxRefusal = 256 << 10

	// The rate is only limited in case of a mistake of ours.
	clientQPS   = 500
	clientBurst = 1000
)

// Client speaks to one API server. It may be used by any number of goroutines.
// Its paths are absolute, such as "/api/v1/namespaces/shop/pods/web"; into is a
// pointer that the answer is decoded into, or nil. Errors are those of
// k8s.io/apimachinery/pkg/api/errors where the API server gave one, with its own
// words, and name method and path. It never tries again by itself.
type Client struct {
	rest      *rest.RESTClient
	transport http.RoundTripper
	timeout   time.Duration // of a request that is neither a list nor a watch
}

// New returns a client for an API server. config is not changed. Its Timeout is for
// every request but lists and watches; 0 means ten seconds.
func New(config *rest.Config) (*Client, error) {
	timeout := cmp.Or(config.Timeout, requestTimeout)
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(statusScheme()).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS, config.Burst = clientQPS, clientBurst
	config.Timeout = 0 // set per request: a watch has none
	config.DisableCompression = true
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if config.UserAgent == "" {
		config.UserAgent = "liqo-agent"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return &Client{rest: client, transport: httpClient.Transport, timeout: timeout}, nil
}

// statusScheme knows what errors are made of; everything else is decoded here.
func statusScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// Close closes the connections that are not in use.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.transport) }

// Get reads what is at a path.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, "GET", path, c.rest.Get(), into)
}

// Create creates an object in the collection at a path, which may be a
// subresource such as pods/web/eviction.
func (c *Client) Create(ctx context.Context, path string, object, into any) error {
	return c.send(ctx, "POST", path, c.rest.Post(), object, into)
}

// CreateAs is Create as a field manager.
func (c *Client) CreateAs(ctx context.Context, path, manager string, object, into any) error {
	return c.send(ctx, "POST", path, c.rest.Post().Param("fieldManager", manager), object, into)
}

// GetAs is Get as another user, by impersonation.
func (c *Client) GetAs(ctx context.Context, path, user, group string, into any) error {
	return c.do(ctx, "GET", path, c.rest.Get().SetHeader("Impersonate-User", user).SetHeader("Impersonate-Group", group), into)
}

// Update replaces the object at a path.
func (c *Client) Update(ctx context.Context, path string, object, into any) error {
	return c.send(ctx, "PUT", path, c.rest.Put(), object, into)
}

// Apply applies an object by server-side apply as a field manager. force takes
// fields that belong to others.
func (c *Client) Apply(ctx context.Context, path, manager string, force bool, object, into any) error {
	request := c.rest.Patch(types.ApplyPatchType).Param("fieldManager", manager)
	if force {
		request = request.Param("force", "true")
	}
	return c.send(ctx, "PATCH", path, request, object, into)
}

// Patch changes the object at a path. manager is the field manager, "" for none.
func (c *Client) Patch(ctx context.Context, path, manager string, kind types.PatchType, patch []byte, into any) error {
	request := c.rest.Patch(kind).Body(patch)
	if manager != "" {
		request = request.Param("fieldManager", manager)
	}
	return c.do(ctx, "PATCH", path, request, into)
}

// Delete deletes the object at a path. That there is none is an error for which
// apierrors.IsNotFound holds.
func (c *Client) Delete(ctx context.Context, path string, options metav1.DeleteOptions) error {
	return c.send(ctx, "DELETE", path, c.rest.Delete(), options, nil)
}

func (c *Client) send(ctx context.Context, method, path string, request *rest.Request, object, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if method != http.MethodPatch { // a patch has a type of its own already
		request = request.SetHeader("Content-Type", runtime.ContentTypeJSON)
	}
	return c.do(ctx, method, path, request.Body(text), into)
}

func (c *Client) do(ctx context.Context, method, path string, request *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := read(ctx, request.AbsPath(path), maxAnswer)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// errTooLarge: an answer has more bytes than any sensible one.
var errTooLarge = fmt.Errorf("%w: the answer is too large", ErrTooMuch)

// limitKey is the key of the limit of a request's answer in its context.
type limitKey struct{}

// bounded is a transport whose answers end with errTooLarge where the limit of
// their request is.
type bounded struct{ next http.RoundTripper }

// WrappedRoundTripper lets idle connections be closed through the wrapper.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	most, ok := r.Context().Value(limitKey{}).(int64)
	if resp.StatusCode/100 != 2 {
		most, ok = maxRefusal, true
	}
	if ok {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: most}
	}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 { // it may end right here
		n, err := b.ReadCloser.Read(make([]byte, 1))
		if n > 0 {
			return 0, errTooLarge
		}
		return 0, err
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// read sends a request and returns what Body does.
func read(ctx context.Context, request *rest.Request, most int64) ([]byte, error) {
	return Body(request.MaxRetries(0).SetHeader("Accept", runtime.ContentTypeJSON).Do(context.WithValue(ctx, limitKey{}, most)))
}

// Body returns the body of a successful answer, and otherwise the API server's own
// words together with the pause that it asks for.
func Body(answer rest.Result) ([]byte, error) {
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

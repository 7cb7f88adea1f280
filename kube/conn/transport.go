package conn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"liqo.io/agent/kube/tally"
)

// wrap is a transport.WrapperFunc.
func (l *Link) wrap(next http.RoundTripper) http.RoundTripper {
	return &observed{counted{next, l.now, &l.writes, &l.requests}, l}
}

// observed is a transport that tells a link how each request ends.
type observed struct {
	counted
	link *Link
}

// RoundTrip implements http.RoundTripper.
func (o *observed) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := o.link.now()
	resp, err := o.counted.RoundTrip(req)
	switch {
	case errors.Is(req.Context().Err(), context.Canceled):
		// We gave up ourselves, which says nothing about the server. Running into the
		// time limit does.
	case err != nil:
		o.link.failed(begun, err)
	case resp.StatusCode == http.StatusUnauthorized:
		o.link.unaccepted()
		o.link.failed(begun, errors.New("the API server does not accept the kubeconfig's credentials (401 Unauthorized)"))
	case resp.StatusCode >= http.StatusInternalServerError:
		o.link.failed(begun, fmt.Errorf("the API server answers %s", resp.Status))
	default:
		received := o.link.now()
		o.link.clock.look(resp.Header, begun, received, received.Sub(o.link.started))
		if resp.StatusCode == http.StatusForbidden {
			o.link.denied(req, resp)
		} else {
			o.link.allowed(req)
		}
		o.link.succeeded()
	}
	return resp, err
}

// counted is a transport that counts requests, and apart from that those that write.
type counted struct {
	next     http.RoundTripper
	now      func() time.Time
	writes   *atomic.Uint64
	requests *tally.Requests
}

// WrappedRoundTripper lets idle connections be closed through the wrapper.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// isQuestion reports whether a request asks the API server who somebody is, or what they
// may do: that is a POST of which nothing is stored.
func isQuestion(req *http.Request) bool {
	return req.Method == http.MethodPost && (strings.Contains(req.URL.Path, "/apis/authentication.k8s.io/") || strings.Contains(req.URL.Path, "/apis/authorization.k8s.io/"))
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !isQuestion(req) {
		c.writes.Add(1)
	}
	begun := c.now()
	resp, err := c.next.RoundTrip(req)
	c.requests.Answered(req, resp, c.now().Sub(begun))
	return resp, err
}

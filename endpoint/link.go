package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/peer"
)

// LinkConfig says where a Link leads.
type LinkConfig struct {
	// Target returns the peer as far as it is known now; false while nothing is, or
	// nothing is to go there. Its Fingerprint must be set. It must be quick and safe
	// for concurrent use.
	Target func() (Target, bool)
	// Logger is told at debug level when a tunnel begins and ends; nil: nothing is.
	Logger *slog.Logger
}

// Link is the way to one peer's API server, through the gateway at its endpoint.
// Requests share one connection, the tunnel, which is made when it is needed and
// made anew when it is found dead, which takes some seconds. Its methods may be
// called from any goroutine. Errors name the peer.
type Link struct {
	client *Client
	cfg    LinkConfig
	http2  *http2.Transport
	ctx    context.Context // ends with Close
	end    context.CancelFunc
	work   sync.WaitGroup // everything that runs on behalf of the link

	mu      sync.Mutex
	closed  bool
	current *tunnel
	moved   bool                   // the target may be another than current's
	old     map[*tunnel]struct{}   // tunnels with something on them that may go on
	dialing *dialing               // nil while nobody makes a tunnel
	own     map[*switched]struct{} // upgraded connections
	failed  error                  // of the last attempt to make a tunnel
	failAt  time.Time
}

// NewLink returns a Link, which belongs to whoever called and is to be closed. It
// starts nothing.
func (c *Client) NewLink(cfg LinkConfig) *Link {
	l := &Link{client: c, cfg: cfg, old: make(map[*tunnel]struct{}), own: make(map[*switched]struct{})}
	if cfg.Logger == nil {
		l.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.http2 = newTunnelTransport((*linkPool)(l))
	return l
}

// errClosed: the link was closed.
var errClosed = errors.New("the link is closed")

// RoundTrip is http.RoundTripper. Path and query of the request's URL are those of
// the API server; its scheme, host and credentials are not looked at, and of its
// header only Accept and Content-Type are sent. A body should have a length. A
// request that did not reach the peer is sent once more on a new tunnel, a GET also
// when it may have. How much of an answer's body to read is up to the caller.
func (l *Link) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.WithContext(r.Context()) // a copy
	out.URL = gatewayURL(r.URL)
	out.Header = subset(r.Header, "Accept", "Content-Type")
	return l.send(out)
}

// gatewayURL is where a peer has what is at u at its API server.
func gatewayURL(u *url.URL) *url.URL {
	out := &url.URL{Scheme: "https", Host: "peer", Path: strings.TrimSuffix(PathGateway, "/") + u.Path, RawQuery: u.RawQuery}
	if u.RawPath != "" {
		out.RawPath = strings.TrimSuffix(PathGateway, "/") + u.RawPath
	}
	return out
}

// subset returns the header with these names, and who we are.
func subset(h http.Header, names ...string) http.Header {
	out := http.Header{"User-Agent": {"liqo-agent"}, ProtocolHeader: {peer.Spoken().String()}}
	for _, name := range names {
		if values := h.Values(name); len(values) > 0 {
			out[http.CanonicalHeaderKey(name)] = values
		}
	}
	return out
}

// send sends r through the tunnel. It owns r's header and URL.
func (l *Link) send(r *http.Request) (*http.Response, error) {
	r.Host, r.RequestURI = "", ""
	resp, err := l.http2.RoundTrip(r)
	if err != nil && r.Method == http.MethodGet && r.Context().Err() == nil && l.ctx.Err() == nil && !isOf[*noTunnel](err) {
		// It was on a tunnel that ended. There is no harm in asking twice.
		resp, err = l.http2.RoundTrip(r)
	}
	if err != nil {
		return nil, l.named(err)
	}
	return resp, nil
}

// isOf reports whether an error of that type is in err's chain.
func isOf[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// named says which peer an error is about.
func (l *Link) named(err error) error {
	if target, ok := l.cfg.Target(); ok && target.ID != "" {
		return fmt.Errorf("peer %s: %w", target.ID, err)
	}
	return fmt.Errorf("peer: %w", err)
}

// Namespace returns the namespace at the peer that stands for our namespace
// origin; it is made if there is none. A *Refused says that the peer does not want
// that.
func (l *Link) Namespace(ctx context.Context, origin string) (string, error) {
	var out NamespaceAnswer
	if err := l.call(ctx, PathNamespaces, NamespaceCall{Name: origin}, &out); err != nil {
		return "", l.named(err)
	}
	if !isLabel(out.Namespace) {
		return "", l.named(fmt.Errorf("answers %s with %q, which is no namespace", PathNamespaces, readable(out.Namespace)))
	}
	return out.Namespace, nil
}

// Release tells the peer that its namespace for ours is not needed any more. A
// *Refused is as for Namespace.
func (l *Link) Release(ctx context.Context, origin string) error {
	var out struct{}
	if err := l.call(ctx, PathRelease, NamespaceCall{Name: origin}, &out); err != nil {
		return l.named(err)
	}
	return nil
}

// call makes one of the calls of protocol.go through the tunnel. Both of those that
// there are mean the same when they arrive twice.
func (l *Link) call(ctx context.Context, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, l.client.exchangeTimeout)
	defer cancel()
	body, err := encode(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://peer"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"liqo-agent"}, ProtocolHeader: {peer.Spoken().String()}}
	resp, err := l.http2.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	answered, err := readSmall(resp)
	if err != nil {
		return err
	}
	if answered.Status != http.StatusOK {
		return answered.refused()
	}
	if err := json.Unmarshal(answered.Body, out); err != nil {
		return fmt.Errorf("answers %s with something else: %w", path, err)
	}
	return nil
}

// readSmall reads an answer of a call.
func readSmall(resp *http.Response) (Response, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxRequestBody+1))
	if err != nil {
		return Response{}, err
	}
	if len(body) > MaxRequestBody {
		return Response{}, fmt.Errorf("answers with more than %d bytes", MaxRequestBody)
	}
	return Response{Status: resp.StatusCode, Body: body, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}, nil
}

// refused is an answer that is no success as an error: a *Refused if the peer does
// not want what was asked for, and will not the next time.
func (r Response) refused() error {
	said := r.Refusal()
	err := fmt.Errorf("%s (HTTP status %d)", said.Error, r.Status)
	switch {
	case r.Status == http.StatusTooManyRequests && r.RetryAfter > 0:
		return later{err, r.RetryAfter}
	case r.Status != http.StatusForbidden, said.Reason == ReasonCertificateEnded:
		return err // the latter passes, and nothing is taken back before
	case said.Reason == ReasonNotTrusted, said.Reason == ReasonBlocked:
		return outcast{err}
	}
	return &Refused{Reason: said.Reason, Message: said.Error}
}

// later is the error of a call that the peer takes only after a while.
type later struct {
	error
	after time.Duration
}

// RetryAfter returns how long that is.
func (l later) RetryAfter() time.Duration { return l.after }

// Unwrap returns what the peer said.
func (l later) Unwrap() error { return l.error }

// Moved says that the target may be another. If it is, the next request makes a
// new tunnel; what runs on the old one is left alone unless its key is none of the
// target's. If there is no target any more, everything under way ends.
func (l *Link) Moved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = true
	l.failed = nil
	if _, ok := l.cfg.Target(); ok {
		return
	}
	if l.current != nil {
		l.drop("nothing is to go to the peer")
	}
	for t := range l.old {
		delete(l.old, t)
		l.work.Go(t.close)
	}
	for c := range l.own {
		l.work.Go(c.abort)
	}
}

// Close ends everything under way and returns when it has. Requests fail from then
// on.
func (l *Link) Close() {
	l.end()
	l.mu.Lock()
	l.closed = true
	tunnels := l.old
	l.old = nil
	if l.current != nil {
		tunnels[l.current] = struct{}{}
		l.current = nil
	}
	own := l.own
	l.own = nil
	l.mu.Unlock()
	for t := range tunnels {
		t.close()
	}
	for c := range own {
		c.abort()
	}
	l.work.Wait()
}

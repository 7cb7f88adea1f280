package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// LinkConfig says where a Link leads.
type Config struct {
	// Target returns the peer as far as it is known now; false while nothing is, or
	// nothing is to go there. Its Fingerprint must be set. It must be quick and safe
	// for concurrent use.
	Target func() (peer.Target, bool)
	// Logger is told at debug level when a tunnel begins and ends; nil: nothing is.
	Logger *slog.Logger
}

// Link is the way to one peer's API server, through the gateway at its endpoint.
// Requests share one connection, the tunnel, which is made when it is needed and
// made anew when it is found dead, which takes some seconds. Its methods may be
// called from any goroutine. Errors name the peer.
type Link struct {
	client  *client.Client
	cfg     Config
	http2   *http2.Transport
	unheard time.Duration   // how long a peer may leave an upgraded connection unanswered
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	work    sync.WaitGroup // everything that runs on behalf of the link

	mu       sync.Mutex
	closed   bool
	current  *tunnel
	moved    bool                   // the target may be another than current's
	retiring map[*tunnel]struct{}   // tunnels with something on them that may go on
	dialing  *dialAttempt           // nil while nobody makes a tunnel
	upgrades map[*upgraded]struct{} // upgraded connections
	failed   error                  // of the last attempt to make a tunnel
	failAt   time.Time
}

// New returns a Link, which belongs to whoever called and is to be closed. It
// starts nothing.
func New(c *client.Client, cfg Config) *Link {
	l := &Link{client: c, cfg: cfg, unheard: upgradeUnheard, retiring: make(map[*tunnel]struct{}), upgrades: make(map[*upgraded]struct{})}
	if cfg.Logger == nil {
		l.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.http2 = newTunnelTransport((*tunnelPool)(l))
	return l
}

// errClosed: the link was closed.
var errClosed = errors.New("the link is closed")

// errNoTarget: Target returned none.
var errNoTarget = errors.New("it is not known where the peer is, or by which key to know it")

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
	out := &url.URL{Scheme: "https", Host: "peer", Path: strings.TrimSuffix(wire.PathGateway, "/") + u.Path, RawQuery: u.RawQuery}
	if u.RawPath != "" {
		out.RawPath = strings.TrimSuffix(wire.PathGateway, "/") + u.RawPath
	}
	return out
}

// subset returns the header with these names, and who we are.
func subset(h http.Header, names ...string) http.Header {
	out := http.Header{"User-Agent": {"liqo-agent"}, wire.ProtocolHeader: {peer.Spoken().String()}}
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
	if err != nil && r.Method == http.MethodGet && r.Context().Err() == nil && l.ctx.Err() == nil && !isOf[*noTunnelError](err) {
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
	var out wire.NamespaceAnswer
	if err := l.call(ctx, wire.PathNamespaces, wire.NamespaceCall{Name: origin}, &out); err != nil {
		return "", l.named(err)
	}
	if _, err := peer.ParseNamespace(out.Namespace); err != nil {
		return "", l.named(fmt.Errorf("answers %s with %q, which is no namespace", wire.PathNamespaces, wire.Readable(out.Namespace)))
	}
	return out.Namespace, nil
}

// Release tells the peer that its namespace for ours is not needed any more. A
// *Refused is as for Namespace.
func (l *Link) Release(ctx context.Context, origin string) error {
	var out struct{}
	if err := l.call(ctx, wire.PathRelease, wire.NamespaceCall{Name: origin}, &out); err != nil {
		return l.named(err)
	}
	return nil
}

// call makes one of the calls of protocol.go through the tunnel. Both of those that
// there are mean the same when they arrive twice.
func (l *Link) call(ctx context.Context, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, client.ExchangeTimeout)
	defer cancel()
	body, err := wire.Encode(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://peer"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"liqo-agent"}, wire.ProtocolHeader: {peer.Spoken().String()}}
	resp, err := l.http2.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	answered, err := client.ReadResponse(resp)
	if err != nil {
		return err
	}
	if answered.Status != http.StatusOK {
		return answered.Refused()
	}
	if err := json.Unmarshal(answered.Body, out); err != nil {
		return fmt.Errorf("answers %s with something else: %w", path, err)
	}
	return nil
}

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
	for t := range l.retiring {
		delete(l.retiring, t)
		l.work.Go(t.close)
	}
	for c := range l.upgrades {
		l.work.Go(c.under.Abort)
	}
}

// Close ends everything under way and returns when it has. Requests fail from then
// on.
func (l *Link) Close() {
	l.end()
	l.mu.Lock()
	l.closed = true
	tunnels := l.retiring
	l.retiring = nil
	if l.current != nil {
		tunnels[l.current] = struct{}{}
		l.current = nil
	}
	presented := l.upgrades
	l.upgrades = nil
	l.mu.Unlock()
	for t := range tunnels {
		t.close()
	}
	for c := range presented {
		c.under.Abort()
	}
	l.work.Wait()
}

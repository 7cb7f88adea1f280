package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/throttle"
)

// MaxAnswer bounds what is read of an answer of the API server about an object of a
// peer's own.
const MaxAnswer = 1 << 20

// Upstream is the way to the local API server.
type Upstream struct {
	// Base is where its paths begin, https://host:port, perhaps with a path.
	Base *url.URL
	// Transport carries the agent's own credentials, which must be allowed to
	// impersonate Users and their group.
	Transport http.RoundTripper
	// Users says as whom peers are to ask.
	Users api.PeerUsers
	// Upgrade is Transport for requests whose connection is to change its protocol:
	// it speaks HTTP/1.1 only, and the body of an answer 101 is an io.ReadWriteCloser.
	// nil: there are no such requests.
	Upgrade http.RoundTripper
}

// Config says where a Gateway leads.
type Config struct {
	// Upstream returns the way to the API server; false while there is none.
	// It must be quick and safe for concurrent use.
	Upstream func() (Upstream, bool)
	// DeletedByPeer, if not nil, is called before a peer's DELETE is forwarded,
	// with the plural name of the resource. What it returns is called with the status
	// of the API server's answer, 0 when there was none. Both must be quick and safe
	// for concurrent use.
	DeletedByPeer func(id peer.ClusterID, resource string) (answered func(status int))
	// Logger is told, a few lines a minute, what known peers try that they may
	// not do.
	Logger *slog.Logger
}

// Gateway leads known callers to the local API server, as users of their own
// ([api.PeerUsers]) in group "liqo:peers", so that RBAC decides what they may
// do there. Before that package allow decides what is sent at all. Nothing of a
// caller's request is passed on but what was checked, and nothing of the API
// server's answer but status, body, Retry-After and what an upgrade is about.
//
// It sends requests of its own with RoundTrip and is no httputil.ReverseProxy,
// which passes on everything that one does not remember to take away.
type Gateway struct {
	cfg  Config
	warn throttle.Limiter
}

// New returns a Gateway. It starts nothing.
func New(cfg Config) *Gateway { return &Gateway{cfg: cfg} }

// Complain logs what a known peer tries that it may not do: it is trusted, so
// this is a bug in some version of the agent, or worse.
func (g *Gateway) Complain(id peer.ClusterID, r *http.Request, no *refusal.Refusal) {
	if n, ok := g.warn.Allow(time.Now(), 5, time.Minute); ok {
		g.cfg.Logger.Warn("endpoint refused a peer's request for the API server", "peer", id, "method", text.Sentence(r.Method),
			"path", text.Sentence(r.RequestURI), "error", no.Text, "not_shown", n)
	}
}

// Exchange sends out to the API server and reads the answer, of at most that many
// bytes; the body of resp is closed.
func (g *Gateway) Exchange(ctx context.Context, id peer.ClusterID, out allow.Request, limit int64) (*http.Response, []byte, *refusal.Refusal) {
	resp, no := g.Ask(ctx, id, out)
	if no != nil {
		return nil, nil, no
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	body, no := Read(ctx, resp, limit)
	return resp, body, no
}

// Ask sends out to the API server and returns the answer, whose body is to be
// closed.
func (g *Gateway) Ask(ctx context.Context, id peer.ClusterID, out allow.Request) (*http.Response, *refusal.Refusal) {
	up, ok := g.cfg.Upstream()
	if !ok {
		return nil, refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's API server cannot be reached now")
	}
	req, err := request(ctx, up, id, out)
	if err != nil {
		return nil, refusal.Internal("the request for the API server cannot be made; please report this")
	}
	answered := func(int) {}
	if out.Method == http.MethodDelete && !out.Guest && g.cfg.DeletedByPeer != nil {
		answered = g.cfg.DeletedByPeer(id, out.Resource)
	}
	resp, err := up.Transport.RoundTrip(req)
	if err != nil {
		answered(0)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, refusal.LostUpstream(err)
	}
	answered(resp.StatusCode)
	return resp, nil
}

// request makes the request for the API server, of which every part is ours.
func request(ctx context.Context, up Upstream, id peer.ClusterID, out allow.Request) (*http.Request, error) {
	target := up.Base.JoinPath(out.Path)
	target.RawQuery, target.Fragment = out.Query, ""
	var body io.Reader
	if out.Body != nil {
		body = bytes.NewReader(out.Body)
	}
	req, err := http.NewRequestWithContext(ctx, out.Method, target.String(), body)
	if err != nil {
		return nil, err
	}
	accept := "application/json"
	if out.Accept != "" {
		accept = out.Accept
	}
	req.Header = http.Header{
		"Accept":            {accept},
		"User-Agent":        {"liqo-agent-gateway"},
		"Impersonate-User":  {up.Users.Name(string(id))},
		"Impersonate-Group": {api.PeerGroup},
	}
	if out.ContentType != "" {
		req.Header.Set("Content-Type", out.ContentType)
	}
	return req, nil
}

// notRunning matches what a kubelet says of a container that does not run, in place of an upgrade. The API server passes that on
// as it is, which is text. Other text may say anything.
var notRunning = regexp.MustCompile(`^container not found \("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"\)$`)

// Read reads an answer of at most that many bytes, if it makes sense to a peer. ctx
// is that of the request.
func Read(ctx context.Context, resp *http.Response, limit int64) ([]byte, *refusal.Refusal) {
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		// It is the agent that was not let in; the peer has proven who it is.
		return nil, refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's API server does not let its agent in")
	case resp.StatusCode < 200, 300 <= resp.StatusCode && resp.StatusCode < 400, resp.StatusCode > 599:
		return nil, refusal.BadUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	case resp.ContentLength > limit:
		return nil, refusal.BadUpstream("an answer that is too large")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if cause := context.Cause(ctx); cause != nil {
		// When ctx ends, the other side may end its answer in good order, but early,
		// before the connection is closed here.
		err = cause
	}
	if err != nil {
		return nil, refusal.LostUpstream(err)
	}
	if int64(len(body)) > limit {
		return nil, refusal.BadUpstream("an answer that is too large")
	}
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || mediaType != "application/json" || !json.Valid(body) {
		if said := bytes.TrimSpace(body); resp.StatusCode == http.StatusInternalServerError && notRunning.Match(said) {
			body, err := json.Marshal(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Message: string(said), Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
			})
			if err == nil {
				return body, nil
			}
		}
		// Not an answer about objects: the API server is starting, lacks the
		// resource's definition, or something stands in front of it.
		return nil, refusal.BadUpstream(fmt.Sprintf("status %d without JSON", resp.StatusCode))
	}
	return body, nil
}

package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

const (
	// maxGatewayAnswer bounds what is read of an answer of the API server.
	maxGatewayAnswer = 1 << 20
	// maxPassedRetry bounds the advice that is passed on, in seconds.
	maxPassedRetry = 3600
)

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

// GatewayConfig says where a Gateway leads.
type GatewayConfig struct {
	// Upstream returns the way to the API server; false while there is none.
	// It must be quick and safe for concurrent use.
	Upstream func() (Upstream, bool)
	// DeletedByPeer, if not nil, is called before a peer's DELETE is forwarded,
	// with the plural name of the resource. What it returns is called with the status
	// of the API server's answer, 0 when there was none. Both must be quick and safe
	// for concurrent use.
	DeletedByPeer func(id peer.ClusterID, resource string) (answered func(status int))
	// Guests decides what peers may do with the namespaces they have here; nil: they
	// have none, and there are no paths for that.
	Guests Guests
	// Logger is told, a few lines a minute, what known peers try that they may
	// not do.
	Logger *slog.Logger
}

// Gateway leads known callers to the local API server, as users of their own
// ([api.PeerUsers]) in group "liqo:peers", so that RBAC decides what they may
// do there. Before that an allow-list decides what is sent at all: see
// gatewayRoutes and guestRoutes. Nothing of a caller's request is passed on but
// what was checked, and nothing of the API server's answer but status, body,
// Retry-After and what an upgrade is about.
//
// It sends requests of its own with RoundTrip and is no httputil.ReverseProxy,
// which passes on everything that one does not remember to take away.
type Gateway struct {
	cfg  GatewayConfig
	warn limiter
}

// NewGateway returns a Gateway. It starts nothing.
func NewGateway(cfg GatewayConfig) *Gateway { return &Gateway{cfg: cfg} }

// serveGateway answers a request to the API server.
func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal {
	g := s.cfg.Gateway
	if g == nil {
		return noAPIServer(http.StatusServiceUnavailable, "this cluster works without an API server")
	}
	action, no := findAction(caller.ID, r.Method, r.RequestURI)
	if no == nil && wantsUpgrade(r) {
		no = notPermitted("the connection cannot be upgraded; send a plain request")
	}
	if no != nil {
		g.complain(caller.ID, r, no)
		return no
	}
	var body []byte
	if action.takesBody() {
		if body, no = s.readBody(w, r, c, action.takes, maxGatewayBody); no != nil {
			return no
		}
	} else if r.ContentLength != 0 {
		return badBody("a " + r.Method + " has no body; leave it out")
	}
	out, no := action.forward(caller.ID, body)
	if no != nil {
		g.complain(caller.ID, r, no)
		return no
	}
	if out.method != http.MethodGet {
		if no := s.spend(r, caller, cost{writes: 1, bytes: len(out.body)}); no != nil {
			return no
		}
	}
	if !s.limits.gateway.Take(caller.ID) {
		return busy("requests to the API server")
	}
	defer s.limits.gateway.Release(caller.ID)
	ctx, cancel := s.allow(w, r, s.times.gateway)
	defer cancel()
	return g.send(ctx, w, caller.ID, out)
}

// complain logs what a known peer tries that it may not do: it is trusted, so
// this is a bug in some version of the agent, or worse.
func (g *Gateway) complain(id peer.ClusterID, r *http.Request, no *refusal) {
	if n, ok := g.warn.allow(time.Now(), 5, time.Minute); ok {
		g.cfg.Logger.Warn("endpoint refused what a peer sent for the API server", "peer", id, "method", sentence(r.Method),
			"path", sentence(r.RequestURI), "error", no.text, "not_shown", n)
	}
}

// send sends out to the API server and answers w with what comes back.
func (g *Gateway) send(ctx context.Context, w http.ResponseWriter, id peer.ClusterID, out forward) *refusal {
	resp, body, no := g.exchange(ctx, id, out, maxGatewayAnswer)
	if no != nil {
		return no
	}
	pass(w, resp, body)
	return nil
}

// exchange sends out to the API server and reads the answer, of at most that many
// bytes; the body of resp is closed.
func (g *Gateway) exchange(ctx context.Context, id peer.ClusterID, out forward, limit int64) (*http.Response, []byte, *refusal) {
	resp, no := g.ask(ctx, id, out)
	if no != nil {
		return nil, nil, no
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	body, no := read(ctx, resp, limit)
	return resp, body, no
}

// ask sends out to the API server and returns the answer, whose body is to be
// closed.
func (g *Gateway) ask(ctx context.Context, id peer.ClusterID, out forward) (*http.Response, *refusal) {
	up, ok := g.cfg.Upstream()
	if !ok {
		return nil, noAPIServer(http.StatusServiceUnavailable, "this cluster's API server cannot be reached now")
	}
	req, err := request(ctx, up, id, out)
	if err != nil {
		return nil, internalError("the request for the API server cannot be made; please report this")
	}
	answered := func(int) {}
	if out.method == http.MethodDelete && !out.guest && g.cfg.DeletedByPeer != nil {
		answered = g.cfg.DeletedByPeer(id, out.resource)
	}
	resp, err := up.Transport.RoundTrip(req)
	if err != nil {
		answered(0)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, lostUpstream(err)
	}
	answered(resp.StatusCode)
	return resp, nil
}

// request makes the request for the API server, of which every part is ours.
func request(ctx context.Context, up Upstream, id peer.ClusterID, out forward) (*http.Request, error) {
	target := up.Base.JoinPath(out.path)
	target.RawQuery, target.Fragment = out.query, ""
	var body io.Reader
	if out.body != nil {
		body = bytes.NewReader(out.body)
	}
	req, err := http.NewRequestWithContext(ctx, out.method, target.String(), body)
	if err != nil {
		return nil, err
	}
	accept := "application/json"
	if out.accept != "" {
		accept = out.accept
	}
	req.Header = http.Header{
		"Accept":            {accept},
		"User-Agent":        {"liqo-agent-gateway"},
		"Impersonate-User":  {up.Users.Name(string(id))},
		"Impersonate-Group": {api.PeerGroup},
	}
	if out.contentType != "" {
		req.Header.Set("Content-Type", out.contentType)
	}
	return req, nil
}

// read reads an answer of at most that many bytes, if it makes sense to a peer. ctx
// is that of the request.
func read(ctx context.Context, resp *http.Response, limit int64) ([]byte, *refusal) {
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		// It is the agent that was not let in; the peer has proven who it is.
		return nil, noAPIServer(http.StatusServiceUnavailable, "this cluster's API server does not let its agent in")
	case resp.StatusCode < 200, 300 <= resp.StatusCode && resp.StatusCode < 400, resp.StatusCode > 599:
		return nil, badUpstream(fmt.Sprintf("status %d", resp.StatusCode))
	case resp.ContentLength > limit:
		return nil, badUpstream("an answer that is too large")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if cause := context.Cause(ctx); cause != nil {
		// When ctx ends, the other side may end its answer in good order, but early,
		// before the connection is closed here.
		err = cause
	}
	if err != nil {
		return nil, lostUpstream(err)
	}
	if int64(len(body)) > limit {
		return nil, badUpstream("an answer that is too large")
	}
	if mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || mediaType != "application/json" || !json.Valid(body) {
		// Not an answer about objects: the API server is starting, lacks the
		// resource's definition, or something stands in front of it.
		return nil, badUpstream(fmt.Sprintf("status %d without JSON", resp.StatusCode))
	}
	return body, nil
}

// pass answers w with the status of resp, of which body was read, and how long to
// wait if that says so.
func pass(w http.ResponseWriter, resp *http.Response, body []byte) {
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 && n <= maxPassedRetry {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	answer(w, resp.StatusCode, body)
}

func noAPIServer(status int, text string) *refusal {
	return &refusal{
		status: status, counted: RefusedNoAPIServer, reason: ReasonNoAPIServer, retry: 5 * time.Second, text: text + "; try again later",
	}
}

func lostUpstream(err error) *refusal {
	if errors.Is(err, context.DeadlineExceeded) {
		return noAPIServer(http.StatusGatewayTimeout, "this cluster's API server did not answer in time")
	}
	return noAPIServer(http.StatusServiceUnavailable, "this cluster's API server did not answer")
}

func badUpstream(what string) *refusal {
	return &refusal{
		status: http.StatusBadGateway, counted: RefusedUpstream, reason: ReasonNoAPIServer, retry: 5 * time.Second,
		text: "this cluster's API server answered with " + what + ", which is not passed on; try again later",
	}
}

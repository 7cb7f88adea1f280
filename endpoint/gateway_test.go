package endpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// apiServer records what reaches it and answers as it is told.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	seen    []string // everything of every request, in a fixed form
	deleted []string
	down    bool
	answer  http.HandlerFunc
	whose   func(path string) string // the label of the object there; "" for none; nil: everything is the caller's
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{}
	a.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"x"}`)
	}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("upstream: %v", err)
		}
		var header bytes.Buffer
		_ = r.Header.WriteSubset(&header, map[string]bool{"Accept-Encoding": true, "Content-Length": true}) // sorted
		a.mu.Lock()
		a.seen = append(a.seen, fmt.Sprintf("%s %s\n%s\n%s", r.Method, r.RequestURI, strings.ReplaceAll(header.String(), "\r\n", "\n"), body))
		answer := a.answer
		if whose := a.whose; r.Header.Get("Accept") == justMetadata {
			// Whose it is is asked before anything is done with an object.
			a.seen = a.seen[:len(a.seen)-1]
			a.mu.Unlock()
			owner := strings.TrimPrefix(r.Header.Get("Impersonate-User"), "system:serviceaccount:liqo:liqo-peer-")
			if whose != nil {
				owner = whose(r.RequestURI)
			}
			a.metadata(w, owner)
			return
		}
		a.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// metadata answers whose an object is; "none" is that there is no such object.
func (a *apiServer) metadata(w http.ResponseWriter, owner string) {
	w.Header().Set("Content-Type", "application/json")
	if owner == "none" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","code":404}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","metadata":{"uid":"the-uid","labels":{"liqo.io/origin-cluster-id":%q}}}`, owner)
}

func (a *apiServer) gateway(t *testing.T, path string) *gateway.Gateway {
	return gateway.New(a.config(t, path))
}

func (a *apiServer) config(t *testing.T, path string) gateway.Config {
	base, err := url.Parse(a.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Config{
		Upstream: func() (gateway.Upstream, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return gateway.Upstream{Base: base, Transport: a.Client().Transport, Users: peers}, !a.down
		},
		DeletedByPeer: func(id peer.ClusterID, resource string) func(int) {
			a.mu.Lock()
			defer a.mu.Unlock()
			told := fmt.Sprintf("%s %s before %d", id, resource, len(a.seen))
			return func(status int) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.deleted = append(a.deleted, fmt.Sprintf("%s: %d", told, status))
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (a *apiServer) answering(f http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = f
}

func (a *apiServer) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	a.seen = nil
	return seen
}

// peers are whom the API server gets to see.
var peers = api.PeerUsers{Namespace: "liqo"}

const whoAsks = "Impersonate-Group: liqo:peers\nImpersonate-User: system:serviceaccount:liqo:liqo-peer-b\nUser-Agent: liqo-agent-gateway\n"

func patch(path, body, header string) string {
	return fmt.Sprintf("PATCH %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/apply-patch+yaml\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), header, body)
}

// What a peer may send arrives as it has to, and nothing of its header does.
func TestGatewayForwards(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := servePeers(t, home, pin(other), a.gateway(t, ""), nil)
	const hostile = "Impersonate-User: system:admin\r\nImpersonate-Group: system:masters\r\nimpersonate-uid: 0\r\nImpersonate-Extra-scopes: x\r\n" +
		"X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-x: y\r\nAuthorization: Bearer x\r\nCookie: a=b\r\n" +
		"X-Forwarded-For: 127.0.0.1\r\nForwarded: for=1\r\nX-Real-Ip: 1\r\nVia: x\r\nConnection: Impersonate-User, X-Remote-User\r\n" +
		"Accept: application/vnd.kubernetes.protobuf\r\nAccept-Encoding: br\r\nX-HTTP-Method-Override: DELETE\r\nX-Original-Url: /metrics\r\n" +
		"Range: bytes=0-1\r\nIf-Match: x\r\nUser-Agent: kube-controller-manager\r\nTe: trailers\r\nKubectl-Command: x\r\nAudit-Id: x\r\nOrigin: x\r\n"
	with := func(request, header string) string {
		return strings.Replace(request, "Host: x\r\n", "Host: kubernetes.default\r\n"+header, 1)
	}
	options := `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`
	for name, tc := range map[string]struct{ request, want string }{
		"get":    {get(endpointtest.OwnRequest), "GET /apis/discovery.liqo.io/v1alpha1/peeringrequests/b\nAccept: application/json\n" + whoAsks + "\n"},
		"delete": {strings.Replace(get(endpointtest.OwnAdvert), "GET", "DELETE", 1), "DELETE /apis/sharing.liqo.io/v1alpha1/advertisements/b\nAccept: application/json\nContent-Type: application/json\n" + whoAsks + "\n" + options},
		"patch":  {patch(endpointtest.OwnRequest, endpointtest.RequestBody, ""), "PATCH /apis/discovery.liqo.io/v1alpha1/peeringrequests/b?fieldManager=liqo-peer&force=true\nAccept: application/json\nContent-Type: application/apply-patch+yaml\n" + whoAsks + "\n" + endpointtest.RequestBody},
	} {
		for kind, request := range map[string]string{"plain": tc.request, "hostile": with(tc.request, hostile)} {
			got := visit(t, s, other).send(request)
			if got.status != http.StatusOK || got.body != `{"kind":"x"}` {
				t.Errorf("%s %s: %+v", kind, name, got)
			}
			if seen := a.taken(); !slices.Equal(seen, []string{tc.want}) {
				t.Errorf("%s %s arrived as\n%s\nnot\n%s", kind, name, strings.Join(seen, "\n---\n"), tc.want)
			}
		}
	}
	// The server asks for a body that is announced.
	v := visit(t, s, other)
	head, body, _ := strings.Cut(patch(endpointtest.OwnRequest, endpointtest.RequestBody, "Expect: 100-continue\r\n"), "\r\n\r\n")
	if got := v.send(head + "\r\n\r\n"); got.status != http.StatusContinue {
		t.Errorf("%+v", got)
	}
	if got := v.send(body); got.status != http.StatusOK || len(a.taken()) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestGatewayBasePath(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := servePeers(t, home, pin(other), a.gateway(t, "/k8s/clusters/c%2Fx/?x=y"), nil)
	visit(t, s, other).send(get(endpointtest.OwnRequest))
	if seen := a.taken(); len(seen) != 1 || !strings.HasPrefix(seen[0], "GET /k8s/clusters/c%2Fx/apis/discovery.liqo.io/v1alpha1/peeringrequests/b\n") {
		t.Errorf("%q", seen)
	}
}

// What a peer may not send never arrives. The bodies and paths of
// TestAllowListBodies and TestAllowListPaths need no connection; these do.
func TestGatewayRefuses(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	thief := endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	l := pin(other, third)
	s := servePeers(t, home, l, a.gateway(t, ""), nil)
	big := strings.Replace(endpointtest.RequestBody, "mill", strings.Repeat("m", allow.MaxObject), 1)
	raw := func(method, path, header, body string) string {
		return method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n" + body
	}
	const apply = "Content-Type: application/apply-patch+yaml\r\n"
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(endpointtest.RequestBody), endpointtest.RequestBody)
	for _, tc := range []struct {
		name    string
		from    *endpointtest.Box
		request string
		status  int // 0: the connection just ends
		reason  string
	}{
		{"another's request", third, get(endpointtest.OwnRequest), 403, wire.ReasonNotPermitted},
		{"another's advertisement", third, strings.Replace(get(endpointtest.OwnAdvert), "GET", "DELETE", 1), 403, wire.ReasonNotPermitted},
		{"a stolen ID", thief, get(endpointtest.OwnRequest), 403, wire.ReasonNotTrusted},
		{"no certificate", nil, get(endpointtest.OwnRequest), 401, wire.ReasonNoCertificate},
		{"a list", other, get("/kube/apis/discovery.liqo.io/v1alpha1/peeringrequests"), 403, wire.ReasonNotPermitted},
		{"a watch", other, get(endpointtest.OwnRequest + "?watch=true"), 403, wire.ReasonNotPermitted},
		{"secrets", other, get("/kube/api/v1/secrets"), 403, wire.ReasonNotPermitted},
		{"dots", other, get("/kube/apis/discovery.liqo.io/v1alpha1/peeringrequests/b/../c"), 403, wire.ReasonNotPermitted},
		{"escapes", other, get("/kube/apis/discovery.liqo.io/v1alpha1/peeringrequests/%62"), 403, wire.ReasonNotPermitted},
		{"dots before", other, get("/x/../kube/api"), 404, wire.ReasonNoSuchPath},
		{"to a proxy", other, get("https://127.0.0.1:6443/api"), 404, wire.ReasonNoSuchPath},
		{"to a proxy, and a known path", other, get("https://127.0.0.1:6443" + endpointtest.OwnRequest), 404, wire.ReasonNoSuchPath},
		{"bad escapes", other, get("/kube/%zz"), 400, ""},
		{"space in the path", other, "GET /kube/a b HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		{"a port", other, "CONNECT 127.0.0.1:6443 HTTP/1.1\r\nHost: x\r\n\r\n", 404, wire.ReasonNoSuchPath},
		{"POST", other, raw("POST", endpointtest.OwnRequest, apply+"Content-Length: 0\r\n", ""), 405, wire.ReasonBadRequest},
		{"PUT", other, raw("PUT", endpointtest.OwnRequest, apply+"Content-Length: 0\r\n", ""), 405, wire.ReasonBadRequest},
		{"upgrade", other, raw("GET", endpointtest.OwnRequest, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", ""), 403, wire.ReasonNotPermitted},
		{"websocket", other, raw("GET", endpointtest.OwnRequest, "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n", ""), 403, wire.ReasonNotPermitted},
		{"upgrade to HTTP/2", other, raw("GET", endpointtest.OwnRequest, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", ""), 403, wire.ReasonNotPermitted},
		{"HTTP/2", other, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, wire.ReasonNoSuchPath},
		{"strategic merge patch", other, strings.Replace(patch(endpointtest.OwnRequest, endpointtest.RequestBody, ""), "apply-patch+yaml", "strategic-merge-patch+json", 1), 415, wire.ReasonBadRequest},
		{"JSON patch", other, strings.Replace(patch(endpointtest.OwnRequest, "[]", ""), "apply-patch+yaml", "json-patch+json", 1), 415, wire.ReasonBadRequest},
		{"two types", other, patch(endpointtest.OwnRequest, endpointtest.RequestBody, "Content-Type: application/json-patch+json\r\n"), 415, wire.ReasonBadRequest},
		{"finalizers", other, patch(endpointtest.OwnRequest, strings.Replace(endpointtest.RequestBody, `"name":"b"`, `"name":"b","finalizers":["x"]`, 1), ""), 403, wire.ReasonNotPermitted},
		{"too large", other, patch(endpointtest.OwnRequest, big, ""), 413, wire.ReasonBadRequest},
		{"no length", other, raw("PATCH", endpointtest.OwnRequest, apply+"Transfer-Encoding: chunked\r\n", chunks), 411, wire.ReasonBadRequest},
		{"length and chunks", other, raw("PATCH", endpointtest.OwnRequest, apply+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", chunks), 411, wire.ReasonBadRequest},
		{"chunks twice", other, raw("PATCH", endpointtest.OwnRequest, apply+"Transfer-Encoding: chunked, chunked\r\n", chunks), 501, ""},
		{"chunks in disguise", other, raw("PATCH", endpointtest.OwnRequest, apply+"Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n", chunks), 501, ""},
		{"two lengths", other, raw("PATCH", endpointtest.OwnRequest, apply+"Content-Length: 4\r\nContent-Length: 5\r\n", "xxxxx"), 400, ""},
		{"negative length", other, raw("PATCH", endpointtest.OwnRequest, apply+"Content-Length: -1\r\n", ""), 400, ""},
		{"GET with a body", other, raw("GET", endpointtest.OwnRequest, "Content-Length: 2\r\n", "{}"), 400, wire.ReasonBadRequest},
		{"DELETE with options", other, raw("DELETE", endpointtest.OwnRequest, "Content-Type: application/json\r\nContent-Length: 2\r\n", "{}"), 400, wire.ReasonBadRequest},
		{"DELETE with chunks", other, raw("DELETE", endpointtest.OwnRequest, "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400, wire.ReasonBadRequest},
		{"unfinished body", other, raw("PATCH", endpointtest.OwnRequest, apply+"Content-Length: 5000\r\n", endpointtest.RequestBody), 408, wire.ReasonFailed},
	} {
		v := visit(t, s, tc.from)
		if tc.status == http.StatusRequestTimeout {
			_, _ = io.WriteString(v, tc.request)
			_ = v.CloseWrite()
			tc.request = ""
		}
		got := v.send(tc.request)
		if got.status != tc.status || got.Reason != tc.reason {
			t.Errorf("%s: %d %s %v", tc.name, got.status, got.body, got.err)
		}
		if tc.reason != "" && (len(got.Error) < 8 || got.header.Get("Content-Type") != "application/json") {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	// A second request in the body of the first is none.
	v := visit(t, s, other)
	got := v.send(raw("DELETE", endpointtest.OwnRequest, fmt.Sprintf("Content-Length: %d\r\n", len(get(endpointtest.OwnAdvert))), get(endpointtest.OwnAdvert)))
	if got.status != http.StatusBadRequest {
		t.Errorf("%+v", got)
	}
	if got := v.send(""); got.err == nil {
		t.Errorf("a second answer: %+v", got)
	}
	if seen := a.taken(); len(seen) != 0 {
		t.Errorf("arrived:\n%s", strings.Join(seen, "\n---\n"))
	}
	if n := s.Stats().Refused[refusal.Gateway]; n < 9 {
		t.Errorf("%d were counted", n)
	}
	if len(a.deleted) != 0 {
		t.Errorf("told of %q", a.deleted)
	}
}

// The hook knows of a peer's deletion before the API server does.
func TestGatewayTellsOfDeletions(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := servePeers(t, home, pin(other), a.gateway(t, ""), nil)
	v := visit(t, s, other)
	for _, path := range []string{endpointtest.OwnRequest, endpointtest.OwnAdvert} {
		v.send(get(path))
		v.send(strings.Replace(get(path), "GET", "DELETE", 1))
	}
	if want := []string{"b peeringrequests before 1: 200", "b advertisements before 3: 200"}; !slices.Equal(a.deleted, want) {
		t.Errorf("told of %q", a.deleted)
	}
}

// What comes back of what the API server answers.
func TestGatewayAnswers(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := servePeers(t, home, pin(other), a.gateway(t, ""), nil)
	v := visit(t, s, other)
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"code":1}`)
		}
	}
	large := func(n int, chunked bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if !chunked {
				w.Header().Set("Content-Length", fmt.Sprint(n))
			}
			for range n / 1024 {
				if _, err := io.WriteString(w, strings.Repeat("1", 1024)); err != nil {
					return
				}
			}
		}
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		status int
		reason string // "": passed on
		header string // what is passed on with it
	}{
		{"created", status(201), 201, "", ""},
		{"not found", status(404), 404, "", ""},
		{"forbidden", status(403), 403, "", ""},
		{"conflict", status(409), 409, "", ""},
		{"a warning", status(200, "Warning", `299 - "old"`, "Audit-Id", "x", "Set-Cookie", "a=b", "X-Kubernetes-Pf-Flowschema-Uid", "x", "Location", "/x"), 200, "", ""},
		{"too many", status(429, "Retry-After", "7"), 429, "", "Retry-After: 7"},
		{"strange advice", status(429, "Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"), 429, "", ""},
		{"long advice", status(503, "Retry-After", "999999999"), 503, "", ""},
		{"charset", status(200, "Content-Type", "application/json; charset=utf-8"), 200, "", ""},
		{"a megabyte", large(1<<20, true), 200, "", ""},

		{"a redirect", status(307, "Location", "https://127.0.0.1:1/"), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"not modified", status(304), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"the agent is not let in", status(401), 503, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"no JSON", status(404, "Content-Type", "text/plain"), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"a page", status(200, "Content-Type", "text/html"), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"half a value", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":`)
		}, 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"too large", large(1<<20+1024, true), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"too large beforehand", large(1<<20+1024, false), 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"a":`)
		}, 503, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"upgraded", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "SPDY/3.1")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, 502, wire.ReasonNoAPIServer, "Retry-After: 5"},
		{"breaks off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 503, wire.ReasonNoAPIServer, "Retry-After: 5"},
	} {
		a.answering(tc.answer)
		got := v.send(get(endpointtest.OwnRequest))
		if got.status != tc.status || got.Reason != tc.reason || got.err != nil {
			t.Errorf("%s: %d %s, %.200s, %v", tc.name, got.status, got.Reason, got.body, got.err)
		}
		var header []string
		for name, values := range got.header {
			switch name {
			case "Content-Length", "Date", wire.ProtocolHeader:
			case "Content-Type":
				if !slices.Equal(values, []string{"application/json"}) {
					t.Errorf("%s: as %s", tc.name, values)
				}
			default:
				header = append(header, name+": "+strings.Join(values, ","))
			}
		}
		if strings.Join(header, ";") != tc.header {
			t.Errorf("%s: header %q, not %q", tc.name, header, tc.header)
		}
	}
	if n := len(a.taken()); n < 20 {
		t.Errorf("%d requests arrived", n)
	}
	if refused := s.Stats().Refused; refused[refusal.Upstream] != 8 || refused[refusal.APIServer] != 3 {
		t.Errorf("%v", refused)
	}
}

func TestGatewayWithoutAPIServer(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	var log strings.Builder
	s := servePeers(t, home, pin(other), a.gateway(t, ""), func(s *Server) {
		s.times.gateway, s.cfg.Logger = 200*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	v := visit(t, s, other)
	check := func(name string, status int, says string) {
		t.Helper()
		got := v.send(strings.Replace(get(endpointtest.OwnRequest), "GET", "DELETE", 1))
		if got.status != status || got.Reason != wire.ReasonNoAPIServer || !strings.Contains(got.Error, says) || got.header.Get("Retry-After") != "5" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	a.mu.Lock()
	a.down = true
	a.mu.Unlock()
	check("none", 503, "cannot be reached")
	if len(a.deleted) != 0 {
		t.Errorf("told of %q, which was not even sent", a.deleted)
	}
	a.mu.Lock()
	a.down = false
	a.mu.Unlock()
	var arrived atomic.Bool
	gone := make(chan struct{}, 1)
	a.answering(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Store(true)
		<-r.Context().Done()
		select {
		case gone <- struct{}{}:
		default:
		}
	})
	for !arrived.Load() { // with too much to do, the time may be over before anything is sent
		check("too slow", 504, "in time")
	}
	<-gone // the request there is canceled
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	check("half and then too slow", 504, "in time")
	a.Server.Close()
	s.times.gateway = endpointtest.Hang // to be refused is no question of time
	check("down", 503, "did not answer")
	if text := log.String(); !strings.Contains(text, "connection refused") || !strings.Contains(text, "peer="+string(endpointtest.IDB)) {
		t.Errorf("the log has\n%s", text)
	}
	if n := s.limits.gateway.Taken(); n != 0 {
		t.Errorf("%d are still under way", n)
	}
}

// tardy answers with a body that ends in good order when the request is canceled,
// as a server that sees the connection close may do.
type tardy struct{ ctx context.Context }

func (tardy) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(io.MultiReader(strings.NewReader("{}"), tardy{r.Context()})),
	}, nil
}

func (b tardy) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

func TestGatewayTakesNoHalfAnswer(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	base := &url.URL{Scheme: "https", Host: "127.0.0.1:1"}
	g := gateway.New(gateway.Config{Logger: home.Logger(), Upstream: func() (gateway.Upstream, bool) {
		return gateway.Upstream{Base: base, Transport: tardy{}, Users: peers}, true
	}})
	s := servePeers(t, home, pin(other), g, func(s *Server) { s.times.gateway = 50 * time.Millisecond })
	if got := visit(t, s, other).send(get(endpointtest.OwnRequest)); got.status != http.StatusGatewayTimeout || got.Reason != wire.ReasonNoAPIServer {
		t.Errorf("%+v", got)
	}
}

// A peer with many requests under way does not keep the others out.
func TestGatewayIsShared(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	a := newAPIServer(t)
	entered, release := make(chan struct{}), make(chan struct{})
	a.answering(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	s := servePeers(t, home, pin(other, third), a.gateway(t, ""), func(s *Server) {
		s.limits.gateway = throttle.NewSlots[peer.ClusterID](gatewayPerPeer, gatewayPerPeer+1)
	})
	answered := make(chan reaction)
	begin := func(b *endpointtest.Box) {
		v := visit(t, s, b)
		path := strings.Replace(endpointtest.OwnRequest, "/b", "/"+string(b.Identity.ClusterID), 1)
		go func() { answered <- v.send(get(path)) }()
		<-entered
	}
	for range gatewayPerPeer {
		begin(other)
	}
	refused := func(b *endpointtest.Box, path string) {
		t.Helper()
		got := visit(t, s, b).send(get(path))
		if got.status != http.StatusTooManyRequests || got.Reason != wire.ReasonBusy || got.header.Get("Retry-After") != "1" {
			t.Errorf("%+v", got)
		}
	}
	refused(other, endpointtest.OwnRequest)
	begin(third)
	refused(third, strings.Replace(endpointtest.OwnRequest, "/b", "/c", 1))
	close(release)
	for range gatewayPerPeer + 1 {
		if got := <-answered; got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}
	if n := s.Stats().Refused[refusal.Busy]; n != 2 {
		t.Errorf("%d were counted", n)
	}
}

// A peer that goes away takes its request with it.
func TestGatewayFollowsTheCaller(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	entered, ended := make(chan struct{}), make(chan struct{})
	a.answering(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(ended)
	})
	s := servePeers(t, home, pin(other), a.gateway(t, ""), func(s *Server) { s.times.gateway = time.Hour })
	v := visit(t, s, other)
	if _, err := io.WriteString(v, get(endpointtest.OwnRequest)); err != nil {
		t.Fatal(err)
	}
	<-entered
	v.Close()
	<-ended
}

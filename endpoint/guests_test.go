package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// inn is Guests for tests: namespaces are called after the peer, and what a pod or
// an object may be depends on the words in it.
type inn struct {
	mu     sync.Mutex
	gone   map[string]bool // namespaces that were taken back
	calls  []string
	done   []string
	broken bool
}

func (i *inn) note(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, fmt.Sprintf(format, args...))
}

func (i *inn) taken() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	calls := append(i.calls, i.done...)
	i.calls, i.done = nil, nil
	return calls
}

func (i *inn) Namespace(_ context.Context, id peer.ClusterID, origin string) (string, error) {
	i.note("namespace %s %s", id, origin)
	switch {
	case i.broken:
		return "", errors.New("the disk is full at /secret/place")
	case origin == "kube-system":
		return "", &wire.Refused{Reason: "NoSystem", Message: "nobody may have kube-system"}
	}
	return string(id) + "-" + origin, nil
}

func (i *inn) Release(_ context.Context, id peer.ClusterID, origin string) error {
	i.note("release %s %s", id, origin)
	return nil
}

func (i *inn) Owns(id peer.ClusterID, namespace string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !strings.HasPrefix(namespace, string(id)+"-") || i.gone[namespace] {
		return &wire.Refused{Reason: "NotYours"}
	}
	if namespace == string(id)+"-early" {
		return &wire.Refused{Reason: "NotReady", Message: "not known yet", Retry: time.Second}
	}
	return nil
}

func (i *inn) evict(namespace string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone == nil {
		i.gone = map[string]bool{}
	}
	i.gone[namespace] = true
}

func (i *inn) decide(body []byte) error {
	switch {
	case strings.Contains(string(body), "hostNetwork"):
		return &wire.Refused{Reason: "UsedUp", Message: "the offer is used up: cpu"}
	case strings.Contains(string(body), "broken"):
		return errors.New("no cache at /secret/place")
	}
	return nil
}

func (i *inn) Pod(_ context.Context, id peer.ClusterID, ns string, body []byte) ([]byte, func([]byte), error) {
	if err := i.decide(body); err != nil {
		return nil, nil, err
	}
	clean := `{"clean":"pod"}`
	if strings.Contains(string(body), "regcred") {
		clean = `{"clean":"regcred"}`
	}
	return []byte(clean), func(created []byte) {
		i.mu.Lock()
		defer i.mu.Unlock()
		what := string(created)
		switch {
		case created == nil:
			what = "refused"
		case what == "":
			what = "unknown"
		}
		i.done = append(i.done, fmt.Sprintf("done %s %s %s", id, ns, what))
	}, nil
}

func (i *inn) Named(pod []byte) (map[string][]string, error) {
	named := make(map[string][]string)
	if strings.Contains(string(pod), "regcred") {
		named["secrets"] = []string{"regcred"}
	}
	if strings.Contains(string(pod), "claimName") {
		named["persistentvolumeclaims"] = []string{"data"}
	}
	return named, nil
}

func (i *inn) PodPatch(_ peer.ClusterID, _, _ string, body []byte) ([]byte, string, error) {
	if strings.Contains(string(body), "jsonpatch") {
		return []byte(`[]`), "application/json-patch+json", nil
	}
	return []byte(`{"clean":"patch"}`), allow.StrategicPatch, i.decide(body)
}

func (i *inn) Ephemeral(ctx context.Context, id peer.ClusterID, ns, name string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := i.Pod(ctx, id, ns+"/"+name, body)
	return bytes.ReplaceAll(clean, []byte(`"pod"`), []byte(`"ephemeral"`)), done, err
}

func (i *inn) Object(_ peer.ClusterID, _, resource, name string, body []byte) ([]byte, error) {
	return []byte(`{"clean":"` + resource + " " + name + `"}`), i.decide(body)
}

// hosting returns a server for home which lets guests in.
func (a *apiServer) hosting(t *testing.T, home *endpointtest.Box, l *decisions, change func(*Server)) (*Server, *inn) {
	t.Helper()
	guests := &inn{}
	cfg := a.config(t, "")
	upstream := cfg.Upstream
	plain := &http.Transport{TLSClientConfig: a.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	plain.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Cleanup(plain.CloseIdleConnections)
	cfg.Upstream = func() (gateway.Upstream, bool) {
		up, ok := upstream()
		up.Upgrade = plain
		return up, ok
	}
	return servePeers(t, home, l, gateway.New(cfg), func(s *Server) {
		s.cfg.Guests = guests
		if change != nil {
			change(s)
		}
	}), guests
}

// link returns a Link of b to s that ends with the test.
func newLink(t testing.TB, b *endpointtest.Box, s *Server, home *endpointtest.Box) *tunnel.Link {
	t.Helper()
	c := client.New(client.Config{Issuer: b.Issuer, Timeout: endpointtest.Hang})
	l := tunnel.New(c, tunnel.Config{Target: func() (peer.Target, bool) {
		return peer.Target{ID: home.Identity.ClusterID, Fingerprint: home.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}, true
	}})
	t.Cleanup(func() {
		l.Close()
		c.Close()
	})
	return l
}

// What became of a pod is told as far as it is known: what may have been created counts.
func TestGuestPodsAreAccountedFor(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, guests := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(`{"kind":"Status"}`))
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		told   string
	}{
		"created":   {status(http.StatusCreated), `{"kind":"Status"}`},
		"forbidden": {status(http.StatusForbidden), "refused"},
		"conflict":  {status(http.StatusConflict), "refused"},
		"timed out": {status(http.StatusGatewayTimeout), "unknown"},
		"cut off":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "unknown"},
	} {
		a.answering(tc.answer)
		endpointtest.Through(t, l, "POST", endpointtest.PodsOfB, "application/json", `{}`)
		if told := strings.Join(guests.taken(), ";"); told != "done b b-shop "+tc.told {
			t.Errorf("%s told %s", name, told)
		}
	}
}

// What a guest sends arrives as it was checked, whichever way it comes.
func TestGuestCallsArrive(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, guests := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	const objects = "/api/v1/namespaces/b-shop/"
	head := "Accept: application/json\n"
	typed := func(mediaType string) string { return head + "Content-Type: " + mediaType + "\n" + whoAsks }
	for _, tc := range []struct{ method, target, mediaType, body, want, told string }{
		{"GET", endpointtest.PodsOfB + "?limit=500&resourceVersion=0", "", "", "GET " + endpointtest.PodsOfB + "?limit=500&resourceVersion=0&labelSelector=liqo.io%2Forigin-cluster-id%3Db\n" + head + whoAsks + "\n", ""},
		{"GET", endpointtest.PodsOfB + "/web", "", "", "GET " + endpointtest.PodsOfB + "/web\n" + head + whoAsks + "\n", ""},
		{"POST", endpointtest.PodsOfB + "?fieldManager=evil", "application/json", `{"evil":1}`, "POST " + endpointtest.PodsOfB + "?fieldManager=liqo-peer\n" + typed("application/json") + "\n" + `{"clean":"pod"}`,
			`done b b-shop {"kind":"x"}`},
		{"PATCH", endpointtest.PodsOfB + "/web", allow.MergePatch, `{}`, "PATCH " + endpointtest.PodsOfB + "/web?fieldManager=liqo-peer\n" + typed(allow.StrategicPatch) + "\n" + `{"clean":"patch","metadata":{"uid":"the-uid"}}`, ""},
		{"PATCH", endpointtest.PodsOfB + "/web/ephemeralcontainers", allow.StrategicPatch, `{}`, "PATCH " + endpointtest.PodsOfB + "/web/ephemeralcontainers?fieldManager=liqo-peer\n" + typed(allow.StrategicPatch) + "\n" + `{"clean":"ephemeral","metadata":{"uid":"the-uid"}}`,
			`done b b-shop/web {"kind":"x"}`},
		{"PATCH", objects + "secrets/s?fieldManager=x&force=true", allow.ApplyPatch, `{}`, "PATCH " + objects + "secrets/s?fieldManager=liqo-peer&force=true\n" + typed(allow.ApplyPatch) + "\n" + `{"clean":"secrets s","metadata":{"uid":"the-uid"}}`, ""},
		{"DELETE", endpointtest.PodsOfB + "/web", "application/json", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Orphan"}`,
			"DELETE " + endpointtest.PodsOfB + "/web\n" + typed("application/json") + "\n" + `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Background"}`, ""},
		{"DELETE", objects + "configmaps/c", "", "", "DELETE " + objects + "configmaps/c\n" + typed("application/json") + "\n" + `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"the-uid"},"propagationPolicy":"Background"}`, ""},
	} {
		status, body, _ := endpointtest.Through(t, l, tc.method, tc.target, tc.mediaType, tc.body)
		if status != http.StatusOK || body != `{"kind":"x"}` {
			t.Errorf("%s %s: %d %s", tc.method, tc.target, status, body)
		}
		if seen := a.taken(); !slices.Equal(seen, []string{tc.want}) {
			t.Errorf("%s %s arrived as\n%q\nnot\n%q", tc.method, tc.target, seen, tc.want)
		}
		if told := strings.Join(guests.taken(), ";"); told != tc.told {
			t.Errorf("%s %s told %s", tc.method, tc.target, told)
		}
	}
	if st := s.Stats(); st.Open != 1 || st.Accepted != 1 {
		t.Errorf("%+v: all of that takes one connection", st)
	}
	// Without a tunnel it is the same.
	if got := visit(t, s, other).send(get("/kube" + endpointtest.PodsOfB)); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.deleted) != 0 {
		t.Errorf("told of %v", a.deleted)
	}
}

// TestGuestMetrics: what pods use is asked for as often as scrapers do, and refused in one
// way where nothing measures it.
func TestGuestMetrics(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	at := time.Now()
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.limits.now = func() time.Time { return at } })
	l := newLink(t, other, s, home)
	const path = "/apis/metrics.k8s.io/v1beta1/namespaces/b-shop/pods"
	status, body, _ := endpointtest.Through(t, l, "GET", path, "", "")
	if seen := a.taken(); status != http.StatusOK || body != `{"kind":"x"}` || len(seen) != 1 || !strings.HasPrefix(seen[0], "GET "+path+"?labelSelector=liqo.io%2Forigin-cluster-id%3Db\n") {
		t.Errorf("%d %s: arrived as %q", status, body, seen)
	}
	for _, tc := range []struct{ from, status int }{{404, 503}, {503, 503}, {403, 403}} {
		a.answering(func(w http.ResponseWriter, _ *http.Request) {
			if tc.from == 403 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.from)
				_, _ = w.Write([]byte(`{"kind":"Status"}`))
				return
			}
			http.Error(w, "404 page not found", tc.from) // as API servers do
		})
		status, body, _ := endpointtest.Through(t, l, "GET", path, "", "")
		if status != tc.status || (status == 503) != strings.Contains(body, "metrics-server") || (status == 503) != strings.Contains(body, wire.ReasonNoMetrics) {
			t.Errorf("for %d: %d %s", tc.from, status, body)
		}
	}
	// It takes nothing from other lists, and has an end.
	a.answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"x"}`))
	})
	got := 4 // until now
	for range scrapeBurst {
		if status, _, _ := endpointtest.Through(t, l, "GET", path, "", ""); status == http.StatusOK {
			got++
		} else if status != http.StatusTooManyRequests {
			t.Fatal(status)
		}
	}
	if got != scrapeBurst {
		t.Errorf("%d were answered", got)
	}
	if status, body, _ := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB, "", ""); status != http.StatusOK {
		t.Errorf("pods after that: %d %s", status, body)
	}
}

// What guests may not is refused in the words of an API server, and never arrives.
func TestGuestCallsRefused(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	big := `{"x":"` + strings.Repeat("x", maxPodBody) + `"}`
	for _, tc := range []struct {
		method, target, mediaType, body string
		status                          int
		reason                          metav1.StatusReason
		says                            string
	}{
		{"GET", "/api/v1/namespaces/c-shop/pods", "", "", 403, "Forbidden", "none of yours"},
		{"GET", "/api/v1/namespaces/b-early/pods", "", "", 503, "ServiceUnavailable", "not known yet"},
		{"GET", "/api/v1/pods", "", "", 403, "Forbidden", "namespaces that it was given"},
		{"GET", "/api/v1/namespaces/b-shop/serviceaccounts", "", "", 403, "Forbidden", "correct the path"},
		{"GET", endpointtest.PodsOfB + "?labelSelector=a", "", "", 400, "BadRequest", "not known here"},
		{"PUT", endpointtest.PodsOfB + "/web", "application/json", "{}", 405, "MethodNotAllowed", "use GET"},
		{"GET", endpointtest.PodsOfB, "", "{}", 400, "BadRequest", "leave it out"},
		{"POST", endpointtest.PodsOfB, "application/json", `{"hostNetwork":true}`, 403, "Forbidden", "the offer is used up: cpu"},
		{"POST", endpointtest.PodsOfB, "application/json", `{"broken":true}`, 503, "ServiceUnavailable", "try again"},
		{"POST", endpointtest.PodsOfB, "application/yaml", `{}`, 415, "UnsupportedMediaType", "application/json"},
		{"POST", endpointtest.PodsOfB, "application/json", big, 413, "RequestEntityTooLarge", "at most"},
		{"PATCH", endpointtest.PodsOfB + "/web", "application/json-patch+json", `[]`, 415, "UnsupportedMediaType", allow.MergePatch},
		{"PUT", endpointtest.PodsOfB + "/web/ephemeralcontainers", "application/json", "{}", 405, "MethodNotAllowed", "use PATCH"},
		{"PATCH", endpointtest.PodsOfB + "/web/ephemeralcontainers", allow.StrategicPatch, `{"hostNetwork":true}`, 403, "Forbidden", "the offer is used up: cpu"},
		{"PATCH", endpointtest.PodsOfB + "/web", allow.MergePatch, `{"jsonpatch":1}`, 500, "InternalError", "report"},
		{"PATCH", "/api/v1/namespaces/b-shop/secrets/s", allow.MergePatch, `{}`, 415, "UnsupportedMediaType", allow.ApplyPatch},
		{"DELETE", endpointtest.PodsOfB + "/web", "application/json", `{"dryRun":["All"]}`, 400, "BadRequest", "dryRun"},
		{"DELETE", endpointtest.PodsOfB + "/web", "application/json", `{"gracePeriodSeconds":-1}`, 400, "BadRequest", "grace"},
		{"DELETE", endpointtest.PodsOfB + "/web", "application/json", `{"uid":1,"uid":2}`, 400, "BadRequest", "twice"},
		{"GET", endpointtest.PodsOfB + "/web/exec?command=x", "", "", 403, "Forbidden", "connection of its own"},
	} {
		status, body, _ := endpointtest.Through(t, l, tc.method, tc.target, tc.mediaType, tc.body)
		var said metav1.Status
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Errorf("%s %s: %v in %s", tc.method, tc.target, err, body)
			continue
		}
		if status != tc.status || said.Kind != "Status" || said.APIVersion != "v1" || said.Reason != tc.reason || int(said.Code) != status || !strings.Contains(said.Message, tc.says) || said.Status != "Failure" {
			t.Errorf("%s %s: %d %s", tc.method, tc.target, status, body)
		}
		if strings.Contains(body, "/secret/place") {
			t.Errorf("%s %s tells too much: %s", tc.method, tc.target, body)
		}
	}
	if seen := a.taken(); len(seen) != 0 {
		t.Errorf("arrived: %q", seen)
	}
	// A tunnel takes no header that is larger than that of any request.
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB+"/web/log?container="+strings.Repeat("x", 2*maxHeader), nil)
	if resp, err := l.RoundTrip(r); err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header: %v", resp.Status)
	}
}

func TestNamespacesOfGuests(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	a := newAPIServer(t)
	s, guests := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	name, err := l.Namespace(t.Context(), "shop")
	if err != nil || name != "b-shop" {
		t.Errorf("%s, %v", name, err)
	}
	if err := l.Release(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(guests.taken(), ";"); got != "namespace b shop;release b shop" {
		t.Error(got)
	}
	var refused *wire.Refused
	if _, err := l.Namespace(t.Context(), "kube-system"); !errors.As(err, &refused) || refused.Reason != "NoSystem" || !strings.Contains(err.Error(), string(endpointtest.IDA)) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "a.b", "A", "../x", strings.Repeat("a", 64)} {
		if _, err := l.Namespace(t.Context(), bad); err == nil {
			t.Errorf("%q is a namespace", bad)
		}
	}
	guests.broken = true
	if _, err := l.Namespace(t.Context(), "shop"); err == nil || errors.As(err, &refused) && refused.Reason != "NoSystem" || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	// Who is not known gets no tunnel.
	if _, err := newLink(t, third, s, home).Namespace(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "does not trust your key") {
		t.Errorf("%v", err)
	}
}

// Without Guests there are none of these paths.
func TestNoGuests(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := servePeers(t, home, pin(other), a.gateway(t, ""), nil)
	for path, reason := range map[string]string{
		wire.PathNamespaces: wire.ReasonNoSuchPath, wire.PathRelease: wire.ReasonNoSuchPath, wire.PathTunnel: wire.ReasonNoSuchPath, "/kube" + endpointtest.PodsOfB: wire.ReasonNotPermitted,
	} {
		if got := visit(t, s, other).send(get(path)); got.Reason != reason {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if _, err := newLink(t, other, s, home).Namespace(t.Context(), "shop"); err == nil {
		t.Error("a tunnel to nowhere")
	}
}

// watchable makes a answer with events until release is closed.
func (a *apiServer) watchable(t *testing.T) (event chan string) {
	event = make(chan string)
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "/log") {
			w.Header().Set("Content-Type", "text/plain")
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e, ok := <-event:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, e+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	return event
}

// Events come one by one, as they happen, until the API server ends them.
func TestGuestWatch(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	// A watch is not bound by how long other requests may take. That it begins is, and that its connection is made,
	// handshake and all: on a machine with much to do it must be longer.
	var a *apiServer
	var event chan string
	var resp *http.Response
	short := untilQuick(t, func(short time.Duration) error {
		a = newAPIServer(t)
		event = a.watchable(t)
		s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.gateway, s.times.write = short, short })
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB+"?watch=true&allowWatchBookmarks=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err = newLink(t, other, s, home).RoundTrip(r); err != nil {
			return err
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	lines := bufio.NewReader(resp.Body)
	for i := range 2 {
		if i > 0 {
			time.Sleep(short + short/10) // longer than an answer may take
		}
		event <- fmt.Sprintf("event %d", i)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("event %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	close(event)
	if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if seen := a.taken(); len(seen) != 1 || !strings.HasPrefix(seen[0], "GET "+endpointtest.PodsOfB+"?allowWatchBookmarks=true&watch=true&labelSelector=liqo.io%2Forigin-cluster-id%3Db\n") {
		t.Errorf("%q", seen)
	}
}

// Whoever is not let in any more sees that on what is open: at once when somebody
// says so, and otherwise soon. An end that came early never looks like one that was
// meant.
func TestGuestsLoseWhatIsOpen(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.watchable(t)
	decisions := pin(other)
	s, guests := a.hosting(t, home, decisions, func(s *Server) { s.times.recheck = 20 * time.Millisecond })
	l := newLink(t, other, s, home)

	watch := endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	log := endpointtest.Watch(t, l, "/api/v1/namespaces/b-farm/pods/web/log?follow=true")
	guests.evict("b-farm")
	if _, err := io.ReadAll(log.Body); err == nil {
		t.Error("the log of a namespace that is gone ends in good order")
	}
	decisions.block(endpointtest.IDB, true)
	if _, err := io.ReadAll(watch.Body); err == nil {
		t.Error("a watch of a blocked peer ends in good order")
	}
	endpointtest.Eventually(t, "close the tunnel", func() bool { return s.Stats().Open == 0 })
	decisions.block(endpointtest.IDB, false)
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	if status, _, _ := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB+"/web", "", ""); status != http.StatusOK {
		t.Errorf("%d after the peer was let in again", status)
	}

	// The same when told.
	a.watchable(t)
	s2, _ := a.hosting(t, home, decisions, nil)
	l2 := newLink(t, other, s2, home)
	watch = endpointtest.Watch(t, l2, endpointtest.PodsOfB+"?watch=true")
	decisions.block(endpointtest.IDB, true)
	s2.Recheck(endpointtest.IDC)
	s2.Recheck(endpointtest.IDB)
	if _, err := io.ReadAll(watch.Body); err == nil {
		t.Error("a watch of a blocked peer ends in good order")
	}
}

// An answer that breaks off, or is larger than any, does not look complete.
func TestGuestListBreaksOff(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	chunk := strings.Repeat("x", 1<<20)
	for name, answer := range map[string]http.HandlerFunc{
		"breaks off": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"items":[`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"too large": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range allow.MaxObjectAnswer>>20 + 1 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		},
	} {
		a.answering(answer)
		target := endpointtest.PodsOfB
		if name == "too large" {
			target += "/web" // of which less is enough than of a list
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://x"+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := l.RoundTrip(r)
		if err != nil {
			continue // it broke off before much was there
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil || n > allow.MaxObjectAnswer {
			t.Errorf("%s: %d bytes, and it looks complete", name, n)
		}
	}
	// What is no JSON, or a redirect, is not passed on at all.
	for name, answer := range map[string]http.HandlerFunc{
		"a page":                     func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a redirect":                 func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"not found without a status": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"unauthorized":               func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		a.answering(answer)
		status, body, _ := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB, "", "")
		if status < 502 || !strings.Contains(body, `"ServiceUnavailable"`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	a.mu.Lock()
	a.down = true
	a.mu.Unlock()
	if status, body, header := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB, "", ""); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, body)
	}
}

// A burst of pods gets through on one tunnel, and one peer cannot take the places
// of others.
func TestLinkBurst(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	a := newAPIServer(t)
	var now, most atomic.Int64
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); n > most.Load(); {
			most.Store(n)
		}
		defer now.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	})
	s, guests := a.hosting(t, home, pin(other, third), func(s *Server) {
		s.limits = newLimits()
		s.times.turn, s.times.gateway = time.Minute, time.Minute // a busy machine takes its time
	})
	l, l3 := newLink(t, other, s, home), newLink(t, third, s, home)
	var all sync.WaitGroup
	var bad atomic.Int64
	const requests = 6 * wire.RequestsPerPeer // several times as many as have a turn at once
	for i := range requests {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "https://x"+endpointtest.PodsOfB, strings.NewReader(fmt.Sprintf(`{"n":%d}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := l.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusCreated {
				bad.Add(1)
				t.Errorf("%v, %v", resp, err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	if name, err := l3.Namespace(t.Context(), "x"); err != nil || name != "c-x" {
		t.Errorf("%v, %v", name, err)
	}
	all.Wait()
	if n := len(guests.taken()); n != requests+1 {
		t.Errorf("told %d times", n)
	}
	if most.Load() > wire.RequestsPerPeer+1 || s.Stats().Accepted != 2 {
		t.Errorf("%d at a time, %+v", most.Load(), s.Stats())
	}
	// Beyond the burst it is told to slow down.
	s.limits.guestRate = throttle.New[peer.ClusterID](rate.Every(time.Hour), 1, 10)
	s.times.turn = 100 * time.Millisecond
	status, refusals := 0, 0
	for range 3 {
		if status, _, _ = endpointtest.Through(t, l, "GET", endpointtest.PodsOfB+"/web", "", ""); status == http.StatusTooManyRequests {
			refusals++
		}
	}
	if refusals != 2 {
		t.Errorf("%d refusals", refusals)
	}
}

// Who watches more than a peer may waits, and is told so.
func TestLinkStreamsAreBounded(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.turn = 50 * time.Millisecond })
	l := newLink(t, other, s, home)
	for range wire.StreamsPerPeer {
		endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	}
	if status, body, _ := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB+"?watch=true", "", ""); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	endpointtest.MustGet(t, l) // other requests have places of their own
}

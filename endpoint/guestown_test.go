package endpoint

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/internal/endpointtest"
)

// A peer has to do with what it made, also in the namespaces that are its own.
func TestGuestsOwnObjects(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	const objects = "/api/v1/namespaces/b-shop/"
	owners := map[string]string{"web": string(endpointtest.IDB), "regcred": "", "theirs": "c", "new": "none"}
	a.mu.Lock()
	a.whose = func(path string) string { return owners[path[strings.LastIndexByte(path, '/')+1:]] }
	a.mu.Unlock()
	calls := []struct{ method, resource, within, mediaType, body string }{
		{"GET", "pods", "", "", ""},
		{"PATCH", "pods", "", allow.MergePatch, `{}`},
		{"PATCH", "pods", "/ephemeralcontainers", allow.StrategicPatch, `{}`},
		{"DELETE", "pods", "", "", ""},
		{"GET", "pods", "/log", "", ""},
		{"GET", "configmaps", "", "", ""},
		{"PATCH", "configmaps", "", allow.ApplyPatch, `{}`},
		{"DELETE", "configmaps", "", "", ""},
		{"GET", "secrets", "", "", ""},
		{"PATCH", "secrets", "", allow.ApplyPatch, `{}`},
		{"DELETE", "secrets", "", "application/json", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}`},
		{"GET", "services", "", "", ""},
		{"PATCH", "services", "", allow.ApplyPatch, `{}`},
		{"DELETE", "services", "", "", ""},
	}
	for _, c := range calls {
		for name, owner := range owners {
			status, body, _ := endpointtest.Through(t, l, c.method, objects+c.resource+"/"+name+c.within, c.mediaType, c.body)
			arrived := len(a.taken())
			mine := owner == string(endpointtest.IDB) || owner == "none"
			switch {
			case !mine && (status != http.StatusForbidden || arrived != 0 || !strings.Contains(body, "belongs to this cluster")):
				t.Errorf("%s %s/%s%s of %q: %d %s, %d requests arrived", c.method, c.resource, name, c.within, owner, status, body, arrived)
			case owner == "none" && c.mediaType == allow.ApplyPatch && arrived != 1: // it is made first, and this answer is no object
				t.Errorf("%s %s/%s%s of %q: %d %s, %d requests arrived", c.method, c.resource, name, c.within, owner, status, body, arrived)
			case mine && arrived != 1:
				t.Errorf("%s %s/%s%s of %q: %d %s, %d requests arrived", c.method, c.resource, name, c.within, owner, status, body, arrived)
			}
		}
	}
	for within, protocol := range map[string]string{"exec?command=id&stdout=true": "v4.channel.k8s.io", "attach?stdout=true": "v4.channel.k8s.io", "portforward?ports=80": "portforward.k8s.io"} {
		got := visit(t, s, other).send("GET /kube" + endpointtest.PodsOfB + "/regcred/" + within + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: " + protocol + "\r\n\r\n")
		if arrived := a.taken(); got.status != http.StatusForbidden || len(arrived) != 0 {
			t.Errorf("%s: %d %s, %q arrived", within, got.status, got.body, arrived)
		}
	}
	// A pod that names what the caller did not make could read it.
	if status, body, _ := endpointtest.Through(t, l, "POST", endpointtest.PodsOfB, "application/json", `{"names":"regcred"}`); status != http.StatusForbidden || !strings.Contains(body, "secrets/regcred") {
		t.Errorf("a pod with somebody else's Secret: %d %s", status, body)
	}
	if status, body, _ := endpointtest.Through(t, l, "PATCH", endpointtest.PodsOfB+"/web/ephemeralcontainers", allow.StrategicPatch, `{"names":"regcred"}`); status != http.StatusForbidden || !strings.Contains(body, "secrets/regcred") {
		t.Errorf("an ephemeral container with somebody else's Secret: %d %s", status, body)
	}
	if seen := a.taken(); len(seen) != 0 {
		t.Errorf("%q arrived", seen)
	}
	// What is not there yet is made before it is applied, and is that object then or none.
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, `{"metadata":{"uid":"fresh"}}`)
	})
	endpointtest.Through(t, l, "PATCH", objects+"secrets/new", allow.ApplyPatch, `{}`)
	if seen := a.taken(); len(seen) != 2 || !strings.HasPrefix(seen[0], "POST "+objects+"secrets?fieldManager=liqo-peer\n") ||
		!strings.Contains(seen[0], `"labels":{"liqo.io/origin-cluster-id":"b"}`) || !strings.Contains(seen[1], `"uid":"fresh"`) {
		t.Errorf("%q", seen)
	}
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"kind":"Status","code":409}`)
	})
	if status, body, _ := endpointtest.Through(t, l, "PATCH", objects+"secrets/new", allow.ApplyPatch, `{}`); status != http.StatusConflict || len(a.taken()) != 1 {
		t.Errorf("somebody made it in that moment: %d %s", status, body)
	}
	// A Service is made whole, and replaced later.
	endpointtest.Through(t, l, "PATCH", objects+"services/new", allow.ApplyPatch, `{}`)
	if seen := a.taken(); len(seen) != 1 || !strings.HasPrefix(seen[0], "POST "+objects+"services?fieldManager=liqo-peer\n") || !strings.Contains(seen[0], `{"clean":"services new"}`) {
		t.Errorf("%q", seen)
	}
	endpointtest.Through(t, l, "PATCH", objects+"services/web", allow.ApplyPatch, `{}`)
	if seen := a.taken(); len(seen) != 1 || !strings.HasPrefix(seen[0], "PATCH "+objects+"services/web?fieldManager=liqo-peer\n") || !strings.Contains(seen[0], `"uid":"the-uid"`) {
		t.Errorf("%q", seen)
	}
	// Kubernetes puts the label of a Service on the EndpointSlices that it makes of it.
	const slices = "/apis/discovery.k8s.io/v1/namespaces/b-shop/endpointslices/"
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		mediaType, text := "", ""
		if method == "PATCH" {
			mediaType, text = allow.ApplyPatch, "{}"
		}
		if status, body, _ := endpointtest.Through(t, l, method, slices+"web", mediaType, text); status != http.StatusForbidden || len(a.taken()) != 0 {
			t.Errorf("%s an EndpointSlice of Kubernetes' own: %d %s", method, status, body)
		}
	}
	for _, method := range []string{"PATCH", "DELETE"} {
		endpointtest.Through(t, l, method, endpointtest.PodsOfB+"/new", map[string]string{"PATCH": allow.MergePatch}[method], map[string]string{"PATCH": "{}"}[method])
		if seen := a.taken(); len(seen) != 1 || !strings.Contains(seen[0], string(allow.Nobody)) {
			t.Errorf("%s: %q", method, seen)
		}
	}
	// Without an answer about whose it is nothing is done.
	a.mu.Lock()
	a.whose = func(string) string { panic(http.ErrAbortHandler) }
	a.mu.Unlock()
	for _, c := range calls {
		if status, body, _ := endpointtest.Through(t, l, c.method, objects+c.resource+"/web"+c.within, c.mediaType, c.body); status < 500 {
			t.Errorf("%s %s%s: %d %s", c.method, c.resource, c.within, status, body)
		}
		if seen := a.taken(); len(seen) != 0 {
			t.Errorf("%s %s%s: %q arrived", c.method, c.resource, c.within, seen)
		}
	}
}

func about(kind, name, uid string) string {
	return `{"reason":"` + name + `","involvedObject":{"kind":"` + kind + `","name":"` + name + `","uid":"` + uid + `"}}`
}

// Events are about the peer's own pods; those about others would tell what they are
// called and what they do.
func TestGuestsOwnEvents(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	const events = "/api/v1/namespaces/b-shop/events"
	all := []string{about("Pod", "web", "the-uid"), about("Pod", "web", "an-older-uid"), about("Pod", "job", "a-uid"), about("Secret", "web", "the-uid"), about("Pod", "../web", "some-uid"), `{}`}
	a.mu.Lock()
	a.whose = func(path string) string {
		if strings.HasSuffix(path, "/web") {
			return string(endpointtest.IDB)
		}
		return ""
	}
	a.mu.Unlock()
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.RequestURI, "watch=true"):
			for _, e := range all {
				_, _ = io.WriteString(w, `{"type":"ADDED","object":`+e+"}\n")
			}
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`+"\n")
			_, _ = io.WriteString(w, `{"type":"MODIFIED","object":`+all[0]+"}\n")
		case strings.Contains(r.RequestURI, "/events"):
			_, _ = io.WriteString(w, `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`+strings.Join(all, ",")+`]}`)
		case r.Header.Get("Accept") == justMetadataList && strings.HasSuffix(r.RequestURI, "/pods?labelSelector=liqo.io%2Forigin-cluster-id%3Db"):
			_, _ = io.WriteString(w, `{"items":[{"metadata":{"uid":"the-uid"}}]}`)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	status, body, _ := endpointtest.Through(t, l, "GET", events+"?limit=500", "", "")
	if want := `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[` + all[0] + `]}`; status != http.StatusOK || body != want {
		t.Errorf("%d %s", status, body)
	}
	resp := endpointtest.Watch(t, l, events+"?watch=true")
	var got []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		got = append(got, lines.Text())
	}
	want := []string{`{"type":"ADDED","object":` + all[0] + `}`, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`, `{"type":"MODIFIED","object":` + all[0] + `}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || lines.Err() != nil {
		t.Errorf("%q, %v", got, lines.Err())
	}

	// What cannot be told apart is not passed on.
	for name, answer := range map[string]string{
		"nonsense":    "{\n",
		"a long line": `{"type":"ADDED","object":{"x":"` + strings.Repeat("x", allow.MaxEventAnswer) + `"}}` + "\n",
	} {
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
		resp := endpointtest.Watch(t, l, events+"?watch=true")
		if text, err := io.ReadAll(resp.Body); len(text) != 0 || err == nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

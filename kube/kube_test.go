package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube/work"
)

// apiServer answers by hand, so that it can also answer wrongly.
func apiServer(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestRequests(t *testing.T) {
	type seen struct{ method, uri, contentType, body string }
	var last seen
	client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last = seen{r.Method, r.RequestURI, r.Header.Get("Content-Type"), string(body)}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"metadata":{"name":"answer"}}`)
	})
	const path = "/api/v1/namespaces/shop/configmaps/a"
	object := map[string]string{"kind": "ConfigMap"}
	uid := types.UID("u")
	for _, tt := range []struct {
		name string
		do   func(into any) error
		want seen
	}{
		{"get", func(into any) error { return client.Get(t.Context(), path, into) }, seen{"GET", path, "", ""}},
		{"create", func(into any) error { return client.Create(t.Context(), path, object, into) }, seen{"POST", path, "application/json", `{"kind":"ConfigMap"}`}},
		{"update", func(into any) error { return client.Update(t.Context(), path, object, into) }, seen{"PUT", path, "application/json", `{"kind":"ConfigMap"}`}},
		{"apply", func(into any) error { return client.Apply(t.Context(), path, "m", false, object, into) }, seen{"PATCH", path + "?fieldManager=m", "application/apply-patch+yaml", `{"kind":"ConfigMap"}`}},
		{"force", func(into any) error { return client.Apply(t.Context(), path, "m", true, object, into) }, seen{"PATCH", path + "?fieldManager=m&force=true", "application/apply-patch+yaml", `{"kind":"ConfigMap"}`}},
		{"patch", func(into any) error {
			return client.Patch(t.Context(), path, "m", types.MergePatchType, []byte(`{"a":1}`), into)
		}, seen{"PATCH", path + "?fieldManager=m", "application/merge-patch+json", `{"a":1}`}},
		{"delete", func(any) error {
			return client.Delete(t.Context(), path, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}, seen{"DELETE", path, "application/json", `{"preconditions":{"uid":"u"}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var into corev1.ConfigMap
			if err := tt.do(&into); err != nil {
				t.Fatal(err)
			}
			if last != tt.want {
				t.Errorf("sent %+v, want %+v", last, tt.want)
			}
			if tt.name != "delete" && into.Name != "answer" {
				t.Errorf("the answer is %+v", into)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	var status int
	var body string
	client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	for _, tt := range []struct {
		name   string
		status int
		body   string
		is     func(error) bool
		says   string
	}{
		{"not found", 404, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"a\" not found","reason":"NotFound","code":404}`, apierrors.IsNotFound, `pods "a" not found`},
		{"forbidden", 403, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the offer is used up","reason":"Forbidden","code":403}`, apierrors.IsForbidden, "the offer is used up"},
		{"busy", 429, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","reason":"TooManyRequests","code":429}`, func(err error) bool { return work.RetryAfter(err) == 7*time.Second }, "later"},
		{"too large", 200, `"` + strings.Repeat("a", maxAnswer) + `"`, func(error) bool { return true }, "too large"},
		{"no JSON", 200, `<html>`, func(error) bool { return true }, "invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, body = tt.status, tt.body
			var into corev1.Pod
			err := client.Get(t.Context(), "/api/v1/namespaces/n/pods/a", &into)
			if err == nil || !tt.is(err) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "GET /api/v1/namespaces/n/pods/a") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A store of pods that is listed and watched, and misbehaves on demand.
type pods struct {
	mu      sync.Mutex
	listed  []corev1.Pod
	version int
	events  chan string
	queries []string
}

func (p *pods) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	p.mu.Lock()
	p.queries = append(p.queries, r.URL.RawQuery)
	p.mu.Unlock()
	if r.URL.Query().Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(p.version)}, Items: p.listed})
		return
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case event, ok := <-p.events:
			if !ok {
				return
			}
			if event == "" {
				return // ends this watch
			}
			_, _ = io.WriteString(w, event+"\n")
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func pod(name, version string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: version}}
}

func event(kind string, p corev1.Pod) string {
	text, _ := json.Marshal(map[string]any{"type": kind, "object": p})
	return string(text)
}

type told struct{ before, after string }

func TestCacheFollows(t *testing.T) {
	store := &pods{listed: []corev1.Pod{pod("a", "1"), pod("b", "2")}, version: 2, events: make(chan string)}
	client := apiServer(t, store.serve)
	changes := make(chan told, 100)
	version := func(p *corev1.Pod) string {
		if p == nil {
			return ""
		}
		return p.Name + p.ResourceVersion
	}
	cache := NewCache(Kind[*corev1.Pod]{
		Fresh:   func() *corev1.Pod { return &corev1.Pod{} },
		Trim:    func(p *corev1.Pod) { p.ManagedFields = nil },
		Changed: func(before, after *corev1.Pod) { changes <- told{version(before), version(after)} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cache.Follow(ctx, client, Query{Path: "/api/v1/pods", Labels: "x=y", Fields: "spec.nodeName=z"})
	}()
	expect := func(want ...told) {
		t.Helper()
		missing := make(map[told]bool)
		for _, w := range want {
			missing[w] = true
		}
		for len(missing) > 0 {
			select {
			case got := <-changes:
				if !missing[got] {
					t.Fatalf("told %+v, want one of %v", got, missing)
				}
				delete(missing, got)
			case <-time.After(2 * time.Minute):
				t.Fatalf("not told %v; the last failure is %v", missing, cache.Failure())
			}
		}
	}
	expect(told{"", "a1"}, told{"", "b2"})
	<-cache.Synced()
	if cache.Len() != 2 || cache.Get("n", "a") == nil || cache.Get("", "a") != nil {
		t.Errorf("holds %v", cache.All())
	}
	store.events <- event("MODIFIED", pod("a", "3"))
	expect(told{"a1", "a3"})
	store.events <- event("DELETED", pod("b", "4"))
	expect(told{"b2", ""})
	store.events <- event("ADDED", pod("c", "5"))
	expect(told{"", "c5"})

	// An event that cannot be read ends the watch, and nothing else.
	store.mu.Lock()
	store.listed, store.version = []corev1.Pod{pod("c", "5"), pod("d", "6")}, 6
	store.mu.Unlock()
	for _, bad := range []string{
		`{"type":"ADDED","object":null}`, `{"type":"ODD","object":{}}`, `[]`, `{"type":"ADDED","object":[1]}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`,
	} {
		store.events <- bad
	}
	expect(told{"a3", ""}, told{"", "d6"})
	cancel()
	<-ended
	if cache.Len() != 2 {
		t.Error("what was known is gone with the watch")
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	for _, q := range store.queries {
		if !strings.Contains(q, "labelSelector=x%3Dy") || !strings.Contains(q, "fieldSelector=spec.nodeName%3Dz") {
			t.Errorf("asked without the selectors: %s", q)
		}
	}
}

func TestEndlessEvent(t *testing.T) {
	store := &pods{version: 1, events: make(chan string, 1)}
	client := apiServer(t, store.serve)
	cache := NewCache(Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }})
	w, err := cache.watch(t.Context(), client, Query{Path: "/api/v1/pods"}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	store.events <- `{"type":"ADDED","object":{"metadata":{"name":"` + strings.Repeat("a", maxEvent) + `"}}}`
	select {
	case e := <-w.ResultChan():
		if status, ok := e.Object.(*metav1.Status); !ok || !strings.Contains(status.Message, "too long") {
			t.Errorf("got %+v", e)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing came of it")
	}
}

// Whatever a watch says, it is an event, an error, or the end.
func FuzzWatch(f *testing.F) {
	for _, seed := range []string{
		event("ADDED", pod("a", "1")), `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410}}`, `{"type":"ADDED"}`, `{"type":"ADDED","object":null}`, "\n\n{}", `[`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<16)
		e := &events[*metav1.PartialObjectMetadata]{
			body: io.NopCloser(nil), lines: lines,
			cache: NewCache(Kind[*metav1.PartialObjectMetadata]{Fresh: func() *metav1.PartialObjectMetadata { return &metav1.PartialObjectMetadata{} }}),
		}
		for range 1 + bytes.Count(text, []byte("\n")) + 1 {
			kind, object, err := e.Decode()
			if err != nil {
				return
			}
			if kind == "" || object == nil {
				t.Fatalf("an event without type or object: %q %v", kind, object)
			}
		}
		t.Fatal("there are more events than lines")
	})
}

package offload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

const hang = 2 * time.Minute // after which a test is given up

// written is a request that changes something.
type written struct {
	method, path, body string
}

// local is an API server of this cluster with namespaces and pods that do not change.
// What is written to it is only taken down.
type local struct {
	namespaces []string
	pods       []*corev1.Pod

	mu     sync.Mutex
	writes []written
	wrote  chan struct{} // something was written; capacity 1
}

func (s *local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		var items []any
		switch r.URL.Path {
		case "/api/v1/namespaces":
			for _, name := range s.namespaces {
				items = append(items, &metadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}})
			}
		case "/api/v1/pods":
			for _, pod := range s.pods {
				items = append(items, pod)
			}
		}
		listOrHang(w, r, items)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.writes = append(s.writes, written{r.Method, r.URL.Path, string(body)})
	version := 100 + len(s.writes)
	s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"metadata":{"name":"x","resourceVersion":"%d"}}`, version)
}

// statuses returns the patches of a pod's status.
func (s *local) statuses(pod string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, w := range s.writes {
		if w.method == http.MethodPatch && strings.HasSuffix(w.path, "/pods/"+pod+"/status") {
			out = append(out, w.body)
		}
	}
	return out
}

// listOrHang answers a list, and lets a watch wait for ever.
func listOrHang(w http.ResponseWriter, r *http.Request, items []any) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		if items == nil {
			items = []any{}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}

// far is a provider that answers as a test wants it to.
type far struct {
	base *url.URL
}

// RoundTrip implements http.RoundTripper.
func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = f.base.Scheme, f.base.Host
	return http.DefaultTransport.RoundTrip(r)
}

// Namespace implements Remote.
func (f *far) Namespace(_ context.Context, origin string) (string, error) {
	return "guest-" + origin, nil
}

// Release implements Remote.
func (f *far) Release(context.Context, string) error { return nil }

// neighbours are a consumer and a provider, with an Offload between them.
type neighbours struct {
	*Offload
	local *local
	told  chan struct{} // what Excess returns has changed
}

const farID peer.ClusterID = "far"

// between has an Offload run, until the test ends, with pods that are on the node of a
// provider which answers with theirs.
func between(t *testing.T, theirs http.HandlerFunc, pods ...*corev1.Pod) *neighbours {
	n := &neighbours{local: &local{namespaces: []string{"shop"}, pods: pods, wrote: make(chan struct{}, 1)}, told: make(chan struct{}, 10)}
	here, there := httptest.NewServer(n.local), httptest.NewServer(theirs)
	base, err := url.Parse(there.URL)
	if err != nil {
		t.Fatal(err)
	}
	n.Offload = New(Config{
		Self: func() peer.ClusterID { return "here" }, Logger: slog.New(slog.DiscardHandler),
		Exceeded: func(peer.ClusterID) { n.told <- struct{}{} },
	})
	n.Set(Provider{ID: farID, Node: string(farID), Remote: &far{base: base}, Offer: "1", Reachable: true})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx, &rest.Config{Host: here.URL}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		there.CloseClientConnections()
		there.Close()
		here.CloseClientConnections()
		here.Close()
	})
	return n
}

// keeps returns how much is kept of the provider, and how much is to be looked at.
func (n *neighbours) keeps() (sum int) {
	for _, l := range n.lines() {
		sum += l.queue.Len() + l.events.Len()
		for _, sp := range l.allSpaces() {
			sum += sp.pods.Len() + sp.events.Len()
		}
	}
	return sum
}

// podHere returns a pod of namespace shop that is on the node of the provider.
func podHere(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{NodeName: string(farID), Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// copyThere returns the provider's copy of a pod, as it is listed there.
func copyThere(mine *corev1.Pod, version string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "guest-shop", Name: mine.Name, UID: "their-" + mine.UID, ResourceVersion: version,
			Annotations: map[string]string{workload.AnnotationOriginUID: string(mine.UID)},
		},
		Spec:   corev1.PodSpec{NodeName: "theirs", Containers: mine.Spec.Containers},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// eventLine returns an event of a watch.
func eventLine(kind string, object any) string {
	text, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func timeAt(t time.Time) *metav1.Time {
	at := metav1.NewTime(t)
	return &at
}

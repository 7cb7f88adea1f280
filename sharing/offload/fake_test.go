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
	"path"
	"slices"
	"strconv"
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

const hang = 5 * time.Minute // after which a test is given up

// written is a request that changes something.
type written struct {
	method, path, body string
}

// localServer is an API server of this cluster with namespaces and pods, of which only the
// status changes. Everything else that is written to it is only taken down.
type localServer struct {
	namespaces []string
	record     string // where the pods of all namespaces are at the provider; "" for nowhere yet
	pods       []*corev1.Pod
	later      chan *corev1.Pod // pods that come after the list; may be nil
	confined   bool             // it is forbidden to give pods addresses
	enabled    bool             // the namespaces are
	tokens     bool             // and pods in them may have tokens
	// answers answers a write in place of the server; nil, or false: the server does.
	answers func(w http.ResponseWriter, path string, body []byte) bool
	config  func(*Config)  // changes what the Offload is made with; may be nil
	objects map[string]any // others, by path

	mu     sync.Mutex
	writes []written
	wrote  chan struct{} // something was written; capacity 1
}

func (s *localServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		var items []any
		switch r.URL.Path {
		case "/api/v1/namespaces":
			for _, name := range s.namespaces {
				ns := &metadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
				if s.record != "" {
					ns.Annotations = map[string]string{workload.AnnotationPlacePrefix + string(farID): s.record}
				}
				if s.enabled {
					ns.Labels = map[string]string{workload.LabelEnabled: "true"}
				}
				if s.tokens {
					ns.Labels[workload.LabelTokens] = "true"
				}
				items = append(items, ns)
			}
		case "/api/v1/pods":
			if s.later != nil && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "" {
				s.tell(w, r)
				return
			}
			s.mu.Lock()
			for _, pod := range s.pods {
				items = append(items, pod)
			}
			s.mu.Unlock()
		default:
			if o := s.objects[r.URL.Path]; o != nil {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(o)
				return
			}
			for at, o := range s.objects {
				if path.Dir(at) == r.URL.Path {
					items = append(items, o)
				}
			}
		}
		listOrHang(w, r, items)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if s.confined && strings.Contains(string(body), `"podIPs":[`) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		return
	}
	if s.answers != nil && s.answers(w, r.URL.Path, body) {
		return
	}
	s.mu.Lock()
	s.writes = append(s.writes, written{r.Method, r.URL.Path, string(body)})
	answer := s.patched(r.URL.Path, body, 100+len(s.writes))
	s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// tell is a watch of the pods that come later.
func (s *localServer) tell(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case pod := <-s.later:
			fmt.Fprint(w, eventLine("ADDED", pod))
		}
	}
}

// deletions returns the pods that were deleted at once.
func (s *localServer) deletions() (pods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if w.method == http.MethodDelete && strings.Contains(w.body, `"gracePeriodSeconds":0`) {
			pods = append(pods, path.Base(w.path))
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// patched returns what the API server answers to a write: a pod with its new status, if
// it is that. s.mu is held.
func (s *localServer) patched(path string, body []byte, version int) any {
	for i, pod := range s.pods {
		if path != podPath(pod.Namespace, pod.Name)+"/status" {
			continue
		}
		var patch struct{ Status map[string]any }
		if err := json.Unmarshal(body, &patch); err != nil {
			panic(err)
		}
		status, err := fields(&pod.Status)
		if err != nil {
			panic(err)
		}
		for name, value := range patch.Status {
			list, isList := value.([]any)
			switch {
			case value == nil:
				delete(status, name)
			case name == "conditions":
				old, _ := status[name].([]any)
				status[name] = mergedByType(old, list)
			case isList && len(list) > 0 && list[0].(map[string]any)["$patch"] != nil:
				status[name] = list[1:]
			default:
				status[name] = value
			}
		}
		text, err := json.Marshal(status)
		if err != nil {
			panic(err)
		}
		pod = pod.DeepCopy()
		pod.ResourceVersion, pod.Status = strconv.Itoa(version), corev1.PodStatus{}
		if err := json.Unmarshal(text, &pod.Status); err != nil {
			panic(err)
		}
		s.pods[i] = pod
		return pod
	}
	return &metadata{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: strconv.Itoa(version)}}
}

// mergedByType is a strategic merge of conditions.
func mergedByType(old, patch []any) (out []any) {
	kind := func(c any) any { return c.(map[string]any)["type"] }
	out = slices.Clone(old)
	for _, c := range patch {
		out = slices.DeleteFunc(out, func(o any) bool { return kind(o) == kind(c) })
		if c.(map[string]any)["$patch"] == nil {
			out = append(out, c)
		}
	}
	return out
}

// statuses returns the patches of a pod's status.
func (s *localServer) statuses(pod string) []string {
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

// listsCopy is a provider at which the copy of a pod runs, and nothing else is.
func listsCopy(pod *corev1.Pod) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var items []any
		if strings.HasSuffix(r.URL.Path, "/pods") {
			items = append(items, copyThere(pod, "1", corev1.PodRunning))
		}
		listOrHang(w, r, items)
	}
}

// far is a provider that answers as a test wants it to.
type far struct {
	base *url.URL
	away error // why it gives no namespace; nil: it does
}

// RoundTrip implements http.RoundTripper.
func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = f.base.Scheme, f.base.Host
	return http.DefaultTransport.RoundTrip(r)
}

// Namespace implements Remote.
func (f *far) Namespace(_ context.Context, origin string) (string, error) {
	return "guest-" + origin, f.away
}

// Release implements Remote.
func (f *far) Release(context.Context, string) error { return nil }

// neighbours are a consumer and a provider, with an Offload between them.
type neighbours struct {
	*Offload
	local *localServer
	far   *far
	told  chan struct{} // what Excess returns has changed
}

// provider returns the provider while all is well.
func (n *neighbours) provider() Provider {
	return Provider{ID: farID, Node: string(farID), Remote: n.far, Offer: "1", Reachable: true}
}

const farID peer.ClusterID = "far"

// between has an Offload run, until the test ends, with pods that are on the node of a
// provider which answers with theirs.
func between(t *testing.T, remote http.HandlerFunc, pods ...*corev1.Pod) *neighbours {
	return join(t, &localServer{namespaces: []string{"shop"}, pods: slices.Clone(pods)}, &far{}, remote)
}

// join has an Offload run, until the test ends, between those two, of which the second is
// remote.
func join(t *testing.T, local *localServer, p *far, remote http.HandlerFunc) *neighbours {
	local.wrote = make(chan struct{}, 1)
	n := &neighbours{local: local, told: make(chan struct{}, 10)}
	here, there := httptest.NewServer(n.local), httptest.NewServer(remote)
	base, err := url.Parse(there.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Self: func() peer.ClusterID { return "here" }, Logger: slog.New(slog.DiscardHandler),
		Exceeded: func(peer.ClusterID) { n.told <- struct{}{} },
	}
	if local.config != nil {
		local.config(&config)
	}
	n.Offload = New(config)
	p.base, n.far = base, p
	n.Set(n.provider())
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
	for _, pc := range n.controllers() {
		sum += pc.queue.Len() + pc.events.Len()
		for _, rn := range pc.remoteNamespaces() {
			sum += rn.pods.Len() + rn.events.Len()
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
func copyThere(local *corev1.Pod, version string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "guest-shop", Name: local.Name, UID: "their-" + local.UID, ResourceVersion: version,
			Annotations: map[string]string{workload.AnnotationOriginUID: string(local.UID)},
		},
		Spec:   corev1.PodSpec{NodeName: "theirs", Containers: local.Spec.Containers},
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

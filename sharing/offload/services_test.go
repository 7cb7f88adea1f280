package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/workload"
)

const (
	servicesThere = "/api/v1/namespaces/guest-shop/services"
	slicesThere   = "/apis/discovery.k8s.io/v1/namespaces/guest-shop/endpointslices"
)

// shelf is a provider that keeps Services and EndpointSlices.
type shelf struct {
	extra func(path string) []any // what it says to have besides, in its lists

	mu      sync.Mutex
	kept    map[string]*metadata // by path
	version int
	writes  map[string]int // by path
	deleted map[string]bool
}

func newShelf() *shelf {
	return &shelf{kept: make(map[string]*metadata), writes: make(map[string]int), deleted: make(map[string]bool)}
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	switch {
	case r.Method == http.MethodDelete:
		delete(s.kept, r.URL.Path)
		s.deleted[r.URL.Path] = true
	case r.Method == http.MethodPatch && (strings.HasPrefix(r.URL.Path, servicesThere) || strings.HasPrefix(r.URL.Path, slicesThere)):
		s.writes[r.URL.Path]++
		s.touch(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.kept[r.URL.Path])
		s.mu.Unlock()
		return
	}
	var items []any
	for at, o := range s.kept {
		if path.Dir(at) == r.URL.Path {
			items = append(items, o)
		}
	}
	s.mu.Unlock()
	if s.extra != nil {
		items = append(items, s.extra(r.URL.Path)...)
	}
	listOrHang(w, r, items)
}

// touch gives an object another version. s.mu is held.
func (s *shelf) touch(at string) {
	s.version++
	s.kept[at] = &metadata{ObjectMeta: metav1.ObjectMeta{
		Name: path.Base(at), ResourceVersion: strconv.Itoa(s.version), Annotations: map[string]string{workload.AnnotationOriginUID: "u"},
	}}
}

func (s *shelf) wrote(at string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[at]
}

// opened returns the controller of the provider, and its namespace for shop once that is known.
func (n *neighbours) opened(t *testing.T) (pc *controller, rn *remoteNamespace) {
	t.Helper()
	bedtest.Within(t, "the namespace is known", func() error {
		for _, pc = range n.controllers() {
			if rn = pc.remoteNamespace("shop"); rn != nil && rn.known() {
				return nil
			}
		}
		return errors.New("it is not")
	})
	return pc, rn
}

// TestEditedThere: what somebody changes of a Service or its endpoints at the provider, or deletes there, is sent again
// with the next look, and nothing is that is as it was sent.
func TestEditedThere(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", ResourceVersion: "1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
	}
	number, yes := int32(80), true
	local := &localServer{namespaces: []string{"shop"}, enabled: true, pods: []*corev1.Pod{podHere("web")}, objects: map[string]any{
		"/api/v1/namespaces/shop/services/web": &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
			ClusterIP: "10.43.0.9", Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}},
		"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-abcde": &discoveryv1.EndpointSlice{
			ObjectMeta: meta("web-abcde"), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &number}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.42.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
			}},
		},
	}}
	there := newShelf()
	n := join(t, local, &far{}, there.ServeHTTP)
	p := n.provider()
	p.Network = &workload.Network{
		Thirds: map[netip.Addr]netip.Addr{},
		Here:   func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false },
		There:  func(netip.Addr) (netip.Addr, bool) { return netip.MustParseAddr("241.7.4.5"), true },
	}
	n.Set(p)
	service, slice := servicesThere+"/web", slicesThere+"/web-liqo-4-0"
	written := func(services, slices int) {
		t.Helper()
		bedtest.Within(t, "they are sent", func() error {
			if there.wrote(service) < services || there.wrote(slice) < slices {
				return fmt.Errorf("the Service was %d times, its endpoints %d times", there.wrote(service), there.wrote(slice))
			}
			return nil
		})
	}
	written(1, 1)
	pc, rn := n.opened(t)
	ref := key{aService, "shop", "web"}
	sweep := func() {
		t.Helper()
		if err := pc.sweepServices(t.Context(), rn); err != nil {
			t.Fatal(err)
		}
		if _, err := pc.reconcileService(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	sweep() // the first one may have come while they were sent
	services, slices := there.wrote(service), there.wrote(slice)
	sweep()
	if there.wrote(service) != services || there.wrote(slice) != slices {
		t.Error("what nobody changed is sent again")
	}
	there.mu.Lock()
	there.touch(service)
	there.mu.Unlock()
	sweep()
	if there.wrote(service) != services+1 || there.wrote(slice) != slices {
		t.Errorf("after an edit of the Service, it was sent %d times, and its endpoints %d times", there.wrote(service)-services, there.wrote(slice)-slices)
	}
	there.mu.Lock()
	there.touch(slice)
	there.mu.Unlock()
	sweep()
	if there.wrote(slice) != slices+1 {
		t.Errorf("after an edit of the endpoints, they were sent %d times", there.wrote(slice)-slices)
	}
	there.mu.Lock()
	delete(there.kept, service)
	delete(there.kept, slice)
	there.mu.Unlock()
	sweep()
	if there.wrote(service) != services+2 || there.wrote(slice) != slices+2 {
		t.Errorf("after both were deleted, %d and %d", there.wrote(service)-services, there.wrote(slice)-slices)
	}
}

// TestStrangeServices: what a provider says that there is of earlier runs is deleted there, and forgotten here, however
// often it says something else.
func TestStrangeServices(t *testing.T) {
	lists := 0
	there := newShelf()
	there.extra = func(at string) []any {
		if at != servicesThere && at != slicesThere {
			return nil
		}
		there.mu.Lock()
		defer there.mu.Unlock()
		lists++
		var out []any
		for i := range 20 {
			name := fmt.Sprintf("s%d-%d", lists, i)
			if at == slicesThere {
				name += "-liqo-4-0"
			}
			out = append(out, &metadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strings.Repeat("9", 10*maxRevision), Annotations: map[string]string{workload.AnnotationOriginUID: "u"}}})
		}
		return out
	}
	n := join(t, &localServer{namespaces: []string{"shop"}, enabled: true, pods: []*corev1.Pod{podHere("web")}}, &far{}, there.ServeHTTP)
	pc, rn := n.opened(t)
	for range 3 {
		if err := pc.sweepServices(t.Context(), rn); err != nil {
			t.Fatal(err)
		}
	}
	bedtest.Within(t, "they are deleted and forgotten", func() error {
		there.mu.Lock()
		deleted := len(there.deleted)
		there.mu.Unlock()
		rn.mu.Lock()
		defer rn.mu.Unlock()
		if deleted < 3*40 || len(rn.copies) > 0 {
			return fmt.Errorf("%d were deleted, and %d are remembered", deleted, len(rn.copies))
		}
		return nil
	})
}

// TestAnswerOfService: only what matters of a provider's answer takes memory.
func TestAnswerOfService(t *testing.T) {
	for text, want := range map[string]string{
		`{"metadata":{"resourceVersion":"7","managedFields":[{},{}]},"spec":{"clusterIP":"None","ports":[{},{}]}}`: "7",
		`{"metadata":{"resourceVersion":"` + strings.Repeat("7", maxRevision+1) + `"}}`:                            "",
		`{}`: "",
	} {
		var made answered
		if err := json.Unmarshal([]byte(text), &made); err != nil || made.revision() != want {
			t.Errorf("%.100s: %q %v", text, made.revision(), err)
		}
	}
	bomb := []byte(`{"spec":{"ports":[{}` + strings.Repeat(",{}", 100_000) + `]}}`)
	if n := testing.AllocsPerRun(1, func() {
		if err := json.Unmarshal(bomb, new(answered)); err != nil {
			t.Error(err)
		}
	}); n > 100 {
		t.Errorf("%v allocations for an answer of which nothing is kept", n)
	}
}

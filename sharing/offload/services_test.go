package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/workload"
)

const (
	servicesThere   = "/api/v1/namespaces/guest-shop/services"
	configMapsThere = "/api/v1/namespaces/guest-shop/configmaps"
	secretsThere    = "/api/v1/namespaces/guest-shop/secrets"
	slicesThere     = "/apis/discovery.k8s.io/v1/namespaces/guest-shop/endpointslices"
)

// shelf is a provider that keeps Services, EndpointSlices, ConfigMaps and Secrets.
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
	case r.Method == http.MethodPatch && slices.Contains([]string{servicesThere, slicesThere, configMapsThere, secretsThere}, path.Dir(r.URL.Path)):
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

// TestEditedThere: what somebody changes at the provider of a Service, its endpoints, a ConfigMap or a Secret, or deletes
// there, is sent again with the next look, and nothing is that is as it was sent.
func TestEditedThere(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", ResourceVersion: "1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
	}
	number, yes := int32(80), true
	pod := podHere("web")
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}},
	}
	local := &localServer{namespaces: []string{"shop"}, enabled: true, pods: []*corev1.Pod{pod}, objects: map[string]any{
		"/api/v1/namespaces/shop/configmaps/settings": &corev1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"a": "1"}},
		"/api/v1/namespaces/shop/secrets/password":    &corev1.Secret{ObjectMeta: meta("password"), Data: map[string][]byte{"a": []byte("1")}},
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
	var during atomic.Pointer[func()] // called once when the EndpointSlices were listed, before the agent knows
	there.extra = func(at string) []any {
		if at == slicesThere {
			if f := during.Swap(nil); f != nil {
				(*f)()
			}
		}
		return nil
	}
	n := join(t, local, &far{}, there.ServeHTTP)
	p := n.provider()
	p.Network = &workload.Network{
		Thirds: map[netip.Addr]netip.Addr{},
		Here:   func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false },
		There:  func(netip.Addr) (netip.Addr, bool) { return netip.MustParseAddr("241.7.4.5"), true },
	}
	n.Set(p)
	refs := map[string]key{
		servicesThere + "/web":        {aService, "shop", "web"},
		slicesThere + "/web-liqo-4-0": {aService, "shop", "web"},
		configMapsThere + "/settings": {aConfigMap, "shop", "settings"},
		secretsThere + "/password":    {aSecret, "shop", "password"},
	}
	bedtest.Within(t, "all are sent", func() error {
		for at := range refs {
			if there.wrote(at) == 0 {
				return errors.New(at + " is not")
			}
		}
		return nil
	})
	pc, rn := n.opened(t)
	before := make(map[string]int)
	// look has the provider looked at, and checks which objects are sent again.
	look := func(what string, again ...string) {
		t.Helper()
		if _, err := pc.sweep(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		for at, ref := range refs {
			if _, err := pc.reconcile(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			wrote, want := there.wrote(at), before[at]
			if slices.Contains(again, at) {
				want++
			}
			if before[at] > 0 && wrote != want {
				t.Errorf("%s: %s was sent %d times, want %d", what, at, wrote, want)
			}
			before[at] = wrote
		}
	}
	look("their first state")
	look("nobody changed anything")
	for at := range refs {
		there.mu.Lock()
		there.touch(at)
		there.mu.Unlock()
		look(at+" was changed", at)
		look("nothing was changed since")
	}
	there.mu.Lock()
	clear(there.kept)
	there.mu.Unlock()
	look("all were deleted", slices.Collect(maps.Keys(refs))...)

	// A list may be older than what was sent since.
	send := func() {
		ref := key{aService, "shop", "web"}
		c := rn.hold(ref)
		c.slices["web-liqo-4-0"] = sentSlice{}
		rn.letGo(ref, c)
		if _, err := pc.reconcile(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	during.Store(&send)
	look("it was sent meanwhile", slicesThere+"/web-liqo-4-0")
}

// TestFamiliesOfProvider: a Service is sent again when the provider has other families than before.
func TestFamiliesOfProvider(t *testing.T) {
	policy := corev1.IPFamilyPolicyPreferDualStack
	local := &localServer{namespaces: []string{"shop"}, enabled: true, pods: []*corev1.Pod{podHere("web")}, objects: map[string]any{
		"/api/v1/namespaces/shop/services/web": &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1"},
			Spec: corev1.ServiceSpec{
				Ports: []corev1.ServicePort{{Port: 80}}, IPFamilyPolicy: &policy, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			},
		},
	}}
	there := newShelf()
	n := join(t, local, &far{}, there.ServeHTTP)
	sent := 0 // all that was until now
	again := func(blocks ...netip.Prefix) {
		t.Helper()
		bedtest.Within(t, fmt.Sprint("it is sent to who has ", blocks), func() error {
			if now := there.wrote(servicesThere + "/web"); now != sent+1 {
				return fmt.Errorf("it was %d times, before %d times", now, sent)
			}
			return nil
		})
		sent++
	}
	again() // there is no network yet
	four, six := netip.MustParsePrefix("241.83.20.0/24"), netip.MustParsePrefix("fd83::/64")
	for i, blocks := range [][]netip.Prefix{{four, six}, {four}, {six, four}} {
		p := n.provider()
		p.Network = &workload.Network{Blocks: blocks, Version: uint64(i + 1)}
		n.Set(p)
		again(blocks...)
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
	// What the next list does not have is gone for the agent, so each is waited for; the first one is its own.
	for looks := 1; ; looks++ {
		bedtest.Within(t, fmt.Sprint("all of look ", looks, " are deleted and forgotten"), func() error {
			there.mu.Lock()
			deleted := len(there.deleted)
			there.mu.Unlock()
			rn.mu.Lock()
			defer rn.mu.Unlock()
			if deleted < looks*40 || len(rn.copies) > 0 {
				return fmt.Errorf("%d were deleted, and %d are remembered", deleted, len(rn.copies))
			}
			return nil
		})
		if looks == 3 {
			return
		}
		if err := pc.sweepServices(t.Context(), rn); err != nil {
			t.Fatal(err)
		}
	}
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

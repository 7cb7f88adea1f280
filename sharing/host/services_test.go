package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// fewObjects is an API server with these objects, which takes down what is patched.
type fewObjects struct {
	items   map[string]string // of lists, by path
	patched chan string
	late    chan struct{} // until when the lists of Services take; nil: they do not
}

func (s *fewObjects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		s.patched <- r.URL.Path + " " + string(body)
		fmt.Fprint(w, `{}`)
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		if s.late != nil && (path.Base(r.URL.Path) == resourceServices || path.Base(r.URL.Path) == resourceSlices) {
			<-s.late
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, s.items[r.URL.Path])
	}
}

// TestServices: endpoints are for Services that the consumer has made, within its limits, and
// follow the path to it. An agent that may not read Services admits none, and gives no rights.
func TestServices(t *testing.T) {
	const mine = `"labels":{"liqo.io/origin-cluster-id":"` + string(barn) + `","kubernetes.io/service-name":"web"}`
	api := &fewObjects{patched: make(chan string, 1), items: map[string]string{
		"/api/v1/services": `{"metadata":{"name":"web","namespace":"ns","uid":"s",` + mine + `}}`,
		"/apis/discovery.k8s.io/v1/endpointslices": `{"metadata":{"name":"web-liqo-4-0","namespace":"ns","uid":"e","resourceVersion":"7",` + mine + `},` +
			`"endpoints":[{"addresses":["241.7.4.9"],"conditions":{"ready":true,"serving":true}},{"addresses":["241.9.9.9"],"conditions":{"ready":true,"serving":true}}]}`,
	}}
	server := httptest.NewServer(api)
	defer server.Close()
	defer server.CloseClientConnections()
	client, err := kube.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	h := New(configOf(func() Settings { return Settings{MaxNamespaces: 1} }))
	block := []netip.Prefix{netip.MustParsePrefix("241.7.4.0/24")}
	h.Set(spec.Tenant{ID: barn, Admitted: true, Network: block})
	s := newSession(h, client)
	in := workload.Guest{Cluster: barn, Namespace: "ns", Network: block}
	st := standing{session: s, tenant: h.tenants[barn], network: block}
	service := func(name string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"` + name + `","annotations":{"liqo.io/origin-uid":"u"}},"spec":{"ports":[{"port":80}]}}`
	}
	slice := func(service string) (name, body string) {
		return service + "-liqo-4-0", `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"` + service + `-liqo-4-0","annotations":{"liqo.io/origin-uid":"u"},` +
			`"labels":{"kubernetes.io/service-name":"` + service + `"}},"addressType":"IPv4","endpoints":[{"addresses":["241.7.4.9"]}]}`
	}
	refused := func(what, reason, resource, name, body string) {
		t.Helper()
		_, r := admitObject(resource, name, []byte(body), in, st)
		if r == nil || r.Reason != reason {
			t.Errorf("%s: %v, want it refused with %s", what, r, reason)
		}
	}
	refused("before the Services are known", ReasonNotReady, resourceServices, "web", service("web"))
	mute := newSession(h, client)
	mute.cannotRead(apierrors.NewInternalError(errors.New("no etcd")))
	if mute.servicesRefused() {
		t.Error("a failure passes for a refusal")
	}
	mute.cannotRead(apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil))
	mute.cannotRead(apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil))
	st.session = mute
	refused("if the agent may not read them", ReasonNoServices, resourceServices, "web", service("web"))
	st.session = s
	if role := roleFor("ns", barn, grants{services: s.servicesKnown()}); strings.Contains(fmt.Sprint(role.Rules), resourceServices) {
		t.Errorf("before that, the consumer may %v", role.Rules)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { s.services.Follow(ctx, client, kube.Query{Path: "/api/v1/services"}) })
	group.Go(func() { s.slices.Follow(ctx, client, kube.Query{Path: slicesGroup + resourceSlices}) })
	<-s.services.Synced()
	<-s.slices.Synced()
	h.adopt(s)
	if role := roleFor("ns", barn, grants{services: s.servicesKnown()}); !strings.Contains(fmt.Sprint(role.Rules), resourceServices) {
		t.Errorf("the consumer may only %v", role.Rules)
	}
	name, body := slice("web")
	if _, r := admitObject(resourceSlices, name, []byte(body), in, st); r != nil {
		t.Errorf("endpoints of its own Service: %v", r)
	}
	name, body = slice("operators")
	refused("endpoints of another's Service", ReasonNotYours, resourceSlices, name, body)
	refused("another kind", ReasonBadName, "endpoints", "web", "{}")
	account := st.tenant.account
	for i := range maxServices - 1 {
		if r := account.reserveObject(keyOf(resourceServices, "ns", fmt.Sprint("a", i)), weight{bytes: 1}); r != nil {
			t.Fatalf("Service %d: %v", i, r)
		}
	}
	var no *Refused
	if err := error(account.reserveObject(keyOf(resourceServices, "ns", "more"), weight{bytes: 1})); !errors.As(err, &no) || no.Reason != ReasonTooManyObjects || !strings.Contains(no.Message, "Services") {
		t.Errorf("one Service too many: %v", err)
	}
	if r := account.reserveObject(keyOf(resourceServices, "ns", "web"), weight{bytes: 1}); r != nil {
		t.Errorf("one that is there: %v", r)
	}
	if r := account.reserveObject(keyOf(resourceConfigMaps, "ns", "c"), weight{bytes: 1}); r != nil {
		t.Errorf("a ConfigMap beside many Services: %v", r)
	}

	// What costs kube-proxy much is few of it, and all of it counts as bytes.
	ports := strings.Repeat(`{"port":80,"appProtocol":"example.com/`+strings.Repeat("a", 60)+`"},`, 100)
	wide := `{"spec":{"publishNotReadyAddresses":true,"ports":[` + strings.TrimSuffix(ports, ",") + `]}}`
	heavy, err := weighObject([]byte(wide))
	if err != nil || heavy.rules != 100 || heavy.bytes < 100*60 {
		t.Errorf("a Service of 100 ports is %+v, %v", heavy, err)
	}
	full := `{"endpoints":[` + strings.Repeat(`{"addresses":["241.7.4.9"]},`, 99) + `{"addresses":["241.7.4.9"]}],"ports":[` + strings.TrimSuffix(ports, ",") + `]}`
	if w, err := weighObject([]byte(full)); err != nil || w.rules != 100*100 || w.bytes < 100*60+100*endpointSize {
		t.Errorf("an EndpointSlice of 100 endpoints with 100 ports is %+v, %v", w, err)
	}
	account.replace(nil, map[string]weight{keyOf(resourceServices, "ns", "web"): heavy, keyOf(resourceSlices, "ns", "s"): {rules: maxEndpointPorts - 1}}, nil)
	for _, tc := range []struct {
		what, key string
		wants     weight
		ok        bool
	}{
		{"one that stays", keyOf(resourceServices, "ns", "web"), heavy, true},
		{"a Service with all that is left", keyOf(resourceServices, "ns", "a0"), weight{rules: maxServicePorts - 100}, true},
		{"one port more", keyOf(resourceServices, "ns", "web"), weight{rules: 101}, false},
		{"a Service with one", keyOf(resourceServices, "ns", "a1"), weight{rules: 1}, false},
		{"a ConfigMap", keyOf(resourceConfigMaps, "ns", "c"), weight{bytes: 1}, true},
		{"the last endpoint", keyOf(resourceSlices, "ns", "t"), weight{rules: 1}, true},
		{"another one", keyOf(resourceSlices, "ns", "u"), weight{rules: 1}, false},
	} {
		if r := account.reserveObject(tc.key, tc.wants); (r == nil) != tc.ok || r != nil && (r.Reason != ReasonTooManyObjects || !strings.Contains(r.Message, "ports")) {
			t.Errorf("%s: %v", tc.what, r)
		}
	}

	// The endpoints follow the network.
	guest := namespaceFor("ns", barn, "shop", Settings{PodSecurity: "baseline"})
	guest.UID, guest.ResourceVersion = "n", "1"
	s.namespaces.Wrote(guest)
	for _, tc := range []struct {
		what    string
		network []netip.Prefix
		down    bool
		want    string // "" for nothing
	}{
		{"one is outside", block, false, `[{"addresses":["241.7.4.9"],"conditions":{"ready":true,"serving":true}}]`},
		{"no packets pass", block, true, `[{"addresses":["241.7.4.9"],"conditions":{"ready":false,"serving":true}}]`},
		{"not connected", nil, true, `[{"addresses":["241.7.4.9"],"conditions":{"ready":false,"serving":true}},{"addresses":["241.9.9.9"],"conditions":{"ready":false,"serving":true}}]`},
		{"another block", []netip.Prefix{netip.MustParsePrefix("241.8.0.0/24")}, false, `[]`},
		{"not known yet", nil, false, ""},
	} {
		st.network, st.down = tc.network, tc.down
		if _, err := s.reconcileSlices(ctx, st); err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
		got := ""
		select {
		case got = <-api.patched:
		default:
		}
		want := ""
		if tc.want != "" {
			want = `/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/web-liqo-4-0 {"endpoints":` + tc.want + `,"metadata":{"resourceVersion":"7","uid":"e"}}`
		}
		if got != want {
			t.Errorf("%s: %s, want %s", tc.what, got, want)
		}
	}
}

// TestServicesComeLate: consumers are served once their Services are known, too: else they would lose the rights to these
// with each connection to the API server, until they are.
func TestServicesComeLate(t *testing.T) {
	for _, refused := range []bool{false, true} {
		api := &fewObjects{late: make(chan struct{})}
		server := httptest.NewServer(api)
		client, err := kube.New(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(New(Config{Logger: slog.New(slog.DiscardHandler)}), client)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		s.follow(ctx, &group)
		filled := make(chan bool, 1)
		go func() { filled <- s.filled(ctx) }()
		for _, synced := range []<-chan struct{}{s.namespaces.Synced(), s.pods.Synced(), s.secrets.Synced(), s.policies.Synced()} {
			<-synced
		}
		if refused {
			s.cannotRead(apierrors.NewForbidden(schema.GroupResource{Resource: resourceSlices}, "", nil))
		} else {
			select {
			case <-filled:
				t.Error("consumers are served before their Services are known")
			case <-time.After(100 * time.Millisecond): // is enough for it, and a longer time proves no more
			}
			close(api.late)
		}
		if !<-filled || s.servicesKnown() == refused || s.servicesRefused() != refused {
			t.Errorf("refused %v: known %v, refused %v", refused, s.servicesKnown(), s.servicesRefused())
		}
		if refused {
			close(api.late)
		}
		cancel()
		group.Wait()
		server.CloseClientConnections()
		server.Close()
	}
}

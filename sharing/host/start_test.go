package host

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/storageclass"
)

// TestStartTakesNothing: an agent that starts leaves a consumer what it has until it knows that this is to be otherwise. Its
// network, its offer, its Services and its claims are known one after the other.
func TestStartTakesNothing(t *testing.T) {
	settings := Settings{PodSecurity: "baseline", GuestEgress: EgressInternet, MaxNamespaces: 1}
	block := []netip.Prefix{netip.MustParsePrefix("241.7.4.0/24")}
	offer := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3"), corev1.ResourceStorage: resource.MustParse("1Gi")}
	guest := namespaceFor("ns", barn, "shop", settings)
	guest.UID, guest.ResourceVersion = "n", "1"
	quota := quotaFor(guest, barn, "shop", offer, settings, true, true)
	policy := policyFor("ns", barn, block, false, settings)
	role := roleFor("ns", barn, grants{services: true, claims: true})
	binding := bindingFor("ns", barn, users().Names(string(barn)))
	api := &fewObjects{patched: make(chan string, 8), items: make(map[string]string)}
	for where, object := range map[string]any{
		"/api/v1/namespaces": guest, "/api/v1/resourcequotas": quota, "/apis/networking.k8s.io/v1/networkpolicies": policy,
		rbacPath + "roles": role, rbacPath + "rolebindings": binding,
	} {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		api.items[where] = string(text)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	defer server.CloseClientConnections()
	client, err := kube.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	h := New(configOf(func() Settings { return settings }))
	h.Set(spec.Tenant{ID: barn, Admitted: true})
	s := newSession(h, client)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { s.namespaces.Follow(ctx, client, kube.Query{Path: "/api/v1/namespaces"}) })
	group.Go(func() { s.quotas.Follow(ctx, client, kube.Query{Path: "/api/v1/resourcequotas"}) })
	group.Go(func() {
		s.policies.Follow(ctx, client, kube.Query{Path: "/apis/networking.k8s.io/v1/networkpolicies"})
	})
	group.Go(func() { s.roles.Follow(ctx, client, kube.Query{Path: rbacPath + "roles"}) })
	group.Go(func() { s.bindings.Follow(ctx, client, kube.Query{Path: rbacPath + "rolebindings"}) })
	for _, synced := range []<-chan struct{}{s.namespaces.Synced(), s.quotas.Synced(), s.policies.Synced(), s.roles.Synced(), s.bindings.Synced()} {
		<-synced
	}
	h.adopt(s)
	st := standing{session: s, tenant: h.tenants[barn], settings: settings}
	changes := func() (changed []string) {
		t.Helper()
		if _, err := s.reconcileNamespace(ctx, st, s.namespaces.Get("", "ns")); err != nil {
			t.Fatal(err)
		}
		for len(api.patched) > 0 {
			where, _, _ := strings.Cut(<-api.patched, " ")
			changed = append(changed, path.Base(path.Dir(where)))
		}
		return changed
	}
	if got := changes(); got != nil {
		t.Errorf("nothing is known, and changed are %v", got)
	}
	claim := `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","annotations":{"liqo.io/origin-uid":"u"}},` +
		`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Ki"}}}}`
	_, no := h.claim("data", []byte(claim), h.in(standing{session: s, tenant: st.tenant, guest: guest, settings: settings}, "ns"), st)
	if no == nil || no.Reason != ReasonNotReady {
		t.Errorf("a claim while claims are not known: %v, want it refused for the moment", no)
	}
	st.network, st.unnamed = block, true
	if got := changes(); got != nil {
		t.Errorf("its addresses are known, and changed are %v", got)
	}
	st.unnamed = false
	st.servers = []netip.Addr{netip.MustParseAddr("169.254.241.53")}
	if got := changes(); got != nil {
		t.Errorf("its network is known, and changed are %v", got)
	}
	st.offer = offer
	if got := changes(); got != nil {
		t.Errorf("its offer is known, and changed are %v", got)
	}
	// A pod keeps whom it was told to ask for names.
	h.Set(spec.Tenant{ID: barn, Admitted: true, Offer: map[string]string{"pods": "3"}, Network: block, NamesUnknown: true})
	if _, _, err := h.Pod(ctx, barn, "ns", []byte(`{}`)); !errors.As(err, &no) || no.Reason != ReasonNotReady || no.Retry == 0 {
		t.Errorf("a pod while it is not known whom it is to ask for names: %v, want it refused for the moment", err)
	}
	// What is known to be otherwise changes.
	st.network, st.down = nil, true
	if got := changes(); len(got) != 1 || got[0] != "networkpolicies" {
		t.Errorf("the two clusters are not connected, and changed are %v", got)
	}
	st.network, st.down = block, false
	offer = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	st.offer = offer
	group.Go(func() { s.claims.Follow(ctx, client, kube.Query{Path: "/api/v1/persistentvolumeclaims"}) })
	group.Go(func() { s.classes.Follow(ctx, client, kube.Query{Path: storageclass.Path}) })
	<-s.claims.Synced()
	<-s.classes.Synced()
	if got := changes(); len(got) != 2 || got[0] != "resourcequotas" || got[1] != "roles" {
		t.Errorf("no storage is offered any more, and changed are %v", got)
	}
}

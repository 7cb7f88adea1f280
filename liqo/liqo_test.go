package liqo

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
)

// TestInstallation: the Liqo of this cluster is the one with controllers; a ConfigMap like its own, which may have come from
// another cluster, is nothing.
func TestInstallation(t *testing.T) {
	var deployments []*deployment
	for _, name := range needed {
		d := &deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-" + name, Labels: map[string]string{nameLabel: name}}}
		d.Status.ReadyReplicas = 1
		deployments = append(deployments, d)
	}
	called := func(namespace, id string) *configMap {
		return &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "any"}, Data: map[string]string{fieldClusterID: id}}
	}
	for name, c := range map[string]struct {
		maps        []*configMap
		deployments []*deployment
		id          document.ClusterID
		ready       bool
	}{
		"one":                   {[]*configMap{called("liqo", "mill")}, deployments, "mill", true},
		"one, and a guest's":    {[]*configMap{called("liqo", "mill"), called("guest", "x")}, deployments, "mill", true},
		"one that is not ready": {[]*configMap{called("liqo", "mill")}, deployments[:1], "mill", false},
		"two":                   {[]*configMap{called("liqo", "mill"), called("liqo", "barn")}, deployments, "", false},
		"a guest's alone":       {[]*configMap{called("guest", "x")}, deployments, "", false},
		"no ID":                 {[]*configMap{called("liqo", "a b")}, deployments, "", false},
	} {
		if found, _ := installation(c.maps, c.deployments); found.ID != c.id || (found.Problem == "") != c.ready {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestBackAgain: what was not wanted while Liqo could not be used, and nobody knew what there is, is not undone when it
// can be: whoever decides says it again first.
func TestBackAgain(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	back := func() {
		s := newSession(l, nil, served{})
		n := &object{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-mill", UID: "n", ResourceVersion: "1", Labels: map[string]string{
			document.LabelTenantNamespace: "true", document.LabelRemoteCluster: "mill", api.LabelClusterID: string(id),
		}}}
		if err := s.namespaces.Told().Replace([]any{n}, "1"); err != nil {
			t.Fatal(err)
		}
		s.attach(t.Context())
	}
	yes, no := true, false
	back()
	l.Drive(id, Desired{Consume: &Consumption{Wanted: true}, Serve: &yes})
	l.mu.Lock()
	l.session = nil
	l.mu.Unlock()
	l.set(&engine.Installation{Problem: "no rights"}, true)
	if c, s := l.Drive(id, Desired{Consume: &Consumption{}, Serve: &no}); c.Unknown || c.Busy || s.Unknown || s.Busy {
		t.Errorf("somebody would wait for what cannot be used: %+v, %+v", c, s)
	}
	back()
	if c, s := l.Status(id); !c.Unknown || !s.Unknown {
		t.Errorf("known before anybody looked: %+v, %+v", c, s)
	}
	if p := l.pairs[id]; p.desired.Consume != nil || p.desired.Serve != nil {
		t.Errorf("to be undone: %+v", p.desired)
	}
}

// TestGoneStaysGone: a provider that was given up is not waited for again until it is wanted again.
func TestGoneStaysGone(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	newSession(l, nil, served{}).attach(t.Context())
	for _, c := range []struct {
		set  Consumption
		gone bool
	}{{Consumption{Wanted: true}, false}, {Consumption{}, false}, {Consumption{Gone: true}, true}, {Consumption{}, true}, {Consumption{Wanted: true}, false}, {Consumption{}, false}} {
		l.Drive(id, Desired{Consume: &c.set})
		if got := l.pairs[id].desired.Consume.Gone; got != c.gone {
			t.Errorf("%+v: gone %t", c.set, got)
		}
	}
}

// TestEndedSession: a session that ends while it begins is not used any more. Without Liqo, nobody would take it away: what
// there is of a pair would not be known again before a restart, and a peering without Liqo would wait for it.
func TestEndedSession(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	newSession(l, nil, served{}).attach(ctx)
	l.set(nil, true)
	if c, _ := l.Drive(id, Desired{Consume: &Consumption{Wanted: true}}); c.Unknown {
		t.Errorf("unknown without Liqo: %+v", c)
	}
}

// TestPartedPairIsForgotten: who is peered and parted again and again under new IDs leaves nothing in memory.
func TestPartedPairIsForgotten(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	s := newSession(l, nil, served{unconnected: "no networking"})
	s.attach(t.Context())
	yes, no := true, false
	l.Drive(id, Desired{Consume: &Consumption{Wanted: true}, Serve: &yes})
	parted := Desired{Consume: &Consumption{}, Serve: &no}
	if c, _ := l.Drive(id, parted); !c.Unknown || len(l.pairs) != 1 {
		t.Errorf("nobody looks whether something was left: %+v", c)
	}
	for _, serve := range []bool{true, false} {
		if _, err := s.reconcile(t.Context(), job{id, serve}); err != nil {
			t.Fatal(err)
		}
	}
	if c, s := l.Drive(id, parted); c.Unknown || s.Unknown || len(l.pairs) != 0 {
		t.Errorf("%d pairs, %+v, %+v", len(l.pairs), c, s)
	}
}

// TestNamespaceEndsLast: the namespace of a pair ends seconds after all else, which is no news about the pair: nobody asks about it again.
func TestNamespaceEndsLast(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	s := newSession(l, nil, served{unconnected: "no networking"})
	ends := metav1.Now()
	n := &object{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-mill", UID: "n", ResourceVersion: "1", DeletionTimestamp: &ends, Labels: map[string]string{
		document.LabelTenantNamespace: "true", document.LabelRemoteCluster: "mill", api.LabelClusterID: string(id), api.LabelManagedBy: api.ManagedByAgent,
	}}}
	s.attach(t.Context())
	yes, no := true, false
	l.Drive(id, Desired{Consume: &Consumption{Wanted: true}, Serve: &yes})
	parted := Desired{Consume: &Consumption{}, Serve: &no}
	l.Drive(id, parted)
	for _, there := range [][]any{{n}, nil} {
		if err := s.namespaces.Told().Replace(there, "1"); err != nil {
			t.Fatal(err)
		}
		for _, serve := range []bool{true, false} {
			if _, err := s.reconcile(t.Context(), job{id, serve}); err != nil {
				t.Fatal(err)
			}
		}
		if there != nil {
			l.Drive(id, parted)
		}
		if kept := len(l.pairs) == 1; kept != (there != nil) {
			t.Errorf("%d pairs with %d namespaces", len(l.pairs), len(there))
		}
	}
}

// TestLookIsRepeated: when Liqo is looked for again, as after `rbac --apply` and a reload, and the API server does not answer at
// that moment, it is looked for once more.
func TestLookIsRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		authentication := `{"name":"tenants"},{"name":"identities"},{"name":"resourceslices"}`
		answers := func(status int, authentication string) kubetest.Answer {
			return func(r *http.Request, _ string) (int, string) {
				switch {
				case r.Method == http.MethodPost:
					return 201, `{"status":{"allowed":true}}`
				case r.URL.Path == "/apis/"+document.Authentication.String():
					return status, `{"resources":[` + authentication + `]}`
				case r.URL.Path == "/apis/"+document.Core.String(), r.URL.Path == "/apis/"+document.Offloading.String(), r.URL.Path == "/apis/"+document.IPAM.String():
					return 200, `{"resources":[]}`
				}
				return 200, `{"metadata":{"resourceVersion":"1"},"items":[]}` // as a watch, it ends at once
			}
		}
		server := kubetest.New(answers(200, authentication))
		l := New(Config{Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			l.drive(ctx, server.Client(t), served{unconnected: "The API server does not serve networks of " + document.IPAM.String() + "."})
			close(ended)
		}()
		synctest.Wait()
		server.Say(answers(503, ""))
		l.Look()
		synctest.Wait()
		server.Say(answers(200, authentication+`,{"name":"renews"}`))
		time.Sleep(time.Minute)
		select {
		case <-ended:
		default:
			t.Error("what changed in the API server is not noticed")
			cancel()
			<-ended
		}
	})
}

// roaming is a peer that answers at an address.
type roaming struct{ at netip.AddrPort }

func (r *roaming) Exchange(context.Context, peer.Target, client.Request) (client.Response, error) {
	return client.Response{Status: http.StatusOK, Body: []byte(`{"clusterID":"mill"}`), Result: client.Result{Addr: r.at}}, nil
}

// TestSlowForAMoment: a provider with several addresses stays where it is shown when another of them answers first, and is
// followed when it is shown elsewhere: Liqo would restart its virtual kubelet there and back, and has no use for a link-local one.
func TestSlowForAMoment(t *testing.T) {
	const id = peer.ClusterID("83d0f353-3141-44ad-bc31-9c4520be089f")
	home, other, local := netip.MustParseAddrPort("192.168.7.1:6447"), netip.MustParseAddrPort("10.8.0.1:6447"), netip.MustParseAddrPort("[fe80::1%eth0]:6447")
	provider := &roaming{}
	l := New(Config{Peers: provider, Changed: func(peer.ClusterID) {}, Found: func() {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	s := newSession(l, nil, served{})
	p := &pair{told: make(chan struct{})}
	l.pairs[id] = p
	for _, c := range []struct{ shown, answers, want netip.AddrPort }{
		{home, home, home}, {home, other, home}, {home, local, home}, {other, home, home}, {other, other, other}, {other, home, other}, {home, home, home},
	} {
		provider.at = c.answers
		p.desired.Consume = &Consumption{Wanted: true, Target: peer.Target{Addrs: []netip.AddrPort{home, other, local}, URL: "https://" + c.shown.String()}}
		s.ask(t.Context(), p, *p, exchange.Call{ClusterID: "barn"}, nil)
		if p.asking.address != c.want.Addr() {
			t.Errorf("shown at %s, answers at %s: it is at %s", c.shown, c.answers, p.asking.address)
		}
	}
	p.asking, provider.at = asking{}, other // as after a restart of the agent
	p.desired.Consume = &Consumption{Wanted: true, Target: peer.Target{Addrs: []netip.AddrPort{home, other, local}, URL: "https://" + home.String()}}
	s.ask(t.Context(), p, *p, exchange.Call{ClusterID: "barn"}, &exchange.Identity{Identity: document.Identity{APIServer: "https://192.168.7.1:6443"}})
	if p.asking.address != home.Addr() {
		t.Errorf("shown and called at %s, and after a restart at %s", home, p.asking.address)
	}
}

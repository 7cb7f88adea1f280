package integration

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/liqo"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
)

// These need Liqo's programs: make test-liqo builds them.
func TestMain(m *testing.M) {
	if !bed.LiqoBuilt() {
		fmt.Println("skipped: run make test-liqo")
		return
	}
	conn.BridgeKlog(slog.New(slog.DiscardHandler))
	bed.Main(m)
}

const (
	consumerID = peer.ClusterID("11111111-1111-4111-8111-111111111111")
	providerID = peer.ClusterID("22222222-2222-4222-8222-222222222222")
)

// callsFrom is where consumers call from.
var callsFrom = netip.MustParseAddr("192.0.2.5")

type object = map[string]any

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agent is as much of an agent as there is to the exchange: a Liqo, and its calls of the other one.
type agent struct {
	*liqo.Liqo
	k    *bed.Kube
	log  *bedtest.Log
	stop func()
	way  *way
}

// way is how a consumer calls its provider: at some address, and with some faults.
type way struct {
	mu       sync.Mutex
	provider *liqo.Liqo
	at       netip.Addr
	change   func(answer []byte) []byte // nil: as it is
	lost     int                        // so many answers are lost
	calls    int
}

func (w *way) Exchange(ctx context.Context, _ peer.Target, r client.Request) (client.Response, error) {
	w.mu.Lock()
	w.calls++
	provider, at, change, lost := w.provider, w.at, w.change, w.lost > 0
	if lost {
		w.lost--
	}
	w.mu.Unlock()
	if r.Path != wire.PathLiqo || r.Method != http.MethodPost || provider == nil {
		return client.Response{}, errors.New("nobody answers")
	}
	answer, err := provider.Answer(ctx, consumerID, callsFrom, r.Body)
	if lost {
		return client.Response{}, errors.New("the answer is lost")
	}
	if err != nil {
		text, _ := wire.Encode(wire.Refusal{Error: err.Error()})
		return client.Response{Status: http.StatusForbidden, Body: text}, nil
	}
	body, err := json.Marshal(answer)
	if change != nil {
		body = change(body)
	}
	return client.Response{Status: http.StatusOK, Body: body, Result: client.Result{Addr: netip.AddrPortFrom(at, 6447)}}, err
}

func (w *way) set(change func(*way)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// start starts an agent.
func start(t *testing.T, k *bed.Kube, w *way) *agent {
	t.Helper()
	a := &agent{k: k, log: &bedtest.Log{}, way: w}
	a.Liqo = liqo.New(liqo.Config{Peers: w, Changed: func(peer.ClusterID) {}, Found: func() {}, Addresses: func() ([]net.Addr, error) { return nil, nil }, Logger: a.log.Logger(), Now: time.Now})
	a.stop = bedtest.Run(t, a.log, nil, func(ctx context.Context) error {
		a.Run(ctx, k.RESTConfig())
		return nil
	})
	return a
}

// pair are two clusters with Liqo and an agent each.
type pair struct {
	consumer, provider *agent
	cLiqo, pLiqo       *standIn
	way                *way
	target             peer.Target
}

func newPair(t *testing.T) *pair {
	t.Helper()
	b := bed.New(t)
	barn, mill := b.AddCluster(t.Context(), "barn", "10.77.0.1/24"), b.AddCluster(t.Context(), "mill", "10.77.0.2/24")
	p := &pair{cLiqo: install(t, barn, "barn"), pLiqo: install(t, mill, "mill"), way: &way{at: netip.MustParseAddr("192.0.2.7")}}
	p.target = peer.Target{ID: providerID, Fingerprint: peer.FingerprintOf([]byte("mill"))}
	serve(t, p.cLiqo, p.pLiqo)
	p.startConsumer(t, barn)
	p.startProvider(t, mill)
	return p
}

func (p *pair) startConsumer(t *testing.T, k *bed.Kube) { p.consumer = start(t, k, p.way) }

func (p *pair) startProvider(t *testing.T, k *bed.Kube) {
	p.provider = start(t, k, &way{})
	p.way.set(func(w *way) { w.provider = p.provider.Liqo })
}

// want says again what is wanted, as the peering controller does, and returns what comes of it.
func (p *pair) want(consumed, served bool) (consuming, serving liqo.Status) {
	no := false
	consuming, _ = p.consumer.Drive(providerID, liqo.Desired{Consume: &liqo.Consumption{Wanted: consumed, Target: p.target}, Serve: &no})
	_, serving = p.provider.Drive(consumerID, liqo.Desired{Consume: &liqo.Consumption{}, Serve: &served})
	return consuming, serving
}

func (p *pair) awaitPeered(t *testing.T) {
	t.Helper()
	bedtest.Within(t, "two clusters that Liqo has peered", func() error {
		c, s := p.want(true, true)
		if !c.Ready || !s.Ready {
			return fmt.Errorf("consumer %s: %s; provider %s: %s; steps %+v", c.Reason, c.Message, s.Reason, s.Message, c.Steps)
		}
		return nil
	})
}

func (p *pair) awaitApart(t *testing.T) {
	t.Helper()
	served := true
	bedtest.Within(t, "two clusters without anything between them", func() error {
		c, s := p.want(false, served)
		switch {
		case c.Unknown || c.Busy || c.Present:
			return fmt.Errorf("consumer: %s", c.Message)
		case served:
			served = false // the request is withdrawn
			return errors.New("the request is being withdrawn")
		case s.Unknown || s.Busy || s.Present:
			return fmt.Errorf("provider: %s", s.Message)
		}
		for _, k := range []*bed.Kube{p.consumer.k, p.provider.k} {
			for plural, group := range kinds {
				if plural == "secrets" {
					continue
				}
				text, err := k.Request(t.Context(), http.MethodGet, group+"/"+plural, "", nil)
				if err != nil || strings.Contains(string(text), `"uid"`) {
					return fmt.Errorf("%s are left: %s, %v", plural, text, err)
				}
			}
			// There is no controller that empties namespaces.
			text, err := k.Request(t.Context(), http.MethodGet, "/api/v1/namespaces?labelSelector=liqo.io/tenant-namespace", "", nil)
			if err != nil || strings.Count(string(text), `"uid"`) != strings.Count(string(text), `"deletionTimestamp"`) {
				return fmt.Errorf("the namespace is left: %s, %v", text, err)
			}
		}
		return nil
	})
}

func get(t *testing.T, k *bed.Kube, path string) *item {
	t.Helper()
	text, err := k.Request(t.Context(), http.MethodGet, path, "", nil)
	must(t, err)
	var o item
	must(t, json.Unmarshal(text, &o))
	return &o
}

// TestPeerAndPart: two clusters with Liqo are peered, rest without requests or writes, follow an
// address, repair what somebody deletes, and part.
func TestPeerAndPart(t *testing.T) {
	p := newPair(t)
	began := time.Now()
	p.awaitPeered(t)
	t.Logf("peered after %v, with %d calls", time.Since(began), p.way.calls)
	identity := path("identities", "liqo-tenant-mill", "controlplane-mill")
	if got := get(t, p.consumer.k, identity); got.Spec["authParams"].(map[string]any)["apiServer"] != "https://192.0.2.7:6443" {
		t.Errorf("the Identity is %+v", got.Spec)
	}

	// The provider has another address: nothing is deleted, and the checker of Liqo starts anew.
	before := get(t, p.consumer.k, identity)
	p.way.set(func(w *way) { w.at = netip.MustParseAddr("192.0.2.8") })
	p.target.URL = "https://192.0.2.8:6447"
	bedtest.Within(t, "the new address", func() error {
		p.want(true, true)
		o := get(t, p.consumer.k, identity)
		fc := get(t, p.consumer.k, path("foreignclusters", "", "mill"))
		if url := "https://192.0.2.8:6443"; o.Spec["authParams"].(map[string]any)["apiServer"] != url || fc.Status["apiServerUrl"] != url {
			return fmt.Errorf("%+v, checked at %v", o.Spec, fc.Status)
		}
		if o.UID != before.UID {
			t.Fatal("the Identity was made anew")
		}
		return nil
	})
	p.awaitPeered(t)

	// What somebody deletes comes back.
	for _, lost := range []struct {
		k    *bed.Kube
		path string
	}{
		{p.consumer.k, path("secrets", "liqo-tenant-mill", "liqo-signed-nonce")},
		{p.provider.k, path("tenants", "liqo-tenant-barn", "barn")},
		{p.provider.k, path("secrets", "liqo-tenant-barn", "liqo-nonce")},
	} {
		uid := get(t, lost.k, lost.path).UID
		_, err := lost.k.Request(t.Context(), http.MethodDelete, lost.path, "", nil)
		must(t, err)
		p.target.URL += "/" // it is called at once, in place of after half a minute
		bedtest.Within(t, lost.path+" anew", func() error {
			p.want(true, true)
			text, err := lost.k.Request(t.Context(), http.MethodGet, lost.path, "", nil)
			if err == nil && strings.Contains(string(text), string(uid)) {
				return errors.New("it is still the old one")
			}
			return err
		})
		p.awaitPeered(t)
	}
	p.awaitApart(t)
}

// TestKilledAtEachStep: an agent that is killed before any step goes on where it was, from what is
// in the API servers.
func TestKilledAtEachStep(t *testing.T) {
	p := newPair(t)
	for _, step := range []struct {
		liqo *standIn
		name string
		is   string // the first step that is not done
	}{
		{p.pLiqo, "nonce", exchange.StepNonce}, {p.cLiqo, "sign", exchange.StepSigned}, {p.pLiqo, "tenant", exchange.StepTenant},
		{p.cLiqo, "identity", exchange.StepKubeconfig}, {p.cLiqo, "slice", exchange.StepAuthentication},
	} {
		for _, l := range []*standIn{p.cLiqo, p.pLiqo} {
			l.halt(step.name, l == step.liqo)
		}
		bedtest.Within(t, "the exchange before "+step.name, func() error {
			c, _ := p.want(true, true)
			for _, s := range c.Steps {
				if !s.Done && s.Name == step.is {
					return nil
				} else if !s.Done {
					return fmt.Errorf("it is at %s: %s", s.Name, c.Message)
				}
			}
			return fmt.Errorf("%+v", c)
		})
		p.way.set(func(w *way) { w.lost = 1 })
		p.consumer.stop()
		p.startConsumer(t, p.consumer.k)
		p.provider.stop()
		p.startProvider(t, p.provider.k)
		p.want(true, true)
		step.liqo.halt(step.name, false)
	}
	p.awaitPeered(t)

	// The same on the way back.
	p.cLiqo.halt("drain", true)
	bedtest.Within(t, "the drain", func() error {
		if c, _ := p.want(false, true); !c.Busy || c.Reason != exchange.ReasonRemoving {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	p.consumer.stop()
	p.startConsumer(t, p.consumer.k)
	p.cLiqo.halt("drain", false)
	p.awaitApart(t)
}

// TestHostileAnswers: a provider that says something else gets nowhere, and a caller without an
// accepted request learns nothing.
func TestHostileAnswers(t *testing.T) {
	p := newPair(t)
	_, err := p.provider.Answer(t.Context(), consumerID, callsFrom, []byte(`{"clusterID":"barn"}`))
	if !errors.Is(err, liqo.ErrNotServed) {
		t.Errorf("a stranger is answered: %v", err)
	}
	p.way.set(func(w *way) {
		w.change = func(answer []byte) []byte {
			return []byte(strings.ReplaceAll(string(answer), "liqo-tenant-barn", "kube-system"))
		}
	})
	bedtest.Within(t, "refusal of an Identity for another namespace", func() error {
		if c, _ := p.want(true, true); c.Reason != exchange.ReasonHostile || !strings.Contains(c.Message, "kube-system") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if text, err := p.consumer.k.Request(t.Context(), http.MethodGet, "/apis/authentication.liqo.io/v1beta1/identities", "", nil); err != nil || strings.Contains(string(text), `"uid"`) {
		t.Errorf("there is an Identity: %s, %v", text, err)
	}
	p.way.set(func(w *way) { w.change = nil })
	p.target.URL = "https://192.0.2.7:6447"
	p.awaitPeered(t)
}

// TestManyNonces: a provider that says another nonce each time does not keep this cluster busy.
func TestManyNonces(t *testing.T) {
	p := newPair(t)
	p.way.set(func(w *way) {
		w.change = func(answer []byte) []byte {
			nonce := make([]byte, 64)
			_, _ = rand.Read(nonce)
			var a exchange.Answer
			if err := json.Unmarshal(answer, &a); err != nil {
				t.Error(err)
			}
			a.Nonce, a.Identity = document.Nonce(base64.StdEncoding.EncodeToString(nonce)), nil
			text, err := json.Marshal(a)
			if err != nil {
				t.Error(err)
			}
			return text
		}
	})
	bedtest.Within(t, "a consumer that has enough", func() error {
		if c, _ := p.want(true, true); !strings.Contains(c.Message, "something else each time") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	p.way.set(func(w *way) {
		if w.calls > 20 {
			t.Errorf("called %d times", w.calls)
		}
	})
}

// TestFound: what Liqo is here is known, and that it is not ready, or gone.
func TestFound(t *testing.T) {
	b := bed.New(t)
	k := b.AddCluster(t.Context(), "barn", "10.77.0.1/24")
	a := start(t, k, &way{})
	bedtest.Within(t, "a cluster without Liqo", func() error {
		if got, known := a.Installed(); got != nil || !known {
			return fmt.Errorf("%+v, %v", got, known)
		}
		return nil
	})
	s := install(t, k, "barn")
	await := func(what, problem string) {
		t.Helper()
		a.Look()
		bedtest.Within(t, what, func() error {
			if got, _ := a.Installed(); got == nil || got.ID != "barn" || got.Version != "v1.2.0" || got.Problem != problem {
				return fmt.Errorf("%+v, want %q", got, problem)
			}
			return nil
		})
	}
	await("Liqo", "")
	s.ready("crd-replicator", 0)
	await("Liqo that is not ready", "not ready: liqo-crd-replicator")
	s.ready("crd-replicator", 1)
	await("Liqo that is ready again", "")
	wanted := liqo.Desired{Consume: &liqo.Consumption{Wanted: true}}
	bedtest.Within(t, "a peer that is waited for", func() error {
		if c, _ := a.Drive(providerID, wanted); c.Unknown || c.Reason != exchange.ReasonWaits {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	_, err := k.Request(t.Context(), http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tenants.authentication.liqo.io", "", nil)
	must(t, err)
	bedtest.Within(t, "Liqo without Tenants", func() error {
		a.Look()
		if got, _ := a.Installed(); got == nil || !strings.Contains(got.Problem, "does not serve tenants") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	// Nobody waits for what cannot be used.
	for _, id := range []peer.ClusterID{providerID, consumerID} {
		if c, s := a.Status(id); !reflect.DeepEqual(c, liqo.Status{}) || !reflect.DeepEqual(s, liqo.Status{}) {
			t.Errorf("%s: %+v, %+v", id, c, s)
		}
	}
	if c, _ := a.Drive(providerID, liqo.Desired{Consume: &liqo.Consumption{}}); !reflect.DeepEqual(c, liqo.Status{}) {
		t.Errorf("%+v", c)
	}
}

package exchange

import (
	"encoding/base64"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/liqo/document"
)

func (w *world) mustBePeered(t testing.TB) {
	t.Helper()
	consumer, provider := w.settle(t)
	if !consumer.Ready || !provider.Ready {
		t.Fatalf("not peered: consumer %s: %s; provider %s: %s", consumer.Reason, consumer.Message, provider.Reason, provider.Message)
	}
	for _, s := range consumer.Steps {
		if !s.Done {
			t.Errorf("step %s is not done", s.Name)
		}
	}
	if on := w.consumer.network.Problem == "" && w.provider.network.Problem == ""; on != (consumer.Unconnected+provider.Unconnected == "") ||
		on != w.consumer.here.established() || on != w.provider.here.established() {
		t.Errorf("networks: %q, %q; %+v, %+v", consumer.Unconnected, provider.Unconnected, w.consumer.here.Connected, w.provider.here.Connected)
	}
	if len(consumer.Actions)+len(provider.Actions) != 0 {
		t.Errorf("there is no end of writes: %+v, %+v", consumer.Actions, provider.Actions)
	}
}

func (w *world) mustBeApart(t testing.TB) {
	t.Helper()
	w.wanted = false
	consumer, _ := w.settle(t)
	if consumer.Busy {
		t.Fatalf("the consumer still needs the provider: %s", consumer.Message)
	}
	w.admitted = false
	w.settle(t)
	for _, b := range []*box{w.consumer, w.provider} {
		if !reflect.DeepEqual(b.here, Here{}) {
			t.Errorf("left at %s: %+v", b.id, b.here)
		}
	}
}

// TestExchange: two clusters are peered by the steps of liqoctl, in their order, and parted again.
func TestExchange(t *testing.T) {
	w := newWorld(t)
	w.asks = map[string]string{"cpu": "2"}
	w.mustBePeered(t)
	if want := []string{"create namespace", "apply signed-nonce", "apply identity", "apply resourceslice", "note virtualnode"}; !slices.Equal(w.consumer.writes, want) {
		t.Errorf("the consumer wrote %q, want %q", w.consumer.writes, want)
	}
	if want := []string{"create namespace", "apply nonce", "apply tenant"}; !slices.Equal(w.provider.writes, want) {
		t.Errorf("the provider wrote %q, want %q", w.provider.writes, want)
	}
	if got := w.consumer.here.Identity.APIServer; got != "https://192.0.2.7:6443" {
		t.Errorf("the provider is called at %s", got)
	}
	w.consumer.writes, w.provider.writes = nil, nil
	w.mustBeApart(t)
	if want := []string{"delete resourceslice", "delete virtualnode", "delete identity", "delete signed-nonce", "delete foreigncluster", "delete namespace"}; !slices.Equal(w.consumer.writes, want) {
		t.Errorf("the consumer undid %q, want %q", w.consumer.writes, want)
	}
	if want := []string{"delete tenant", "delete certificate", "delete nonce", "delete foreigncluster", "delete namespace"}; !slices.Equal(w.provider.writes, want) {
		t.Errorf("the provider undid %q, want %q", w.provider.writes, want)
	}
}

// TestAsks: the ResourceSlice follows what is asked for, with one write for each change.
func TestAsks(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	for _, asks := range []map[string]string{{"cpu": "2"}, {"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi"}, nil, {}} {
		before := w.consumer.here.Slices[0].Asks
		w.consumer.writes, w.asks = nil, asks
		w.mustBePeered(t)
		writes := slices.DeleteFunc(w.consumer.writes, func(write string) bool { return write != "apply resourceslice" })
		if now := w.consumer.here.Slices[0].Asks; !maps.Equal(now, asks) || len(writes) > 1 || (len(writes) == 0) != maps.Equal(before, asks) {
			t.Errorf("%v: it asks for %v after %q", asks, now, writes)
		}
	}
}

// TestUndecided: while it is not known what is wanted, what there is stays as it is, and is known.
func TestUndecided(t *testing.T) {
	w := newWorld(t)
	consumer := func() Decision {
		return PlanConsumer(Consumer{Peer: w.provider.peer, Undecided: true, Provider: w.provider.id, Here: w.consumer.here, Now: now})
	}
	provider := func() Decision {
		return PlanProvider(Provider{Peer: w.consumer.peer, Undecided: true, Self: w.provider.id, Consumer: w.consumer.id, Here: w.provider.here, Said: w.heard})
	}
	for _, d := range []Decision{consumer(), provider()} {
		if d.Present || d.Ready || d.Busy || d.Actions != nil || d.Call != nil {
			t.Errorf("of nothing: %+v", d)
		}
	}
	w.mustBePeered(t)
	for _, d := range []Decision{consumer(), provider()} {
		if !d.Present || !d.Ready || d.Busy || d.Actions != nil || d.Call != nil {
			t.Errorf("of two that are peered: %+v", d)
		}
	}
}

// TestToldWhy: a consumer is told why it waits, and nothing of what is meant for people at the provider.
func TestToldWhy(t *testing.T) {
	w := newWorld(t)
	w.provider.here.Namespaces = []Namespace{{Object: Object{Name: "liqo-tenant-barn"}, Peer: "a third cluster"}}
	call := Call{ClusterID: w.consumer.id}
	d := PlanProvider(Provider{Peer: w.consumer.peer, Wanted: true, Self: w.provider.id, Consumer: w.consumer.id, Here: w.provider.here, Said: &call})
	if d.Reason != ReasonClaimed || !strings.Contains(d.Message, "a third cluster") || d.Answer.Waits == "" || strings.Contains(d.Answer.Waits, "third") {
		t.Errorf("%+v", d)
	}
}

// TestSteps: each step shows in the order in which it is done.
func TestSteps(t *testing.T) {
	w := newConnected(t)
	done := func() (n int) {
		for _, s := range w.consumerPlan().Steps {
			if !s.Done {
				break
			}
			n++
		}
		return n
	}
	most := 0
	for range 120 {
		carry(w.provider, w.providerPlan(), -1)
		d := w.consumerPlan()
		carry(w.consumer, d, 1)
		for _, s := range d.Steps[done():] {
			if s.Done && s.Name != StepServer && s.Name != StepConfiguration { // of the two, one is the other cluster's
				t.Errorf("step %s is done before those ahead of it: %+v", s.Name, d.Steps)
			}
		}
		if n := done(); n < most {
			t.Errorf("%d steps are done, before that %d", n, most)
		} else {
			most = n
		}
		w.call(*d.Call)
		w.answer(w.providerPlan().Answer)
		if !w.provider.liqo(w.consumer) {
			w.consumer.liqo(w.provider)
		}
	}
	if most != len(w.consumerPlan().Steps) {
		t.Errorf("%d steps are done: %+v", most, w.consumerPlan().Steps)
	}
}

// TestAnyOrder: whatever is lost, doubled, delayed or interrupted, both end as if nothing had been,
// and nothing stays behind.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		w, r := newWorld(t), rand.New(rand.NewPCG(seed, 1))
		if seed%2 == 1 {
			w = newConnected(t)
		}
		for range 120 {
			switch r.IntN(12) {
			case 0, 1:
				carry(w.consumer, w.consumerPlan(), r.IntN(3)) // interrupted before the rest
			case 2, 3:
				carry(w.provider, w.providerPlan(), r.IntN(3))
			case 4:
				d := w.consumerPlan()
				carry(w.consumer, d, -1)
				carry(w.consumer, Decision{Actions: slices.DeleteFunc(slices.Clone(d.Actions), func(a Action) bool { return a.Verb != Apply })}, -1) // twice
			case 5:
				w.consumer.liqo(w.provider)
			case 6:
				w.provider.liqo(w.consumer)
			case 7:
				w.consumerAsks()
			case 8:
				w.providerReplies()
			case 9: // what was said before comes again
				if len(w.calls) > 0 && r.IntN(2) == 0 {
					w.heard = &w.calls[r.IntN(len(w.calls))]
				} else if len(w.answers) > 0 {
					w.said = &w.answers[r.IntN(len(w.answers))]
				}
			case 10: // an agent is killed
				if r.IntN(2) == 0 {
					w.said = nil
				} else {
					w.heard = nil
				}
			case 11:
				w.lose(r)
			}
		}
		w.said, w.heard, w.calls = nil, nil, nil
		w.mustBePeered(t)
		if r.IntN(2) == 0 {
			w.said, w.heard = nil, nil
		}
		w.mustBeApart(t)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// lose has somebody delete an object of the exchange.
func (w *world) lose(r *rand.Rand) {
	c, p := &w.consumer.here, &w.provider.here
	connected := &[]*Here{c, p}[r.IntN(2)].Connected
	switch r.IntN(8) {
	case 0:
		c.Signed = nil
	case 1:
		c.Identity, c.Kubeconfig = nil, false
	case 2:
		p.Nonce = nil
	case 3:
		p.Tenant = nil
	case 4:
		connected.Configuration = nil
	case 5:
		connected.Server = nil
	case 6:
		connected.Client = nil
	case 7:
		connected.Key = nil
	}
}

// TestAddressFollows: a new address of the provider is all that changes, by way of none.
func TestAddressFollows(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	before := *w.consumer.here.Identity
	w.consumer.writes, w.provider.writes = nil, nil
	w.address, w.provider.server, w.provider.addresses = netip.MustParseAddr("2001:db8::7"), "https://10.9.9.9:6444", "10.9.9.9"
	w.mustBePeered(t)
	after := w.consumer.here
	if after.Identity.APIServer != "https://[2001:db8::7]:6444" || after.Checked != after.Identity.APIServer || after.Identity.UID != before.UID {
		t.Errorf("the Identity is %+v, Liqo looks at %s", after.Identity, after.Checked)
	}
	slices.Sort(w.consumer.writes)
	if want := []string{"move identity", "move identity", "note virtualnode"}; !slices.Equal(w.consumer.writes, want) || !slices.Equal(w.provider.writes, []string{"note tenant"}) ||
		after.VirtualNodes[0].Server != w.provider.server {
		t.Errorf("written: %q, and at the provider %q", w.consumer.writes, w.provider.writes)
	}
	// The agent is killed while there is none.
	w.consumer.act(Action{Verb: Move, Server: ""})
	w.said = nil
	w.consumer.liqo(w.provider)
	w.calls = nil
	w.mustBePeered(t)
}

// TestProviderEnds: a consumer that does not go away loses everything after a while, and is not
// waited for.
func TestProviderEnds(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	w.admitted, w.heard = false, nil
	d := w.providerPlan()
	if len(d.Actions) != 0 || !d.Busy {
		t.Errorf("the consumer's rights are taken while its Liqo cleans up: %+v", d)
	}
	w.overdue, w.provider.writes = true, nil
	w.settle(t)
	want := []string{"drain tenant", "delete tenant", "delete renew", "delete certificate", "delete nonce", "delete foreigncluster", "delete namespace"}
	if !reflect.DeepEqual(w.provider.here, Here{}) || !slices.Equal(w.provider.writes, want) {
		t.Errorf("left: %+v, after %q", w.provider.here, w.provider.writes)
	}
	// The consumer is back. Its Liqo is refused what it is to remove, until it connects anew.
	w.wanted = false
	if c, _ := w.settle(t); !c.Busy {
		t.Errorf("nothing of the consumer's is left: %+v", w.consumer.here)
	}
	w.gone = true
	if w.settle(t); !reflect.DeepEqual(w.consumer.here, Here{}) {
		t.Errorf("left of the consumer's: %+v, after %q", w.consumer.here, w.consumer.writes)
	}
}

// TestNothingMoves: where Liqo's controllers do nothing any more, or the consumer has objects that do not go, a
// provider waits for as long as it takes, and then for nobody.
func TestNothingMoves(t *testing.T) {
	slice, renew := Replica{Object{Name: "mill", UID: "s"}, SliceObject}, Replica{Object{Name: "controlplane-mill", UID: "r"}, RenewObject}
	obs := Provider{Peer: "p", Self: "mill", Consumer: "barn", Overdue: true, Here: Here{
		Namespaces: []Namespace{{Object: Object{Name: "liqo-tenant-barn", UID: "n"}, Peer: "p", Made: true}},
		Tenant:     &Tenant{Object: Object{Name: "barn", UID: "t"}, Drained: true}, Replicated: []Replica{renew, slice},
	}}
	if d := PlanProvider(obs); len(d.Actions) > 0 || !d.Busy {
		t.Errorf("the Tenant goes before Liqo has drained it: %+v", d)
	}
	obs.Expired = true
	if d := PlanProvider(obs); len(d.Actions) != 1 || d.Actions[0].Kind != TenantObject || d.Busy {
		t.Errorf("Liqo has not drained it for minutes: %+v", d)
	}
	obs.Tenant.Deleting = true
	if d := PlanProvider(obs); len(d.Actions) > 0 || d.Busy {
		t.Errorf("a Tenant that does not go: %+v", d)
	}
}

// TestTwoNamespaces: when there are two namespaces for one cluster, nothing is lost with the one in care.
func TestTwoNamespaces(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	for _, b := range []*box{w.consumer, w.provider} {
		b.here.Namespaces = append([]Namespace{{Object: Object{Name: "other", UID: "x"}}}, b.here.Namespaces...)
	}
	w.wanted, w.admitted = false, false
	if d := w.consumerPlan(); !d.Busy || len(d.Actions) != 1 || d.Actions[0].Kind != SliceObject {
		t.Errorf("consumer: %+v", d)
	}
	if d := w.providerPlan(); !d.Busy || len(d.Actions) != 0 {
		t.Errorf("provider: %+v", d)
	}
}

// TestProviderGone: a consumer does not wait for a provider that is given up.
func TestProviderGone(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	w.wanted, w.gone, w.consumer.writes = false, true, nil
	d := w.consumerPlan()
	if d.Busy || len(d.Actions) != 3 || d.Actions[0].Verb != Abandon || d.Actions[1].Kind != SliceObject || d.Actions[2].Kind != VirtualNode {
		t.Errorf("%+v", d)
	}
}

// TestBothDirections: what one direction leaves, the other one needs.
func TestBothDirections(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	w.provider.here.Signed = &Secret{Object: w.provider.object("liqo-signed-nonce")}
	w.wanted = false
	w.settle(t)
	w.admitted = false
	w.settle(t)
	if len(w.provider.here.Namespaces) != 1 || w.provider.here.Tenant != nil {
		t.Errorf("left: %+v", w.provider.here)
	}
}

// TestOtherIDs: no peer gets the namespace, and with it the rights, of another cluster.
func TestOtherIDs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		reason string
	}{
		"another peer's": {func(w *world) {
			w.consumer.here.Namespaces = []Namespace{{Object: Object{Name: "liqo-tenant-mill"}, Peer: "agent-of-farm"}}
		}, ReasonClaimed},
		"one that liqoctl peered": {func(w *world) {
			w.consumer.here.Namespaces = []Namespace{{Object: Object{Name: "liqo-tenant-mill"}}}
			w.consumer.here.Tenant = &Tenant{}
		}, ReasonNotOurs},
		"under another name": {func(w *world) {
			w.consumer.here.Namespaces = []Namespace{{Object: Object{Name: "kube-system"}}}
		}, ReasonNotOurs},
		"two namespaces": {func(w *world) {
			w.consumer.here.Namespaces = []Namespace{{Object: Object{Name: "liqo-tenant-mill"}}, {Object: Object{Name: "b"}}}
		}, ReasonNotOurs},
		"our own": {func(w *world) { w.provider.id = "barn" }, ReasonClaimed},
		"another one than before": {func(w *world) {
			w.mustBePeered(t)
			w.said = &Answer{ClusterID: "farm"}
		}, ReasonClaimed},
	} {
		w := newWorld(t)
		w.said = &Answer{ClusterID: "mill"}
		c.change(w)
		if w.provider.id == "barn" {
			w.said.ClusterID = "barn"
		}
		d := w.consumerPlan()
		if len(d.Actions) != 0 || d.Reason != c.reason || d.Call.Tenant != nil {
			t.Errorf("%s: %s, %+v", name, d.Reason, d)
		}
	}
	// The same at the provider.
	w := newWorld(t)
	w.provider.here.Namespaces = []Namespace{{Object: Object{Name: "liqo-tenant-barn"}, Peer: "agent-of-farm"}}
	w.heard = &Call{ClusterID: "barn"}
	if d := w.providerPlan(); len(d.Actions) != 0 || d.Reason != ReasonClaimed || d.Answer.Nonce != "" || d.Answer.Waits == "" {
		t.Errorf("%+v", d)
	}
	// A person puts a pair of liqoctl into the agent's care.
	w = newWorld(t)
	w.mustBePeered(t)
	w.consumer.here.Namespaces[0] = Namespace{Object: w.consumer.here.Namespaces[0].Object}
	if d := w.consumerPlan(); d.Reason != ReasonNotOurs || !strings.Contains(d.Message, "kubectl label namespace liqo-tenant-mill discovery.liqo.io/cluster-id=agent-of-mill") {
		t.Errorf("%+v", d)
	}
	w.consumer.here.Namespaces[0].Peer, w.consumer.writes = w.provider.peer, nil
	w.mustBePeered(t)
	if len(w.consumer.writes) != 0 {
		t.Errorf("written on the way into care: %q", w.consumer.writes)
	}
}

// TestHostileDocuments: a document that is refused changes nothing, and ends nothing that works.
func TestHostileDocuments(t *testing.T) {
	w := newWorld(t)
	w.mustBePeered(t)
	nonce := document.Nonce(base64.StdEncoding.EncodeToString(make([]byte, 64)))
	for name, answer := range map[string]Answer{
		"no Identity": {ClusterID: "mill", Nonce: w.said.Nonce, Identity: []byte(`{}`)},
		"a bad one":   {ClusterID: "mill", Nonce: w.said.Nonce, Identity: []byte(strings.Replace(string(w.said.Identity), "liqo-tenant-barn", "kube-system", 1))},
	} {
		good := w.said
		w.said = &answer
		if d := w.consumerPlan(); len(d.Actions) != 0 || d.Reason != ReasonHostile || d.Ready {
			t.Errorf("%s: %+v", name, d)
		}
		w.said = good
	}
	call := *w.heard
	for name, tenant := range map[string]string{"nothing": `{}`, "another's": strings.Replace(string(call.Tenant), "barn", "farm", 1), "a policy": strings.Replace(string(call.Tenant), `{`, `{"authzPolicy":"TolerateNoHandshake",`, 1)} {
		w.heard = &Call{ClusterID: "barn", Tenant: []byte(tenant)}
		if d := w.providerPlan(); len(d.Actions) != 0 || d.Answer.Identity != nil {
			t.Errorf("%s: %+v", name, d)
		}
		fresh := newWorld(t)
		fresh.heard = &Call{ClusterID: "barn"}
		for range 5 {
			carry(fresh.provider, fresh.providerPlan(), -1)
			fresh.provider.liqo(fresh.consumer)
		}
		fresh.heard = w.heard
		if d := fresh.providerPlan(); len(d.Actions) != 0 || d.Reason != ReasonHostile || d.Answer.Identity != nil {
			t.Errorf("%s, to a provider without a Tenant: %+v", name, d)
		}
	}
	// Another nonce is signed anew, and what there is stays meanwhile.
	w.heard = &call
	w.said.Nonce = nonce
	if d := w.consumerPlan(); len(d.Actions) != 1 || d.Actions[0].Kind != SignedSecret {
		t.Errorf("another nonce: %+v", d)
	}
}

func TestParse(t *testing.T) {
	nonce := base64.StdEncoding.EncodeToString(make([]byte, 64))
	for _, bad := range []string{
		"", "null", "[]", "{}", `{"clusterID":"../a"}`, `{"clusterID":"a","clusterID":"b"}`, `{"clusterID":"a","network":{"pod":1,"pod":2}}`, `{"clusterID":"a","tenant":{"csr":"","csr":""}}`, `{"clusterID":1}`,
	} {
		if c, err := ParseCall([]byte(bad)); err == nil {
			t.Errorf("the call %s: %+v", bad, c)
		}
	}
	c, err := ParseCall([]byte(`{"clusterID":"a","tenant":null,"network":null,"later":1}`))
	if err != nil || c.Tenant != nil || c.Network != nil || c.ClusterID != "a" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{
		"", "null", "{}", `{"clusterID":"A"}`, `{"clusterID":"a","nonce":"x"}`, `{"clusterID":"a","waits":"` + strings.Repeat("x", maxAnswer) + `"}`,
	} {
		if a, err := ParseAnswer([]byte(bad)); err == nil {
			t.Errorf("the answer %.80s: %+v", bad, a)
		}
	}
	a, err := ParseAnswer([]byte(`{"clusterID":"a","nonce":"` + nonce + `","identity":null,"network":null,"waits":"a\u001b[2Jb"}`))
	if err != nil || a.Identity != nil || a.Network != nil || strings.Contains(a.Waits, "\x1b") || string(a.Nonce) != nonce {
		t.Errorf("%+v, %v", a, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"clusterID":"a","tenant":{"csr":""}}`))
	f.Add([]byte(`{"clusterID":"a","nonce":"","identity":{"ca":""},"waits":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := ParseCall(body); err == nil {
			if _, err := document.ParseClusterID(string(c.ClusterID)); err != nil {
				t.Error(err)
			}
		}
		if a, err := ParseAnswer(body); err == nil && strings.ContainsAny(a.Waits, "\x1b\n\x00") {
			t.Errorf("%q", a.Waits)
		}
	})
}

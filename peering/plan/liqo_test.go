package plan

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
)

// drive is a model of what hands on the desired state in Liqo.
func (s *box) drive(obs *Observed) {
	spec, _ := obs.LiqoSpec(s.w.now)
	if s.engine.Liqo == nil || !s.apiUp {
		return
	}
	if spec.Consume != nil {
		before := s.liqoSpec.Consume
		unwanted := before != nil && !*before && !*spec.Consume
		spec.Gone = spec.Gone || unwanted && s.liqoSpec.Gone
		if c := &s.liqo.Consuming; !*spec.Consume {
			c.Ready, c.Busy = false, c.Present && !spec.Gone
			if s.stuck && (!unwanted || spec.Gone != s.liqoSpec.Gone) { // it has not been looked at since
				c.Unknown, c.Busy = true, c.Present
			}
		}
		s.liqoSpec.Consume = spec.Consume
	}
	if spec.Serve != nil {
		s.liqoSpec.Serve = spec.Serve
		if v := &s.liqo.Serving; !*spec.Serve {
			v.Ready, v.Busy = false, v.Present
		}
	}
	s.liqoSpec.Gone = spec.Gone
	obs.Liqo = s.liqo
}

// liqoWorks is a model of Liqo's controllers and of package liqo: one round of them.
func (s *box) liqoWorks() {
	if s.engine.Liqo == nil || !s.apiUp {
		return
	}
	o, spec := s.other, s.liqoSpec
	s.liqo.Consuming.Unknown, s.liqo.Serving.Unknown = false, false
	served := o.liqoSpec.Serve != nil && *o.liqoSpec.Serve && o.apiUp && s.w.link
	if spec.Consume != nil {
		switch c := &s.liqo.Consuming; {
		case *spec.Consume && served:
			*c = exchange.Status{Present: true, Ready: true, Reason: exchange.ReasonReady}
		case *spec.Consume:
			c.Present, c.Busy = true, false
			c.Reason, c.Message = exchange.ReasonWaits, "It waits."
		case s.stuck && c.Present:
			c.Busy = !spec.Gone
			c.Reason, c.Message = exchange.ReasonRemoving, "Liqo gives the resources back to the provider."
		case s.pods && !spec.Gone:
			c.Reason, c.Message = exchange.ReasonRemoving, "Liqo drains and removes the virtual node."
		default:
			*c, s.pods = exchange.Status{}, false
		}
	}
	if spec.Serve != nil {
		if *spec.Serve {
			s.liqo.Serving = exchange.Status{Present: true, Ready: o.liqo.Consuming.Present, Reason: exchange.ReasonReady}
		} else if !o.liqo.Consuming.Present {
			s.liqo.Serving = exchange.Status{}
		}
	}
}

// withLiqo returns a world in which both trust each other and run Liqo.
func withLiqo(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	for _, s := range w.boxes() {
		s.pin()
		s.engine = engine.State{Setting: engine.Auto, Liqo: &engine.Installation{ID: document.ClusterID("liqo-" + s.id[:1]), Version: "v1.2.0"}}
	}
	mustRest(t, w)
	return w
}

func (w *world) wantByLiqo(t *testing.T) {
	t.Helper()
	a, b := w.a, w.b
	if !a.joined() || !b.serves() || !a.liqo.Consuming.Ready || b.kube.Request == nil || b.kube.Request.Spec.Engine != api.EngineLiqo {
		t.Fatalf("not joined by Liqo\n%s\n%s", a, b)
	}
	if a.kube.Advertisement != nil || a.node.Name != "" {
		t.Errorf("joined by both engines\n%s\n%s", a, b)
	}
	if a.reason(api.ConditionEngine) != reason.ByLiqo || b.reason(api.ConditionEngine) != reason.ByLiqo {
		t.Errorf("A shows %s, B shows %s", a.reason(api.ConditionEngine), b.reason(api.ConditionEngine))
	}
}

func (w *world) wantBuiltin(t *testing.T) {
	t.Helper()
	if !w.a.joined() || !w.b.serves() || w.b.kube.Request.Spec.Engine != "" || w.a.kube.Advertisement == nil || w.a.liqo.Consuming.Present || w.b.liqo.Serving.Present {
		t.Fatalf("not joined by the agents alone\n%s\n%s", w.a, w.b)
	}
}

// TestLiqo: clusters that run Liqo are peered by it and by nothing else, and parted.
func TestLiqo(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, w *world){
		"join and leave": func(t *testing.T, w *world) {
			for range 3 {
				w.a.book.disconnect()
				mustRest(t, w)
				w.wantClean(t)
				w.a.book.connect()
				mustRest(t, w)
				w.wantByLiqo(t)
			}
			v := w.a.observe().View()
			if !strings.HasPrefix(v.Engine, "Liqo peers the two clusters. Both clusters run Liqo: liqo-") || !v.Outgoing.Joined || v.Role != api.RoleProvider {
				t.Errorf("%+v", v)
			}
		},
		"pods leave first": func(t *testing.T, w *world) {
			w.a.pods = true
			w.a.book.disconnect()
			for range 5 {
				if problem := w.round(time.Second); problem != "" {
					t.Fatal(problem)
				}
			}
			if w.b.kube.Request == nil || w.a.reason(api.ConditionOutgoingPeering) != reason.Draining {
				t.Errorf("the provider takes the rights away while pods run there\n%s\n%s", w.a, w.b)
			}
			w.a.pods = false
			mustRest(t, w)
			w.wantClean(t)
		},
		"Liqo never lets go": func(t *testing.T, w *world) {
			w.a.stuck = true
			w.a.book.disconnect()
			ended := time.Time{}
			for range 60 {
				if problem := w.round(15 * time.Second); problem != "" {
					t.Fatal(problem)
				}
				switch ending := w.a.observe().View().Outgoing.Ending || w.b.kube.Request != nil; {
				case !ending && ended.IsZero():
					ended = w.now
				case ending && !ended.IsZero():
					t.Fatalf("it had ended, and ends again\n%s", w.a)
				}
			}
			if ended.IsZero() {
				t.Errorf("it ends for ever\n%s", w.a)
			}
		},
		"the provider ends it": func(t *testing.T, w *world) {
			w.b.deleteRequest()
			mustRest(t, w)
			w.wantClean(t)
			if got := w.a.reason(api.ConditionOutgoingPeering); got != reason.EndedByProvider {
				t.Errorf("A shows %s", got)
			}
		},
		"both directions": func(t *testing.T, w *world) {
			w.b.book.connect()
			mustRest(t, w)
			w.wantByLiqo(t)
			if !w.b.joined() || w.a.kube.Request.Spec.Engine != api.EngineLiqo {
				t.Errorf("%s\n%s", w.a, w.b)
			}
			w.a.book.disconnect()
			mustRest(t, w)
			if !w.b.joined() || w.a.joined() {
				t.Errorf("one direction ends the other\n%s\n%s", w.a, w.b)
			}
		},
		"a restart without the peer": func(t *testing.T, w *world) {
			w.link = false
			w.a.restart()
			w.b.restart()
			for range 10 {
				if problem := w.round(5 * time.Second); problem != "" {
					t.Fatal(problem)
				}
			}
			if !w.a.joined() || !w.a.liqo.Consuming.Present || w.a.liqo.Consuming.Busy || !w.b.liqo.Serving.Present {
				t.Errorf("unknown is gone\n%s\n%s", w.a, w.b)
			}
			w.link = true
			mustRest(t, w)
			w.wantByLiqo(t)
		},
		"connected while both start": func(t *testing.T, w *world) {
			w.a.book.disconnect()
			mustRest(t, w)
			w.a.restart()
			w.b.restart()
			w.a.book.connect()
			mustRest(t, w)
			w.wantByLiqo(t)
		},
		"the provider loses everything": func(t *testing.T, w *world) {
			w.b.wipe()
			for range 5 {
				if problem := w.round(time.Second); problem != "" {
					t.Fatal(problem)
				}
				if !*w.a.liqoSpec.Consume {
					t.Fatalf("a lost request undoes the virtual node\n%s\n%s", w.a, w.b)
				}
			}
			mustRest(t, w)
			w.wantByLiqo(t)
		},
		"the peer is lost": func(t *testing.T, w *world) {
			w.link = false
			for range 5 {
				w.pass(modelLostAfter)
				if problem := w.round(time.Second); problem != "" {
					t.Fatal(problem)
				}
			}
			if w.a.joined() || w.a.liqo.Consuming.Present || w.b.liqo.Serving.Present {
				t.Errorf("%s\n%s", w.a, w.b)
			}
			w.link = true
			mustRest(t, w)
			w.wantByLiqo(t)
		},
		"another engine for new peerings": func(t *testing.T, w *world) {
			w.a.engine.Setting = engine.OnlyBuiltin
			mustRest(t, w)
			w.wantByLiqo(t)
			c := w.a.own().Condition(api.ConditionEngine)
			if !strings.Contains(c.Message, "peering.engine is builtin here.") || !strings.Contains(c.Message, "disconnect the two clusters and connect them again") {
				t.Errorf("%+v", c)
			}
			w.a.book.disconnect()
			mustRest(t, w)
			w.a.book.connect()
			mustRest(t, w)
			w.wantBuiltin(t)
			// And back again: there is no switch while they are joined.
			w.a.engine.Setting = engine.OnlyLiqo
			mustRest(t, w)
			w.wantBuiltin(t)
			w.b.wipe()
			mustRest(t, w)
			w.wantBuiltin(t)
		},
		"Liqo is ill while joined": func(t *testing.T, w *world) {
			ill := *w.b.engine.Liqo
			ill.Problem = "not ready: liqo-webhook"
			w.b.engine.Liqo = &ill
			mustRest(t, w)
			w.wantByLiqo(t)
		},
		"nothing is used": func(t *testing.T, w *world) {
			w.a.sharing.Use = false
			mustRest(t, w)
			if !w.a.joined() || w.a.liqo.Consuming.Present || !strings.Contains(w.a.own().Condition(api.ConditionOutgoingPeering).Message, "sharing.use") {
				t.Errorf("%s", w.a)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := withLiqo(t)
			w.a.book.connect()
			mustRest(t, w)
			w.wantByLiqo(t)
			run(t, w)
		})
	}
}

// TestAcceptedForLess: who was accepted before Liqo peered clusters here is not peered by it without another
// question, and stays peered once it was.
func TestAcceptedForLess(t *testing.T) {
	w := withLiqo(t)
	w.b.book.ForLess = true
	w.a.book.connect()
	mustRest(t, w)
	if req := w.b.kube.Request; w.a.joined() || w.b.serves() || req.Status.Phase != api.RequestPending || req.Status.Reason != wire.ReasonAsksPerson || !strings.HasSuffix(req.Status.Message, "once more, to be peered by Liqo: liqo-agent peers accept "+peer.Reference(idA, "", "box")) {
		t.Fatalf("%+v\n%s\n%s", req, w.a, w.b)
	}
	w.b.book.ForLess = false
	mustRest(t, w)
	w.wantByLiqo(t)
	w.b.book.ForLess = true
	mustRest(t, w)
	w.wantByLiqo(t)
}

// TestBlind: while Liqo here cannot be looked at, a peering by the agents themselves ends in the end.
func TestBlind(t *testing.T) {
	w := newWorld()
	for _, s := range w.boxes() {
		s.pin()
	}
	mustRest(t, w)
	w.a.book.connect()
	mustRest(t, w)
	w.wantBuiltin(t)
	w.a.engine = engine.State{Setting: engine.Auto, Unknown: true}
	w.a.liqo.Consuming.Unknown, w.a.liqo.Serving.Unknown = true, true
	w.a.book.disconnect()
	for range 60 {
		if problem := w.round(15 * time.Second); problem != "" {
			t.Fatal(problem)
		}
	}
	if w.b.kube.Request != nil {
		t.Errorf("%s: the request is there\n%s", w.a.reason(api.ConditionOutgoingPeering), w.a)
	}
}

// TestCutByLiqo: a cluster that is blocked, or whose key is not trusted any more, has no way into the network while what
// there is of the peering ends; and none has if networks are not to be connected.
func TestCutByLiqo(t *testing.T) {
	w := withLiqo(t)
	w.a.book.connect()
	mustRest(t, w)
	w.wantByLiqo(t)
	for name, change := range map[string]func(*Observed){
		"":              func(*Observed) {},
		"blocked":       func(obs *Observed) { obs.Policy.Blocked = true },
		"distrusted":    func(obs *Observed) { obs.Policy.Distrusted = true },
		"off":           func(obs *Observed) { obs.Sharing.NoNetwork = true },
		"off and blind": func(obs *Observed) { obs.Sharing.NoNetwork, obs.RequestsKnown = true, false },
	} {
		obs := w.a.observe()
		change(&obs)
		if spec, _ := obs.LiqoSpec(w.now); spec.Cut != (name != "") {
			t.Errorf("%q: %+v", name, spec)
		}
	}
	// That its request is being deleted is no reason to go on with it.
	obs := w.b.observe()
	request := *obs.Request
	request.DeletionTimestamp = &metav1.Time{Time: w.now}
	obs.Request, obs.Policy.LastServed = &request, true
	for _, blocked := range []bool{false, true} {
		obs.Policy.Blocked = blocked
		if spec, _ := obs.LiqoSpec(w.now); blocked != (spec.Serve != nil) || blocked && *spec.Serve {
			t.Errorf("blocked %v, while the request is deleted: %+v", blocked, spec)
		}
	}
}

// TestEngineOfPair: who may not or cannot use Liqo is peered by the agents, or not at all if
// somebody insists.
func TestEngineOfPair(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(w *world)
		joined  bool
		message string // of OutgoingPeering, a part
	}{
		"no Liqo here":              {func(w *world) { w.a.engine.Liqo = nil }, true, ""},
		"no Liqo there":             {func(w *world) { w.b.engine = engine.State{} }, true, ""},
		"builtin there":             {func(w *world) { w.b.engine.Setting = engine.OnlyBuiltin }, true, ""},
		"another minor version":     {func(w *world) { w.b.engine.Liqo.Version = "v1.1.0" }, true, ""},
		"Liqo wanted, none there":   {func(w *world) { w.a.engine.Setting, w.b.engine.Liqo = engine.OnlyLiqo, nil }, false, "peering.engine is liqo here"},
		"Liqo wanted there, none":   {func(w *world) { w.b.engine.Setting, w.a.engine.Liqo = engine.OnlyLiqo, nil }, false, ""},
		"one wants Liqo, one never": {func(w *world) { w.a.engine.Setting, w.b.engine.Setting = engine.OnlyLiqo, engine.OnlyBuiltin }, false, "change one of the two"},
	} {
		w := withLiqo(t)
		c.change(w)
		w.a.book.connect()
		mustRest(t, w)
		if !c.joined {
			message := w.a.own().Condition(api.ConditionOutgoingPeering).Message
			if w.a.joined() || w.a.liqo.Consuming.Present || w.a.kube.Advertisement != nil || !strings.Contains(message, c.message) {
				t.Errorf("%s: %s\n%s", name, message, w.a)
			}
			continue
		}
		w.wantBuiltin(t)
	}
}

// TestShownByLiqo: what Liqo shows about a cluster is shown in the modules that it is about, and stays
// while it is not known.
func TestShownByLiqo(t *testing.T) {
	w := withLiqo(t)
	w.a.book.connect()
	mustRest(t, w)
	conditions := func(m api.Module) (all []string) {
		for _, c := range m.Conditions {
			all = append(all, c.Type+" "+string(c.Status)+" "+c.Reason)
		}
		return all
	}
	obs := w.a.observe()
	for _, why := range []string{"", "Liqo was installed without its networking."} {
		obs.Liqo.Consuming.Unconnected = why
		for _, shown := range [][]exchange.Shown{nil, {{Module: "networking", Type: "NetworkConnectionStatus", Status: "NotReady", Message: "It is missing."}}} {
			obs.Liqo.Consuming.Shown = shown
			want := cmp.Or(why, "That begins when one of them consumes the other.")
			if why == "" && shown != nil {
				want = "It is missing."
			}
			if n := derive(obs, w.now).modules(w.a.own()).Networking; n.Enabled || !strings.HasSuffix(n.Conditions[0].Message, want) {
				t.Errorf("without networking, %q: %+v", want, n)
			}
		}
	}
	obs.Liqo.Consuming.Shown = []exchange.Shown{
		{Type: "APIServerStatus", Status: "Established"}, {Module: "networking", Type: "NetworkConnectionStatus", Status: "Established"},
		{Module: "offloading", Type: "OffloadingNodeStatus", Status: "NotReady", Message: "It is not."}, {Module: "offloading", Type: "OffloadingVirtualNodeStatus"},
		{Module: "offloading", Type: "no word", Status: "Ready"}, {Module: "offloading", Type: "Other", Status: "no\nword"},
		{Module: "offloading", Type: ConditionVirtualNode, Status: "Ready"},
	}
	fc := w.a.own().DeepCopy()
	fc.Status.Modules = derive(obs, w.now).modules(fc)
	for range 2 {
		m := fc.Status.Modules
		for what, c := range map[string]struct {
			module api.Module
			want   []string
		}{
			"authentication": {m.Authentication, []string{ConditionIdentityStored + " True " + reason.Stored, "APIServerStatus True Established"}},
			"networking":     {m.Networking, []string{api.ConditionNetworkReady + " True " + reason.ByLiqo, "NetworkConnectionStatus True Established"}},
			"offloading":     {m.Offloading, []string{ConditionVirtualNode + " True " + reason.ByLiqo, "OffloadingNodeStatus False NotReady", "OffloadingVirtualNodeStatus Unknown None"}},
		} {
			if got := conditions(c.module); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", what, got, c.want)
			}
		}
		if !m.Networking.Enabled {
			t.Error("the network is not shown as connected")
		}
		// The agent is started again.
		obs.Liqo.Consuming.Shown, obs.Liqo.Consuming.Unknown = nil, true
		obs.Objects = []*api.ForeignCluster{fc}
		fc.Status.Modules = derive(obs, w.now).modules(fc)
	}
}

// TestOneEngine: a request by another engine than that by which this cluster consumes the peer waits,
// however often it was accepted before, and so does one while nobody knows what Liqo is here.
func TestOneEngine(t *testing.T) {
	for _, byLiqo := range []bool{true, false} {
		w := withLiqo(t)
		if !byLiqo {
			w.a.engine.Setting = engine.OnlyBuiltin
		}
		w.a.book.connect()
		mustRest(t, w)
		w.a.engine.Setting = engine.Auto
		for _, asked := range []api.PeeringEngine{"", api.EngineLiqo} {
			obs := w.a.observe()
			obs.Request = w.b.kube.Request.DeepCopy()
			obs.Request.Spec.Engine, obs.Request.Status = asked, api.PeeringRequestStatus{}
			obs.Policy.Accept = AcceptDecision{Phase: api.RequestAccepted, ByLiqo: true}
			d := derive(obs, w.now)
			if refused := d.decideRequest().Reason == reason.NoEngine; refused == (byLiqo == (asked == api.EngineLiqo)) {
				t.Errorf("consumed by Liqo: %t; a request by %q: %+v", byLiqo, asked, d.decideRequest())
			}
			if obs.Engine.Unknown = true; asked == api.EngineLiqo && derive(obs, w.now).decideRequest().Phase != api.RequestPending {
				t.Errorf("decided before it is known whether Liqo is here: %+v", derive(obs, w.now).decideRequest())
			}
		}
	}
}

// TestHostileEngine: what a peer says about its Liqo is refused or shown, and is never used as it is.
func TestHostileEngine(t *testing.T) {
	w := withLiqo(t)
	w.a.book.connect()
	mustRest(t, w)
	state := *w.a.remote.State
	for _, said := range []*wire.Engine{
		{Setting: "fun", Liqo: &wire.Liqo{ID: "../a"}}, {Liqo: &wire.Liqo{ID: strings.Repeat("x", 60), Version: strings.Repeat("v", 900)}}, {},
	} {
		state.Request, state.Engine = nil, said
		obs := w.a.observe()
		obs.Remote.State, obs.Liqo = &state, LiqoStatus{}
		d := derive(obs, w.now)
		if theirs := d.theirEngine(); theirs.Setting != "" || theirs.Liqo != nil && (theirs.Liqo.Problem == "" || len(theirs.Liqo.Version) > 64) {
			t.Errorf("%+v: %+v, %+v", said, theirs, theirs.Liqo)
		}
		if d.consumesByLiqo() {
			t.Errorf("%+v: by Liqo", said)
		}
	}
}

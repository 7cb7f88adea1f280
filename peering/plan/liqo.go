package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// LiqoStatus is what Liqo's controllers have between the two clusters. The zero value is that of
// a cluster without Liqo.
type LiqoStatus struct {
	Consuming, Serving exchange.Status
}

// None reports whether it is known that there is nothing.
func (s LiqoStatus) None() bool {
	return !s.Consuming.Present && !s.Consuming.Unknown && !s.Serving.Present && !s.Serving.Unknown
}

// LiqoSpec is the desired state of the two in Liqo.
type LiqoSpec struct {
	// Consume: this cluster consumes the peer by Liqo. Serve: the peer may consume this one by
	// Liqo. One that is nil is not known, and what there is stays.
	Consume, Serve *bool
	// Gone: the peer is given up. Cut: networks are not to be connected with the one of the peer, whatever else goes on.
	Gone, Cut bool
}

// LiqoSpec returns the desired state of the two in Liqo, and the target at which to call the
// provider. A target without a fingerprint cannot be called.
func (obs Observed) LiqoSpec(now time.Time) (LiqoSpec, peer.Target) {
	d := derive(obs, now)
	if !d.RequestsKnown {
		return LiqoSpec{Cut: d.cut()}, peer.Target{}
	}
	if d.Policy.Pin == nil || d.Policy.Distrusted || d.suspendedHere() {
		return d.liqoSpec(), peer.Target{ID: d.ID}
	}
	return d.liqoSpec(), d.target()
}

// liqoSpec returns the desired state of the two in Liqo.
func (d *derived) liqoSpec() LiqoSpec {
	out, in := d.outgoing, d.incoming
	spec := LiqoSpec{Gone: out.abandoned, Cut: d.cut()}
	// Unknown is never gone, and a provider that lost our request, or its decision, refuses nothing: what
	// there is stays, as a node does.
	consume := out.active && out.liqo && d.Sharing.Use && (out.accepted || d.Liqo.Consuming.Present && !d.refusedThere())
	if consume || !out.active || !d.Sharing.Use || d.refusedThere() || !d.Liqo.Consuming.Unknown {
		spec.Consume = &consume
	}
	if !in.missing || !in.keep || d.NotSharing {
		serve := in.liqo && in.serves && in.keep && !d.NotSharing
		spec.Serve = &serve
	}
	return spec
}

// cut reports whether the peer's network is not to be connected: it ends at once with the trust, as the agents' own does.
func (d *derived) cut() bool { return !d.trusted || d.Sharing.NoNetwork }

// theirEngine returns what the peer says about its engines.
func (d *derived) theirEngine() engine.State {
	state := d.remoteState()
	if state == nil || state.Engine == nil {
		return engine.State{}
	}
	said := engine.State{Unknown: state.Engine.Unknown}
	switch s := engine.Setting(state.Engine.Setting); s {
	case engine.Auto, engine.OnlyBuiltin, engine.OnlyLiqo:
		said.Setting = s
	}
	if l := state.Engine.Liqo; l != nil {
		said.Liqo = &engine.Installation{Version: text.Line(l.Version, 64), Problem: text.Sentence(l.Problem)}
		id, err := document.ParseClusterID(l.ID)
		if said.Liqo.ID = id; err != nil {
			said.Liqo.Problem = cmp.Or(said.Liqo.Problem, "it does not say by which ID")
		}
	}
	return said
}

// choice returns the engine for a peering that does not exist yet. Two clusters have one for both
// directions: what shares with one engine must not be shared again by the other one.
func (d *derived) choice() engine.Choice {
	theirs := d.theirEngine()
	c := engine.Choose(d.Engine, theirs)
	req := d.Request
	if req == nil || req.Status.Phase != api.RequestAccepted && (d.Policy.Accept.Phase != api.RequestAccepted || d.otherEngine() != "" || d.acceptedForLess()) {
		return c
	}
	const both = "Two clusters are peered by one engine: to change it, end the peering in the other direction first."
	switch byLiqo := req.Spec.Engine == api.EngineLiqo; {
	case byLiqo && c.Engine != engine.Liqo:
		return engine.Choice{Engine: engine.Liqo, Blocked: true, Why: "The cluster consumes this one by Liqo, which cannot be used in this direction. " + c.Why + " " + both}
	case byLiqo:
		return c
	case d.Engine.Setting == engine.OnlyLiqo, theirs.Setting == engine.OnlyLiqo:
		return engine.Choice{Engine: engine.Liqo, Blocked: true, Why: "The cluster consumes this one by the agents' own sharing, and peering.engine is liqo. " + both}
	case c.Engine == engine.Liqo:
		return engine.Choice{Engine: engine.Builtin, Why: "The cluster consumes this one by the agents' own sharing. " + both}
	}
	return c
}

// consumesByLiqo reports whether the outgoing peering is by Liqo: as the request says, or what is
// here of a request that is lost, or else as is chosen.
func (d *derived) consumesByLiqo() bool {
	state := d.remoteState()
	switch {
	case d.Engine.Setting == engine.OnlyBuiltin && !d.Liqo.Consuming.Present:
		return false // whatever the provider says of our request
	case state != nil && state.Request != nil:
		return state.Request.Spec.Engine == api.EngineLiqo
	case d.Liqo.Consuming.Present || d.consumesBuiltin():
		return d.Liqo.Consuming.Present
	}
	return state != nil && d.choice().Engine == engine.Liqo
}

// consumesBuiltin reports whether something of a peering by the agents themselves is here.
func (d *derived) consumesBuiltin() bool { return d.Advertisement != nil || d.Node.Name != "" }

// engineUnknown reports whether one of the two has not looked for its Liqo yet, or this one for what
// there is of a peering, and that matters.
func (d *derived) engineUnknown() bool {
	ours := d.Engine
	return d.Liqo.Consuming.Unknown || ours.Setting != engine.OnlyBuiltin && (ours.Unknown || ours.May() && d.theirEngine().Unknown)
}

// awaitsEngine reports whether no request can be made, because the engine is not decided.
func (d *derived) awaitsEngine() bool {
	state := d.remoteState()
	switch {
	case state == nil:
		return d.engineUnknown() || d.Engine.May()
	case state.Request != nil || d.Liqo.Consuming.Present || d.consumesBuiltin():
		return false
	}
	return d.engineUnknown() || d.choice().Blocked
}

// engineAgain returns after how long to look again whether the engine is decided, 0: never.
func (d *derived) engineAgain() time.Duration {
	if d.outgoing.active && !d.outgoing.requested && d.engineUnknown() {
		return 500 * time.Millisecond
	}
	return 0
}

// engineAwaitedVerdict is for a peering whose engine is not decided.
func (d *derived) engineAwaitedVerdict() *verdict {
	if d.engineUnknown() {
		return no(reason.Asking, "The two clusters are finding out whether both run Liqo.")
	}
	return no(reason.NoEngine, d.choice().Why)
}

// otherEngine returns why the peer's request asks for an engine that cannot serve it, a sentence;
// "" if it can, or does already.
func (d *derived) otherEngine() string {
	req := d.Request
	if req.Status.Phase == api.RequestAccepted {
		return ""
	}
	byLiqo, here := req.Spec.Engine == api.EngineLiqo, d.Engine.Liqo
	state := d.remoteState()
	accepted := state != nil && state.Request != nil && state.Request.Phase == api.RequestAccepted
	switch {
	case byLiqo && (d.consumesBuiltin() || accepted && state.Request.Spec.Engine != api.EngineLiqo),
		!byLiqo && (d.Liqo.Consuming.Present || accepted && state.Request.Spec.Engine == api.EngineLiqo):
		return "The provider consumes this cluster by the other engine, and two clusters are peered by one: disconnect them in both directions, and connect them again."
	case !byLiqo && d.Engine.Setting == engine.OnlyLiqo:
		return "The provider peers by Liqo only (peering.engine)."
	case !byLiqo:
		return ""
	case d.Engine.Setting == engine.OnlyBuiltin:
		return "The provider does not peer by Liqo (peering.engine)."
	case d.Engine.Unknown:
		return "The provider has not found out yet whether it runs Liqo."
	case here == nil:
		return "Liqo is not installed at the provider."
	case here.Problem != "":
		return "Liqo at the provider cannot be used: " + here.Problem + "."
	}
	return ""
}

// acceptedForLess reports whether the peer was accepted for the agents' own sharing, and asks to be peered by
// Liqo now.
func (d *derived) acceptedForLess() bool {
	accept, req := d.Policy.Accept, d.Request
	return accept.Phase == api.RequestAccepted && !accept.ByLiqo && req.Spec.Engine == api.EngineLiqo && req.Status.Phase != api.RequestAccepted
}

// engineVerdict returns the content of the condition Engine: what peers the two clusters, and why.
// Without Liqo there is none.
func (d *derived) engineVerdict() *verdict {
	theirs, out, in := d.theirEngine(), d.outgoing, d.incoming
	switch shown := d.shown.Condition(api.ConditionEngine); {
	case !out.active && !out.draining && !in.keep:
		return nil
	case d.remoteState() == nil || d.Engine.Unknown || theirs.Unknown:
		// What one of the two has is not known now: what is shown stays.
		if shown == nil {
			return nil
		}
		return &verdict{shown.Status, shown.Reason, shown.Message}
	case d.Engine.Liqo == nil && theirs.Liqo == nil && d.Engine.Setting != engine.OnlyLiqo && theirs.Setting != engine.OnlyLiqo:
		return nil
	}
	established := out.requested && (out.active || out.draining) || in.keep
	used, choice := engine.Builtin, engine.Choose(d.Engine, theirs)
	if !established {
		choice = d.choice()
		used = choice.Engine
	} else if d.byLiqo() {
		used = engine.Liqo
	}
	why := choice.Why
	switch {
	case !established && choice.Blocked:
		return no(reason.NoEngine, why)
	case used != choice.Engine || choice.Blocked:
		why = "The peering was made by it. For a new one: " + why + " To use that, disconnect the two clusters and connect them again."
	}
	if used == engine.Liqo {
		return yes(reason.ByLiqo, "Liqo peers the two clusters. "+why)
	}
	return yes(reason.Builtin, "The agents peer the two clusters. "+why)
}

// liqoWorks returns why Liqo has not peered the two clusters yet.
func (d *derived) liqoWorks(s exchange.Status) *verdict {
	switch here := d.Engine.Liqo; {
	case here == nil && !d.Engine.Unknown:
		return no(reason.AwaitingLiqo, "Liqo is not installed here.")
	case here != nil && here.Problem != "":
		return no(reason.AwaitingLiqo, "Liqo here cannot be used: "+here.Problem+".")
	}
	return no(cmp.Or(s.Reason, reason.AwaitingLiqo), cmp.Or(s.Message, "Liqo is about to peer the two clusters."))
}

// liqoJoinedMessage is for a peering that Liqo has made.
func (d *derived) liqoJoinedMessage() string {
	message := "Liqo has peered the two clusters."
	switch s := d.Liqo.Consuming; {
	case !d.Sharing.Use:
		message = "The provider accepted our request."
	case s.Ready || s.Message == "":
	default:
		message += " " + s.Message
	}
	return message
}

// liqoServingVerdict is for an accepted request of a consumer that uses Liqo, which answers.
func (d *derived) liqoServingVerdict(in incoming) *verdict {
	s := d.Liqo.Serving
	if in.joined {
		message := "The request is accepted, and Liqo has peered the two clusters."
		if !s.Ready && s.Message != "" {
			message += " " + s.Message
		}
		return yes(reason.Joined, message)
	}
	v := d.liqoWorks(s)
	return no(v.reason, "The request is accepted. "+v.message)
}

// liqoOffloading is the module offloading of a provider that is used by Liqo.
func (d *derived) liqoOffloading(shown api.Module) api.Module {
	v := yes(reason.ByLiqo, "Liqo makes the virtual node.")
	if s := d.Liqo.Consuming; !s.Ready {
		v = d.liqoWorks(s)
	}
	return api.Module{Enabled: d.outgoing.joined, Conditions: []api.Condition{v.condition(ConditionVirtualNode, shown.Conditions, d.now)}}
}

// byLiqo reports whether a peering between the two is by Liqo.
func (d *derived) byLiqo() bool {
	return d.outgoing.liqo && d.outgoing.requested || d.incoming.liqo && d.incoming.keep
}

// liqoShown is what Liqo shows about the cluster.
func (d *derived) liqoShown() []exchange.Shown {
	if shown := d.Liqo.Consuming.Shown; shown != nil {
		return shown
	}
	return d.Liqo.Serving.Shown
}

// The modules of Liqo's ForeignCluster, and the words of its conditions (apis/core/v1beta1).
const (
	liqoNetworkingModule, liqoOffloadingModule = "networking", "offloading"
	liqoReady, liqoPending, liqoNone           = "Ready", "Pending", "None"
)

// liqoNetworking is the content of the condition NetworkReady where Liqo peers the two.
func (d *derived) liqoNetworking() spec.Network {
	if d.liqoUnseen() {
		return spec.Network{Status: api.ConditionUnknown, Reason: reason.ByLiqo, Message: "Liqo has not been asked yet."}
	}
	why := cmp.Or(d.Liqo.Consuming.Unconnected, d.Liqo.Serving.Unconnected)
	for _, s := range d.liqoShown() {
		if s.Type != exchange.ShownConnection {
			continue
		}
		if s.Status == exchange.Established {
			return spec.Network{Enabled: true, Status: api.ConditionTrue, Reason: reason.ByLiqo, Message: "Liqo connects the networks of the two clusters."}
		}
		if why != "" {
			break
		}
		return spec.Network{Status: api.ConditionFalse, Reason: reason.ByLiqo,
			Message: strings.TrimSpace("Liqo does not connect the networks of the two clusters now: " + cmp.Or(s.Status, liqoNone) + ". " + s.Message)}
	}
	return spec.Network{Status: api.ConditionFalse, Reason: reason.ByLiqo,
		Message: "Liqo peers the two clusters, and does not connect their networks. " + cmp.Or(why, "That begins when one of them consumes the other.")}
}

// liqoUnseen reports whether what Liqo shows about the cluster is not known yet.
func (d *derived) liqoUnseen() bool {
	return d.liqoShown() == nil && (d.Liqo.Consuming.Unknown || d.Liqo.Serving.Unknown)
}

// addLiqo adds the conditions that Liqo shows to the modules that they are about, and keeps them while
// they are not known.
func (d *derived) addLiqo(m *api.Modules, before api.Modules) {
	if !d.byLiqo() {
		return
	}
	add := func(module *api.Module, shown []api.Condition, c api.Condition) {
		if !slices.ContainsFunc(module.Conditions, func(o api.Condition) bool { return o.Type == c.Type }) {
			c.KeepTransition(shown)
			module.Conditions = append(module.Conditions, c)
		}
	}
	if d.liqoUnseen() {
		for _, pair := range [][2]*api.Module{{&m.Authentication, &before.Authentication}, {&m.Networking, &before.Networking}, {&m.Offloading, &before.Offloading}} {
			for _, c := range pair[1].Conditions {
				add(pair[0], pair[1].Conditions, c)
			}
		}
		return
	}
	for _, s := range d.liqoShown() {
		v := verdict{api.ConditionFalse, cmp.Or(s.Status, liqoNone), cmp.Or(s.Message, "Liqo says so.")}
		switch v.reason {
		case exchange.Established, liqoReady:
			v.status = api.ConditionTrue
		case liqoPending, liqoNone:
			v.status = api.ConditionUnknown
		}
		if !conditionWord(s.Type) || !conditionWord(v.reason) {
			continue
		}
		switch c := v.condition(s.Type, nil, d.now); s.Module {
		case liqoNetworkingModule:
			add(&m.Networking, before.Networking.Conditions, c)
		case liqoOffloadingModule:
			add(&m.Offloading, before.Offloading.Conditions, c)
		default:
			add(&m.Authentication, before.Authentication.Conditions, c)
		}
	}
}

// conditionWord reports whether a word can be a type or a reason of a condition.
func conditionWord(s string) bool {
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) < 0
}

// liqoSteps are the steps of a consumer after its request is accepted.
func (d *derived) liqoSteps() []Step {
	steps := d.Liqo.Consuming.Steps
	if steps == nil {
		steps = exchange.PlanConsumer(exchange.Consumer{Wanted: true}).Steps
	}
	var out []Step
	for _, s := range steps {
		out = append(out, Step{Name: s.Name, Text: s.Text, Done: s.Done})
	}
	return out
}

// answeredEngine is what the peer is told about our engines; nil if that is only ours.
func (obs Observed) answeredEngine() *wire.Engine {
	ours := obs.Engine
	if ours.Liqo == nil && ours.Setting != engine.OnlyLiqo && !ours.Unknown {
		return nil
	}
	said := &wire.Engine{Setting: string(ours.Setting), Unknown: ours.Unknown}
	if here := ours.Liqo; here != nil {
		said.Liqo = &wire.Liqo{ID: string(here.ID), Version: here.Version, Problem: here.Problem}
	}
	return said
}

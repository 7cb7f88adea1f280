package plan

import (
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// TestKeepalive: a node stays ready until as many checks failed as may, and these
// come one after another as is configured.
func TestKeepalive(t *testing.T) {
	w := peered(t)
	base := w.a.observe()
	base.Sharing.KeepaliveThreshold, base.Sharing.KeepaliveRetry = 3, 5*time.Second
	now := base.Remote.At.Add(time.Minute)
	for _, tc := range []struct {
		name      string
		quiet     time.Duration
		tried     time.Duration // ago
		threshold int
		ready     bool
		check     bool
		again     time.Duration
	}{
		{"there", 0, 20 * time.Second, 3, true, false, 0},
		{"the first check failed", 1, time.Second, 3, true, false, 4 * time.Second},
		{"the second one is due", 5 * time.Second, 5 * time.Second, 3, true, true, 5 * time.Second},
		{"the last one is soon", 9 * time.Second, 4 * time.Second, 3, true, false, time.Second},
		{"three failed", 10 * time.Second, 0, 3, false, false, 0},
		{"one is enough", 1, 0, 1, false, false, 0},
	} {
		obs := base.change(func(obs *Observed) {
			obs.Quiet, obs.Sharing.KeepaliveThreshold, obs.Remote.Tried = tc.quiet, tc.threshold, now.Add(-tc.tried)
		})
		d := Plan(obs, now)
		p, _ := obs.NodeSpec(now)
		if p.Reachable != tc.ready || !p.Wanted || d.Check != tc.check || d.Again.Round(time.Second) != tc.again || p.Reachable != (p.Why == "") {
			t.Errorf("%s: %+v, check %v, again %s", tc.name, p, d.Check, d.Again)
		}
	}
	// Without a node nobody is in a hurry.
	obs := bothWays(t)
	obs.Objects, obs.Quiet = nil, time.Second
	if d := Plan(obs, now); d.Check {
		t.Error("it checks a cluster that is not used")
	}
}

// unlooked has nobody have looked yet whether there is a node, of which the Advertisement shows one or not.
func unlooked(shown bool) seen {
	return func(obs *Observed) {
		obs.Node, obs.NodeKnown = spec.NodeStatus{Busy: true, Unknown: true}, false
		adv := *obs.Advertisement
		if adv.Status.VnodeReference = nil; shown {
			adv.Status.VnodeReference = &api.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "liqo-b"}
		}
		obs.Advertisement = &adv
	}
}

// TestProvision says what is asked of whom turns peerings into nodes.
func TestProvision(t *testing.T) {
	w := peered(t)
	base := w.a.observe()
	quiet := both(unreachable, func(obs *Observed) { obs.Quiet = time.Hour })
	for _, tc := range []struct {
		name                           string
		change                         seen
		wanted, offer, gone, reachable bool
	}{
		{"joined", func(*Observed) {}, true, true, false, true},
		{"away", quiet, true, true, false, false},
		{"away, the offer ended", both(quiet, func(obs *Observed) { obs.OfferExpired = true }), true, false, false, false},
		{"there, the offer ended", func(obs *Observed) { obs.OfferExpired = true }, false, false, false, true},
		{"its API server is down", both(down, func(obs *Observed) { obs.Quiet = time.Hour }), true, true, false, false},
		{"nothing heard since the start", silent, true, true, false, true},
		{"our request got lost there", noRequest, true, true, false, true},
		{"held back there", phase(api.RequestPending, ""), true, true, false, true},
		{"refused there", phase(api.RequestRefused, ""), false, false, false, true},
		{"refused there, no node", both(noRequest, func(obs *Observed) { obs.Node = spec.NodeStatus{} }), false, false, false, true},
		{"our request got lost there, nobody has looked here since the start", both(noRequest, unlooked(true)), true, true, false, true},
		{"the same, and no node is shown", both(noRequest, unlooked(false)), false, false, false, true},
		{"shut out", denied(wire.ReasonBlocked), false, false, false, false},
		{"shut out for long", both(denied(wire.ReasonBlocked), func(obs *Observed) { obs.Draining = time.Hour }), false, false, true, false},
		{"the offer is withdrawn", noOffer, false, false, false, true},
		{"not used", func(obs *Observed) { obs.Sharing.Use = false }, false, false, false, true},
		{"not used for long", func(obs *Observed) { obs.Sharing.Use, obs.Draining = false, time.Hour }, false, false, false, true},
		{"unwished", unwished, false, false, false, true},
		{"unwished for long", both(unwished, func(obs *Observed) { obs.Draining = obs.Sharing.DrainTimeout + drainSlack }), false, false, true, true},
		{"unwished, away", both(unwished, quiet), false, false, false, false},
		{"blocked", blocked, false, false, false, true},
		{"blocked, away", both(blocked, quiet), false, false, true, false},
		{"not trusted", unpinned, false, false, true, true},
		{"distrusted", distrusted, false, false, true, true},
		{"lost", both(lost, func(obs *Observed) { obs.Quiet = time.Hour }), false, false, true, false},
	} {
		p, target := base.change(tc.change).NodeSpec(t0)
		if p.Wanted != tc.wanted || (p.Offer != nil) != tc.offer || p.Gone != tc.gone || p.Reachable != tc.reachable || (p.Why == "") != p.Reachable {
			t.Errorf("%s: %+v", tc.name, p)
		}
		if trusts := tc.name != "not trusted" && tc.name != "distrusted"; target.Fingerprint.IsZero() == trusts || p.ID != idB {
			t.Errorf("%s: target %+v", tc.name, target)
		}
	}
}

// TestNetworkIsShown: the condition says how the network to the peer is, as long as there is a
// peering, and what it says stays while nothing is known.
func TestNetworkIsShown(t *testing.T) {
	w := used(t)
	connecting := spec.Network{Enabled: true, Status: api.ConditionUnknown, Reason: reason.Connecting, Message: "Soon."}
	for _, tc := range []struct {
		name    string
		network spec.Network
		want    string
		enabled bool
	}{
		{"nothing is shared", spec.Network{}, "False NotShared", false},
		{"connected", spec.Network{Enabled: true, Status: api.ConditionTrue, Reason: reason.Connected, Message: "Yes."}, "True Connected", true},
		{"the agent was restarted", connecting, "True Connected", true},
		{"down", spec.Network{Enabled: true, Status: api.ConditionFalse, Reason: reason.NetworkDown, Message: "No."}, "False NetworkDown", true},
		{"off", spec.Network{Status: api.ConditionFalse, Reason: reason.Off, Message: "Off."}, "False Off", false},
	} {
		w.a.network = tc.network
		mustRest(t, w)
		status := w.a.own().Status
		c, module := w.a.own().Condition(api.ConditionNetworkReady), status.Modules.Networking
		if got := string(c.Status) + " " + c.Reason; got != tc.want || c.Message == "" {
			t.Errorf("%s: %+v, want %s", tc.name, c, tc.want)
		}
		if module.Enabled != tc.enabled || len(module.Conditions) != 1 || module.Conditions[0].Reason != c.Reason || module.Conditions[0].Type != c.Type {
			t.Errorf("%s: the module is %+v", tc.name, module)
		}
	}
	fresh := peered(t)
	fresh.a.own().Status.Conditions, fresh.a.own().Status.Modules = nil, api.Modules{}
	fresh.a.network = connecting
	mustRest(t, fresh)
	if c := fresh.a.own().Condition(api.ConditionNetworkReady); c.Status != api.ConditionUnknown || c.Reason != reason.Connecting {
		t.Errorf("before anything is known: %+v", c)
	}
}

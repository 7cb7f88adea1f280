package plan

import (
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

func done(steps []Step) string {
	var out []string
	for _, s := range steps {
		if s.Done {
			out = append(out, s.Name)
		}
	}
	return strings.Join(out, " ")
}

// TestViewFollowsAConnection watches a connection come into being, as somebody on
// the command line would: no step is undone, and the last one comes with the
// condition.
func TestViewFollowsAConnection(t *testing.T) {
	w := newWorld()
	mustRest(t, w)
	w.a.book.connect()
	mustRest(t, w)
	v := w.a.observe().View()
	if got := done(v.Outgoing.Steps); got != "reachable" || !v.Outgoing.Wanted || v.Outgoing.Reason != reason.AwaitingTrust || v.Role != api.RoleUnknown {
		t.Fatalf("untrusted: %q %+v", got, v.Outgoing)
	}
	w.a.pin()
	w.b.book.Accept = api.RequestPending
	mustRest(t, w)
	if v = w.a.observe().View(); done(v.Outgoing.Steps) != "reachable trusted identity" || v.Outgoing.Reason != reason.AwaitingAcceptance {
		t.Fatalf("asking: %+v", v.Outgoing)
	}
	w.b.pin()
	mustRest(t, w)
	if v = w.a.observe().View(); done(v.Outgoing.Steps) != "reachable trusted let-in identity requested" || v.Outgoing.Reason != reason.AwaitingAcceptance {
		t.Fatalf("pending: %+v", v.Outgoing)
	}
	if in := w.b.observe().View().Incoming; done(in.Steps) != "reachable trusted requested" || in.Reason != reason.AwaitingDecision || !in.Wanted || in.Joined {
		t.Fatalf("pending, there: %+v", in)
	}
	w.b.book.accept()
	before := len(strings.Fields(done(v.Outgoing.Steps)))
	for range 10 {
		if problem := w.round(1); problem != "" {
			t.Fatal(problem)
		}
		v = w.a.observe().View()
		steps := done(v.Outgoing.Steps)
		if n := len(strings.Fields(steps)); n < before {
			t.Errorf("a step was undone: %s", steps)
		} else {
			before = n
		}
		if all := strings.HasSuffix(steps, StepOfferAccepted) && strings.Contains(steps, " "+StepAccepted+" "); all != v.Outgoing.Joined || v.Outgoing.Joined != (v.Outgoing.Reason == reason.Joined) {
			t.Errorf("%q and %+v", steps, v.Outgoing)
		}
	}
	all := "reachable trusted let-in identity requested accepted offered offer-accepted"
	if got := done(v.Outgoing.Steps); got != all || v.Role != api.RoleProvider || v.Outgoing.Since.IsZero() {
		t.Errorf("joined: %q %+v", got, v)
	}
	if v := w.b.observe().View(); done(v.Incoming.Steps) != "reachable trusted requested accepted identity offered offer-accepted" || v.Role != api.RoleConsumer || !v.Incoming.Joined || v.Outgoing.Reason != "" {
		t.Errorf("serving: %+v", v)
	}
}

func TestViewWithoutAnAPIServer(t *testing.T) {
	w := peered(t)
	w.a.apiUp = false
	v := w.a.observe().View()
	for _, d := range []Direction{v.Outgoing, v.Incoming} {
		if d.Reason != reason.Unknown || d.Message == "" || d.Joined {
			t.Errorf("%+v", d)
		}
	}
	if !v.Outgoing.Wanted || done(v.Outgoing.Steps) != "reachable trusted" {
		t.Errorf("%+v", v.Outgoing)
	}
}

func TestAnswer(t *testing.T) {
	obs := bothWays(t)
	for _, tc := range []struct {
		name     string
		change   seen
		consumes bool
		welcome  bool
	}{
		{"joined", func(*Observed) {}, true, true},
		{"away", unreachable, true, true},
		{"lost, and wished for", lost, true, false},
		{"no object yet", both(func(obs *Observed) { obs.Objects = nil }, unreachable), true, true},
		{"unwished", unwished, false, false},
		{"blocked", blocked, false, false},
		{"not trusted", unpinned, false, false},
		{"just edited", func(obs *Observed) {
			obs.Objects[0].Spec.Join = false
			obs.Owners[obs.Objects[0].Name] = fields.Owners{Join: fields.Owner{Manager: "kubectl", Stamp: "new"}}
		}, false, false},
	} {
		got := obs.change(tc.change).Answer()
		if !got.Kubernetes || got.Consumes != tc.consumes || got.AdvertisementWelcome != tc.welcome || got.Request == nil || got.Advertisement == nil {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	got := obs.change(func(obs *Observed) { obs.Request, obs.Advertisement, obs.Policy.Ended = nil, nil, "Enough." }).Answer()
	if got.Request != nil || got.Advertisement != nil || got.Ended != "Enough." {
		t.Errorf("ended: %+v", got)
	}
	if got := obs.change(func(obs *Observed) { obs.Policy.Ended = "Enough." }).Answer(); got.Ended != "" || got.Request.UID == "" {
		t.Errorf("a request that is there was not ended: %+v", got)
	}
	// What somebody deleted has ended before the decision store knows.
	got = obs.change(both(func(obs *Observed) { obs.Request, obs.Policy.LastServed = nil, true }, deleted(DeletedByPerson))).Answer()
	if got.Request != nil || got.Ended != endedHere {
		t.Errorf("deleted a moment ago: %+v", got)
	}
	got = obs.change(both(func(obs *Observed) { obs.Request, obs.Policy.LastServed = nil, true }, deleted(DeletedByPeer))).Answer()
	if got.Request != nil || got.Ended != "" {
		t.Errorf("taken back by the peer: %+v", got)
	}
	got = obs.change(func(obs *Observed) { obs.RequestsKnown = false }).Answer()
	if got.Kubernetes || got.Consumes || got.Request != nil || got.Identity != obs.Self.Identity {
		t.Errorf("without an API server: %+v", got)
	}
}

// TestCommandsMeanOurKind: with Liqo in the same cluster, a ForeignCluster without its group is one of Liqo's.
func TestCommandsMeanOurKind(t *testing.T) {
	w := newWorld()
	w.a.book.connect()
	mustRest(t, w)
	f := derive(w.a.observe(), t0)
	f.Policy.Ask = &Ask{Fingerprint: f.Peer.Fingerprint, Code: "1234", From: "192.0.2.7"}
	for _, message := range []string{w.a.own().Condition(api.ConditionOutgoingPeering).Message, f.askVerdict(w.a.own()).message} {
		if n := strings.Count(message, "kubectl patch foreignclusters.discovery.liqo.io "+string(idB)+" "); n == 0 || n != strings.Count(message, "kubectl ") {
			t.Error(message)
		}
	}
}

// TestNamesInCommands: what a peer calls itself is about to be pasted into a
// shell.
func TestNamesInCommands(t *testing.T) {
	for _, tc := range []struct{ alias, name, want string }{
		{"", "barn", "barn"},
		{"mine", "barn", "mine"},
		{"my barn", "barn", "barn"},
		{"", "$(reboot)", string(idB)},
		{"", "-rf", string(idB)},
		{"", "", string(idB)},
	} {
		f := derive(Observed{ID: idB, Peer: &peer.Peer{ID: idB, Alias: tc.alias, Name: tc.name}}, t0)
		if got := f.commandName(); got != tc.want {
			t.Errorf("alias %q, name %q: %q", tc.alias, tc.name, got)
		}
	}
}

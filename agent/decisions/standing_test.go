package decisions

import (
	"crypto/x509"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// pinnedBy is a record of a peer that is trusted in a way.
func pinnedBy(m peer.TrustMethod) record {
	return record{Ruling: state.Ruling{Pin: state.Pin{Pin: peer.Pin{ID: barn, Fingerprint: peer.Fingerprint{1}, Method: m}}}}
}

func with(r record, edits ...func(*record)) record {
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func TestConnect(t *testing.T) {
	blocked := func(r *record) { r.Preferences.Blocked = state.Yes }
	yes := func(r *record) { r.Preferences.AutoConnect = state.Yes }
	no := func(r *record) { r.Preferences.AutoConnect = state.No }
	once := func(r *record) { r.Peering.Once = true }
	hungUp := func(r *record) { r.Peering.HungUp = true }
	ended := func(r *record) { r.Peering.EndedByPeer = "tired" }
	person := pinnedBy(peer.TrustPerson)
	says := func(connect string, p Policy) Policy {
		p.Static = []config.StaticPeer{{ID: string(barn), Connect: connect}}
		return p
	}
	join := Policy{Autojoin: true}
	untrusted := Policy{AutojoinUntrusted: true}
	for _, tc := range []struct {
		name   string
		record record
		policy Policy
		want   plan.Tristate
		why    string
	}{
		{"nobody said anything", person, join, plan.Unset, ""},
		{"unknown", record{}, join, plan.Unset, ""},
		{"unknown, untrusted ones are joined", record{}, untrusted, plan.Unset, ""},
		{"by invite", pinnedBy(peer.TrustInvite), join, plan.Unset, ""},
		{"fleet", pinnedBy(peer.TrustFleet), join, plan.Yes, "FleetCA"},
		{"static", pinnedBy(peer.TrustStatic), join, plan.Yes, "StaticPeer"},
		{"roots", pinnedBy(peer.TrustRoots), join, plan.Yes, "SystemRoots"},
		{"open", pinnedBy(peer.TrustOpen), join, plan.Yes, "whoever comes first"},
		{"fleet, autojoin off", pinnedBy(peer.TrustFleet), Policy{}, plan.Unset, ""},
		{"fleet, only untrusted ones are joined", pinnedBy(peer.TrustFleet), untrusted, plan.Unset, ""},
		{"open, autojoin off", pinnedBy(peer.TrustOpen), Policy{}, plan.Unset, ""},
		{"open, untrusted ones are joined", pinnedBy(peer.TrustOpen), untrusted, plan.Yes, "autojoin_untrusted"},
		{"yes", with(person, yes), Policy{}, plan.Yes, "remembered"},
		{"yes, not trusted", with(record{}, yes), Policy{}, plan.Yes, "remembered"},
		{"no beats autojoin", with(pinnedBy(peer.TrustFleet), no), join, plan.No, "disconnected"},
		{"no beats auto", with(person, no), says("auto", join), plan.No, "disconnected"},
		{"auto", person, says("auto", Policy{}), plan.Yes, "configuration"},
		{"auto, not trusted", record{}, says("auto", Policy{}), plan.Yes, "configuration"},
		{"never beats yes", with(person, yes), says("never", join), plan.No, "never"},
		{"never beats once", with(person, once), says("never", join), plan.No, "never"},
		{"never beats autojoin", pinnedBy(peer.TrustStatic), says("never", join), plan.No, "never"},
		{"once", with(person, once), Policy{}, plan.Yes, "once"},
		{"once beats no", with(person, once, no), Policy{}, plan.Yes, "once"},
		{"hung up beats yes", with(person, yes, hungUp), Policy{}, plan.No, "deleted"},
		{"hung up beats auto", with(person, hungUp), says("auto", join), plan.No, "deleted"},
		{"hung up beats autojoin", with(pinnedBy(peer.TrustFleet), hungUp), join, plan.No, "deleted"},
		{"ended by peer beats yes", with(person, yes, ended), Policy{}, plan.No, "tired"},
		{"ended by peer beats auto", with(person, ended), says("auto", join), plan.No, "tired"},
		{"ended by peer beats autojoin", with(pinnedBy(peer.TrustFleet), ended), join, plan.No, "tired"},
		{"blocked beats yes", with(person, yes, blocked), Policy{}, plan.No, "blocked"},
		{"blocked beats auto", with(person, blocked), says("auto", join), plan.No, "blocked"},
		{"blocked beats once", with(person, once, blocked), Policy{}, plan.No, "blocked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := compile(tc.policy)
			must(t, err)
			wish, why := connectOf(barn, tc.record, p, peer.Peer{})
			if wish != tc.want || (why == "") != (wish == plan.Unset) || !strings.Contains(why, tc.why) {
				t.Errorf("%v because %q, want %v because of %q", wish, why, tc.want, tc.why)
			}
			// What is said about another peer does not matter.
			if wish, _ := connectOf(silo, record{}, p, peer.Peer{}); wish != plan.Unset {
				t.Errorf("another peer: %v", wish)
			}
		})
	}
}

func TestAccept(t *testing.T) {
	blocked := func(r *record) { r.Preferences.Blocked = state.Yes }
	yes := func(r *record) { r.Preferences.AutoAccept = state.Yes }
	no := func(r *record) { r.Preferences.AutoAccept = state.No }
	rejected := func(r *record) { r.Peering.Rejected = peer.Fingerprint{1} }
	rejectedOther := func(r *record) { r.Peering.Rejected = peer.Fingerprint{2} }
	distrusted := func(r *record) { r.Pin, r.Distrust = state.Pin{}, state.Distrust{By: "alice"} }
	person := pinnedBy(peer.TrustPerson)
	const accepted, pending, refused = api.RequestAccepted, api.RequestPending, api.RequestRefused
	for _, tc := range []struct {
		name           string
		record         record
		accept, static string
		want           api.RequestPhase
		reason         string
	}{
		{"ask", person, "ask", "", pending, wire.ReasonAsksPerson},
		{"trusted", person, "trusted", "", accepted, ReasonPolicy},
		{"all", person, "all", "", accepted, ReasonPolicy},
		{"none", person, "none", "", refused, wire.ReasonPolicyNone},
		{"not trusted, all", record{}, "all", "", refused, wire.ReasonNotTrusted},
		{"not trusted, yes", with(record{}, yes), "all", "auto", refused, wire.ReasonNotTrusted},
		{"distrusted", with(person, distrusted, yes), "all", "auto", refused, wire.ReasonNotTrusted},
		{"yes", with(person, yes), "ask", "", accepted, ReasonAccepted},
		{"yes beats none", with(person, yes), "none", "", accepted, ReasonAccepted},
		{"no beats all", with(person, no), "all", "", pending, wire.ReasonAsksPerson},
		{"no beats auto", with(person, no), "all", "auto", pending, wire.ReasonAsksPerson},
		{"auto", person, "ask", "auto", accepted, ReasonStatic},
		{"auto beats none", person, "none", "auto", accepted, ReasonStatic},
		{"never beats yes", with(person, yes), "all", "never", refused, ReasonStatic},
		{"rejected beats all", with(person, rejected), "all", "", refused, ReasonRejected},
		{"rejected beats auto", with(person, rejected), "all", "auto", refused, ReasonRejected},
		{"rejected beats no", with(person, rejected, no), "ask", "", refused, ReasonRejected},
		{"another key was rejected", with(person, rejectedOther), "all", "", accepted, ReasonPolicy},
		{"blocked beats yes", with(person, yes, blocked), "all", "auto", refused, wire.ReasonBlocked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := compile(Policy{Accept: tc.accept, Static: []config.StaticPeer{{ID: string(barn), Accept: tc.static}}})
			must(t, err)
			got := acceptOf(barn, tc.record, p, "the-barn")
			if got.Phase != tc.want || got.Reason != tc.reason {
				t.Errorf("%+v, want %s %s", got, tc.want, tc.reason)
			}
			if got.Here == "" || strings.Contains(got.Here, "rovider") {
				t.Errorf("people here are told: %s", got.Here)
			}
			if tc.want == pending && !strings.Contains(got.Message, "liqo-agent peers accept the-barn") {
				t.Errorf("the message does not say what to do: %s", got.Message)
			}
		})
	}
}

// TestStanding fills in what is not decided by connectOf and acceptOf.
func TestStanding(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	ctx := t.Context()
	if got := b.Policy(barn); got.Pin != nil || got.Code != "" || got.Accept.Phase != api.RequestRefused {
		t.Errorf("unknown: %+v", got)
	}
	b.Ask(ctx, x.caller("192.0.2.7"), x.ask())
	if got := b.Policy(barn); got.Code != trust.Code(b.own, x.fp()) {
		t.Errorf("the code of one that asks is %q", got.Code)
	}
	b.sees(barn, peer.Fingerprint{9})
	if got := b.Policy(barn); got.Code != trust.Code(b.own, peer.Fingerprint{9}) {
		t.Errorf("the code of one that is seen is %q", got.Code)
	}
	must(t, b.Accept(ctx, barn, x.fp(), "user alice"))
	must(t, b.Connect(ctx, barn, false, "user alice"))
	must(t, b.Served(ctx, barn, true, "x"))
	must(t, b.Joined(ctx, barn, true, "x"))
	must(t, b.EndedHere(ctx, barn, "enough"))
	must(t, b.JoinEdited(ctx, barn, true, "kubectl", "j1"))
	must(t, b.TrustEdited(ctx, barn, api.TrustTrusted, x.fp(), "kubectl", "t1"))
	want := plan.Policy{
		Pin:     &peer.Pin{ID: barn, Fingerprint: x.fp(), Method: peer.TrustPerson, By: "user alice", At: epoch},
		Connect: plan.Yes, ConnectReason: "auto-connect is remembered", Generation: 2,
		Accept: plan.AcceptDecision{Phase: api.RequestPending, Reason: wire.ReasonAsksPerson,
			Message: "A person at the provider rejected an earlier request, and has to decide again: liqo-agent peers accept barn",
			Here:    "You rejected an earlier request. To accept this one: liqo-agent peers accept barn"},
		Ended: "enough", Code: trust.Code(b.own, x.fp()), LastServed: true, LastJoined: true, JoinStamp: "j1", TrustStamp: "t1",
	}
	if got := b.Policy(barn); !reflect.DeepEqual(got, want) {
		t.Errorf("standing\n%+v, want\n%+v", got, want)
	}
	// A change of what a caller got changes nothing.
	b.Policy(barn).Pin.Fingerprint[0]++
	b.Pin(barn).Fingerprint[0]++
	if b.Pin(barn).Fingerprint != x.fp() {
		t.Error("a caller changed the pin")
	}
	b.restart(asks())
	want.Generation = 0
	if got := b.Policy(barn); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart\n%+v, want\n%+v", got, want)
	}
}

// TestAsked lasts for a while, and ends with what lets the peer in.
func TestAsked(t *testing.T) {
	b, x := newBed(t, Policy{Accept: "trusted"}), newBox(t, barn)
	ctx := t.Context()
	must(t, b.Trust(ctx, barn, x.fp(), "alice"))
	ask := func(want bool) {
		t.Helper()
		if b.Ask(ctx, x.caller("192.0.2.7"), x.ask()); b.Policy(barn).Asked != want {
			t.Errorf("asked = %t", !want)
		}
	}
	b.changes(barn)
	ask(true)
	ask(true)
	if n := b.changes(barn); n != 1 {
		t.Errorf("told %d times", n)
	}
	b.pass(askedFor - time.Second)
	if !b.Policy(barn).Asked {
		t.Error("over too soon")
	}
	b.pass(time.Second)
	if b.Policy(barn).Asked {
		t.Error("not over")
	}
	for name, end := range map[string]func() error{
		"blocked":      func() error { return b.Block(ctx, barn, "alice") },
		"distrusted":   func() error { return b.Distrust(ctx, barn, "alice") },
		"rejected":     func() error { return b.Reject(ctx, barn, "alice") },
		"disconnected": func() error { return b.DisconnectIncoming(ctx, barn, "alice", "") },
		"forgotten":    func() error { return b.Forget(ctx, barn, "alice") },
	} {
		must(t, b.Forget(ctx, barn, "alice"))
		must(t, b.Accept(ctx, barn, x.fp(), "alice"))
		ask(true)
		if must(t, end()); b.Policy(barn).Asked {
			t.Errorf("%s, and still expected", name)
		}
	}
	// A stranger that waits is expected from the moment that it is accepted.
	must(t, b.SetPolicy(ctx, asks()))
	must(t, b.Forget(ctx, barn, "alice"))
	ask(false)
	if must(t, b.Accept(ctx, barn, peer.Fingerprint{}, "alice")); !b.Policy(barn).Asked {
		t.Error("accepted, but not expected")
	}
}

func TestWanted(t *testing.T) {
	b := newBed(t, Policy{Accept: "ask", Static: []config.StaticPeer{
		{ID: "s-auto", Connect: "auto"}, {ID: "s-url", URL: "https://192.0.2.7:6447"}, {ID: "s-never", Connect: "never"},
		{ID: "s-key", Fingerprint: peer.Fingerprint{1}.String()}}})
	ctx := t.Context()
	must(t, b.Trust(ctx, "pinned", peer.Fingerprint{1}, "a"))
	must(t, b.Connect(ctx, "wished", false, "a"))
	must(t, b.Disconnect(ctx, "not-wished", "a"))
	must(t, b.Served(ctx, "served", true, ""))
	must(t, b.Joined(ctx, "joined", true, ""))
	must(t, b.Block(ctx, "blocked", "a"))
	must(t, b.Set(ctx, "noted", func(p *state.Preferences) { p.Note = "x" }, "a"))
	must(t, b.Set(ctx, "url", func(p *state.Preferences) { p.URL = "https://192.0.2.8:6447" }, "a"))
	want := []peer.ClusterID{"joined", "pinned", "s-auto", "s-key", "s-url", "served", "url", "wished"}
	if got := b.Wanted(); !slices.Equal(got, want) {
		t.Errorf("wanted %v, want %v", got, want)
	}
	if pins := b.Pins(); len(pins) != 2 || pins[0].ID != "pinned" || pins[1].ID != "s-key" {
		t.Errorf("pins %+v", pins)
	}
}

// TestPolicy: pins of the configuration come and go with it, and every peer that
// stands differently is told of.
func TestPolicy(t *testing.T) {
	ctx := t.Context()
	authority, other := newFleet(t), newFleet(t)
	x, y := newBox(t, barn), newBox(t, silo)
	authority.certify(x, barn)
	fp := y.fp()
	b := newBed(t, Policy{Accept: "ask", Autojoin: true, Fleet: []*x509.Certificate{other.cert, authority.cert},
		Static: []config.StaticPeer{{ID: string(silo), Fingerprint: fp.String()}}})
	b.Proved(ctx, barn, x.shown())
	if pin := b.Pin(barn); pin == nil || pin.Method != peer.TrustFleet || !strings.Contains(pin.By, "test fleet") {
		t.Fatalf("fleet: %+v", pin)
	}
	if pin := b.Pin(silo); pin == nil || pin.Method != peer.TrustStatic || pin.Fingerprint != fp || pin.By != "configuration" {
		t.Fatalf("static: %+v", pin)
	}
	// The static peer rotates; the configuration still names its old key.
	y.rotate()
	if got := b.Admit(silo, y.shown()); got != endpoint.Known {
		t.Fatalf("rotated: %v", got)
	}
	b.quiet("the same policy again, and a restart", func() {
		p := b.currentPolicy().Policy
		must(t, b.SetPolicy(ctx, p))
		b.restart(p)
	})
	if b.Pin(silo).Fingerprint != y.fp() || b.Pin(barn) == nil {
		t.Errorf("after a restart: %+v, %+v", b.Pin(silo), b.Pin(barn))
	}
	b.changes(barn)
	b.changes(silo)
	// Only what the policy says about others changes.
	p := b.currentPolicy().Policy
	p.Static = append(slices.Clone(p.Static), config.StaticPeer{ID: "another", Connect: "auto"})
	must(t, b.SetPolicy(ctx, p))
	if b.changes(barn) != 0 || b.changes(silo) != 0 || b.changes("another") == 0 {
		t.Error("not exactly the one peer was told of")
	}
	p.Autojoin = false
	must(t, b.SetPolicy(ctx, p))
	if b.changes(barn) == 0 || b.changes(silo) == 0 || b.changes("another") != 0 {
		t.Error("autojoin concerns the peers that the configuration trusts")
	}
	// The file of the authorities cannot be read now: whom they made trusted stays so, also over a start.
	unread := p
	unread.Fleet, unread.FleetUnknown = nil, true
	b.quiet("authorities that cannot be read", func() {
		must(t, b.SetPolicy(ctx, unread))
		b.restart(unread)
	})
	if pin := b.Pin(barn); pin == nil || pin.Method != peer.TrustFleet {
		t.Errorf("with authorities that cannot be read: %+v", pin)
	}
	b.changes(barn)
	b.changes(silo)
	// The configuration no longer vouches.
	must(t, b.SetPolicy(ctx, Policy{Accept: "ask", Fleet: []*x509.Certificate{other.cert}}))
	if b.Pin(barn) != nil || b.Pin(silo) != nil {
		t.Errorf("void: %+v, %+v", b.Pin(barn), b.Pin(silo))
	}
	if got := b.history(barn); got != "trusted distrusted" {
		t.Errorf("history: %s", got)
	}
	if got := b.history(silo); got != "trusted key-rotated distrusted" {
		t.Errorf("history: %s", got)
	}
	// It names another key than a person does.
	must(t, b.Trust(ctx, silo, y.fp(), "alice"))
	named := peer.Fingerprint{7}
	must(t, b.SetPolicy(ctx, statics(config.StaticPeer{ID: string(silo), Fingerprint: named.String()})))
	if pin := b.Pin(silo); pin.Fingerprint != named || pin.Method != peer.TrustStatic {
		t.Errorf("named: %+v", pin)
	}
	if err := b.Trust(ctx, silo, y.fp(), "alice"); err == nil || !strings.Contains(err.Error(), "[[peer]]") {
		t.Errorf("trusting another key than the configuration's: %v", err)
	}
	// It names the key that a person trusts: that stays the person's.
	must(t, b.SetPolicy(ctx, asks()))
	must(t, b.Trust(ctx, silo, y.fp(), "alice"))
	b.quiet("naming the trusted key", func() {
		must(t, b.SetPolicy(ctx, statics(config.StaticPeer{ID: string(silo), Fingerprint: y.fp().String()})))
		must(t, b.SetPolicy(ctx, asks()))
	})
	// Nobody can make the configuration trust whom a person distrusts.
	must(t, b.Distrust(ctx, silo, "alice"))
	must(t, b.SetPolicy(ctx, statics(config.StaticPeer{ID: string(silo), Fingerprint: y.fp().String()})))
	if b.Pin(silo) != nil || !b.Policy(silo).Distrusted {
		t.Errorf("distrusted: %+v", b.Pin(silo))
	}
	for _, bad := range []config.StaticPeer{{ID: "Bad ID"}, {ID: "x", Fingerprint: "12"}} {
		if err := b.SetPolicy(ctx, statics(bad)); err == nil {
			t.Errorf("policy %+v accepted", bad)
		}
	}
}

// TestNodeNames: the name of a peer's node is that peer's through restarts, until
// the peer is forgotten.
func TestNodeNames(t *testing.T) {
	b := newBed(t, asks())
	ctx := t.Context()
	name := func(id peer.ClusterID, name string, want bool) {
		t.Helper()
		if own, err := b.NameNode(ctx, id, name); err != nil || own != want {
			t.Errorf("%s for %s: %v, %v", name, id, own, err)
		}
	}
	name(barn, "liqo-barn", true)
	name(silo, "liqo-barn", false)
	name(silo, "liqo-silo", true)
	b.quiet("the same name", func() { name(silo, "liqo-silo", true) })
	must(t, b.Joined(ctx, barn, true, ""))
	must(t, b.Joined(ctx, barn, false, ""))
	b.restart(asks())
	if one, two := b.NodeName(barn), b.NodeName(silo); one != "liqo-barn" || two != "liqo-silo" {
		t.Errorf("after a restart: %s, %s", one, two)
	}
	name(silo, "liqo-barn", false)
	must(t, b.Forget(ctx, barn, "a"))
	name(silo, "liqo-barn", true)
	if again := b.NodeName(barn); again != "" {
		t.Errorf("a peer that was forgotten has %s", again)
	}
}

// TestStoreFails: while nothing can be stored, no decision takes effect, and
// each says so.
func TestStoreFails(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	ctx := t.Context()
	must(t, b.Trust(ctx, barn, x.fp(), "alice"))
	must(t, b.Joined(ctx, barn, true, ""))
	before := b.Policy(barn)
	broken := errors.New("no space left")
	b.cfg.Database = failing{b.store, broken}
	for name, do := range map[string]func() error{
		"trust":      func() error { return b.Trust(ctx, barn, peer.Fingerprint{3}, "a") },
		"distrust":   func() error { return b.Distrust(ctx, barn, "a") },
		"connect":    func() error { return b.Connect(ctx, barn, false, "a") },
		"disconnect": func() error { return b.Disconnect(ctx, barn, "a") },
		"incoming":   func() error { return b.DisconnectIncoming(ctx, barn, "a", "") },
		"accept":     func() error { return b.Accept(ctx, barn, x.fp(), "a") },
		"reject":     func() error { return b.Reject(ctx, barn, "a") },
		"block":      func() error { return b.Block(ctx, barn, "a") },
		"set":        func() error { return b.Set(ctx, barn, func(p *state.Preferences) { p.Note = "x" }, "a") },
		"forget":     func() error { return b.Forget(ctx, barn, "a") },
		"invite":     func() error { _, _, err := b.Invite(ctx, time.Hour, "", "a"); return err },
		"join":       func() error { return b.JoinEdited(ctx, barn, true, "k", "s") },
		"trust mode": func() error { return b.TrustEdited(ctx, barn, api.TrustUntrusted, x.fp(), "k", "s") },
		"hung up":    func() error { return b.HungUp(ctx, barn, "k") },
		"ended":      func() error { return b.EndedByProvider(ctx, barn, b.Policy(barn).Generation, "r") },
		"ended here": func() error { return b.EndedHere(ctx, barn, "r") },
		"replaced":   func() error { return b.Replaced(ctx, barn, "r") },
		"joined":     func() error { return b.Joined(ctx, barn, false, "r") },
		"name":       func() error { _, err := b.NameNode(ctx, barn, "liqo-barn"); return err },
		"served":     func() error { return b.Served(ctx, barn, true, "r") },
		"requested":  func() error { return b.Requested(ctx, barn, api.RequestPending, "r") },
	} {
		if err := do(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if after := b.Policy(barn); !reflect.DeepEqual(after, before) {
			t.Errorf("%s took effect: %+v", name, after)
		}
	}
	y := newBox(t, silo)
	must(t, b.SetPolicy(ctx, Policy{Accept: "all"}))
	if got := b.Ask(ctx, y.caller("192.0.2.7"), y.ask()); got.Reason != wire.ReasonBusy || b.Pin(silo) != nil {
		t.Errorf("an ask: %+v", got)
	}
	// A rotation is a fact, whatever the disk says; it gets there later.
	x.rotate()
	if got := b.Admit(barn, x.shown()); got != endpoint.Known {
		t.Errorf("rotated: %v", got)
	}
	b.cfg.Database = b.store
	must(t, b.Connect(ctx, barn, false, "a"))
	b.restart(asks())
	if pin := b.Pin(barn); pin.Fingerprint != x.fp() {
		t.Errorf("after a restart: %+v", pin)
	}
}

// TestChangedMayDecide: who is told of a change may make the next decision.
func TestChangedMayDecide(t *testing.T) {
	b := newBed(t, asks())
	cfg := b.config(asks())
	var l *Store
	cfg.Changed = func(id peer.ClusterID) {
		if wish := l.Policy(id).Connect; wish == plan.Unset {
			must(t, l.Connect(t.Context(), id, false, "whoever was told"))
		}
	}
	l, err := Open(t.Context(), cfg)
	must(t, err)
	must(t, l.Trust(t.Context(), barn, peer.Fingerprint{1}, "alice"))
	if got := l.Policy(barn).Connect; got != plan.Yes {
		t.Errorf("connect %v", got)
	}
}

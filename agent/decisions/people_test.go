package decisions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// failing is a Database on which nothing can be written.
type failing struct {
	*state.Store
	err error
}

func (f failing) SetRuling(context.Context, peer.ClusterID, state.Ruling, ...peer.Event) error {
	return f.err
}

func (f failing) UseInvite(context.Context, string, time.Time, peer.ClusterID, state.Ruling, ...peer.Event) error {
	return f.err
}

func (f failing) AddInvite(context.Context, state.Invite, ...peer.Event) error { return f.err }

func (f failing) Apply(context.Context, state.Change) error { return f.err }

// A person who asks again while the end by the provider is still being dealt with has the
// last word: that end is the one before.
func TestAskedAgainMeanwhile(t *testing.T) {
	b := newBed(t, asks())
	must(t, b.Connect(t.Context(), barn, false, "alice"))
	before := b.Policy(barn).Generation
	must(t, b.Connect(t.Context(), barn, false, "alice"))
	must(t, b.EndedByProvider(t.Context(), barn, before, "blocked"))
	if p := b.Policy(barn); p.Connect != plan.Yes {
		t.Errorf("an end from before was taken for one of now: %+v", p)
	}
	must(t, b.EndedByProvider(t.Context(), barn, b.Policy(barn).Generation, "blocked"))
	if p := b.Policy(barn); p.Connect != plan.No {
		t.Errorf("the end was not taken: %+v", p)
	}
}

// TestDecisions makes each decision twice: it has its history, is told of, and
// the second time changes nothing.
func TestDecisions(t *testing.T) {
	ctx := context.Background()
	key := peer.Fingerprint{1}
	trusted := func(b *bed) { must(b.t, b.Trust(ctx, barn, key, "alice")) }
	connected := func(b *bed) { must(b.t, b.Connect(ctx, barn, false, "alice")) }
	for _, tc := range []struct {
		name   string
		before []func(b *bed)
		do     func(b *bed) error
		kinds  string // of the events that it makes
		again  string // of those that it makes the second time
		detail string // in the first of them
	}{
		{"trust", nil, func(b *bed) error { return b.Trust(ctx, barn, key, "user alice") }, "trusted", "", "Person, by user alice"},
		{"trust anew", []func(*bed){trusted}, func(b *bed) error { return b.Trust(ctx, barn, peer.Fingerprint{2}, "user bob") }, "trusted", "", "in place of 01"},
		{"distrust", []func(*bed){trusted}, func(b *bed) error { return b.Distrust(ctx, barn, "user alice") }, "distrusted", "", "by user alice"},
		{"connect", nil, func(b *bed) error { return b.Connect(ctx, barn, false, "user alice") }, "connect", "connect", "by user alice"},
		{"connect once", nil, func(b *bed) error { return b.Connect(ctx, barn, true, "user alice") }, "connect", "connect", "once"},
		{"disconnect", []func(*bed){connected}, func(b *bed) error { return b.Disconnect(ctx, barn, "user alice") }, "disconnect", "", "by user alice"},
		{"disconnect incoming", []func(*bed){trusted}, func(b *bed) error { return b.DisconnectIncoming(ctx, barn, "user alice", "") }, "rejected", "", "by user alice"},
		{"accept", nil, func(b *bed) error { return b.Accept(ctx, barn, key, "user alice") }, "trusted accepted", "", "by user alice"},
		{"accept trusted", []func(*bed){trusted}, func(b *bed) error { return b.Accept(ctx, barn, peer.Fingerprint{}, "user alice") }, "accepted", "", "by user alice"},
		{"reject", []func(*bed){trusted}, func(b *bed) error { return b.Reject(ctx, barn, "user alice") }, "rejected", "", "by user alice"},
		{"block", nil, func(b *bed) error { return b.Block(ctx, barn, "user alice") }, "blocked", "", "by user alice"},
		{"unblock", []func(*bed){func(b *bed) { must(b.t, b.Block(ctx, barn, "x")) }}, func(b *bed) error { return b.Unblock(ctx, barn, "user alice") }, "unblocked", "", "by user alice"},
		{"set", nil, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.Alias, p.Note, p.URL = "door", "by the door", "https://192.0.2.7:6447" }, "user alice")
		}, "preference", "", "by user alice: alias is door, note is by the door, URL is https://192.0.2.7:6447"},
		{"set amounts", []func(*bed){func(b *bed) { must(b.t, b.Set(ctx, barn, func(p *state.Preferences) { p.Memory = "4Gi" }, "x")) }}, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.CPU, p.Memory = "2", "" }, "user alice")
		}, "preference", "", "by user alice: the CPU to ask for is 2, the memory to ask for removed"},
		{"set connect", nil, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoConnect = state.Yes }, "user alice")
		}, "connect", "", "by user alice"},
		{"set disconnect", []func(*bed){connected}, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoConnect = state.No }, "user alice")
		}, "disconnect", "", "by user alice"},
		{"set undecided", []func(*bed){connected}, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoConnect = state.Undecided }, "user alice")
		}, "preference", "", "auto-connect is undecided"},
		{"set accept", []func(*bed){trusted}, func(b *bed) error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Yes }, "user alice")
		}, "preference", "", "auto-accept is yes"},
		{"join = true", nil, func(b *bed) error { return b.JoinEdited(ctx, barn, true, "kubectl", "s") }, "connect", "", "by kubectl"},
		{"join = false", []func(*bed){connected}, func(b *bed) error { return b.JoinEdited(ctx, barn, false, "kubectl", "s") }, "disconnect", "", "by kubectl"},
		{"join = true, blocked", []func(*bed){func(b *bed) { must(b.t, b.Block(ctx, barn, "x")) }},
			func(b *bed) error { return b.JoinEdited(ctx, barn, true, "kubectl", "s") }, "disconnect", "", "is undone: barn is blocked"},
		{"trustMode Trusted", nil, func(b *bed) error { return b.TrustEdited(ctx, barn, api.TrustTrusted, key, "kubectl", "s") }, "trusted", "", "by kubectl"},
		{"trustMode Trusted, no key", nil, func(b *bed) error {
			return b.TrustEdited(ctx, barn, api.TrustTrusted, peer.Fingerprint{}, "kubectl", "s")
		},
			"distrusted", "", "shows no key yet"},
		{"trustMode Untrusted", []func(*bed){trusted}, func(b *bed) error { return b.TrustEdited(ctx, barn, api.TrustUntrusted, key, "kubectl", "s") }, "distrusted", "", "by kubectl"},
		{"trustMode Unknown", []func(*bed){trusted}, func(b *bed) error { return b.TrustEdited(ctx, barn, api.TrustUnknown, key, "kubectl", "s") }, "distrusted", "", "by kubectl"},
		{"hung up", []func(*bed){connected}, func(b *bed) error { return b.HungUp(ctx, barn, "kubectl") }, "disconnect", "", "deleted its ForeignCluster"},
		{"ended by the provider", []func(*bed){connected}, func(b *bed) error { return b.EndedByProvider(ctx, barn, b.Policy(barn).Generation, "too busy") }, "disconnect", "", "too busy"},
		{"ended here", []func(*bed){trusted}, func(b *bed) error { return b.EndedHere(ctx, barn, "PeeringRequest deleted") }, "rejected", "", "PeeringRequest deleted"},
		{"joined", nil, func(b *bed) error { return b.Joined(ctx, barn, true, "both accepted") }, "joined", "", "both accepted"},
		{"unjoined", []func(*bed){func(b *bed) { must(b.t, b.Joined(ctx, barn, true, "")) }}, func(b *bed) error { return b.Joined(ctx, barn, false, "lost") }, "unjoined", "", "lost"},
		{"served", nil, func(b *bed) error { return b.Served(ctx, barn, true, "accepted") }, "served", "", "accepted"},
		{"unserved", []func(*bed){func(b *bed) { must(b.t, b.Served(ctx, barn, true, "")) }}, func(b *bed) error { return b.Served(ctx, barn, false, "withdrawn") }, "unserved", "", "withdrawn"},
		{"requested", nil, func(b *bed) error { return b.Requested(ctx, barn, api.RequestPending, "WaitsForPerson") }, "requested", "", "PeeringRequest"},
		{"requested, accepted", nil, func(b *bed) error { return b.Requested(ctx, barn, api.RequestAccepted, "Policy") }, "requested accepted", "", "PeeringRequest"},
		{"requested, refused later", []func(*bed){func(b *bed) { must(b.t, b.Requested(ctx, barn, api.RequestPending, "")) }},
			func(b *bed) error { return b.Requested(ctx, barn, api.RequestRefused, "RejectedByPerson") }, "rejected", "", "RejectedByPerson"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t, asks())
			for _, before := range tc.before {
				before(b)
			}
			was := len(b.events(barn))
			b.changes(barn)
			must(t, tc.do(b))
			var kinds []string
			made := b.events(barn)[was:]
			for _, e := range made {
				kinds = append(kinds, string(e.Kind))
			}
			if got := strings.Join(kinds, " "); got != tc.kinds || !strings.Contains(made[0].Detail, tc.detail) {
				t.Errorf("events %s (%q), want %s (%q)", got, made, tc.kinds, tc.detail)
			}
			if n := b.changes(barn); n == 0 {
				t.Error("nobody was told")
			}
			if tc.again == "" {
				b.quiet("the second time", func() { must(t, tc.do(b)) })
				if n := b.changes(barn); n != 0 {
					t.Errorf("told %d times that nothing changed", n)
				}
			} else if must(t, tc.do(b)); b.changes(barn) == 0 {
				t.Error("nobody was told the second time")
			}
			stands := b.Policy(barn)
			b.restart(asks())
			after := b.Policy(barn)
			if after.Connect != stands.Connect || after.Accept != stands.Accept || after.Ended != stands.Ended || after.JoinStamp != stands.JoinStamp ||
				after.TrustStamp != stands.TrustStamp || after.LastJoined != stands.LastJoined || after.LastServed != stands.LastServed {
				t.Errorf("after a restart %+v, want %+v", after, stands)
			}
		})
	}
}

func TestWhichKey(t *testing.T) {
	one, two, three := peer.Fingerprint{1}, peer.Fingerprint{2}, peer.Fingerprint{3}
	ctx := context.Background()
	x := newBox(t, barn)
	for _, tc := range []struct {
		name   string
		before func(b *bed)
		given  peer.Fingerprint
		want   peer.Fingerprint // zero: an error
		says   []string
	}{
		{"nothing is shown", func(*bed) {}, peer.Fingerprint{}, peer.Fingerprint{}, []string{"--fingerprint"}},
		{"nothing is shown, named", func(*bed) {}, one, one, nil},
		{"one is shown", func(b *bed) { b.sees(barn, one) }, peer.Fingerprint{}, one, nil},
		{"one is shown, another named", func(b *bed) { b.sees(barn, one) }, two, two, nil},
		{"one asks", func(b *bed) { b.Ask(ctx, x.caller("192.0.2.7"), x.ask()) }, peer.Fingerprint{}, x.fp(), nil},
		{"one is shown and asks", func(b *bed) { b.sees(barn, x.fp()); b.Ask(ctx, x.caller("192.0.2.7"), x.ask()) }, peer.Fingerprint{}, x.fp(), nil},
		{"one is shown, another asks", func(b *bed) { b.sees(barn, one); b.Ask(ctx, x.caller("192.0.2.7"), x.ask()) }, peer.Fingerprint{}, peer.Fingerprint{},
			[]string{one.String(), x.fp().String(), "--fingerprint"}},
		{"a conflict", func(b *bed) {
			b.sees(barn, one)
			p := b.seen[barn]
			p.Conflict = &peer.Conflict{Fingerprint: two}
			b.seen[barn] = p
		}, peer.Fingerprint{}, peer.Fingerprint{}, []string{one.String(), two.String()}},
		{"a conflict, named", func(b *bed) {
			b.sees(barn, one)
			p := b.seen[barn]
			p.Conflict = &peer.Conflict{Fingerprint: two}
			b.seen[barn] = p
		}, two, two, nil},
		{"the trusted one and a refused caller", func(b *bed) {
			must(b.t, b.Trust(ctx, barn, three, "x"))
			b.sees(barn, three)
			b.Ask(ctx, x.caller("192.0.2.7"), x.ask())
		}, peer.Fingerprint{}, peer.Fingerprint{}, []string{three.String(), x.fp().String(), trust.Code(peer.FingerprintOf([]byte("our key")), x.fp())}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for verb, decide := range map[string]func(*bed) error{
				"trust":  func(b *bed) error { return b.Trust(ctx, barn, tc.given, "alice") },
				"accept": func(b *bed) error { return b.Accept(ctx, barn, tc.given, "alice") },
			} {
				b := newBed(t, asks())
				tc.before(b)
				was := b.Pin(barn)
				err := decide(b)
				pin := b.Pin(barn)
				if verb == "accept" && was != nil && tc.given.IsZero() {
					if err != nil || *pin != *was {
						t.Errorf("accept of a trusted peer: %v, %+v", err, pin)
					}
					continue
				}
				if tc.want.IsZero() {
					if err == nil {
						t.Fatalf("%s: no error, %+v", verb, pin)
					}
					for _, s := range tc.says {
						if !strings.Contains(err.Error(), s) {
							t.Errorf("%s: error %q does not say %q", verb, err, s)
						}
					}
					continue
				}
				if err != nil || pin == nil || pin.Fingerprint != tc.want {
					t.Errorf("%s: %v, %+v, want %s", verb, err, pin, tc.want)
				}
			}
		})
	}
}

// TestUnblockConnectsNobody: what a block ended stays so until somebody says otherwise,
// whatever stood before.
func TestUnblockConnectsNobody(t *testing.T) {
	ctx := t.Context()
	auto := Policy{Accept: "all", Autojoin: true, Static: []config.StaticPeer{{ID: string(barn), Fingerprint: peer.Fingerprint{1}.String(), Connect: "auto", Accept: "auto"}}}
	for name, tc := range map[string]struct {
		policy Policy
		before func(*bed) error
	}{
		"connected and accepted": {asks(), func(b *bed) error {
			return errors.Join(b.Trust(ctx, barn, peer.Fingerprint{1}, "x"), b.Connect(ctx, barn, false, "x"), b.Accept(ctx, barn, peer.Fingerprint{1}, "x"))
		}},
		"connected once": {asks(), func(b *bed) error {
			return errors.Join(b.Trust(ctx, barn, peer.Fingerprint{1}, "x"), b.Connect(ctx, barn, true, "x"))
		}},
		"by the configuration": {auto, func(*bed) error { return nil }},
	} {
		b := newBed(t, tc.policy)
		must(t, tc.before(b))
		must(t, b.Block(ctx, barn, "x"))
		must(t, b.Unblock(ctx, barn, "x"))
		b.restart(tc.policy)
		if s := b.Policy(barn); s.Connect == plan.Yes || s.Accept.Phase == api.RequestAccepted || s.Pin == nil {
			t.Errorf("%s: connect %v (%s), accept %+v, pin %v", name, s.Connect, s.ConnectReason, s.Accept, s.Pin)
		}
		must(t, errors.Join(b.Connect(ctx, barn, false, "x"), b.Accept(ctx, barn, peer.Fingerprint{}, "x")))
		if s := b.Policy(barn); s.Connect != plan.Yes || s.Accept.Phase != api.RequestAccepted {
			t.Errorf("%s, then connected and accepted: %v, %+v", name, s.Connect, s.Accept)
		}
	}
}

// TestErrors: what cannot be says why and what to do.
func TestErrors(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, statics(config.StaticPeer{ID: "never", Connect: "never", Accept: "never"}))
	must(t, b.Block(ctx, "blocked", "x"))
	key := peer.Fingerprint{1}
	own, _, err := b.Invite(ctx, time.Hour, "", "x")
	must(t, err)
	theirs, err := trust.NewInvite(barn, peer.Fingerprint{4})
	must(t, err)
	must(t, b.Trust(ctx, barn, peer.Fingerprint{5}, "x"))
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"connect blocked":  {b.Connect(ctx, "blocked", false, "x"), "peers unblock blocked"},
		"connect never":    {b.Connect(ctx, "never", true, "x"), "[[peer]]"},
		"connect self":     {b.Connect(ctx, self, false, "x"), "this cluster itself"},
		"set connect":      {b.Set(ctx, "never", func(p *state.Preferences) { p.AutoConnect = state.Yes }, "x"), "[[peer]]"},
		"accept blocked":   {b.Accept(ctx, "blocked", key, "x"), "peers unblock blocked"},
		"accept never":     {b.Accept(ctx, "never", key, "x"), "[[peer]]"},
		"trust self":       {b.Trust(ctx, self, key, "x"), "this cluster itself"},
		"block self":       {b.Block(ctx, self, "x"), "this cluster itself"},
		"reject nothing":   {b.Reject(ctx, silo, "x"), "peers block silo"},
		"own invite":       {b.UseInvite(ctx, own, "x"), "this cluster created the invite"},
		"other key invite": {b.UseInvite(ctx, theirs, "x"), "peers trust barn --fingerprint " + theirs.Fingerprint.String()},
		"short invite":     {second(b.Invite(ctx, 0, "", "x")), "cannot be open for 0s"},
		"long invite":      {second(b.Invite(ctx, 2*MaxInviteLifetime, "", "x")), "at most"},
		"revoke nothing":   {b.RevokeInvite(ctx, "ffff", "x"), "no invite begins"},
		"bad ID":           {b.Connect(ctx, "Not An ID", false, "x"), "cluster ID"},
		"forget bad ID":    {b.Forget(ctx, "", "x"), "cluster ID"},
		"alias taken": {func() error {
			must(t, b.Set(ctx, barn, func(p *state.Preferences) { p.Alias = "door" }, "x"))
			return b.Set(ctx, silo, func(p *state.Preferences) { p.Alias = "door" }, "x")
		}(), "belongs to peer barn"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v, want it to say %q", name, tc.err, tc.says)
		}
	}
	if len(b.Pins()) != 1 || b.Pin(barn).Fingerprint != (peer.Fingerprint{5}) || b.Policy(silo).JoinStamp != "" {
		t.Errorf("something took effect: %+v", b.Pins())
	}
}

// TestBearer is the bearer's side of an invite.
func TestBearer(t *testing.T) {
	ctx := t.Context()
	issuer := newBed(t, asks())
	token, _, err := issuer.Invite(ctx, time.Hour, "", "x")
	must(t, err)
	token.Issuer = barn // so that the bearer is not its own issuer
	b := newBed(t, asks())
	must(t, b.UseInvite(ctx, token, "user bob"))
	got := b.Policy(barn)
	if got.Pin == nil || got.Pin.Fingerprint != token.Fingerprint || got.Pin.Method != peer.TrustInvite || got.Token != token.Wire() ||
		got.Connect != plan.Yes || got.Generation != 1 {
		t.Errorf("standing %+v", got)
	}
	for _, e := range b.events(barn) {
		if strings.Contains(e.Detail, token.Wire()[17:]) {
			t.Errorf("the secret is in the history: %s", e.Detail)
		}
	}
	b.changes(barn)
	b.TokenUsed(barn)
	b.TokenUsed(barn)
	if got := b.Policy(barn); got.Token != "" || got.Connect != plan.Yes || b.changes(barn) != 1 {
		t.Errorf("after it was used: %+v", got)
	}
	for name, end := range map[string]func() error{
		"disconnected": func() error { return b.Disconnect(ctx, barn, "x") },
		"distrusted":   func() error { return b.Distrust(ctx, barn, "x") },
		"blocked":      func() error { return b.Block(ctx, barn, "x") },
		"forgotten":    func() error { return b.Forget(ctx, barn, "x") },
		"hung up":      func() error { return b.HungUp(ctx, barn, "x") },
	} {
		must(t, b.Forget(ctx, barn, "x"))
		must(t, b.UseInvite(ctx, token, "user bob"))
		if must(t, end()); b.Policy(barn).Token != "" {
			t.Errorf("%s, but the token would still be sent", name)
		}
	}
}

// TestRotations are followed wherever they are seen, and only in that direction.
func TestRotations(t *testing.T) {
	ctx := t.Context()
	for name, see := range map[string]func(b *bed, x *box){
		"admit":  func(b *bed, x *box) { b.Admit(barn, x.shown()) },
		"proved": func(b *bed, x *box) { b.Proved(ctx, barn, x.shown()) },
		"ask":    func(b *bed, x *box) { b.Ask(ctx, x.caller("192.0.2.7"), x.ask()) },
	} {
		b, x := newBed(t, asks()), newBox(t, barn)
		old := x.shown()
		must(t, b.Trust(ctx, barn, x.fp(), "alice"))
		must(t, b.Reject(ctx, barn, "alice"))
		for range 3 {
			x.rotate()
		}
		b.changes(barn)
		see(b, x)
		pin := b.Pin(barn)
		if pin.Fingerprint != x.fp() || pin.Method != peer.TrustPerson || pin.By != "alice" || !strings.Contains(pin.Detail, old.Fingerprint.String()) || b.changes(barn) != 1 {
			t.Errorf("%s: %+v", name, pin)
		}
		if got := b.history(barn); got != "trusted rejected key-rotated" {
			t.Errorf("%s: history %s", name, got)
		}
		if got := b.Policy(barn).Accept.Reason; got != ReasonRejected {
			t.Errorf("%s: a rejected peer gets out of it by a new key: %s", name, got)
		}
		b.quiet("the same key again", func() { see(b, x) })
		if got := b.Admit(barn, old); got != endpoint.Stranger {
			t.Errorf("%s: the old key is still %v", name, got)
		}
		b.Proved(ctx, barn, old)
		b.restart(asks())
		if got := b.Admit(barn, x.shown()); got != endpoint.Known {
			t.Errorf("%s: after a restart the new key is %v", name, got)
		}
	}
	// Whom nobody trusts, nobody follows.
	b, x := newBed(t, asks()), newBox(t, barn)
	must(t, b.Trust(ctx, barn, x.fp(), "alice"))
	must(t, b.Distrust(ctx, barn, "alice"))
	x.rotate()
	if got := b.Admit(barn, x.shown()); got != endpoint.Stranger || b.Pin(barn) != nil {
		t.Errorf("distrusted, rotated: %v, %+v", got, b.Pin(barn))
	}
	must(t, b.Block(ctx, barn, "alice"))
	if got := b.Admit(barn, x.shown()); got != endpoint.Blocked {
		t.Errorf("blocked: %v", got)
	}
}

func TestProved(t *testing.T) {
	ctx := context.Background()
	x := newBox(t, barn)
	named := x.shown()
	named.Name = "barn.example"
	for _, tc := range []struct {
		name   string
		policy Policy
		shown  trust.Shown
		before func(b *bed)
		want   peer.TrustMethod
	}{
		{"nobody vouches", asks(), x.shown(), nil, ""},
		{"all is about who asks", Policy{Accept: "all", AllowEmptyToken: true}, x.shown(), nil, ""},
		{"the system's roots", asks(), named, nil, peer.TrustRoots},
		{"untrusted ones are joined", Policy{AutojoinUntrusted: true}, x.shown(), nil, peer.TrustOpen},
		{"the configuration names another key", statics(config.StaticPeer{ID: string(barn), Fingerprint: peer.Fingerprint{1}.String()}), named,
			func(b *bed) { b.records[barn] = record{} }, ""},
		{"blocked", Policy{AutojoinUntrusted: true}, named, func(b *bed) { must(b.t, b.Block(ctx, barn, "x")) }, ""},
		{"distrusted", Policy{AutojoinUntrusted: true}, named, func(b *bed) { must(b.t, b.Distrust(ctx, barn, "x")) }, ""},
		{"trusted", Policy{AutojoinUntrusted: true}, named, func(b *bed) { must(b.t, b.Trust(ctx, barn, peer.Fingerprint{1}, "x")) }, peer.TrustPerson},
		{"no key", Policy{AutojoinUntrusted: true}, trust.Shown{}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t, tc.policy)
			if tc.before != nil {
				tc.before(b)
			}
			b.Proved(ctx, barn, tc.shown)
			pin := b.Pin(barn)
			if tc.want == "" && pin != nil || tc.want != "" && (pin == nil || pin.Method != tc.want) {
				t.Errorf("pin %+v, want %q", pin, tc.want)
			}
			b.quiet("the next check", func() { b.Proved(ctx, barn, tc.shown) })
		})
	}
	b := newBed(t, Policy{AutojoinUntrusted: true})
	if b.Proved(ctx, self, x.shown()); b.Pin(self) != nil {
		t.Error("our own ID got a pin")
	}
}

// TestReturned: what a person hung up is taken up again when the peer comes back.
func TestReturned(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, asks())
	must(t, b.Connect(ctx, barn, false, "alice"))
	must(t, b.HungUp(ctx, barn, "kubectl"))
	b.restart(asks())
	if got := b.Policy(barn).Connect; got != plan.No {
		t.Errorf("hung up: %v", got)
	}
	b.changes(barn)
	b.Returned(barn)
	if got := b.Policy(barn).Connect; got != plan.Yes || b.changes(barn) != 1 || b.history(barn) != "connect disconnect connect" {
		t.Errorf("returned: %v, %s", got, b.history(barn))
	}
	b.quiet("the next return", func() { b.Returned(barn); b.Returned(silo) })
	must(t, b.Disconnect(ctx, barn, "alice"))
	must(t, b.HungUp(ctx, barn, "kubectl"))
	b.Returned(barn)
	if got := b.Policy(barn).Connect; got != plan.No {
		t.Errorf("disconnected before: %v", got)
	}
}

// TestFresh: a new peering that the peer begins makes up for the end of the last
// one, but not for a person's no.
func TestFresh(t *testing.T) {
	ctx := t.Context()
	b, x := newBed(t, asks()), newBox(t, barn)
	must(t, b.Accept(ctx, barn, x.fp(), "alice"))
	must(t, b.Requested(ctx, barn, api.RequestAccepted, ""))
	must(t, b.Served(ctx, barn, true, ""))
	must(t, b.DisconnectIncoming(ctx, barn, "user alice", ""))
	must(t, b.Served(ctx, barn, false, ""))
	a := x.ask()
	for range 2 {
		if got := b.Ask(ctx, x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted || b.Policy(barn).Ended == "" {
			t.Errorf("not fresh: %+v, ended %q", got, b.Policy(barn).Ended)
		}
	}
	if ended := b.Policy(barn).Ended; strings.Contains(ended, "alice") {
		t.Errorf("the peer is told who: %s", ended)
	}
	a.Fresh = true
	got := b.Ask(ctx, x.caller("192.0.2.7"), a)
	s := b.Policy(barn)
	if got.Auth != api.AuthAccepted || s.Ended != "" || s.Accept.Phase != api.RequestPending {
		t.Errorf("fresh: %+v, %+v", got, s)
	}
	must(t, b.Requested(ctx, barn, api.RequestPending, ""))
	requests := b.Requests()
	if len(requests) != 1 || requests[0].ID != barn || !requests[0].Trusted || requests[0].Code == "" {
		t.Errorf("requests %+v", requests)
	}
	must(t, b.Accept(ctx, barn, peer.Fingerprint{}, "alice"))
	if got := b.Policy(barn).Accept.Phase; got != api.RequestAccepted || len(b.Requests()) != 0 {
		t.Errorf("accepted: %v, %+v", got, b.Requests())
	}
	// Rejected: fresh or not does not matter.
	must(t, b.EndedHere(ctx, barn, "x"))
	must(t, b.Reject(ctx, barn, "alice"))
	if got := b.Ask(ctx, x.caller("192.0.2.7"), a); got.Reason != ReasonRejected || b.Policy(barn).Ended == "" {
		t.Errorf("rejected: %+v", got)
	}
	must(t, b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Yes }, "alice"))
	if got := b.Ask(ctx, x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted || b.Policy(barn).Accept.Phase != api.RequestAccepted {
		t.Errorf("accepted by preference: %+v, %+v", got, b.Policy(barn).Accept)
	}
}

// TestNextRequest: each request has its own history, though nobody says when one
// is gone.
func TestNextRequest(t *testing.T) {
	b := newBed(t, asks())
	for range 2 {
		must(t, b.Requested(t.Context(), barn, api.RequestPending, ""))
		must(t, b.Requested(t.Context(), barn, api.RequestAccepted, ""))
		must(t, b.Served(t.Context(), barn, true, ""))
		must(t, b.Served(t.Context(), barn, false, ""))
	}
	if want := strings.Repeat(" requested accepted served unserved", 2)[1:]; b.history(barn) != want {
		t.Errorf("history %s, want %s", b.history(barn), want)
	}
}

// TestAcceptedByLiqo: an acceptance holds for Liqo if Liqo could peer clusters when it was given, and who was accepted before
// waits for a person again.
func TestAcceptedByLiqo(t *testing.T) {
	ctx := t.Context()
	b, x := newBed(t, asks()), newBox(t, barn)
	must(t, b.Accept(ctx, barn, x.fp(), "alice"))
	byLiqo := asks()
	byLiqo.ByLiqo = true
	must(t, b.SetPolicy(ctx, byLiqo))
	b.restart(byLiqo)
	if accept := b.Policy(barn).Accept; accept.Phase != api.RequestAccepted || accept.ByLiqo {
		t.Errorf("accepted before: %+v", accept)
	}
	must(t, b.Requested(ctx, barn, api.RequestPending, ""))
	if waiting := b.Requests(); len(waiting) != 1 || waiting[0].ID != barn {
		t.Errorf("waiting: %+v", waiting)
	}
	must(t, b.Accept(ctx, barn, peer.Fingerprint{}, "alice"))
	b.restart(byLiqo)
	if accept := b.Policy(barn).Accept; accept.Phase != api.RequestAccepted || !accept.ByLiqo {
		t.Errorf("accepted once more: %+v", accept)
	}
	if waiting := b.Requests(); len(waiting) != 0 {
		t.Errorf("waiting: %+v", waiting)
	}
	must(t, b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.No }, "alice"))
	must(t, b.SetPolicy(ctx, asks()))
	must(t, b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Yes }, "alice"))
	if b.Policy(barn).Accept.ByLiqo {
		t.Error("accepted without Liqo")
	}
	// Whoever accepts by the configuration has set both.
	all := byLiqo
	all.Accept = "all"
	must(t, b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Undecided }, "alice"))
	must(t, b.SetPolicy(ctx, all))
	if accept := b.Policy(barn).Accept; accept.Phase != api.RequestAccepted || !accept.ByLiqo {
		t.Errorf("accepted by policy: %+v", accept)
	}
}

// TestOnce ends with the peering.
func TestOnce(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, asks())
	must(t, b.Disconnect(ctx, barn, "alice"))
	must(t, b.Connect(ctx, barn, true, "alice"))
	must(t, b.Joined(ctx, barn, true, ""))
	b.restart(asks())
	if got := b.Policy(barn).Connect; got != plan.Yes {
		t.Errorf("after a restart: %v", got)
	}
	must(t, b.Joined(ctx, barn, false, "lost"))
	if got := b.Policy(barn).Connect; got != plan.No {
		t.Errorf("after it ended: %v", got)
	}
}

func TestForget(t *testing.T) {
	ctx := t.Context()
	x := newBox(t, barn)
	p := statics(config.StaticPeer{ID: string(silo), Fingerprint: peer.Fingerprint{1}.String()})
	b := newBed(t, p)
	b.Ask(ctx, x.caller("192.0.2.7"), x.ask())
	must(t, b.Accept(ctx, barn, peer.Fingerprint{}, "alice"))
	must(t, b.Connect(ctx, barn, false, "alice"))
	must(t, b.Distrust(ctx, silo, "alice"))
	for _, id := range []peer.ClusterID{barn, silo} {
		b.changes(id)
		if must(t, b.Forget(ctx, id, "alice")); b.changes(id) == 0 {
			t.Errorf("nobody was told of %s", id)
		}
	}
	for range 2 {
		if s := b.Policy(barn); s.Pin != nil || s.Connect != plan.No || !s.Forgotten || len(b.Requests()) != 0 || slices.Contains(b.Wanted(), barn) {
			t.Errorf("remembered: %+v", s)
		}
		if b.Pin(silo) == nil || b.Policy(silo).Distrusted {
			t.Error("what the configuration says does not hold again")
		}
		if b.history(barn) != "forgotten" || b.history(silo) != "forgotten trusted" {
			t.Errorf("history %s; %s", b.history(barn), b.history(silo))
		}
		b.restart(p)
	}
}

// TestForgetKeepsNoWish: what an object says that was wanted before is no edit of
// anybody's, also after a restart, until no object says it any more. Then nothing is
// left of the peer.
func TestForgetKeepsNoWish(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, asks())
	must(t, b.JoinEdited(ctx, barn, true, "kubectl", "join"))
	must(t, b.TrustEdited(ctx, barn, api.TrustTrusted, peer.Fingerprint{1}, "kubectl", "trust"))
	anew := b.Policy(barn).Generation
	must(t, b.Forget(ctx, barn, "alice"))
	if got := b.Policy(barn); got.Generation != anew {
		t.Errorf("the next who connects does not begin anew: %d, was %d", got.Generation, anew)
	}
	for range 2 {
		if s := b.Policy(barn); s.Pin != nil || s.Connect != plan.No || s.JoinStamp != "join" || s.TrustStamp != "trust" {
			t.Errorf("forgotten: %+v", s)
		}
		b.restart(asks())
	}
	b.changes(barn)
	for range 2 {
		must(t, b.Forgot(ctx, barn))
	}
	if s := b.Policy(barn); s.Forgotten || s.Connect != plan.Unset || s.JoinStamp != "" || s.TrustStamp != "" || b.changes(barn) != 1 {
		t.Errorf("in the end: %+v", s)
	}
	rulings, err := b.store.Rulings(ctx)
	if must(t, err); len(rulings) != 0 {
		t.Errorf("stored: %+v", rulings)
	}
	// What somebody wants afterwards counts at once.
	must(t, b.Forget(ctx, barn, "alice"))
	must(t, b.JoinEdited(ctx, barn, true, "kubectl", "another"))
	if s := b.Policy(barn); s.Forgotten || s.Connect != plan.Yes {
		t.Errorf("wanted again: %+v", s)
	}
}

// TestOpened: whoever may do more because a person or the configuration says so is
// told, and nobody else.
func TestOpened(t *testing.T) {
	ctx := t.Context()
	x := newBox(t, barn)
	b := newBed(t, asks())
	b.Ask(ctx, x.caller("192.0.2.7"), x.ask())
	for _, step := range []struct {
		name  string
		do    func() error
		where string // "-": nobody is told
	}{
		{"accept who asks", func() error { return b.Accept(ctx, barn, peer.Fingerprint{}, "a") }, "https://192.0.2.7:6447"},
		{"accept again", func() error { return b.Accept(ctx, barn, peer.Fingerprint{}, "a") }, "-"},
		{"block", func() error { return b.Block(ctx, barn, "a") }, "-"},
		{"unblock", func() error { return b.Unblock(ctx, barn, "a") }, ""},
		{"accept after a block", func() error { return b.Accept(ctx, barn, peer.Fingerprint{}, "a") }, ""},
		{"reject", func() error { return b.Reject(ctx, barn, "a") }, "-"},
		{"let in by preference", func() error { return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Yes }, "a") }, ""},
		{"ask a person anew", func() error {
			return b.Set(ctx, barn, func(p *state.Preferences) { p.AutoAccept = state.Undecided }, "a")
		}, "-"},
		{"configured", func() error { return b.SetPolicy(ctx, Policy{Accept: "trusted"}) }, ""},
		{"distrust", func() error { return b.TrustEdited(ctx, barn, api.TrustUntrusted, x.fp(), "kubectl", "1") }, "-"},
		{"trust with kubectl", func() error { return b.TrustEdited(ctx, barn, api.TrustTrusted, x.fp(), "kubectl", "2") }, ""},
		{"connect", func() error { return b.Connect(ctx, barn, false, "a") }, "-"},
	} {
		must(t, step.do())
		told := b.told()
		if step.where == "-" {
			if len(told) != 0 {
				t.Errorf("%s: told %+v", step.name, told)
			}
		} else if len(told) != 1 || told[0].ID != barn || told[0].Fingerprint != x.fp() || told[0].URL != step.where {
			t.Errorf("%s: told %+v, want %q", step.name, told, step.where)
		}
	}
}

func second(_ trust.Invite, _ state.Invite, err error) error { return err }

package decisions

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/state"
	"liqo.io/agent/throttle"
	"liqo.io/agent/trust"
)

// invited makes the box ask with a new invite.
func invited(t testing.TB, b *bed, a *wire.Ask) (trust.Invite, state.Invite) {
	t.Helper()
	token, invite, err := b.Invite(t.Context(), time.Hour, "", "user alice")
	must(t, err)
	a.Token = token.Wire()
	return token, invite
}

func TestAsk(t *testing.T) {
	authority := newFleet(t)
	fleetPolicy := Policy{Accept: "trusted", Fleet: []*x509.Certificate{newFleet(t).cert, authority.cert}}
	names := func(x *box, accept string) Policy {
		return Policy{Accept: "ask", Static: []config.StaticPeer{{ID: string(barn), Fingerprint: x.fp().String(), Accept: accept}}}
	}
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(b *bed, x *box, c *endpoint.Caller, a *wire.Ask)
		auth   api.AuthStatus
		reason string
		pinned peer.TrustMethod // "" for none, or another key's
		phase  api.RequestPhase // of its requests after it asked
		queued bool
	}{
		{"stranger, ask", nil,
			api.AuthPending, wire.ReasonAsksPerson, "", api.RequestRefused, true},
		{"stranger, trusted", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "trusted"}))
		}, api.AuthEmptyRefused, wire.ReasonNotTrusted, "", api.RequestRefused, false},
		{"stranger, none", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "none"}))
		}, api.AuthRefused, wire.ReasonPolicyNone, "", api.RequestRefused, false},
		{"stranger, all", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "all"}))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustOpen, api.RequestAccepted, false},
		{"stranger, all, but the ID is seen with another key", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "all"}))
			b.sees(barn, peer.Fingerprint{1})
		}, api.AuthRefused, wire.ReasonOtherKey, "", api.RequestRefused, false},
		{"empty token", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "ask", AllowEmptyToken: true}))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustOpen, api.RequestPending, false},
		{"empty token, none", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "none", AllowEmptyToken: true}))
		}, api.AuthRefused, wire.ReasonPolicyNone, peer.TrustOpen, api.RequestRefused, false},
		{"trusted by a person, ask", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestPending, false},
		{"trusted by a person, trusted", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "trusted"}))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestAccepted, false},
		{"accepted before it came", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Accept(ctx, barn, x.fp(), "alice"))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestAccepted, false},
		{"rotated its key", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
			x.rotate()
			x.rotate()
			c.Shown = x.shown()
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestPending, false},
		{"blocked", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
			must(b.t, b.Block(ctx, barn, "alice"))
		}, api.AuthRefused, wire.ReasonBlocked, peer.TrustPerson, api.RequestRefused, false},
		{"distrusted", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Distrust(ctx, barn, "alice"))
		}, api.AuthRefused, wire.ReasonNotTrusted, "", api.RequestRefused, false},
		{"distrusted, with an invite", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.Distrust(ctx, barn, "alice"))
			invited(b.t, b, a)
		}, api.AuthRefused, wire.ReasonNotTrusted, "", api.RequestRefused, false},
		{"another key than the trusted one", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, peer.Fingerprint{1}, "alice"))
		}, api.AuthRefused, wire.ReasonOtherKey, peer.TrustPerson, api.RequestPending, false},
		{"another key than the trusted one, with an invite", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, peer.Fingerprint{1}, "alice"))
			invited(b.t, b, a)
		}, api.AuthRefused, wire.ReasonOtherKey, peer.TrustPerson, api.RequestPending, false},
		{"rejected", func(b *bed, x *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, *c, *a)
			must(b.t, b.Reject(ctx, barn, "alice"))
		}, api.AuthRefused, ReasonRejected, "", api.RequestRefused, false},
		{"rejected, with another key since", func(b *bed, x *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, newBox(b.t, barn).caller("192.0.2.9"), *a)
			must(b.t, b.Reject(ctx, barn, "alice"))
		}, api.AuthPending, wire.ReasonAsksPerson, "", api.RequestRefused, true},
		{"rejected, rotated since", func(b *bed, x *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, *c, *a)
			must(b.t, b.Reject(ctx, barn, "alice"))
			x.rotate()
			c.Shown = x.shown()
		}, api.AuthRefused, ReasonRejected, "", api.RequestRefused, false},
		{"rejected although trusted", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.Accept(ctx, barn, x.fp(), "alice"))
			must(b.t, b.Reject(ctx, barn, "alice"))
		}, api.AuthRefused, ReasonRejected, peer.TrustPerson, api.RequestRefused, false},
		{"somebody else asks in its name already", func(b *bed, x *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, newBox(b.t, barn).caller("192.0.2.9"), *a)
		}, api.AuthRefused, wire.ReasonOtherKey, "", api.RequestRefused, false},
		{"named by the configuration", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, names(x, "")))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustStatic, api.RequestPending, false},
		{"named by the configuration, auto", func(b *bed, x *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, names(x, "auto")))
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustStatic, api.RequestAccepted, false},
		{"named by the configuration, rotated since", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, names(x, "")))
			x.rotate()
			c.Shown = x.shown()
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustStatic, api.RequestPending, false},
		{"the configuration names another key", func(b *bed, _ *box, _ *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, names(newBox(b.t, barn), "auto")))
		}, api.AuthRefused, wire.ReasonOtherKey, peer.TrustStatic, api.RequestAccepted, false},
		{"the configuration says never", func(b *bed, x *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "all", Static: []config.StaticPeer{{ID: string(barn), Accept: "never"}}}))
			invited(b.t, b, a)
		}, api.AuthRefused, ReasonStatic, "", api.RequestRefused, false},
		{"of the fleet", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, fleetPolicy))
			authority.certify(x, barn)
			c.Shown = x.shown()
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustFleet, api.RequestAccepted, false},
		{"of the fleet, under another's ID", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, fleetPolicy))
			authority.certify(x, silo)
			c.Shown = x.shown()
		}, api.AuthEmptyRefused, wire.ReasonNotTrusted, "", api.RequestRefused, false},
		{"of another fleet", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, fleetPolicy))
			newFleet(b.t).certify(x, barn)
			c.Shown = x.shown()
		}, api.AuthEmptyRefused, wire.ReasonNotTrusted, "", api.RequestRefused, false},
		{"a host name proves nothing about a caller", func(b *bed, x *box, c *endpoint.Caller, _ *wire.Ask) {
			c.Shown.Name = "barn.example"
		}, api.AuthPending, wire.ReasonAsksPerson, "", api.RequestRefused, true},
		{"with an invite", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			invited(b.t, b, a)
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustInvite, api.RequestAccepted, false},
		{"with an invite, none", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "none"}))
			invited(b.t, b, a)
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustInvite, api.RequestAccepted, false},
		{"with an invite, after a rejection", func(b *bed, _ *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, *c, *a)
			must(b.t, b.Reject(ctx, barn, "alice"))
			invited(b.t, b, a)
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustInvite, api.RequestAccepted, false},
		{"with an invite, after it waited", func(b *bed, _ *box, c *endpoint.Caller, a *wire.Ask) {
			b.Ask(ctx, *c, *a)
			invited(b.t, b, a)
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustInvite, api.RequestAccepted, false},
		{"trusted already, with an invite", func(b *bed, x *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
			invited(b.t, b, a)
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestAccepted, false},
		{"trusted already, with a bad token", func(b *bed, x *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.Trust(ctx, barn, x.fp(), "alice"))
			a.Token = "nonsense"
		}, api.AuthAccepted, wire.ReasonTrusted, peer.TrustPerson, api.RequestPending, false},
		{"with an invite that was revoked", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			_, invite := invited(b.t, b, a)
			must(b.t, b.RevokeInvite(ctx, invite.ID[:8], "alice"))
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"with an invite that has expired", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			invited(b.t, b, a)
			b.pass(time.Hour)
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"with an invite that another one used", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			invited(b.t, b, a)
			other := newBox(b.t, silo)
			theirs := other.ask()
			theirs.Token = a.Token
			if got := b.Ask(ctx, other.caller("192.0.2.9"), theirs); got.Auth != api.AuthAccepted {
				b.t.Fatalf("the first bearer: %+v", got)
			}
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"with the wrong secret", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			token, _ := invited(b.t, b, a)
			token.Secret[3]++
			a.Token = token.Wire()
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"with an unknown invite", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			a.Token = strings.Repeat("0", 16) + "." + strings.Repeat("0", 32)
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"with nonsense, all", func(b *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			must(b.t, b.SetPolicy(ctx, Policy{Accept: "all"}))
			a.Token = "nonsense"
		}, api.AuthRefused, wire.ReasonBadToken, "", api.RequestRefused, false},
		{"for another one", func(_ *bed, _ *box, _ *endpoint.Caller, a *wire.Ask) {
			a.Identity.ClusterID = silo
		}, api.AuthRefused, wire.ReasonNotPermitted, "", api.RequestRefused, false},
		{"as ourselves", func(_ *bed, _ *box, c *endpoint.Caller, a *wire.Ask) {
			c.ID, a.Identity.ClusterID = self, self
		}, api.AuthRefused, wire.ReasonOtherKey, "", api.RequestRefused, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, x := newBed(t, asks()), newBox(t, barn)
			c, a := x.caller("192.0.2.7"), x.ask()
			if tc.before != nil {
				tc.before(b, x, &c, &a)
			}
			got := b.Ask(ctx, c, a)
			if got.Auth != tc.auth || got.Reason != tc.reason || got.Message == "" {
				t.Errorf("answer %+v, want %s, %s", got, tc.auth, tc.reason)
			}
			pin, s := b.Pin(barn), b.Policy(barn)
			switch {
			case tc.pinned == "" && pin != nil, tc.pinned != "" && (pin == nil || pin.Method != tc.pinned):
				t.Errorf("pin %+v, want %q", pin, tc.pinned)
			case got.Auth == api.AuthAccepted && pin.Fingerprint != x.fp():
				t.Errorf("accepted with key %s while %s is trusted", x.fp(), pin.Fingerprint)
			}
			if s.Accept.Phase != tc.phase || s.Accept.Message == "" || s.Accept.Reason == "" {
				t.Errorf("its requests: %+v, want %s", s.Accept, tc.phase)
			}
			if s.Asked != (got.Auth == api.AuthAccepted) {
				t.Errorf("asked = %t after %s", s.Asked, got.Auth)
			}
			waits := false
			for _, r := range b.Requests() {
				waits = waits || r.ID == barn && r.Fingerprint == c.Shown.Fingerprint
			}
			if waits != tc.queued {
				t.Errorf("waits = %t, want %t", waits, tc.queued)
			}
			if rejectedReason := got.Reason == ReasonRejected; !rejectedReason && got.Auth == api.AuthRefused && tc.pinned == "" && b.Preferences(barn).AutoAccept != state.Undecided {
				t.Error("a refused ask changed what is remembered")
			}
			// The same again: the same, and nothing is written.
			b.quiet("the second ask", func() {
				if again := b.Ask(ctx, c, a); again != got && (tc.reason != wire.ReasonTrusted || again.Auth != got.Auth) {
					t.Errorf("asked again: %+v, want %+v", again, got)
				}
			})
			// And what was decided outlives the agent.
			b.restart(b.currentPolicy().Policy)
			if after := b.Policy(barn); after.Accept != s.Accept || (after.Pin == nil) != (s.Pin == nil) {
				t.Errorf("after a restart: %+v, want %+v", after, s)
			}
		})
	}
}

// TestReplayedInvite: the same bearer may repeat itself, because answers get
// lost; with another key or ID the token is worth nothing.
func TestReplayedInvite(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	a := x.ask()
	_, invite := invited(t, b, &a)
	for range 2 {
		if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted {
			t.Fatalf("the bearer: %+v", got)
		}
	}
	thief := newBox(t, barn)
	if got := b.Ask(t.Context(), thief.caller("192.0.2.7"), a); got.Reason != wire.ReasonOtherKey {
		t.Errorf("the thief of ID and token: %+v", got)
	}
	thief.id, a.Identity.ClusterID = silo, silo
	if got := b.Ask(t.Context(), thief.caller("192.0.2.7"), a); got.Reason != wire.ReasonBadToken || !strings.Contains(got.Message, "used already") {
		t.Errorf("the thief of the token: %+v", got)
	}
	must(t, b.Forget(t.Context(), barn, "alice"))
	a.Identity.ClusterID = barn
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Reason != wire.ReasonBadToken {
		t.Errorf("the bearer, after it was forgotten: %+v", got)
	}
	all, err := b.Invites(t.Context())
	must(t, err)
	if len(all) != 1 || all[0].ID != invite.ID || all[0].UsedBy != barn {
		t.Errorf("invites = %+v", all)
	}
	if got := b.history(self); got != "invite-created" {
		t.Errorf("our history: %s", got)
	}
}

// TestTwoBearers of one invite at once: exactly one gets in.
func TestTwoBearers(t *testing.T) {
	for range 10 {
		b := newBed(t, asks())
		token, _, err := b.Invite(t.Context(), time.Hour, "", "alice")
		must(t, err)
		answers := make([]wire.Answer, 4)
		var boxes []*box
		for i := range answers {
			boxes = append(boxes, newBox(t, peer.ClusterID(fmt.Sprint("bearer-", i))))
		}
		var wg sync.WaitGroup
		for i, x := range boxes {
			c, a := x.caller("192.0.2.7"), x.ask()
			a.Token = token.Wire()
			wg.Go(func() { answers[i] = b.Ask(t.Context(), c, a) })
		}
		wg.Wait()
		won := 0
		for i, x := range boxes {
			in := answers[i].Auth == api.AuthAccepted
			if in {
				won++
			} else if answers[i].Reason != wire.ReasonBadToken {
				t.Errorf("bearer %d: %+v", i, answers[i])
			}
			if in != (b.Pin(x.id) != nil) {
				t.Errorf("bearer %d: %+v, pin %+v", i, answers[i], b.Pin(x.id))
			}
		}
		if won != 1 {
			t.Fatalf("%d of the bearers got in", won)
		}
	}
}

// TestGuessing: after ten wrong tokens from an address or a key, one more is checked
// every badTokenPause. Right tokens and other callers do not wait.
func TestGuessing(t *testing.T) {
	b, x, guesser := newBed(t, asks()), newBox(t, barn), newBox(t, silo)
	good := x.ask()
	invited(t, b, &good)
	guess := func(who *box, address string, n int) wire.Answer {
		a := who.ask()
		a.Token = fmt.Sprintf("%016x.%032x", n, n)
		return b.Ask(t.Context(), who.caller(address), a)
	}
	busy := func(got wire.Answer) bool {
		return got.Reason == wire.ReasonBusy && got.Auth == api.AuthPending
	}
	for i := range maxBadTokens {
		if got := guess(guesser, "192.0.2.66", i); got.Reason != wire.ReasonBadToken {
			t.Fatalf("guess %d: %+v", i, got)
		}
	}
	// It is slowed down with its key, from wherever, and at its address, with whatever
	// key.
	for _, address := range []string{"192.0.2.66", "192.0.2.67"} {
		if got := guess(guesser, address, 99); !busy(got) {
			t.Errorf("another guess from %s: %+v", address, got)
		}
	}
	if got := guess(newBox(t, silo), "192.0.2.66", 98); !busy(got) {
		t.Errorf("another key at the address: %+v", got)
	}
	// Nobody else is, however many guess, nor a right token at the same address.
	for i := range 5 * maxBadTokens {
		if got := guess(newBox(t, silo), fmt.Sprintf("192.0.2.%d", 100+i), i); got.Reason != wire.ReasonBadToken {
			t.Fatalf("guess %d of others: %+v", i, got)
		}
	}
	if got := b.Ask(t.Context(), x.caller("192.0.2.66"), good); got.Auth != api.AuthAccepted {
		t.Errorf("a good token meanwhile: %+v", got)
	}
	b.pass(badTokenPause)
	if got := guess(guesser, "192.0.2.66", 100); got.Reason != wire.ReasonBadToken {
		t.Errorf("a pause later: %+v", got)
	}
	if got := guess(guesser, "192.0.2.66", 101); !busy(got) {
		t.Errorf("at once after that: %+v", got)
	}
	// Slow mistakes never add up.
	y := newBox(t, silo)
	for range 50 {
		if got := guess(y, "192.0.2.8", 1); got.Reason != wire.ReasonBadToken {
			t.Fatalf("a slow mistake: %+v", got)
		}
		b.pass(badTokenPause + time.Second)
	}
}

// TestFlood: a thousand asks of strangers from many addresses fill the queue and
// no more; who was there before stays.
func TestFlood(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), x.ask()); got.Reason != wire.ReasonAsksPerson {
		t.Fatalf("before the flood: %+v", got)
	}
	flood := newBox(t, silo)
	c := flood.caller("192.0.2.1")
	a := flood.ask()
	waits, busy := 0, 0
	before := b.store.Transactions()
	for i := range 1000 {
		id := peer.ClusterID(fmt.Sprint("flood-", i))
		c.ID, a.Identity.ClusterID = id, id
		c.Shown.Fingerprint = peer.FingerprintOf([]byte(id))
		c.Source = c.Source.Next()
		switch got := b.Ask(t.Context(), c, a); got.Reason {
		case wire.ReasonAsksPerson:
			waits++
		case wire.ReasonBusy:
			busy++
		default:
			t.Fatalf("ask %d: %+v", i, got)
		}
	}
	requests := b.Requests()
	if waits != maxWaiting-1 || busy != 1000-waits || len(requests) != maxWaiting || requests[0].ID != barn {
		t.Errorf("%d wait, %d were turned away, %d are listed, first %s", waits, busy, len(requests), requests[0].ID)
	}
	if wrote := b.store.Transactions() - before; wrote > noteStrangersBurst {
		t.Errorf("strangers caused %d writes", wrote)
	}
	b.mu.Lock()
	told := len(b.changed)
	b.mu.Unlock()
	if told > maxWaiting || len(b.records) != 0 || len(b.Wanted()) != 0 {
		t.Errorf("%d peers were told of, %d are remembered, %d wanted", told, len(b.records), len(b.Wanted()))
	}
	// Who keeps asking keeps its place; those who do not make room.
	b.pass(waitingFor / 2)
	b.Ask(t.Context(), x.caller("192.0.2.7"), x.ask())
	b.pass(waitingFor / 2)
	if requests := b.Requests(); len(requests) != 1 || requests[0].ID != barn || !requests[0].Since.Equal(epoch) {
		t.Errorf("after the flood: %+v", requests)
	}
}

func TestSourcesAreLimited(t *testing.T) {
	for _, sources := range [][]string{
		{"192.0.2.7", "192.0.2.7", "::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7"},
		{"2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::", "2001:db8::4", "2001:db8::5"},
		{"fe80::1%eth0", "fe80::2%eth0", "fe80::3%eth1", "fe80::4%eth0", "fe80::5%eth0"},
	} {
		b := newBed(t, asks())
		for i, source := range sources {
			x := newBox(t, peer.ClusterID(fmt.Sprint("box-", i)))
			want := wire.ReasonAsksPerson
			if i >= maxWaitingPerSource {
				want = wire.ReasonBusy
			}
			if got := b.Ask(t.Context(), x.caller(source), x.ask()); got.Reason != want {
				t.Errorf("ask %d from %s: %+v", i, source, got)
			}
		}
		// One that waits moves where no place is left: it stays where it was.
		elsewhere := newBox(t, "mover")
		b.Ask(t.Context(), elsewhere.caller("198.51.100.1"), elsewhere.ask())
		if got := b.Ask(t.Context(), elsewhere.caller(sources[0]), elsewhere.ask()); got.Reason != wire.ReasonAsksPerson {
			t.Errorf("the one that moved: %+v", got)
		}
		if from := b.queue.from(throttle.Source(elsewhere.caller(sources[0]).Source)); from != maxWaitingPerSource {
			t.Errorf("%d asks from one source", from)
		}
	}
}

// TestOpenIsBounded: an open configuration does not let strangers fill the disk.
func TestOpenIsBounded(t *testing.T) {
	b, x := newBed(t, Policy{Accept: "all"}), newBox(t, barn)
	b.mu.Lock()
	for i := range maxUnvouched {
		id := peer.ClusterID(fmt.Sprint("open-", i))
		b.records[id] = record{Ruling: state.Ruling{Pin: state.Pin{Pin: peer.Pin{ID: id, Fingerprint: peer.Fingerprint{1}, Method: peer.TrustOpen}}}}
	}
	b.mu.Unlock()
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), x.ask()); got.Reason != wire.ReasonBusy || b.Pin(barn) != nil {
		t.Errorf("one too many: %+v", got)
	}
	b.policy.AutojoinUntrusted = true
	if b.Proved(t.Context(), barn, x.shown()); b.Pin(barn) != nil {
		t.Error("one too many was found and trusted")
	}
}

// TestRefusedKeyIsNotedRarely: somebody who keeps using a trusted peer's name
// fills neither the disk nor the log.
func TestRefusedKeyIsNotedRarely(t *testing.T) {
	b, thief := newBed(t, asks()), newBox(t, barn)
	must(t, b.Trust(t.Context(), barn, peer.Fingerprint{1}, "alice"))
	c, a := thief.caller("192.0.2.9"), thief.ask()
	for range 100 {
		b.Ask(t.Context(), c, a)
	}
	if got := b.history(barn); got != "trusted key-refused" {
		t.Errorf("history: %s", got)
	}
	if detail := b.events(barn)[1].Detail; !strings.Contains(detail, thief.fp().String()) || !strings.Contains(detail, "192.0.2.9") {
		t.Errorf("detail: %s", detail)
	}
	if refused := b.record(barn).refused; refused != thief.fp() {
		t.Errorf("refused key: %s", refused)
	}
	b.pass(noteAgain)
	b.Ask(t.Context(), c, a)
	for i := range 100 {
		c.Shown.Fingerprint = peer.Fingerprint{2, byte(i)}
		b.Ask(t.Context(), c, a)
	}
	if n := len(b.events(barn)); n < 3 || n > 2+2*noteStrangersBurst {
		t.Errorf("%d events", n)
	}
}

// TestHostileGreeting: what a stranger says about itself ends up on terminals
// and in commands.
func TestHostileGreeting(t *testing.T) {
	b := newBed(t, asks())
	for i, name := range []string{"$(reboot)", "a\x1b[31m", strings.Repeat("x", 1000), "-rf", "", "a b"} {
		x := newBox(t, peer.ClusterID(fmt.Sprint("box-", i)))
		a := x.ask()
		a.Identity.ClusterName, a.Identity.GuestNamespace = name, name
		a.URL = "https://192.0.2.7:1/\x1b" + name
		got := b.Ask(t.Context(), x.caller(fmt.Sprintf("192.0.2.%d", i)), a)
		if want := "peers accept " + string(x.id); !strings.HasSuffix(got.Message, want) {
			t.Errorf("message %q, want it to end in %q", got.Message, want)
		}
	}
	for _, r := range b.Requests() {
		if !text.Printable(r.Name) || len(r.Name) > peer.MaxClusterNameLength || r.Namespace != "" || !strings.HasSuffix(r.URL, ":6447") {
			t.Errorf("request %+v", r)
		}
		if r.Code != trust.Code(b.own, r.Fingerprint) || r.Code == "" {
			t.Errorf("code %q", r.Code)
		}
	}
}

// TestVoidInvites: who holds the right secret is told what is wrong.
func TestVoidInvites(t *testing.T) {
	for says, void := range map[string]func(b *bed, i state.Invite){
		"was revoked":   func(b *bed, i state.Invite) { must(b.t, b.RevokeInvite(b.t.Context(), i.ID, "x")) },
		"has expired":   func(b *bed, _ state.Invite) { b.pass(time.Hour) },
		"does not know": func(b *bed, _ state.Invite) { b.restartEmpty() },
	} {
		b, x := newBed(t, asks()), newBox(t, barn)
		a := x.ask()
		_, invite := invited(t, b, &a)
		void(b, invite)
		if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Reason != wire.ReasonBadToken || !strings.Contains(got.Message, says) {
			t.Errorf("%+v, want it to say %q", got, says)
		}
	}
}

// TestDecidedMeanwhile: a person's decision that comes while an ask is looked at
// wins.
func TestDecidedMeanwhile(t *testing.T) {
	ctx := t.Context()
	for name, decide := range map[string]func(b *bed) error{
		"distrusted":             func(b *bed) error { return b.Distrust(ctx, barn, "alice") },
		"blocked":                func(b *bed) error { return b.Block(ctx, barn, "alice") },
		"another key is trusted": func(b *bed) error { return b.Trust(ctx, barn, peer.Fingerprint{1}, "alice") },
	} {
		b, x := newBed(t, asks()), newBox(t, barn)
		a := x.ask()
		_, invite := invited(t, b, &a)
		must(t, decide(b))
		pin := b.Pin(barn)
		if got := b.useInvite(ctx, x.caller("192.0.2.7"), invite); got.Auth != api.AuthRefused {
			t.Errorf("%s, with an invite: %+v", name, got)
		}
		if got := b.pinAndAdmit(ctx, x.caller("192.0.2.7"), a, b.open(barn, x.shown(), "x")); got.Auth != api.AuthRefused {
			t.Errorf("%s, open: %+v", name, got)
		}
		if now := b.Pin(barn); (now == nil) != (pin == nil) || now != nil && *now != *pin {
			t.Errorf("%s: pin %+v", name, now)
		}
		if all, err := b.Invites(ctx); err != nil || !all[0].Live(b.clock()) {
			t.Errorf("%s: the invite is used up: %+v, %v", name, all, err)
		}
	}
}

// TestAttackQueue: whoever asks cannot have its place in the queue again for another
// name before the hour is over, so that what is shown of those who wait costs the API
// server a bounded number of writes.
func TestAttackQueue(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	c, a := x.caller("192.0.2.7"), x.ask()
	shown := make(map[peer.ClusterID]bool)
	for i := range 100 {
		id := peer.ClusterID(fmt.Sprint("name-", i))
		c.ID, a.Identity.ClusterID = id, id
		for _, token := range []string{"", "0123456789abcdef.c2VjcmV0LXNlY3JldA", ""} {
			a.Token = token
			b.Ask(t.Context(), c, a)
			if b.Policy(id).Ask != nil {
				shown[id] = true
			}
		}
	}
	attack.Attempt{What: "show a hundred names one after the other, each taken back by a wrong token", As: "stranger on the LAN",
		Want: "4 ForeignClusters an hour"}.Saw(t, fmt.Sprintf("%d ForeignClusters an hour", len(shown)))
}

// TestAskWithKubectl: a question is shown as it can be answered, and answering it by
// trusting the key that was shown lets in that key and no other.
func TestAskWithKubectl(t *testing.T) {
	ctx := t.Context()
	x := newBox(t, barn)
	begin := func() *bed {
		b := newBed(t, asks())
		b.Ask(ctx, x.caller("192.0.2.7"), x.ask())
		got := b.Policy(barn).Ask
		if got == nil || got.Name != "The barn" || got.Fingerprint != x.fp() || got.From != "192.0.2.7" || got.Code != trust.Code(b.own, x.fp()) || !got.Until.Equal(epoch.Add(waitingFor)) {
			t.Fatalf("asks %+v", got)
		}
		return b
	}
	b := begin()
	must(t, b.TrustEdited(ctx, barn, api.TrustTrusted, x.fp(), "kubectl", "1"))
	must(t, b.Decided(ctx, barn, true, x.fp(), "kubectl"))
	if s := b.Policy(barn); s.Accept.Phase != api.RequestAccepted || !s.Asked || s.Ask != nil || len(b.Requests()) != 0 || !strings.Contains(b.history(barn), "trusted accepted") {
		t.Errorf("accepted: %+v, history %s", s, b.history(barn))
	}
	if told := b.told(); len(told) == 0 || told[len(told)-1].URL != "https://192.0.2.7:6447" {
		t.Errorf("told %+v", told)
	}
	b.quiet("the second time", func() { must(t, b.Decided(ctx, barn, true, x.fp(), "kubectl")) })
	// By the status of its PeeringRequest it is refused, and accepted again.
	must(t, b.Decided(ctx, barn, false, peer.Fingerprint{}, "kubectl"))
	if s := b.Policy(barn); s.Accept.Phase != api.RequestRefused || s.Accept.Reason != ReasonRejected {
		t.Errorf("refused: %+v", s.Accept)
	}
	must(t, b.Decided(ctx, barn, true, peer.Fingerprint{}, "kubectl"))
	if s := b.Policy(barn); s.Accept.Phase != api.RequestAccepted {
		t.Errorf("accepted again: %+v", s.Accept)
	}
	must(t, b.Block(ctx, barn, "alice"))
	b.quiet("a block", func() { must(t, b.Decided(ctx, barn, true, x.fp(), "kubectl")) })

	b = begin()
	must(t, b.TrustEdited(ctx, barn, api.TrustUntrusted, x.fp(), "kubectl", "1"))
	if got := b.Ask(ctx, x.caller("192.0.2.7"), x.ask()); got.Auth != api.AuthRefused || b.Policy(barn).Ask != nil {
		t.Errorf("refused: %+v, %+v", got, b.Policy(barn).Ask)
	}

	b = begin()
	other := peer.Fingerprint{9}
	must(t, b.TrustEdited(ctx, barn, api.TrustTrusted, other, "kubectl", "1"))
	must(t, b.Decided(ctx, barn, true, x.fp(), "kubectl"))
	attack.Attempt{What: "be let in by the answer to a question with another key", As: "stranger on the LAN", Want: "Pending"}.Saw(t, string(b.Policy(barn).Accept.Phase))
}

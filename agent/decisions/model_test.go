package decisions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// story is what a person would tell who watched everything that was done about
// one peer: the last words that count, not how they are kept.
type story struct {
	key        peer.Fingerprint // the one trusted
	method     peer.TrustMethod
	distrusted bool
	blocked    bool
	wish       string // last word about connecting: "", yes, no
	once       bool
	hungUp     bool
	forgotten  bool // and objects may still say what was wanted
	theyEnded  bool
	let        string // last word about letting in: "", yes, no
	rejected   peer.Fingerprint
	ended      bool
	joined     bool
	served     bool
	waits      bool // its ask waits for a person; the agent's restart ends that
}

func (s story) connect(p config.StaticPeer, autojoin bool) plan.Tristate {
	no := s.blocked || p.Connect == "never" || s.hungUp || s.theyEnded
	vouched := s.method == peer.TrustStatic || s.method == peer.TrustOpen
	switch {
	case no:
		return plan.No
	case s.once || s.wish == "yes":
		return plan.Yes
	case s.wish == "no":
		return plan.No
	case p.Connect == "auto" || autojoin && vouched:
		return plan.Yes
	case s.forgotten:
		return plan.No
	}
	return plan.Unset
}

func (s story) accept(p config.StaticPeer, policy string) api.RequestPhase {
	never := s.blocked || s.key.IsZero() || p.Accept == "never" || s.rejected == s.key
	switch {
	case never:
		return api.RequestRefused
	case s.let == "no":
		return api.RequestPending
	case s.let == "yes" || p.Accept == "auto" || policy == "all" || policy == "trusted":
		return api.RequestAccepted
	case policy == "none":
		return api.RequestRefused
	}
	return api.RequestPending
}

// named is what the configuration does to the pin.
func (s *story) named(p config.StaticPeer) {
	var key peer.Fingerprint
	if p.Fingerprint != "" {
		key, _ = peer.ParseFingerprint(p.Fingerprint)
	}
	if s.method == peer.TrustStatic && s.key != key {
		s.key, s.method = peer.Fingerprint{}, ""
	}
	if !key.IsZero() && s.key != key && !s.distrusted {
		s.key, s.method = key, peer.TrustStatic
	}
}

// TestStories does random things to a few peers, restarts included, and
// compares with what a watcher would tell after each of them.
func TestStories(t *testing.T) {
	ctx := context.Background()
	ids := []peer.ClusterID{barn, silo}
	keys := []peer.Fingerprint{{1}, {2}, {3}}
	boxes := map[peer.ClusterID]*box{barn: newBox(t, barn), silo: newBox(t, silo)}
	b := newBed(t, asks())
	rapid.Check(t, func(r *rapid.T) {
		policy := asks()
		must(t, b.store.Apply(ctx, state.Change{Forget: ids}))
		b.restart(policy)
		stories := map[peer.ClusterID]*story{barn: {}, silo: {}}
		stamp := 0
		anID := rapid.SampledFrom(ids)
		aKey := rapid.SampledFrom(keys)
		fixed := func(id peer.ClusterID) config.StaticPeer {
			for _, p := range policy.Static {
				if p.ID == string(id) {
					return p
				}
			}
			return config.StaticPeer{}
		}
		expect := func(what string, err error, ok bool) {
			if (err == nil) != ok {
				r.Fatalf("%s: %v, want success %t", what, err, ok)
			}
		}
		trusts := func(id peer.ClusterID, s *story, key peer.Fingerprint) bool {
			if p := fixed(id); p.Fingerprint != "" && p.Fingerprint != key.String() {
				return false
			}
			if s.key != key || s.method != peer.TrustInvite {
				s.method = peer.TrustPerson
			}
			s.key, s.distrusted = key, false
			return true
		}
		let := func(s *story) { s.let, s.rejected, s.ended = "yes", peer.Fingerprint{}, false }
		connects := func(id peer.ClusterID, s *story, once bool) bool {
			if s.blocked || fixed(id).Connect == "never" {
				return false
			}
			s.hungUp, s.theyEnded, s.forgotten = false, false, false
			if s.once = once; !once {
				s.wish = "yes"
			}
			return true
		}
		disconnects := func(s *story) { s.wish, s.once, s.hungUp, s.theyEnded, s.forgotten = "no", false, false, false, false }
		// on makes an action about a random peer.
		on := func(do func(id peer.ClusterID, s *story)) func(*rapid.T) {
			return func(rt *rapid.T) {
				id := anID.Draw(rt, "peer")
				do(id, stories[id])
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"trust": on(func(id peer.ClusterID, s *story) {
				key := aKey.Draw(r, "key")
				expect("trust", b.Trust(ctx, id, key, "a"), trusts(id, s, key))
			}),
			"trust by kubectl": on(func(id peer.ClusterID, s *story) {
				key := aKey.Draw(r, "key")
				stamp++
				trusts(id, s, key)
				expect("trustMode", b.TrustEdited(ctx, id, api.TrustTrusted, key, "k", fmt.Sprint(stamp)), true)
			}),
			"distrust": on(func(id peer.ClusterID, s *story) {
				s.key, s.method, s.distrusted = peer.Fingerprint{}, "", true
				expect("distrust", b.Distrust(ctx, id, "a"), true)
			}),
			"undecide": on(func(id peer.ClusterID, s *story) {
				stamp++
				s.key, s.method, s.distrusted = peer.Fingerprint{}, "", false
				s.named(fixed(id))
				expect("trustMode", b.TrustEdited(ctx, id, api.TrustUnknown, peer.Fingerprint{}, "k", fmt.Sprint(stamp)), true)
			}),
			"connect": on(func(id peer.ClusterID, s *story) {
				once := rapid.Bool().Draw(r, "once")
				anew := b.Policy(id).Generation
				ok := connects(id, s, once)
				if expect("connect", b.Connect(ctx, id, once, "a"), ok); ok != (b.Policy(id).Generation == anew+1) {
					r.Fatalf("anew %d after %d", b.Policy(id).Generation, anew)
				}
			}),
			"join": on(func(id peer.ClusterID, s *story) {
				stamp++
				if join := rapid.Bool().Draw(r, "join"); join {
					connects(id, s, false)
					expect("join", b.JoinEdited(ctx, id, true, "k", fmt.Sprint(stamp)), true)
				} else {
					disconnects(s)
					expect("join", b.JoinEdited(ctx, id, false, "k", fmt.Sprint(stamp)), true)
				}
				expect("join again", b.JoinEdited(ctx, id, rapid.Bool().Draw(r, "again"), "k", fmt.Sprint(stamp)), true)
			}),
			"disconnect": on(func(id peer.ClusterID, s *story) {
				disconnects(s)
				expect("disconnect", b.Disconnect(ctx, id, "a"), true)
			}),
			"hang up": on(func(id peer.ClusterID, s *story) {
				s.hungUp, s.once = true, s.once && s.hungUp
				expect("hang up", b.HungUp(ctx, id, "k"), true)
			}),
			"return": on(func(id peer.ClusterID, s *story) {
				s.hungUp = false
				b.Returned(id)
			}),
			"they end": on(func(id peer.ClusterID, s *story) {
				s.theyEnded, s.once = true, s.once && s.theyEnded
				expect("ended", b.EndedByProvider(ctx, id, b.Policy(id).Generation, "r"), true)
			}),
			"accept": on(func(id peer.ClusterID, s *story) {
				key := aKey.Draw(r, "key")
				ok := !s.blocked && fixed(id).Accept != "never" && (s.key == key || trusts(id, s, key))
				if ok {
					let(s)
					s.waits = false
				}
				expect("accept", b.Accept(ctx, id, key, "a"), ok)
			}),
			"reject": on(func(id peer.ClusterID, s *story) {
				ok := !s.key.IsZero() || s.waits
				if ok {
					if s.rejected = s.key; s.key.IsZero() {
						s.rejected = boxes[id].fp()
					}
					s.waits = false
					if s.let == "yes" {
						s.let = "no"
					}
				}
				expect("reject", b.Reject(ctx, id, "a"), ok)
			}),
			"end here": on(func(id peer.ClusterID, s *story) {
				s.let, s.ended = "no", true
				if rapid.Bool().Draw(r, "kubectl") {
					expect("ended here", b.EndedHere(ctx, id, "r"), true)
				} else {
					expect("incoming", b.DisconnectIncoming(ctx, id, "a", "r"), true)
				}
			}),
			"block": on(func(id peer.ClusterID, s *story) {
				s.once = s.once && s.blocked
				s.blocked, s.waits = true, false
				expect("block", b.Block(ctx, id, "a"), true)
			}),
			"unblock": on(func(id peer.ClusterID, s *story) {
				if s.blocked {
					s.blocked = false
					s.wish, s.let, s.once = "no", "no", false
				}
				expect("unblock", b.Unblock(ctx, id, "a"), true)
			}),
			"set": on(func(id peer.ClusterID, s *story) {
				d := rapid.SampledFrom([]state.Decision{state.Undecided, state.No, state.Yes}).Draw(r, "decision")
				word := map[state.Decision]string{state.No: "no", state.Yes: "yes"}[d]
				if rapid.Bool().Draw(r, "accept") {
					if s.let != word && word != "no" {
						s.rejected, s.ended = peer.Fingerprint{}, false
					}
					s.let = word
					expect("set accept", b.Set(ctx, id, func(p *state.Preferences) { p.AutoAccept = d }, "a"), true)
					return
				}
				ok := true
				switch {
				case s.wish == word:
				case word == "yes":
					ok = connects(id, s, false)
				case word == "no":
					disconnects(s)
				default:
					s.wish = ""
				}
				expect("set connect", b.Set(ctx, id, func(p *state.Preferences) { p.AutoConnect = d }, "a"), ok)
			}),
			"joined": on(func(id peer.ClusterID, s *story) {
				was := s.joined
				if s.joined = rapid.Bool().Draw(r, "joined"); was && !s.joined {
					s.once = false
				}
				expect("joined", b.Joined(ctx, id, s.joined, "w"), true)
			}),
			"served": on(func(id peer.ClusterID, s *story) {
				was := s.served
				if s.served = rapid.Bool().Draw(r, "served"); !was && s.served {
					s.ended = false
				}
				expect("served", b.Served(ctx, id, s.served, "w"), true)
			}),
			"ask": on(func(id peer.ClusterID, s *story) {
				x := boxes[id]
				a := x.ask()
				a.Fresh = rapid.Bool().Draw(r, "fresh")
				key := x.fp()
				known := s.key == key
				if s.key.IsZero() && !s.blocked && !s.distrusted && fixed(id).Fingerprint == "" && fixed(id).Accept != "never" && policy.Accept == "all" {
					s.key, s.method, known = key, peer.TrustOpen, true
				}
				in := known && s.accept(fixed(id), policy.Accept) != api.RequestRefused
				if in && a.Fresh {
					s.ended = false
				}
				stranger := s.key.IsZero() && !s.blocked && !s.distrusted && fixed(id).Fingerprint == "" && fixed(id).Accept != "never"
				s.waits = stranger && s.rejected != key && policy.Accept == "ask"
				got := b.Ask(ctx, x.caller("192.0.2.7"), a)
				if (got.Auth == api.AuthAccepted) != in || (got.Reason == wire.ReasonAsksPerson) != s.waits {
					r.Fatalf("ask: %+v, want in %t, wait %t", got, in, s.waits)
				}
			}),
			"forget": on(func(id peer.ClusterID, s *story) {
				*s = story{forgotten: true}
				s.named(fixed(id))
				expect("forget", b.Forget(ctx, id, "a"), true)
			}),
			"forgot": on(func(id peer.ClusterID, s *story) {
				s.forgotten = false
				expect("forgot", b.Forgot(ctx, id), true)
			}),
			"configure": func(rt *rapid.T) {
				policy = Policy{Accept: rapid.SampledFrom([]string{"ask", "trusted", "all", "none"}).Draw(rt, "policy"), Autojoin: rapid.Bool().Draw(rt, "autojoin")}
				for _, id := range ids {
					p := config.StaticPeer{ID: string(id), Connect: rapid.SampledFrom([]string{"", "", "auto", "never"}).Draw(rt, "connect"),
						Accept: rapid.SampledFrom([]string{"", "", "auto", "never"}).Draw(rt, "accept")}
					if rapid.IntRange(0, 3).Draw(rt, "named") == 0 {
						p.Fingerprint = aKey.Draw(rt, "key").String()
					}
					policy.Static = append(policy.Static, p)
					stories[id].named(p)
				}
				expect("configure", b.SetPolicy(ctx, policy), true)
			},
			"restart": func(*rapid.T) {
				b.restart(policy)
				for _, s := range stories {
					s.waits = false
				}
			},
			"": func(rt *rapid.T) {
				for _, id := range ids {
					s, got := stories[id], b.Policy(id)
					want := story{blocked: s.blocked, distrusted: s.distrusted, key: s.key, method: s.method, joined: s.joined, served: s.served, ended: s.ended}
					have := story{blocked: got.Blocked, distrusted: got.Distrusted, joined: got.LastJoined, served: got.LastServed, ended: got.Ended != ""}
					if got.Pin != nil {
						have.key, have.method = got.Pin.Fingerprint, got.Pin.Method
					}
					if have != want {
						rt.Fatalf("%s: %+v, want %+v", id, have, want)
					}
					if c := s.connect(fixed(id), policy.Autojoin); got.Connect != c {
						rt.Fatalf("%s: connect %v because %s, want %v after %+v", id, got.Connect, got.ConnectReason, c, s)
					}
					if a := s.accept(fixed(id), policy.Accept); got.Accept.Phase != a {
						rt.Fatalf("%s: accept %+v, want %v after %+v", id, got.Accept, a, s)
					}
				}
			},
		})
	})
}

// TestConcurrently does everything at once; it is for the race detector, and for
// what must hold in the end.
func TestConcurrently(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, asks())
	boxes := []*box{newBox(t, barn), newBox(t, silo)}
	token, _, err := b.Invite(ctx, time.Hour, "", "x")
	must(t, err)
	type caller struct {
		c endpoint.Caller
		a wire.Ask
	}
	var callers []caller
	for i, x := range boxes {
		a := x.ask()
		a.Fresh = true
		a.Token = token.Wire()
		callers = append(callers, caller{x.caller(fmt.Sprintf("192.0.2.%d", i)), a})
	}
	var wg sync.WaitGroup
	try := func(do func(i int)) {
		wg.Go(func() {
			for i := range 50 {
				do(i)
			}
		})
	}
	for n, x := range boxes {
		id, c := x.id, callers[n]
		try(func(int) { b.Ask(ctx, c.c, c.a) })
		try(func(int) { b.Admit(id, c.c.Shown); b.Proved(ctx, id, c.c.Shown) })
		try(func(int) {
			b.Policy(id)
			b.Requests()
			b.Wanted()
			b.Pins()
			b.Pin(id)
			b.Preferences(id)
		})
		try(func(i int) { _ = b.Trust(ctx, id, peer.Fingerprint{byte(1 + i%3)}, "a") })
		try(func(int) { _ = b.Accept(ctx, id, peer.Fingerprint{}, "a") })
		try(func(int) { _ = b.Connect(ctx, id, false, "a"); _ = b.Disconnect(ctx, id, "a") })
		try(func(i int) { _ = b.Joined(ctx, id, i%2 == 0, ""); b.Returned(id); b.TokenUsed(id) })
		try(func(i int) {
			if i%10 == 0 {
				_ = b.Forget(ctx, id, "a")
			}
		})
	}
	try(func(i int) { _ = b.SetPolicy(ctx, Policy{Accept: []string{"ask", "all"}[i%2]}) })
	wg.Wait()
	// Memory and disk agree.
	before := map[peer.ClusterID]record{}
	for id, r := range b.records {
		if r.Ruling != (state.Ruling{}) {
			before[id] = record{Ruling: r.Ruling}
		}
	}
	stored, err := b.store.Rulings(ctx)
	must(t, err)
	for id, r := range stored {
		if before[id].Ruling != r {
			t.Errorf("%s: in memory %+v, on the disk %+v", id, before[id].Ruling, r)
		}
	}
	if len(stored) != len(before) {
		t.Errorf("%d in memory, %d on the disk", len(before), len(stored))
	}
	invites, err := b.Invites(ctx)
	must(t, err)
	live := slices.DeleteFunc(slices.Clone(invites), func(i state.Invite) bool { return !i.Live(b.clock()) })
	if kept := b.LiveInvites(); !slices.Equal(kept, live) {
		t.Errorf("live invites in memory %+v, on the disk %+v", kept, live)
	}
	used := slices.DeleteFunc(invites, func(i state.Invite) bool { return i.UsedAt.IsZero() })
	if len(used) > 1 {
		t.Errorf("the invite was used %d times", len(used))
	}
}

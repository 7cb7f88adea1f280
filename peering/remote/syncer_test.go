package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// within reports whether each duration is between those two.
func within(ds []time.Duration, least, most time.Duration) bool {
	return !slices.ContainsFunc(ds, func(d time.Duration) bool { return d < least || d > most })
}

func TestConnectAndStay(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Fresh: true, Request: request(), Reason: "test"}
		b.Set(them, want)
		after(100 * time.Millisecond)
		got := b.Get(them)
		if got.Asked == nil || got.Asked.Auth != api.AuthAccepted || got.State == nil || got.State.Request == nil || got.Err != nil || len(got.CA) == 0 {
			t.Fatalf("%+v", got)
		}
		if got.State.Request.Spec != *request() || !b.asked()[0].Fresh || b.asked()[0].Identity.ClusterID != us || b.asked()[0].Port != 6447 {
			t.Errorf("%+v, asked with %+v", got.State.Request, b.asked())
		}
		if b.count("") != 4 || b.heard().changed != 1 || len(b.heard().reached) != 1 {
			t.Errorf("%v; %d changes, %d reached", b.all(), b.heard().changed, len(b.heard().reached))
		}
		// Somebody says the same again: nothing happens.
		want.Request = request()
		b.Set(them, want)
		after(time.Second)
		if b.count("") != 4 {
			t.Errorf("%v", b.all())
		}
		// From here on, one small call every 30 s.
		before := b.times("POST " + wire.PathState)
		after(time.Hour)
		if n := b.times("POST "+wire.PathState) - before; n < 110 || n > 130 || b.count("") != n+4 || b.heard().changed != 1 {
			t.Errorf("%d looks, %d changes: %v", n, b.heard().changed, b.all())
		}
		if gaps := b.gaps("POST " + wire.PathState)[1:]; !within(gaps, 27*time.Second, 33*time.Second+10*time.Millisecond) || slices.Max(gaps)-slices.Min(gaps) < time.Second {
			t.Errorf("no jitter, or too much: %v to %v", slices.Min(gaps), slices.Max(gaps))
		}
		if at := b.Get(them).At; time.Since(at) > 33*time.Second {
			t.Errorf("the last look was at %v", at)
		}
	})
}

func TestPendingIsAskedAgain(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) {
			x.trusts, x.lets = false, true
			x.answer = wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonAsksPerson, Message: "wait"}
		})
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(2 * time.Minute)
		gaps := b.gaps("POST " + wire.PathAsk)
		for i, base := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			if base *= time.Second; !within(gaps[i:i+1], base*3/4, base*5/4+5*time.Millisecond) {
				t.Errorf("pause %d is %v, want about %v", i, gaps[i], base)
			}
		}
		if b.count("") != b.count("ask") || b.Get(them).Err != nil || b.heard().changed != 1 {
			t.Errorf("%v, %v, %d changes", b.all(), b.Get(them).Err, b.heard().changed)
		}
		// A person accepts, and the peer tells us.
		b.change(func(x *box) { x.answer.Auth = api.AuthAccepted })
		b.Check(them)
		after(100 * time.Millisecond)
		if got := b.Get(them); got.State == nil || got.State.Request == nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestRefusedIsNotAnError(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) {
			x.trusts, x.answer = false, wire.Answer{Auth: api.AuthRefused, Reason: wire.ReasonPolicyNone}
		})
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(10 * time.Minute)
		if n := b.count("ask"); n < 17 || n > 23 || b.count("") != n || b.Get(them).Err != nil || b.Get(them).Failures != 0 {
			t.Errorf("%v, %+v", b.all(), b.Get(them))
		}
	})
}

// The peer was reset, or forgot us: it is asked again, and says no for now.
func TestDeniedAsksAgain(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(time.Second)
		b.change(func(x *box) {
			x.trusts, x.state.Request = false, nil
			x.answer = wire.Answer{Auth: api.AuthPending}
		})
		b.Check(them)
		after(10 * time.Millisecond)
		if got := b.Get(them); got.Denied != wire.ReasonNotTrusted || got.Asked != nil || got.Failures != 1 || got.Err == nil || got.State == nil {
			t.Errorf("%+v", got)
		}
		after(5 * time.Second)
		if got := b.Get(them); got.Denied != wire.ReasonNotTrusted || got.Asked == nil || got.Asked.Auth != api.AuthPending || got.Err != nil {
			t.Errorf("%+v", got)
		}
		b.change(func(x *box) { x.lets, x.answer.Auth = true, api.AuthAccepted })
		after(15 * time.Second)
		if got := b.Get(them); got.State.Request == nil || got.Asked.Auth != api.AuthAccepted || got.Denied != "" {
			t.Errorf("%+v", got)
		}
	})
}

// With a peer that speaks other versions nothing is done, and nothing is lost.
func TestPeerOfAnotherVersion(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(time.Second)
		for speaks, word := range map[peer.Protocol]string{{Oldest: 2, Newest: 3}: "update liqo-agent here", {Oldest: 1, Newest: 2}: ""} {
			b.change(func(x *box) { x.speaks = speaks })
			before := b.count("peeringrequests")
			b.Check(them)
			after(time.Minute)
			got := b.Get(them)
			if (got.Denied == wire.ReasonProtocol) != (word != "") || got.State == nil || got.State.Request == nil || b.count("peeringrequests") != before ||
				(word != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), word) || !strings.Contains(got.Err.Error(), "2-3"))) {
				t.Errorf("%v: %+v", speaks, got)
			}
			b.change(func(x *box) { x.speaks = peer.Protocol{} })
			b.Check(them)
			after(time.Minute)
			if got := b.Get(them); got.Denied != "" || got.Err != nil || got.Asked == nil {
				t.Errorf("after %v: %+v", speaks, got)
			}
		}
	})
}

// What is said in the middle of a look counts for the rest of it.
func TestDeniedWithinALook(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.state.AdvertisementWelcome = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		after(3 * time.Millisecond) // the request is on its way
		b.change(func(x *box) { x.trusts = false })
		after(500 * time.Millisecond)
		if b.count("peeringrequests") != 1 || b.count("advertisements") != 0 || b.Get(them).Denied == "" {
			t.Errorf("%v, %+v", b.all(), b.Get(them))
		}
	})
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.state.AdvertisementWelcome, x.rbac = true, false })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		after(10 * time.Millisecond)
		if err := b.Get(them).Err; b.count("advertisements") != 1 || strings.Count(err.Error(), "forbidden") != 2 {
			t.Errorf("one that is refused keeps the other from being tried: %v", err)
		}
	})
}

// Who did not answer, or was too busy to, has not taken back that it denied us.
func TestDeniedUntilItSaysOtherwise(t *testing.T) {
	for name, change := range map[string]func(*box){
		"too many":   func(x *box) { x.too = time.Second },
		"no answer":  func(x *box) { x.dead = true },
		"has failed": func(x *box) { x.failed = true },
	} {
		t.Run(name, func(t *testing.T) {
			lay(t, func(b *bed) {
				b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
				after(time.Second)
				b.change(func(x *box) { x.trusts = false })
				b.Check(them)
				after(10 * time.Millisecond)
				b.change(change)
				after(5 * time.Second)
				if got := b.Get(them); got.Denied != wire.ReasonNotTrusted || got.Failures < 2 || strings.Contains(got.Err.Error(), wire.ReasonNotTrusted) {
					t.Errorf("%+v", got)
				}
				b.change(func(x *box) { x.too, x.dead, x.failed, x.trusts = 0, false, false, true })
				after(time.Minute)
				if got := b.Get(them); got.Denied != "" || got.Err != nil {
					t.Errorf("%+v", got)
				}
			})
		})
	}
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.trusts = false })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
		after(10 * time.Millisecond)
		b.change(func(x *box) { x.trusts, x.rbac = true, false })
		after(5 * time.Second)
		if got := b.Get(them); got.Denied != "" || got.Err == nil || got.State == nil {
			t.Errorf("its API server says no, and its agent did not: %+v", got)
		}
	})
}

// One that blocked us and lets us ask again does not know us: why it does not let us in, its answer says.
func TestDeniedForAnotherReason(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.blocked = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(time.Second)
		if got := b.Get(them); got.Denied != wire.ReasonBlocked || got.Asked != nil {
			t.Errorf("%+v", got)
		}
		b.change(func(x *box) {
			x.blocked, x.trusts, x.answer = false, false, wire.Answer{Auth: api.AuthPending}
		})
		after(time.Minute)
		if got := b.Get(them); got.Denied != wire.ReasonNotTrusted || got.Asked == nil || got.Err != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A person there rejected us, which we heard when we asked after a start, and then accepted the request that was there all
// the time. Nobody asks again, so what was answered must not last.
func TestRefusedWithARequestThere(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) {
			x.answer.Auth = api.AuthRefused
			x.state.Request = &wire.RequestState{UID: "there", Phase: api.RequestRefused, Spec: *request()}
		})
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Advertisement: offer("4")})
		after(time.Second)
		if got := b.Get(them); got.Asked != nil || got.State == nil || got.State.Request == nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhatTheProviderEndedStaysEnded(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Fresh: true, Request: request()}
		b.change(func(x *box) { x.state.Ended, x.freshly = "a person here ended it", true })
		b.Set(them, want)
		after(time.Second)
		if b.Get(them).State.Request == nil {
			t.Fatal("a fresh one was not begun")
		}
		end := func() { b.change(func(x *box) { x.state.Request, x.state.Ended = nil, "ended again" }) }
		// Fresh is said still, but it was for the one that is over.
		end()
		after(5 * time.Minute)
		want.Reason = "another, which begins nothing"
		b.Set(them, want)
		after(5 * time.Minute)
		want.Fresh = false
		b.Set(them, want)
		after(5 * time.Minute)
		if got := b.Get(them); got.State.Request != nil || got.State.Ended == "" || b.count("PATCH") != 1 {
			t.Errorf("%+v, %v", got.State, b.all())
		}
		// A person wants it again.
		b.change(func(x *box) { x.freshly = true })
		want.Fresh = true
		b.Set(them, want)
		after(time.Second)
		if b.Get(them).State.Request == nil || !b.asked()[len(b.asked())-1].Fresh || len(b.asked()) != 2 {
			t.Errorf("%+v", b.asked())
		}
		// Lost, not ended: it comes back by itself.
		b.change(func(x *box) { x.state.Request = nil })
		after(time.Minute)
		if b.Get(them).State.Request == nil {
			t.Error("what was lost is not made again")
		}
	})
}

func TestEditsAreRepaired(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.state.AdvertisementWelcome = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		after(time.Second)
		b.change(func(x *box) {
			x.state.Request.Spec.AuthURL = "https://elsewhere"
			x.state.Advertisement.Spec.ResourceQuota.Hard = map[string]string{"cpu": "1000"}
		})
		after(time.Minute)
		if s := b.Get(them).State; s.Request.Spec != *request() || !sameOffer(s.Advertisement.Spec, *offer("4")) {
			t.Errorf("%+v %+v", s.Request, s.Advertisement)
		}
		// What was refused is tried again, what was not welcome is not.
		b.change(func(x *box) { x.state.AdvertisementWelcome, x.state.Advertisement = false, nil })
		n := b.count("PATCH")
		after(10 * time.Minute)
		if b.count("PATCH") != n {
			t.Error("an unwelcome offer is made")
		}
		b.change(func(x *box) { x.state.AdvertisementWelcome = true })
		after(time.Minute)
		if b.Get(them).State.Advertisement == nil {
			t.Error("a welcome offer is not made")
		}
	})
}

// What the other side does not take over is not written for ever.
func TestNothingIsWrittenInVain(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) {
			x.state.AdvertisementWelcome = true
			x.stubborn = func(spec []byte) []byte {
				return []byte(strings.Replace(string(spec), `"cpu":"4"`, `"cpu":"4000m"`, 1))
			}
		})
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Advertisement: offer("4")}
		b.Set(them, want)
		after(10 * time.Minute)
		if n := b.count("PATCH"); n != maxInVain {
			t.Errorf("written %d times", n)
		}
		if !strings.Contains(b.logged(), "insists on another Advertisement") {
			t.Error("nobody is told")
		}
		want.Advertisement = offer("8")
		b.Set(them, want)
		after(time.Minute)
		if n := b.count("PATCH"); n != maxInVain+1 || b.Get(them).State.Advertisement.Spec.ResourceQuota.Hard["cpu"] != "8" {
			t.Errorf("written %d times", n)
		}
		b.change(func(x *box) { x.state.Advertisement.Spec.Labels = map[string]string{"a": "b"} })
		after(time.Minute)
		if n := b.count("PATCH"); n != maxInVain+2 {
			t.Errorf("written %d times", n)
		}
	})
}

// How much is asked for goes only to who takes it: the API server of an older agent refuses a
// request with a field that it does not know.
func TestAmountsGoToWhoTakesThem(t *testing.T) {
	lay(t, func(b *bed) {
		want := request()
		want.Resources = api.RequestedResources{CPU: "2"}
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: want})
		after(10 * time.Minute)
		if got := b.there().Request; got == nil || got.Spec != *request() || b.count("PATCH") != 1 {
			t.Errorf("an older peer has %+v after %d writes", got, b.count("PATCH"))
		}
		b.change(func(x *box) { x.state.TakesResources = true })
		after(10 * time.Minute)
		if got := b.there().Request.Spec; got != *want || b.count("PATCH") != 2 {
			t.Errorf("updated, it has %+v after %d writes", got, b.count("PATCH"))
		}
		less := *want
		less.Resources = api.RequestedResources{CPU: "1", Memory: "1Gi"}
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: &less})
		after(time.Second)
		if got := b.there().Request.Spec; got != less || b.count("PATCH") != 3 {
			t.Errorf("asked for less, it has %+v after %d writes", got, b.count("PATCH"))
		}
		// An agent that went back to an older version knows nothing of what is there.
		b.change(func(x *box) { x.state.TakesResources, x.state.Request.Spec.Resources = false, api.RequestedResources{} })
		after(10 * time.Minute)
		if n := b.count("PATCH"); n != 3 {
			t.Errorf("written %d times", n)
		}
	})
}

// The same edit made again and again is put right each time, also where the
// peer's agent hears of what was written a moment later.
func TestRepeatedEditsAreRepaired(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.state.AdvertisementWelcome, x.lags = true, true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		for i := range 5 {
			after(time.Minute)
			if s := b.there(); s.Request.Spec != *request() || !sameOffer(s.Advertisement.Spec, *offer("4")) {
				t.Fatalf("after edit %d: %+v %+v", i, s.Request, s.Advertisement)
			}
			b.change(func(x *box) {
				x.state.Request.Spec.Namespace = "elsewhere"
				x.state.Request.Generation++
				x.state.Advertisement.Spec.ResourceQuota.Hard = map[string]string{"cpu": "1m"}
				x.state.Advertisement.Generation++
			})
		}
		if strings.Contains(b.logged(), "insists") {
			t.Error("somebody is said to insist")
		}
	})
}

// That a peer does not let us in has nothing to do with what it gets from us.
func TestOfferToAPeerThatDoesNotLetUsIn(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) {
			x.state.AdvertisementWelcome = true
			x.answer = wire.Answer{Auth: api.AuthRefused, Reason: wire.ReasonPolicyNone, Message: "nobody"}
		})
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request(), Advertisement: offer("4")})
		after(time.Minute)
		if s := b.there(); s.Advertisement == nil || s.Request != nil {
			t.Errorf("%+v", s)
		}
		if got := b.Get(them); got.Asked == nil || got.Asked.Auth != api.AuthRefused || got.Err != nil {
			t.Errorf("%+v", got)
		}
		// Who does not know us at all is not offered anything, and its answer stands.
		b.change(func(x *box) { x.trusts = false })
		after(time.Minute)
		if got := b.Get(them); got.Asked == nil || got.Asked.Reason != wire.ReasonPolicyNone || got.Err != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A peer that let us in long ago may have taken back our rights since: we ask
// again and get them.
func TestForbiddenAsksAgain(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.rbac = false })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request()})
		after(time.Minute)
		if n := len(b.asked()); n < 3 {
			t.Errorf("asked %d times", n)
		}
		b.change(func(x *box) { x.rbac = true })
		after(time.Minute)
		if b.there().Request == nil {
			t.Error("the request is not there")
		}
	})
}

func TestUnknownIsNeverGone(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.apiDown, x.state.AdvertisementWelcome = true, true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), Advertisement: offer("4")})
		after(10 * time.Minute)
		if n := b.count(""); n != b.count("state") || n < 20 || n > 35 || b.Get(them).Err != nil {
			t.Errorf("%v", b.all())
		}
		if gaps := b.gaps("POST " + wire.PathState); !within(gaps[:1], 0, 1300*time.Millisecond) {
			t.Errorf("the peer's API server is not waited for: %v", gaps[:4])
		}
		b.change(func(x *box) { x.apiDown = false })
		after(time.Minute)
		if s := b.Get(them).State; s.Request == nil || s.Advertisement == nil {
			t.Errorf("%+v", s)
		}
	})
}

func TestDeletionIsConfirmed(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()}
		b.Set(them, want)
		after(time.Second)
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, RequestGone: true, Reason: "over"})
		after(100 * time.Millisecond)
		if s := b.Get(them).State; s.Request != nil || b.count("DELETE") != 1 {
			t.Errorf("%+v, %v", s, b.all())
		}
		b.Set(them, plan.RemoteSpec{})
		n := b.count("")
		after(2 * time.Hour)
		if b.count("") != n || b.left() != 0 || !sameStatus(b.Get(them), plan.RemoteStatus{}) {
			t.Errorf("something goes on: %v", b.all())
		}
	})
}

// RemoteSpec becomes nothing while the deletion is owed: that is still tried.
func TestDeletionIsOwed(t *testing.T) {
	for name, tc := range map[string]struct {
		hide, show func(*box)
		within     time.Duration
	}{
		"unreachable":     {func(x *box) { x.dead = true }, func(x *box) { x.dead = false }, 40 * time.Second},
		"API server down": {func(x *box) { x.apiDown = true }, func(x *box) { x.apiDown = false }, 40 * time.Second},
		"may not yet":     {func(x *box) { x.rbac = false }, func(x *box) { x.rbac = true }, 40 * time.Second},
		"denied":          {func(x *box) { x.trusts = false }, func(x *box) { x.trusts = true }, 40 * time.Second},
		"too busy":        {func(x *box) { x.too = time.Hour }, func(x *box) { x.too = 0 }, 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			lay(t, func(b *bed) {
				want := plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Request: request(), Advertisement: offer("4")}
				b.change(func(x *box) { x.state.AdvertisementWelcome = true })
				b.Set(them, want)
				after(time.Second)
				b.change(tc.hide)
				calls := b.count("")
				b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, RequestGone: true, AdvertisementGone: true, Reason: "over"})
				after(10 * time.Second)
				b.Set(them, plan.RemoteSpec{})
				b.Set(them, plan.RemoteSpec{})
				after(10 * time.Minute)
				if b.there().Request == nil || b.there().Advertisement == nil {
					t.Fatal("already?")
				}
				if name == "API server down" {
					w := wire.Withdrawal{Request: true, Advertisement: true, Reason: "over"}
					if len(b.withdrawn()) != 1 || b.withdrawn()[0] != w {
						t.Errorf("withdrew %+v", b.withdrawn())
					}
				} else if len(b.withdrawn()) != 0 {
					t.Errorf("withdrew %+v", b.withdrawn())
				}
				// A look every 22.5 seconds at most, some while the pauses grow, and one because of
				// each Set; of three calls each.
				if n := b.count("") - calls; n > 3*(27+6+2) {
					t.Errorf("%d calls in vain in ten minutes", n)
				}
				b.change(tc.show)
				after(tc.within)
				if b.there().Request != nil || b.there().Advertisement != nil {
					t.Errorf("still there: %+v, %v", b.there(), b.Get(them))
				}
				if b.left() != 0 {
					t.Error("the peer is not forgotten")
				}
			})
		})
	}
}

func TestOwedIsGivenUp(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
		after(time.Second)
		b.change(func(x *box) { x.dead = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), RequestGone: true})
		after(30 * time.Minute)
		b.Set(them, plan.RemoteSpec{})
		after(29 * time.Minute)
		n := b.count("")
		after(40 * time.Second)
		if b.count("") == n || b.left() != 1 {
			t.Error("given up before the hour is over")
		}
		after(time.Minute)
		n = b.count("")
		after(2 * time.Hour)
		if b.count("") != n || b.left() != 0 || !strings.Contains(b.logged(), "gave up deleting") {
			t.Errorf("%d calls after the hour, %d peers", b.count("")-n, b.left())
		}
	})
}

// A later word than "gone" counts.
func TestOwedIsTakenBack(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()}
		b.Set(them, want)
		after(time.Second)
		b.change(func(x *box) { x.dead = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), RequestGone: true})
		after(time.Minute)
		b.Set(them, plan.RemoteSpec{})
		after(time.Minute)
		b.Set(them, want)
		b.change(func(x *box) { x.dead = false })
		after(time.Minute)
		if b.count("DELETE") != 0 || b.there().Request == nil {
			t.Error("deleted although it is wanted again")
		}
	})
}

func TestForgetEndsEverythingAtOnce(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.deaf = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), AdvertisementGone: true})
		b.Notify(them)
		after(time.Second)
		if b.underWay() != 2 {
			t.Fatalf("%d calls under way", b.underWay())
		}
		b.Forget(them)
		synctest.Wait()
		n := b.count("")
		if b.underWay() != 0 || b.left() != 0 {
			t.Errorf("%d calls still under way", b.underWay())
		}
		b.Check(them)
		b.Notify(them)
		after(time.Hour)
		if b.count("") != n || b.heard().changed != 0 {
			t.Errorf("%d more calls, %d changes", b.count("")-n, b.heard().changed)
		}
		b.Forget(them)
		// It may begin again.
		b.change(func(x *box) { x.deaf = false })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Second)
		if b.Get(them).State == nil {
			t.Error("not begun again")
		}
	})
}

func TestToken(t *testing.T) {
	const token = "0123456789abcdef.c2VjcmV0LXNlY3JldA"
	for reason, answer := range map[string]wire.Answer{
		wire.ReasonTrusted:  {Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "welcome, " + token},
		wire.ReasonBadToken: {Auth: api.AuthRefused, Reason: wire.ReasonBadToken, Message: "used: " + token},
	} {
		t.Run(reason, func(t *testing.T) {
			lay(t, func(b *bed) {
				b.change(func(x *box) { x.answer, x.dead = answer, true })
				want := plan.RemoteSpec{Target: b.target(), Contact: true, Ask: true, Token: token}
				b.Set(them, want)
				after(10 * time.Second)
				b.change(func(x *box) { x.dead, x.too = false, time.Second })
				after(30 * time.Second)
				if b.heard().tokens != 0 {
					t.Error("used, although nobody answered")
				}
				b.change(func(x *box) { x.too = 0 })
				after(40 * time.Second)
				if b.heard().tokens != 1 || b.asked()[0].Token != token {
					t.Fatalf("used %d times, asked with %+v", b.heard().tokens, b.asked())
				}
				// Until the token is taken back, and the peer denies us again.
				b.change(func(x *box) { x.trusts = false })
				after(5 * time.Minute)
				for _, ask := range b.asked()[1:] {
					if ask.Token != "" {
						t.Error("sent again")
					}
				}
				if len(b.asked()) < 3 || b.heard().tokens != 1 {
					t.Errorf("%d asks, used %d times", len(b.asked()), b.heard().tokens)
				}
				if got := fmt.Sprintf("%+v %+v", b.Get(them), b.Get(them).Asked) + b.logged(); strings.Contains(got, "c2VjcmV0") || strings.Contains(got, "0123456789abcdef") {
					t.Errorf("the secret is told: %s", got)
				}
			})
		})
	}
}

func TestARefusalThatRepeatsTheSecret(t *testing.T) {
	const token = "0123456789abcdef.c2VjcmV0LXNlY3JldA"
	no := refused(client.Response{Status: 403, Body: []byte(`{"error":"bad ` + token + `"}`)}, "let us in")
	if got := cut(no.Error(), token); strings.Contains(got, "c2Vj") || !strings.Contains(got, "bad (secret).(secret)") {
		t.Error(got)
	}
	if got := cut("an apple", ".a."); got != "an apple" {
		t.Error(got)
	}
}

func TestQuickSecondTry(t *testing.T) {
	for name, change := range map[string]func(x *box, yes bool){
		"RBAC": func(x *box, yes bool) { x.rbac = yes },
		"too many": func(x *box, yes bool) {
			if x.too = 1; yes {
				x.too = 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			lay(t, func(b *bed) {
				b.change(func(x *box) { change(x, false) })
				b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
				after(10 * time.Millisecond)
				if got := b.Get(them); got.Failures != 1 || got.Denied != "" || !strings.Contains(got.Err.Error(), "the peer does not ") {
					t.Errorf("%+v", got)
				}
				b.change(func(x *box) { change(x, true) })
				after(250 * time.Millisecond)
				if got := b.Get(them); got.State == nil || got.State.Request == nil || got.Err != nil || got.Failures != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*box)
		call   string
		want   []time.Duration // about
	}{
		"unreachable":     {func(x *box) { x.dead = true }, "POST " + wire.PathState, seconds(1, 2, 4, 8, 16, 30, 30)},
		"RBAC":            {func(x *box) { x.rbac = false }, "PATCH /kube/apis/discovery.liqo.io/v1alpha1/peeringrequests/consumer", seconds(.125, .25, .5, 1, 2, 4, 8, 16, 30, 30)},
		"asks to wait":    {func(x *box) { x.too = 5 * time.Second }, "POST " + wire.PathState, seconds(5, 5, 5, 5, 5, 5, 8, 16, 30)},
		"asks for a year": {func(x *box) { x.too = 365 * 24 * time.Hour }, "POST " + wire.PathState, seconds(60, 60, 60)},
	} {
		t.Run(name, func(t *testing.T) {
			lay(t, func(b *bed) {
				b.change(tc.change)
				b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
				after(10 * time.Minute)
				gaps := b.gaps(tc.call)
				for i, want := range tc.want {
					if !within(gaps[i:i+1], want*3/4, want*5/4+5*time.Millisecond) {
						t.Errorf("pause %d is %v, want about %v", i, gaps[i], want)
					}
				}
				if b.Get(them).Failures < 3 || b.Get(them).Err == nil {
					t.Errorf("%+v", b.Get(them))
				}
			})
		})
	}
}

func seconds(s ...float64) (ds []time.Duration) {
	for _, x := range s {
		ds = append(ds, time.Duration(x*float64(time.Second)))
	}
	return ds
}

func TestNotify(t *testing.T) {
	const notice = "POST " + wire.PathNotice
	lay(t, func(b *bed) {
		b.Notify(them) // nobody
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Second)
		for range 10 {
			b.Notify(them)
		}
		after(time.Second)
		// The first may be on its way before the last is asked for.
		first := b.times(notice)
		if first != 1 && first != 2 {
			t.Errorf("%d notices", first)
		}
		// One that comes while another is on its way is sent as well: the peer may
		// have looked already.
		b.Notify(them)
		after(time.Millisecond)
		b.Notify(them)
		after(time.Second)
		if n := b.times(notice) - first; n != 2 {
			t.Errorf("%d notices", n)
		}
		b.change(func(x *box) { x.dead = true })
		b.Notify(them)
		after(time.Minute)
		if n := b.times(notice) - first; n != 4 {
			t.Errorf("%d notices: tried %d times", n, n-2)
		}
		// The last word gets out even if there is nothing else to say.
		b.change(func(x *box) { x.dead = false })
		b.Notify(them)
		b.Set(them, plan.RemoteSpec{})
		after(time.Second)
		if n := b.times(notice) - first; n != 5 || b.left() != 0 {
			t.Errorf("%d notices, %d peers", n, b.left())
		}
	})
}

// TestLastNoticeBegins: a notice that a worker has taken, and not begun yet, is sent even
// if nothing is to do with the peer any more.
func TestLastNoticeBegins(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Second)
		b.Notify(them)
		b.Syncer.mu.Lock()
		for waits := true; waits; {
			_, waits = b.queue.Due(job{them, true})
			runtime.Gosched()
		}
		e := b.peers[them]
		e.set, e.want = plan.RemoteSpec{}, plan.RemoteSpec{} // as Set does
		b.tidy(e)
		b.Syncer.mu.Unlock()
		after(time.Second)
		if n := b.times("POST " + wire.PathNotice); n != 1 || b.left() != 0 {
			t.Errorf("%d notices, %d peers", n, b.left())
		}
	})
}

// TestAskedBeforeItBegins: who asks after a worker has taken a job, and before it has
// begun it, does not make it begin twice.
func TestAskedBeforeItBegins(t *testing.T) {
	for _, notice := range []bool{false, true} {
		lay(t, func(b *bed) {
			b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
			after(time.Second)
			looks, notices := b.count("state"), b.times("POST "+wire.PathNotice)
			j := job{them, notice}
			b.Syncer.mu.Lock()
			b.queue.Add(j)
			for waits := true; waits; {
				_, waits = b.queue.Due(j)
				runtime.Gosched()
			}
			b.queue.Add(j)
			b.Syncer.mu.Unlock()
			after(time.Second)
			looks, notices = b.count("state")-looks, b.times("POST "+wire.PathNotice)-notices
			if notice && notices != 1 || !notice && looks != 1 {
				t.Errorf("notice %v: %d looks, %d notices", notice, looks, notices)
			}
		})
	}
}

func TestChecksAreOneLook(t *testing.T) {
	lay(t, func(b *bed) {
		b.Check(them) // nobody
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Second)
		n := b.count("state")
		for range 100 {
			b.Check(them)
		}
		after(20 * time.Millisecond)
		if got := b.count("state") - n; got != 1 {
			t.Errorf("%d looks", got)
		}
		// One that comes while a look is under way, which may have seen what was
		// before, is another look.
		after(time.Second)
		n = b.count("state")
		b.Check(them)
		after(time.Millisecond)
		b.Check(them)
		after(100 * time.Millisecond)
		if got := b.count("state") - n; got != 2 {
			t.Errorf("%d looks", got)
		}
		// Notices at any rate.
		n = b.count("state")
		for range 1000 {
			b.Check(them)
			after(time.Millisecond)
		}
		if got := b.count("state") - n; got < 15 || got > 21 {
			t.Errorf("%d looks in a second", got)
		}
		// A check does not put off what is due anyway.
		after(time.Minute)
		n = b.count("state")
		after(time.Minute)
		if got := b.count("state") - n; got < 1 || got > 3 {
			t.Errorf("%d looks in a minute", got)
		}
	})
}

// A new address must not wait for what hangs at the old one.
func TestNewTargetInterrupts(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()}
		b.change(func(x *box) { x.deaf = true })
		b.Set(them, want)
		b.Notify(them)
		after(time.Second)
		b.change(func(x *box) { x.deaf = false })
		want.Target.URL = "https://moved:6447"
		b.Set(them, want)
		after(20 * time.Millisecond)
		if got := b.Get(them); got.State == nil || got.State.Request == nil || got.Failures != 0 {
			t.Errorf("%+v", got)
		}
		if n := b.times("POST " + wire.PathNotice); n != 2 || b.heard().reached[len(b.heard().reached)-1].URL != want.Target.URL {
			t.Errorf("%d notices, reached %+v", n, b.heard().reached)
		}
	})
}

// What is wanted changes while a look is under way.
func TestChangeOfMindWithinALook(t *testing.T) {
	lay(t, func(b *bed) {
		want := plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()}
		b.Set(them, want)
		after(time.Millisecond) // the state is on its way
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, RequestGone: true})
		after(time.Second)
		if b.count("PATCH") != 0 || b.count("DELETE") != 0 {
			t.Errorf("%v", b.all())
		}
	})
}

func TestSucceedingKeyIsReported(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Second)
		b.change(func(x *box) { x.rotated = peer.Fingerprint{2} })
		after(time.Minute)
		if last := b.heard().reached[len(b.heard().reached)-1]; last.Fingerprint != (peer.Fingerprint{2}) || b.heard().changed != 2 || b.Get(them).CA[0] != 2 {
			t.Errorf("%+v, %d changes", last, b.heard().changed)
		}
	})
}

func TestAnotherClusterAnswers(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.state.Identity.ClusterID = "somebody" })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request(), AdvertisementGone: true})
		after(time.Minute)
		if got := b.Get(them); got.State != nil || got.Err == nil || b.count("") != b.count("state") {
			t.Errorf("%+v", got)
		}
	})
}

func TestNothingWithoutAKey(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: peer.Target{ID: them, URL: "https://x"}, Contact: true, Ask: true, Token: "x", Request: request(), AdvertisementGone: true})
		b.Check(them)
		b.Notify(them)
		after(time.Hour)
		b.Set(them, plan.RemoteSpec{})
		after(2 * time.Hour)
		if b.count("") != 0 || b.left() != 0 || b.logged() != "" {
			t.Errorf("%v\n%s", b.all(), b.logged())
		}
	})
}

// Many peers share the workers, and none has a goroutine while nothing goes on.
func TestManyPeers(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.delay = 5 * time.Second })
		before := runtime.NumGoroutine()
		for i := range 100 {
			b.Set(peer.ClusterID(fmt.Sprintf("p%d", i)), plan.RemoteSpec{Target: b.target(), Contact: true})
		}
		for i := range 5000 {
			b.Set(peer.ClusterID(fmt.Sprintf("s%d", i)), plan.RemoteSpec{Target: b.target()})
		}
		after(8 * time.Second)
		if b.most() != DefaultWorkers {
			t.Errorf("%d at a time", b.most())
		}
		b.change(func(x *box) { x.delay = time.Millisecond })
		after(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 2 {
			t.Errorf("%d goroutines for nothing", n)
		}
		n := b.count("")
		after(10 * time.Minute)
		if got := b.count("") - n; got < 1900 || got > 2700 { // these all answer as another cluster: failures
			t.Errorf("%d calls in ten minutes", got)
		}
	})
}

// Run ends in the middle of things, and another goes on.
func TestRunAgain(t *testing.T) {
	lay(t, func(b *bed) {
		b.change(func(x *box) { x.deaf = true })
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true, Request: request()})
		after(time.Second)
		b.stop()
		if b.underWay() != 0 || b.Get(them).Failures != 0 {
			t.Errorf("%d calls go on, %+v", b.underWay(), b.Get(them))
		}
		b.change(func(x *box) { x.deaf = false })
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		b.stop = func() {
			cancel()
			<-done
		}
		after(time.Second)
		if b.Get(them).State == nil {
			t.Error("not gone on with")
		}
	})
}

func TestDesiredEqual(t *testing.T) {
	target := peer.Target{ID: them, Fingerprint: peer.Fingerprint{1}}
	base := func() plan.RemoteSpec {
		return plan.RemoteSpec{Target: target, Request: request(), Advertisement: offer("4")}
	}
	if !sameSpec(base(), base()) {
		t.Error("not equal to itself")
	}
	later := offer("4")
	later.Timestamp.Time = later.Timestamp.Add(500 * time.Millisecond)
	if d := base(); !sameSpec(d, plan.RemoteSpec{Target: target, Request: request(), Advertisement: later}) {
		t.Error("less than a second counts")
	}
	encoded, _ := json.Marshal(offer("4"))
	var read api.AdvertisementSpec
	if err := json.Unmarshal(encoded, &read); err != nil || !sameOffer(read, *offer("4")) {
		t.Error("what was written and read is not the same")
	}
	for i, change := range []func(*plan.RemoteSpec){
		func(d *plan.RemoteSpec) { d.Target.URL = "x" },
		func(d *plan.RemoteSpec) { d.Contact = true },
		func(d *plan.RemoteSpec) { d.Ask = true },
		func(d *plan.RemoteSpec) { d.Fresh = true },
		func(d *plan.RemoteSpec) { d.Token = "x" },
		func(d *plan.RemoteSpec) { d.Request = nil },
		func(d *plan.RemoteSpec) { d.Request.Namespace = "x" },
		func(d *plan.RemoteSpec) { d.RequestGone = true },
		func(d *plan.RemoteSpec) { d.Advertisement = nil },
		func(d *plan.RemoteSpec) {
			d.Advertisement.TimeToLive.Time = d.Advertisement.TimeToLive.Add(time.Second)
		},
		func(d *plan.RemoteSpec) { d.Advertisement.Labels = map[string]string{"a": "b"} },
		func(d *plan.RemoteSpec) { d.Advertisement.Images = []api.ContainerImage{{SizeBytes: 1}} },
		func(d *plan.RemoteSpec) { d.AdvertisementGone = true },
		func(d *plan.RemoteSpec) { d.Reason = "x" },
	} {
		d := base()
		change(&d)
		if sameSpec(d, base()) || sameSpec(base(), d) {
			t.Errorf("change %d is not seen", i)
		}
	}
}

func TestSetInterval(t *testing.T) {
	lay(t, func(b *bed) {
		b.Set(them, plan.RemoteSpec{Target: b.target(), Contact: true})
		after(time.Minute)
		b.SetInterval(time.Second)
		after(time.Minute) // the look that was planned before
		n := b.count("state")
		after(time.Minute)
		if n = b.count("state") - n; n < 50 || n > 70 {
			t.Errorf("%d looks a minute", n)
		}
		b.SetInterval(0)
		after(time.Minute)
		n = b.count("state")
		after(5 * time.Minute)
		if n = b.count("state") - n; n < 8 || n > 12 {
			t.Errorf("%d looks in five minutes at the default interval", n)
		}
	})
}

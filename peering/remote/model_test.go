package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peering/plan"
)

// TestWhateverHappens runs random sequences of changes at both ends. While they
// go on, the box complains about every write that is not to be; afterwards both
// must agree, and be quiet.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid gives sequences up by panicking, which must not end the bubble's test.
		var panicked any
		bubble.Test(t, func(st *testing.T) {
			defer func() { panicked = recover() }()
			whatever(st, rt)
		})
		if panicked != nil {
			panic(panicked)
		}
	})
}

func whatever(st *testing.T, t *rapid.T) {
	b := newBed(rapidTB{st, t})
	defer func() { b.stop() }()
	var want plan.RemoteSpec
	steps := rapid.IntRange(1, 60).Draw(t, "steps")
	for range steps {
		switch step := rapid.SampledFrom([]string{
			"set", "set", "set", "end", "lose", "edit", "API server", "reach", "trust", "welcome", "RBAC", "busy", "decide",
			"check", "notify", "wait", "wait long", "zero",
		}).Draw(t, "step"); step {
		case "set":
			want = drawDesired(b, t, want)
			b.Set(them, want)
		case "zero":
			want = plan.RemoteSpec{}
			b.Set(them, want)
		case "end":
			b.change(func(x *box) {
				if x.state.Request != nil {
					x.state.Request, x.state.Ended = nil, "ended"
					x.freshly = b.wishes()
				}
			})
		case "lose":
			b.change(func(x *box) { x.state.Request, x.state.Advertisement = nil, nil })
		case "edit":
			b.change(func(x *box) {
				if x.state.Request != nil {
					r := *x.state.Request
					r.Spec.ClusterIdentity.ClusterName = "edited"
					x.state.Request = &r
				}
				if x.state.Advertisement != nil {
					x.state.Advertisement = &wire.OfferState{Spec: *offer("edited")}
				}
			})
		case "API server":
			b.change(func(x *box) { x.apiDown = !x.apiDown })
		case "reach":
			b.change(func(x *box) { x.dead = !x.dead })
		case "trust":
			b.change(func(x *box) { x.trusts = !x.trusts })
		case "decide":
			b.change(func(x *box) {
				x.lets = true
				x.answer.Auth = rapid.SampledFrom([]api.AuthStatus{api.AuthAccepted, api.AuthPending, api.AuthRefused}).Draw(t, "answer")
			})
		case "welcome":
			b.change(func(x *box) { x.state.AdvertisementWelcome = !x.state.AdvertisementWelcome })
		case "RBAC":
			b.change(func(x *box) { x.rbac = !x.rbac })
		case "busy":
			b.change(func(x *box) { x.too = time.Duration(rapid.IntRange(0, 5).Draw(t, "retry after")) * time.Second })
		case "check":
			b.Check(them)
		case "notify":
			b.Notify(them)
		case "wait":
			// Not what the box takes to answer: then two things would happen at once.
			after(time.Duration(rapid.IntRange(0, 8).Draw(t, "ms"))*time.Millisecond + 300*time.Microsecond)
		case "wait long":
			after(time.Duration(rapid.IntRange(1, 100).Draw(t, "s"))*time.Second + 300*time.Microsecond)
		}
		synctest.Wait()
	}
	after(5 * time.Millisecond) // what was on its way has arrived
	b.change(func(x *box) {
		x.dead, x.apiDown, x.trusts, x.rbac, x.too, x.lets = false, false, true, true, 0, true
		x.answer.Auth = api.AuthAccepted
	})
	before := b.there()
	after(2 * time.Minute)

	agree(t, b, want, before)
	calls, looks, changed := b.count(""), b.count("state"), b.heard().changed
	after(30 * time.Minute)
	calls, looks = b.count("")-calls, b.count("state")-looks
	switch {
	case calls != looks || b.heard().changed != changed:
		t.Errorf("not quiet: %d calls and %d changes, and nothing happened: %v", calls, b.heard().changed-changed, b.all())
	case contacts(want) && (looks < 50 || looks > 70), !contacts(want) && looks != 0:
		t.Errorf("%d looks in half an hour", looks)
	}
	agree(t, b, want, before)
	b.Set(them, plan.RemoteSpec{})
	after(2 * time.Minute)
	if b.left() != 0 || b.queued() != 0 {
		t.Errorf("%d peers and %d tasks are left", b.left(), b.queued())
	}
}

// agree checks that all is as it is to be, as far as that is our business.
func agree(t *rapid.T, b *bed, want plan.RemoteSpec, before wire.State) {
	s := b.there()
	switch {
	case want.Request != nil && s.Request == nil && s.Ended == "":
		t.Errorf("there is no request, and nobody ended it")
	case want.Request != nil && s.Request != nil && s.Request.Spec != *want.Request:
		t.Errorf("the request is %+v", s.Request.Spec)
	case want.RequestGone && s.Request != nil:
		t.Errorf("the request is still there")
	case !isZero(want) && want.Request == nil && !want.RequestGone && (s.Request == nil) != (before.Request == nil):
		t.Errorf("the request was none of our business")
	}
	switch {
	case want.Advertisement != nil && s.AdvertisementWelcome && (s.Advertisement == nil || !sameOffer(s.Advertisement.Spec, *want.Advertisement)):
		t.Errorf("the offer is %+v", s.Advertisement)
	case want.Advertisement != nil && !s.AdvertisementWelcome && s.Advertisement != before.Advertisement:
		t.Errorf("an unwelcome offer was made")
	case want.AdvertisementGone && s.Advertisement != nil:
		t.Errorf("the offer is still there")
	}
	got := b.Get(them)
	if contacts(want) {
		if got.Err != nil || got.Failures != 0 || got.Denied != "" || got.State == nil ||
			(got.State.Request == nil) != (s.Request == nil) || (got.State.Advertisement == nil) != (s.Advertisement == nil) {
			t.Errorf("seen %+v, %+v", got, got.State)
		}
	}
}

// drawDesired returns something else to want.
func drawDesired(b *bed, t *rapid.T, old plan.RemoteSpec) plan.RemoteSpec {
	d := plan.RemoteSpec{Target: b.target(), Reason: "test"}
	if rapid.Bool().Draw(t, "moved") {
		d.Target.URL = "https://elsewhere"
	}
	d.Contact = rapid.Bool().Draw(t, "contact")
	d.Ask = rapid.Bool().Draw(t, "ask")
	switch rapid.IntRange(0, 3).Draw(t, "request") {
	case 0, 1:
		d.Request = request()
		d.Fresh = rapid.Bool().Draw(t, "fresh")
		d.Request.ClusterIdentity.ClusterName = rapid.SampledFrom([]string{"us", "renamed"}).Draw(t, "name")
	case 2:
		d.RequestGone = true
	}
	switch rapid.IntRange(0, 3).Draw(t, "offer") {
	case 0, 1:
		d.Advertisement = offer(rapid.SampledFrom([]string{"4", "8"}).Draw(t, "cpu"))
	case 2:
		d.AdvertisementGone = true
	}
	if d.Fresh && !old.Fresh {
		b.change(func(x *box) { x.freshly = true })
	}
	if !d.Fresh {
		b.change(func(x *box) { x.freshly = false })
	}
	return d
}

// rapidTB has what the helpers report go to the sequence that is being tried.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Errorf(format string, args ...any) { r.t.Errorf(format, args...) }
func (r rapidTB) Error(args ...any)                 { r.t.Error(args...) }

package plan

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/attack"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// mustRest fails the test unless the world comes to rest.
func mustRest(t interface {
	Helper()
	Fatalf(string, ...any)
}, w *world) {
	t.Helper()
	if problem := w.rest(); problem != "" {
		t.Fatalf("%s\n%s\n%s", problem, w.a, w.b)
	}
}

// peered returns a world in which both trust each other and A is joined to B.
func peered(t testing.TB) *world {
	t.Helper()
	w := newWorld()
	w.a.pin()
	w.b.pin()
	mustRest(t, w)
	w.a.book.connect()
	mustRest(t, w)
	if !w.a.joined() || !w.b.serves() || w.b.joined() || w.a.serves() {
		t.Fatalf("not joined\n%s\n%s", w.a, w.b)
	}
	return w
}

// leftovers lists what is left of peerings in a box.
func (s *box) leftovers() []string {
	var out []string
	if s.kube.Request != nil {
		out = append(out, "request")
	}
	if s.kube.Advertisement != nil {
		out = append(out, "advertisement")
	}
	if s.kube.Secret != nil {
		out = append(out, "secret")
	}
	if s.kube.Access != nil {
		out = append(out, "access")
	}
	for _, fc := range s.kube.FCs {
		if hasFinalizer(fc) {
			out = append(out, "finalizer")
		}
		if fc.Status.Outgoing.Joined || fc.Status.Incoming.Joined || fc.Status.Outgoing.RemotePeeringRequestName != "" {
			out = append(out, "status")
		}
	}
	if s.book.LastJoined || s.book.LastServed {
		out = append(out, "decisions")
	}
	if s.node != (spec.NodeStatus{}) {
		out = append(out, "node")
	}
	if s.liqo.Consuming.Present || s.liqo.Serving.Present {
		out = append(out, "Liqo")
	}
	return out
}

func (w *world) wantClean(t *testing.T) {
	t.Helper()
	for _, s := range w.boxes() {
		if left := s.leftovers(); len(left) != 0 {
			t.Errorf("%s has left: %v\n%s", s.id[:1], left, s)
		}
	}
}

func TestWorld(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, w *world){
		"join and leave": func(t *testing.T, w *world) {
			for range 3 {
				w.a.book.disconnect()
				mustRest(t, w)
				w.wantClean(t)
				if got := w.a.reason(api.ConditionOutgoingPeering); got != reason.Disconnected {
					t.Errorf("A shows %q", got)
				}
				if got := w.b.reason(api.ConditionIncomingPeering); got != reason.Withdrawn {
					t.Errorf("B shows %q", got)
				}
				w.a.book.connect()
				mustRest(t, w)
				if !w.a.joined() || !w.b.serves() {
					t.Fatal("not joined again")
				}
			}
		},
		"leave and join with kubectl": func(t *testing.T, w *world) {
			w.a.kubectlJoin(false)
			mustRest(t, w)
			w.wantClean(t)
			if w.a.book.Connect != No {
				t.Error("the edit is not remembered")
			}
			w.a.kubectlJoin(true)
			mustRest(t, w)
			if !w.a.joined() || w.a.book.Connect != Yes {
				t.Error("not joined again")
			}
		},
		"leave and join at once": func(t *testing.T, w *world) {
			w.a.book.disconnect()
			w.round(time.Millisecond)
			w.a.book.connect()
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() || w.a.book.EndEvents != 0 {
				t.Errorf("not joined again\n%s\n%s", w.a, w.b)
			}
		},
		"the other direction as well": func(t *testing.T, w *world) {
			w.b.book.connect()
			mustRest(t, w)
			if !w.a.joined() || !w.a.serves() || !w.b.joined() || !w.b.serves() || w.a.own().Status.Role != api.RoleConsumerAndProvider {
				t.Fatalf("not joined both ways\n%s", w.a)
			}
			w.a.book.disconnect()
			mustRest(t, w)
			if w.a.joined() || !w.a.serves() || !w.b.joined() || w.b.serves() || w.a.own().Status.Role != api.RoleConsumer {
				t.Fatalf("the other direction is touched\n%s", w.a)
			}
			if w.a.kube.Secret == nil || hasFinalizer(w.a.own()) {
				t.Error("A needs the Secret for serving B, and no finalizer")
			}
		},
		"a person hangs up": func(t *testing.T, w *world) {
			old := w.a.own().UID
			w.a.kubectlDelete()
			mustRest(t, w)
			w.wantClean(t)
			if fc := w.a.own(); fc == nil || fc.UID == old || fc.Spec.Join {
				t.Fatalf("not made again, not joined: %s", w.a)
			}
			// Until the peer was away and returned.
			w.link = false
			w.round(time.Second)
			w.round(5 * time.Minute)
			w.link = true
			mustRest(t, w)
			if !w.a.joined() {
				t.Errorf("not joined after the peer returned: %s", w.a)
			}
		},
		"a person hangs up while the peer is away": func(t *testing.T, w *world) {
			w.link = false
			w.round(time.Second)
			w.a.kubectlDelete()
			w.round(time.Second)
			if w.a.own() != nil {
				t.Errorf("the deletion waits for a peer that is away: %s", w.a)
			}
		},
		"the provider deletes the request": func(t *testing.T, w *world) {
			w.b.deleteRequest()
			mustRest(t, w)
			w.wantClean(t)
			fc := w.a.own()
			if fc.Spec.Join || w.a.reason(api.ConditionOutgoingPeering) != reason.EndedByProvider || w.b.reason(api.ConditionIncomingPeering) != reason.Ended {
				t.Fatalf("%s\n%s", w.a, w.b)
			}
			for range 5 {
				w.a.restart()
				mustRest(t, w)
				w.link = false
				w.round(time.Second)
				w.round(time.Hour)
				w.link = true
				mustRest(t, w)
			}
			if w.a.joined() || w.a.kube.Advertisement != nil || w.b.kube.Request != nil {
				t.Fatal("the consumer came back by itself")
			}
			// A person at A asks again, and waits for one at B.
			w.a.book.connect()
			mustRest(t, w)
			if w.a.reason(api.ConditionOutgoingPeering) != reason.AwaitingAcceptance || w.b.reason(api.ConditionIncomingPeering) != reason.AwaitingDecision {
				t.Fatalf("%s\n%s", w.a, w.b)
			}
			w.b.book.accept()
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() {
				t.Fatal("not joined again")
			}
		},
		"the provider deletes the request while its agent is down": func(t *testing.T, w *world) {
			w.b.kube.Request = nil
			w.b.restart()
			mustRest(t, w)
			if w.b.book.Ended == "" || w.a.own().Spec.Join {
				t.Errorf("it is not honoured\n%s\n%s", w.a, w.b)
			}
		},
		"the provider disconnects the consumer": func(t *testing.T, w *world) {
			w.b.book.Ended, w.b.book.Accept = "alice had enough.", api.RequestPending
			mustRest(t, w)
			w.wantClean(t)
			c := w.a.own().Condition(api.ConditionOutgoingPeering)
			if c.Reason != reason.EndedByProvider || !strings.Contains(c.Message, "alice had enough.") {
				t.Errorf("A shows %+v", c)
			}
			if c := w.b.own().Condition(api.ConditionIncomingPeering); c.Reason != reason.Ended || c.Message != "alice had enough." {
				t.Errorf("B shows %+v", c)
			}
		},
		"the provider rejects what it accepted": func(t *testing.T, w *world) {
			w.b.book.Accept = api.RequestRefused
			mustRest(t, w)
			if w.a.joined() || w.b.serves() || w.a.kube.Advertisement != nil {
				t.Errorf("%s\n%s", w.a, w.b)
			}
		},
		"the consumer's Advertisement is deleted by somebody": func(t *testing.T, w *world) {
			w.a.deleteOffer()
			mustRest(t, w)
			if !w.a.joined() || w.a.book.EndEvents != 0 {
				t.Errorf("it did not come back: %s", w.a)
			}
		},
		"Secret, access and finalizer are deleted by somebody": func(t *testing.T, w *world) {
			for _, s := range w.boxes() {
				s.kube.Secret, s.kube.Access = nil, nil
			}
			w.a.edit(func(fc *api.ForeignCluster, _ *fields.Owners) { fc.Finalizers = nil })
			mustRest(t, w)
			if !w.a.joined() || w.a.kube.Secret == nil || w.b.kube.Secret == nil || w.a.kube.Access == nil || w.b.kube.Access == nil || !hasFinalizer(w.a.own()) {
				t.Errorf("%s\n%s", w.a, w.b)
			}
		},
		"blocked by the consumer": func(t *testing.T, w *world) {
			w.a.book.Blocked = true
			mustRest(t, w)
			w.wantClean(t)
			if w.a.reason(api.ConditionOutgoingPeering) != reason.Blocked {
				t.Errorf("%s", w.a)
			}
			w.a.book.Blocked = false
			mustRest(t, w)
			if !w.a.joined() {
				t.Errorf("not joined after the block: %s\n%s", w.a, w.b)
			}
		},
		"blocked by the provider": func(t *testing.T, w *world) {
			w.b.book.Blocked = true
			mustRest(t, w)
			if left := w.b.leftovers(); len(left) != 0 {
				t.Errorf("B has left %v: %s", left, w.b)
			}
			if w.a.joined() || w.a.reason(api.ConditionOutgoingPeering) != reason.EndedByProvider || w.a.own().Spec.Join {
				t.Errorf("%s", w.a)
			}
			w.a.book.connect()
			mustRest(t, w)
			if w.a.joined() || w.a.reason(api.ConditionOutgoingPeering) != reason.Refused || !w.a.own().Spec.Join {
				t.Errorf("%s", w.a)
			}
			w.b.book.Blocked = false
			mustRest(t, w)
			if !w.a.joined() {
				t.Errorf("not joined after the block: %s\n%s", w.a, w.b)
			}
		},
		"away for a while": func(t *testing.T, w *world) {
			w.a.done, w.b.done = nil, nil
			w.link = false
			for range 14 {
				w.round(time.Minute)
			}
			if !w.a.joined() || !w.b.serves() || w.a.reason(api.ConditionOutgoingPeering) != reason.AwaitingPeer || w.b.reason(api.ConditionIncomingPeering) != reason.ConsumerAway {
				t.Errorf("%s\n%s", w.a, w.b)
			}
			w.link = true
			mustRest(t, w)
			for _, s := range w.boxes() {
				if i := slices.IndexFunc(s.done, destructive); i >= 0 || !w.a.joined() {
					t.Errorf("%s did %v", s.id[:1], s.done)
				}
			}
		},
		"the consumer says goodbye and is back": func(t *testing.T, w *world) {
			before := w.b.own().UID
			w.link, w.b.phase = false, peer.PhaseLost
			w.round(time.Second)
			w.link = true
			if fc := w.b.own(); fc == nil || fc.UID != before || !w.b.serves() {
				t.Fatalf("B gave up whom it serves: %s", w.b)
			}
			mustRest(t, w)
			if fc := w.b.own(); fc == nil || fc.UID != before || !w.a.joined() || !w.b.serves() {
				t.Errorf("%s\n%s", w.a, w.b)
			}
		},
		"away for too long": func(t *testing.T, w *world) {
			w.link = false
			w.round(time.Second)
			w.round(modelLostAfter + time.Second)
			w.wantClean(t)
			if w.a.own() != nil {
				t.Errorf("A's object is not deleted: %s", w.a)
			}
			if got := w.b.reason(api.ConditionIncomingPeering); got != reason.Lost {
				t.Errorf("B shows %q", got)
			}
			w.link = true
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() {
				t.Errorf("not joined after its return\n%s\n%s", w.a, w.b)
			}
		},
		"the consumer's certificate ends": func(t *testing.T, w *world) { certificateEnds(t, w, w.b) },
		"the provider's certificate ends": func(t *testing.T, w *world) { certificateEnds(t, w, w.a) },
		"both certificates end": func(t *testing.T, w *world) {
			w.a.suspend(true)
			certificateEnds(t, w, w.b)
		},
		"a certificate ends for too long": func(t *testing.T, w *world) {
			w.b.suspend(true)
			w.round(time.Second)
			w.round(time.Second)
			w.round(modelLostAfter + time.Second)
			w.wantClean(t)
			if a, b := w.a.reason(api.ConditionOutgoingPeering), w.b.reason(api.ConditionIncomingPeering); a != reason.Lost || b != reason.Lost {
				t.Errorf("A shows %q, B %q", a, b)
			}
			w.b.suspend(false)
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() {
				t.Errorf("not joined with a newer certificate\n%s\n%s", w.a, w.b)
			}
		},
		"the consumer is reset": func(t *testing.T, w *world) { resets(t, w, w.a) },
		"the provider is reset": func(t *testing.T, w *world) { resets(t, w, w.b) },
		"the consumer's API server is wiped": func(t *testing.T, w *world) {
			w.a.wipe()
			w.a.restart()
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() {
				t.Errorf("%s\n%s", w.a, w.b)
			}
		},
		"the provider's API server is wiped": func(t *testing.T, w *world) {
			w.b.wipe()
			w.b.restart()
			mustRest(t, w)
			if !w.a.joined() || !w.b.serves() || w.b.book.Ended != "" {
				t.Errorf("%s\n%s", w.a, w.b)
			}
		},
		"distrusted with kubectl": func(t *testing.T, w *world) {
			w.a.kubectlTrust(api.TrustUntrusted)
			mustRest(t, w)
			if left := w.a.leftovers(); len(left) != 0 || w.a.reason(api.ConditionTrusted) != reason.Distrusted || w.a.reason(api.ConditionOutgoingPeering) != reason.AwaitingTrust {
				t.Errorf("A has left %v: %s", left, w.a)
			}
			w.a.kubectlTrust(api.TrustTrusted)
			mustRest(t, w)
			if !w.a.joined() || w.a.reason(api.ConditionTrusted) != reason.PersonDecided {
				t.Errorf("not joined again: %s", w.a)
			}
		},
		"forgotten by the consumer": func(t *testing.T, w *world) {
			w.a.book.forget()
			forgotten(t, w)
		},
		"forgotten by the consumer, joined with kubectl": func(t *testing.T, w *world) {
			w.a.kubectlJoin(false)
			mustRest(t, w)
			w.a.kubectlJoin(true)
			w.a.kubectlTrust(api.TrustTrusted)
			mustRest(t, w)
			w.a.book.forget()
			forgotten(t, w)
		},
		"forgotten by the consumer without its API server": func(t *testing.T, w *world) {
			w.a.kubectlJoin(true)
			mustRest(t, w)
			w.a.apiUp = false
			w.a.book.forget()
			w.round(time.Second)
			w.a.restart()
			w.round(time.Minute)
			w.a.apiUp = true
			forgotten(t, w)
		},
		"forgotten by the consumer, and joined with kubectl before that is seen": func(t *testing.T, w *world) {
			w.a.apiUp = false
			w.a.book.forget()
			w.a.kubectlJoin(false)
			w.a.kubectlJoin(true)
			w.a.apiUp = true
			mustRest(t, w)
			w.a.pin()
			mustRest(t, w)
			if !w.a.joined() || w.a.book.Forgotten {
				t.Errorf("what somebody wants now was forgotten, too: %s", w.a)
			}
		},
		"somebody makes an object of their own": func(t *testing.T, w *world) {
			// It takes over what is wanted and what is there, and ours goes.
			undisturbed := w.watch()
			w.a.kubectlCreate("my-box")
			mustRest(t, w)
			undisturbed(t)
			mine := w.a.kube.FCs["my-box"]
			if w.a.own() != nil || !mine.Spec.Join || !hasFinalizer(mine) || !mine.Status.Outgoing.Joined {
				t.Fatalf("%s", w.a)
			}
			// Somebody says in it that it is wanted, which it is.
			w.a.kubectlJoin(false)
			w.a.kubectlJoin(true)
			mustRest(t, w)
			undisturbed(t)
			w.a.kubectlJoin(false)
			mustRest(t, w)
			w.wantClean(t)
			if w.a.own() != nil {
				t.Errorf("ours is back: %s", w.a)
			}
			// An object that is not joined, and whose author deletes it, makes room for ours.
			w.a.kubectlDelete()
			mustRest(t, w)
			if own := w.a.own(); own == nil || own.Spec.Join || !own.CreatedByAgent() {
				t.Errorf("%s", w.a)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, peered(t)) })
	}
}

// TestAskedAnewAtOnce: a provider that refused, or did not answer, is asked at once when
// a person wants it anew, whatever the pause would have been.
func TestAskedAnewAtOnce(t *testing.T) {
	w := peered(t)
	obs := w.a.observe()
	for _, tried := range []RemoteStatus{
		{Denied: wire.ReasonBlocked, Err: errors.New("blocked")},
		{Err: errors.New("no route to host")},
		{Asked: &wire.Answer{Auth: api.AuthRefused}},
	} {
		for anew, want := range map[time.Duration]bool{time.Second: true, -time.Second: false} {
			tried.Tried = w.now.Add(-10 * time.Second)
			obs.Remote, obs.GenerationSince = tried, tried.Tried.Add(anew)
			if d := Plan(obs, w.now); d.Check != want {
				t.Errorf("wanted %v after the last attempt (%+v): asked now %v", anew, tried, d.Check)
			}
		}
	}
}

// TestEnding: a peering that is to end is not over while anything of it is left.
func TestEnding(t *testing.T) {
	w := peered(t)
	ends := func(what string, s *box, out, in bool, reason string) {
		t.Helper()
		v := s.observe().View()
		if v.Outgoing.Ending != out || v.Incoming.Ending != in || reason != "" && v.Outgoing.Reason != reason {
			t.Errorf("%s: outgoing %v (%s), incoming %v: %s", what, v.Outgoing.Ending, v.Outgoing.Reason, v.Incoming.Ending, s)
		}
	}
	ends("joined", w.a, false, false, reason.Joined)
	w.a.pods = true
	w.a.book.disconnect()
	ends("at once", w.a, true, false, "")
	w.round(time.Second)
	ends("pods are leaving", w.a, true, false, reason.Draining)
	w.a.apiUp = false
	ends("without an API server", w.a, w.a.book.LastJoined, false, reason.Unknown)
	w.a.apiUp, w.a.pods = true, false
	mustRest(t, w)
	ends("the end", w.a, false, false, reason.Disconnected)
	ends("the end at the provider", w.b, false, false, "")

	w.a.book.connect()
	mustRest(t, w)
	w.b.book.Ended, w.b.book.Accept = "alice had enough.", api.RequestPending
	ends("the provider ends it", w.b, false, true, "")
	mustRest(t, w)
	ends("the provider ended it", w.b, false, false, "")
}

// TestUnjoinedIsShown: why a cluster is not joined by itself is a condition for as long
// as it is so.
func TestUnjoinedIsShown(t *testing.T) {
	w := newWorld()
	mustRest(t, w)
	obs := w.a.observe()
	why := NotAutojoined{Reason: "KeyNotTrusted", Message: "nobody vouches for its key."}
	shows := func() *api.Condition {
		t.Helper()
		for _, a := range Plan(obs, w.now).Actions {
			if a.Kind == UpdatePeering {
				fc := &api.ForeignCluster{}
				setConditions(fc, a.Peering.Conditions)
				return fc.Condition(api.ConditionAutojoin)
			}
		}
		return nil
	}
	if c := shows(); c != nil {
		t.Errorf("without a reason: %+v", c)
	}
	obs.Policy.NotAutojoined = why
	if c := shows(); c == nil || c.Status != api.ConditionFalse || c.Reason != why.Reason || c.Message != why.Message {
		t.Errorf("not joined: %+v", c)
	}
	obs.Policy.Connect = Yes
	if c := shows(); c != nil {
		t.Errorf("joined: %+v", c)
	}
}

// TestAskerIsShown: who asks to be let in has an object although nothing else is known
// of it, which says how to answer, and takes the answer. It goes with the question.
func TestAskerIsShown(t *testing.T) {
	w := newWorld()
	s := w.a
	ask := &Ask{Name: "barn", Namespace: "liqo", Fingerprint: s.other.key.fingerprint, Code: "aaaaa-bbbbb", From: "192.0.2.7", Until: w.now.Add(time.Hour)}
	look := func() (Observed, Decision) {
		obs := s.observe()
		obs.Peer, obs.Policy.Ask = nil, ask
		if ask != nil {
			obs.Policy.Accept = AcceptDecision{Phase: api.RequestRefused, Reason: wire.ReasonNotTrusted}
		}
		return obs, Plan(obs, w.now)
	}
	settle := func() (done []ActionKind) {
		t.Helper()
		for range 5 {
			_, d := look()
			for _, a := range d.Actions {
				s.apply(a)
				done = append(done, a.Kind)
			}
			if len(d.Actions) == 0 {
				return done
			}
		}
		t.Fatalf("no rest: %v", done)
		return nil
	}
	settle()
	fc := s.own()
	if fc == nil || fc.Spec.DiscoveryType != api.DiscoveryIncomingPeering || fc.Spec.Join || fc.Status.Fingerprint != ask.Fingerprint.String() || fc.Spec.AuthURL != "" {
		t.Fatalf("%+v", fc)
	}
	if c := fc.Condition(api.ConditionAccessRequested); c == nil || c.Reason != reason.Pending || !strings.Contains(c.Message, ask.Code) || !strings.Contains(c.Message, "192.0.2.7") {
		t.Errorf("%+v", c)
	}
	if _, d := look(); d.Again <= 0 || d.Again > time.Hour || !reflect.DeepEqual(d.Remote, RemoteSpec{}) {
		t.Errorf("looked at again in %v, at the peer %+v", d.Again, d.Remote)
	}
	// Another key that asks is not what spec.trustMode is about.
	right := ask.Fingerprint
	ask.Fingerprint = modelKeys[2].fingerprint
	settle()
	if c := s.own().Condition(api.ConditionAccessRequested); c.Reason != reason.OtherKey || s.own().Status.Fingerprint != right.String() {
		t.Errorf("another key: %+v", c)
	}
	ask.Fingerprint = right
	settle()
	// The answer.
	s.kubectlTrust(api.TrustTrusted)
	_, d := look()
	if len(d.Actions) < 2 || d.Actions[0].Kind != RecordTrustEdited || d.Actions[1].Kind != RecordDecided || !d.Actions[1].Record.On || d.Actions[1].Record.Shown != right || !d.Replan {
		t.Fatalf("%v", kinds(d.Actions))
	}
	for _, a := range d.Actions[:2] {
		s.apply(a)
	}
	// The end of it.
	ask = nil
	s.book = book{TrustStamp: s.book.TrustStamp, Accept: api.RequestPending}
	if done := settle(); s.own() != nil {
		t.Errorf("it stays: %v", done)
	}
}

// TestDecidedByStatus: a person's phase in the status of a PeeringRequest is told to
// the decision store, once, and overruled until that says the same.
func TestDecidedByStatus(t *testing.T) {
	w := peered(t)
	w.b.book.Accept = api.RequestPending
	mustRest(t, w)
	w.a.book.connect()
	mustRest(t, w)
	for phase, accept := range map[api.RequestPhase]bool{api.RequestAccepted: true, api.RequestRefused: false} {
		obs := w.b.observe()
		obs.Request = obs.Request.DeepCopy()
		obs.Request.Status.Phase = phase
		if d := Plan(obs, w.now); slices.Contains(kinds(d.Actions), RecordDecided) {
			t.Errorf("%s, which nobody said, is told: %v", phase, kinds(d.Actions))
		}
		obs.Request.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-patch", Subresource: "status", FieldsV1: phaseField}}
		fields.TrimRequest(obs.Request)
		d := Plan(obs, w.now)
		if len(d.Actions) == 0 || d.Actions[0].Kind != RecordDecided || d.Actions[0].Record.On != accept || d.Actions[0].Record.By != "kubectl-patch" || !d.Replan {
			t.Fatalf("%s: %v", phase, kinds(d.Actions))
		}
		if i := slices.IndexFunc(d.Actions, func(a Action) bool { return a.Kind == SetRequestStatus }); i < 0 || d.Actions[i].Request.Phase != api.RequestPending {
			t.Errorf("%s: what they wrote stays: %v", phase, kinds(d.Actions))
		}
		for _, manager := range []string{fields.ManagerPeeringRequest} {
			obs.Request.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status", FieldsV1: phaseField}}
			if d := Plan(obs, w.now); slices.Contains(kinds(d.Actions), RecordDecided) {
				t.Errorf("%s: our own word is taken for a person's", phase)
			}
		}
		obs.Request.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "liqo-peer", FieldsV1: phaseField}}
		attack.Attempt{What: "accept one's own PeeringRequest by a phase in the object itself: " + string(phase), As: "trusted peer", Want: "not told"}.Saw(t,
			map[bool]string{true: "told", false: "not told"}[slices.Contains(kinds(Plan(obs, w.now).Actions), RecordDecided)])
	}
}

// forgotten checks that nothing is wanted of the box that was forgotten, not even
// when it is trusted again, until a person says so.
func forgotten(t *testing.T, w *world) {
	t.Helper()
	mustRest(t, w)
	for range 2 {
		if left := w.a.leftovers(); len(left) != 0 || w.a.own().Spec.Join || w.a.book != (book{Accept: api.RequestPending, Generation: w.a.book.Generation}) {
			t.Fatalf("left: %v: %s", left, w.a)
		}
		w.a.restart()
		mustRest(t, w)
	}
	asks := w.a.asks
	w.a.pin()
	w.a.book.Accept = api.RequestAccepted
	mustRest(t, w)
	if w.a.own().Spec.Join || w.a.joined() || w.a.asks != asks {
		t.Fatalf("it asked by itself: %s", w.a)
	}
	w.a.book.connect()
	mustRest(t, w)
	if !w.a.joined() || !w.b.serves() {
		t.Fatalf("not joined again\n%s\n%s", w.a, w.b)
	}
}

// certificateEnds checks that a peering stands still while the certificate of the other
// box has ended by which s trusts it, and goes on as it was with a newer one.
func certificateEnds(t *testing.T, w *world, s *box) {
	w.a.done, w.b.done = nil, nil
	s.suspend(true)
	for range 14 {
		w.round(time.Minute)
	}
	for _, x := range w.boxes() {
		direction := api.ConditionIncomingPeering
		if x == w.a {
			direction = api.ConditionOutgoingPeering
		}
		if c := x.own().Condition(direction); c.Status != api.ConditionTrue || c.Reason != reason.CertificateEnded {
			t.Errorf("%s shows %+v", x.id[:1], c)
		}
		trusted := x.reason(api.ConditionTrusted)
		if x.book.suspended() != (trusted == reason.CertificateEnded) {
			t.Errorf("%s shows the trust as %q", x.id[:1], trusted)
		}
		if x.book.suspended() && !reflect.DeepEqual(x.desired, RemoteSpec{}) {
			t.Errorf("%s wants something of it: %+v", x.id[:1], x.desired)
		}
	}
	if p, target := w.a.observe().NodeSpec(w.now); !p.Wanted || p.Reachable || w.a.book.suspended() == (target.Fingerprint != peer.Fingerprint{}) {
		t.Errorf("the provider is used as %+v", p)
	}
	if d := Plan(w.b.observe(), w.now); d.Tenant == nil || !d.Tenant.Admitted {
		t.Errorf("the consumer's pods are to go: %+v", d.Tenant)
	}
	w.a.suspend(false)
	w.b.suspend(false)
	mustRest(t, w)
	for _, x := range w.boxes() {
		if i := slices.IndexFunc(x.done, destructive); i >= 0 || !w.a.joined() || !w.b.serves() {
			t.Errorf("%s did %v", x.id[:1], x.done)
		}
	}
	if a, b := w.a.reason(api.ConditionOutgoingPeering), w.b.reason(api.ConditionIncomingPeering); a != reason.Joined || b != reason.Joined {
		t.Errorf("A shows %q, B %q", a, b)
	}
}

// resets checks that the other box is clean once a box was reset, and that both
// can be peered again.
func resets(t *testing.T, w *world, s *box) {
	s.reset(modelKeys[2])
	w.round(time.Second)
	w.round(modelLostAfter + time.Second)
	mustRest(t, w)
	w.wantClean(t)
	if got := s.other.reason(api.ConditionTrusted); got != reason.AnotherKey {
		t.Errorf("the other one shows %q: %s", got, s.other)
	}
	w.a.pin()
	w.b.pin()
	w.a.book.connect()
	mustRest(t, w)
	if !w.a.joined() || !w.b.serves() {
		t.Errorf("not joined after the reset\n%s\n%s", w.a, w.b)
	}
}

// destructive reports whether an action takes something away.
func destructive(k ActionKind) bool {
	switch k {
	case Delete, RemoveFinalizer, DeleteRequest, DeleteAdvertisement, DeleteSecret, DeleteAccess, RecordEndedByProvider, RecordEndedHere, RecordHungUp,
		RecordJoined, RecordServed, ApplyIntent, drainNode:
		return true
	}
	return false
}

// TestFaultsAreSurvived lets everything fail that may fail while two boxes are
// peered both ways: nothing is taken away on any side, and both are joined in the
// end.
func TestFaultsAreSurvived(t *testing.T) {
	both := peered(t)
	both.b.book.connect()
	mustRest(t, both)
	rapid.Check(t, func(t *rapid.T) {
		w := both.clone()
		cut := time.Duration(0)
		for _, s := range w.boxes() {
			s.done = nil
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := w.boxes()[rapid.IntRange(0, 1).Draw(t, "box")]
			step := rapid.SampledFrom([]time.Duration{0, time.Second, 31 * time.Second, 4 * time.Minute}).Draw(t, "time")
			switch rapid.SampledFrom([]string{"link", "restart", "api", "silence", "unseen", "impostor", "certificate", "plan", "sync", "crash"}).Draw(t, "event") {
			case "link":
				w.link = !w.link
			case "restart":
				s.restart()
			case "api":
				s.apiUp = !s.apiUp
			case "silence":
				s.remote.State, s.remote.Asked = nil, nil
			case "unseen":
				s.phase = rapid.SampledFrom([]peer.Phase{peer.PhaseUnverified, peer.PhaseUnreachable, peer.PhaseLost}).Draw(t, "phase")
			case "impostor":
				s.conflict = true
			case "certificate":
				s.suspend(!s.book.suspended())
			case "plan":
				if s.apiUp {
					s.plan()
				}
			case "crash":
				s.crash(t)
				s.restart()
			case "sync":
				s.sync()
			}
			if !w.link || w.a.book.suspended() || w.b.book.suspended() {
				if cut += step; cut >= modelLostAfter-time.Minute {
					w.link, cut = true, 0
					w.a.suspend(false)
					w.b.suspend(false)
				}
			} else {
				cut = 0
			}
			if cut == 0 {
				w.round(0) // what a peer said about a certificate holds until it says something else
			}
			if problem := w.round(step); problem != "" {
				t.Fatal(problem)
			}
			for _, s := range w.boxes() {
				if i := slices.IndexFunc(s.done, destructive); i >= 0 {
					t.Fatalf("%s did %s: %v\n%s\n%s", s.id[:1], s.done[i], s.done, w.a, w.b)
				}
			}
		}
		for _, s := range w.boxes() {
			s.apiUp = true
			s.suspend(false)
		}
		w.link = true
		mustRest(t, w)
		for _, s := range w.boxes() {
			if i := slices.IndexFunc(s.done, destructive); i >= 0 {
				t.Fatalf("%s did %s: %v\n%s\n%s", s.id[:1], s.done[i], s.done, w.a, w.b)
			}
			if !s.joined() || !s.serves() {
				t.Fatalf("not joined: %s", s)
			}
		}
	})
}

// crash carries out only the beginning of a plan.
func (s *box) crash(t *rapid.T) {
	if !s.apiUp {
		return
	}
	d := s.plan()
	if len(d.Actions) > 0 {
		for _, a := range d.Actions[:rapid.IntRange(0, len(d.Actions)).Draw(t, "actions")] {
			s.apply(a)
		}
	}
}

// clone returns a copy that shares nothing that changes.
func (w *world) clone() *world {
	out := *w
	copyBox := func(s *box) *box {
		c := *s
		c.kube.FCs, c.kube.Owners = map[string]*api.ForeignCluster{}, map[string]fields.Owners{}
		for name, fc := range s.kube.FCs {
			c.kube.FCs[name], c.kube.Owners[name] = fc, s.kube.Owners[name]
		}
		c.w, c.done = &out, slices.Clone(s.done)
		return &c
	}
	out.a, out.b = copyBox(w.a), copyBox(w.b)
	out.a.other, out.b.other = out.b, out.a
	return &out
}

// TestAnythingConverges does everything that people, the network and the
// processes can do, in any order, and then lets the world come to rest: what is
// there then is what is wanted, on both sides, and nothing else.
func TestAnythingConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		if rapid.Bool().Draw(t, "trusted") {
			w.a.pin()
			w.b.pin()
		}
		keys := 2
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := w.boxes()[rapid.IntRange(0, 1).Draw(t, "box")]
			event := rapid.SampledFrom([]string{
				"connect", "connect", "disconnect", "kubectl-join", "kubectl-leave", "kubectl-trust", "kubectl-distrust", "kubectl-delete",
				"accept", "ask-me", "reject", "disconnect-incoming", "block", "unblock", "delete-request", "delete-offer", "delete-secret",
				"delete-access", "create", "create", "create-joined", "create-unjoined", "create-named", "create-wrong", "delete-mine", "correct-url", "link", "restart", "api", "wipe", "reset", "pin", "unpin", "forget", "plan", "sync", "sync", "crash", "round", "round", "long",
				"pods", "pods", "left", "use", "no-use", "refuse-offer", "accept-offer", "certificate-ends", "certificate-ends", "certificate-renewed",
			}).Draw(t, "event")
			switch event {
			case "connect":
				s.book.connect()
			case "disconnect":
				s.book.disconnect()
			case "kubectl-join":
				s.kubectlJoin(true)
			case "kubectl-leave":
				s.kubectlJoin(false)
			case "kubectl-trust":
				s.kubectlTrust(api.TrustTrusted)
			case "kubectl-distrust":
				s.kubectlTrust(api.TrustUntrusted)
			case "kubectl-delete":
				s.kubectlDelete()
			case "pods":
				s.pods = s.node.Name != ""
			case "left":
				s.pods = false
			case "use", "no-use":
				s.sharing.Use = event == "use"
			case "refuse-offer":
				s.decideOffer(api.AdvertisementRefused)
			case "accept-offer":
				s.decideOffer(api.AdvertisementAccepted)
			case "accept":
				s.book.accept()
			case "ask-me":
				s.book.Accept = api.RequestPending
			case "reject":
				s.book.Accept = api.RequestRefused
			case "disconnect-incoming":
				s.book.Accept = api.RequestPending
				if s.kube.Request != nil {
					s.book.Ended = "Enough."
				}
			case "block":
				s.book.Blocked = true
			case "unblock":
				s.book.Blocked = false
			case "delete-request":
				s.deleteRequest()
			case "delete-offer":
				s.deleteOffer()
			case "delete-secret":
				s.kube.Secret = nil
			case "delete-access":
				s.kube.Access = nil
			case "create":
				s.kubectlCreate(mineName(t))
			case "create-joined":
				s.kubectlCreate(mineName(t), s.saysJoin(true))
			case "create-unjoined":
				s.kubectlCreate(mineName(t), s.saysJoin(false))
			case "create-named":
				s.kubectlCreate(mineName(t), s.saysID())
			case "create-wrong":
				s.kubectlCreate(mineName(t), s.saysURL(rapid.SampledFrom([]string{urlNobody, urlSelf}).Draw(t, "url")))
			case "correct-url":
				s.edit(func(fc *api.ForeignCluster, _ *fields.Owners) {
					if !fc.CreatedByAgent() {
						fc.Spec.AuthURL = urlOther
					}
				})
			case "delete-mine":
				s.kubectlDeleteNamed(mineName(t))
			case "link":
				w.link = !w.link
			case "restart":
				s.restart()
			case "api":
				s.apiUp = !s.apiUp
			case "certificate-ends", "certificate-renewed":
				s.suspend(event == "certificate-ends")
			case "wipe":
				s.wipe()
			case "reset":
				if keys < len(modelKeys) {
					s.reset(modelKeys[keys])
					keys++
				}
			case "pin":
				s.pin()
			case "unpin":
				s.book.Pin = nil
			case "forget":
				s.book.forget()
			case "plan":
				if s.apiUp {
					s.plan()
				}
			case "sync":
				s.sync()
			case "crash":
				s.crash(t)
			case "round":
				if problem := w.round(time.Second); problem != "" {
					t.Fatal(problem)
				}
			case "long":
				w.pass(rapid.SampledFrom([]time.Duration{time.Minute, modelLostAfter, 2 * modelLostAfter}).Draw(t, "time"))
			}
		}
		// People go home, everything works.
		w.link = true
		for _, s := range w.boxes() {
			s.apiUp, s.pods = true, false
			s.suspend(false)
			s.decideOffer(api.AdvertisementAccepted)
		}
		w.round(time.Second)
		w.pass(modelLostAfter + time.Second)
		mustRest(t, w)
		for _, s := range w.boxes() {
			if problem := s.wrong(); problem != "" {
				t.Fatalf("%s: %s\n%s\n%s", s.id[:1], problem, w.a, w.b)
			}
		}
	})
}

// wrong says what is not as it should be in a world at rest, about the direction
// in which s consumes.
func (s *box) wrong() string {
	o := s.other
	trusts := func(x *box) bool {
		return x.book.Pin != nil && x.book.Pin.Fingerprint == x.other.key.fingerprint && x.knows.fingerprint == x.other.key.fingerprint &&
			!x.book.Distrusted && !x.book.Blocked
	}
	if problem := s.wrongObjects(); problem != "" {
		return problem
	}
	if s.book.Forgotten {
		return "it is not forgotten yet"
	}
	standing, own := s.book.policy(s.w.now), s.shown()
	if own == nil {
		if s.knows.fingerprint == o.key.fingerprint {
			return "a present peer has no object"
		}
		return ""
	}
	wants := standing.Connect == Yes || standing.Connect == Unset && own.Spec.Join
	if own.Spec.Join != wants {
		return "spec.join does not say what is wanted"
	}
	joined := wants && trusts(s) && trusts(o) && o.book.policy(s.w.now).Accept.Phase == api.RequestAccepted
	switch {
	case s.joined() != joined:
		return "joined is not what is wanted"
	// A provider that does not trust us can neither renew its offer nor take it back;
	// it stays until we are let in again or give up.
	case joined != (s.kube.Advertisement != nil) && (trusts(o) || !wants):
		return "the Advertisement is not where it belongs"
	case (s.node.Name != "") != (joined && s.sharing.Use):
		return "the node is not where it belongs"
	case s.book.LastJoined != joined:
		return "the decision store does not know"
	case o.shown() != nil && trusts(o) && trusts(s) && o.serves() != joined:
		return "the provider shows something else"
	case joined && (o.kube.Request == nil || s.kube.Secret == nil || o.kube.Secret == nil || s.kube.Access == nil || o.kube.Access == nil):
		return "something is missing"
	case hasFinalizer(own) != (wants && trusts(s)):
		return "the finalizer is not where it belongs"
	case !(wants && trusts(s)) && own.Status.Outgoing.RemotePeeringRequestName != "":
		return "a request is shown that nobody wants"
	case !wants && trusts(s) && trusts(o) && o.kube.Request != nil:
		return "a request is left at the provider"
	case own.Status.Outgoing.Joined != (s.reason(api.ConditionOutgoingPeering) == reason.Joined):
		return "condition and status disagree"
	case s.kube.Secret != nil && !(wants && trusts(s)) && !(s.kube.Request != nil && trusts(s)):
		return "a Secret is left"
	case s.desired.Request != nil && s.desired.RequestGone || s.desired.Advertisement != nil && s.desired.AdvertisementGone:
		return "it wants two things at the peer"
	}
	return ""
}

// TestNothingIsSentToStrangers: whatever else is so, nothing is to be done at a
// peer whose key is not trusted.
func TestNothingIsSentToStrangers(t *testing.T) {
	w := peered(t)
	for _, s := range w.boxes() {
		obs := s.observe()
		obs.Policy.Pin = nil
		if d := Plan(obs, w.now); !reflect.DeepEqual(d.Remote, RemoteSpec{}) {
			t.Errorf("%+v", d.Remote)
		}
	}
}

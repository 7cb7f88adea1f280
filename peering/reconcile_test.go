package peering

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

// outbox is a syncer that notes what it is to do.
type outbox struct {
	mu       sync.Mutex
	seen     plan.RemoteStatus
	desired  plan.RemoteSpec
	notified int
	checked  int
	forgot   int
}

func (o *outbox) Forget(peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired, o.forgot = plan.RemoteSpec{}, o.forgot+1
}

func (o *outbox) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (o *outbox) Check(peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked++
}

func (o *outbox) Set(_ peer.ClusterID, d plan.RemoteSpec) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired = d
}

func (o *outbox) Get(peer.ClusterID) plan.RemoteStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

func (*outbox) SetInterval(time.Duration)     {}
func (*outbox) Explain(peer.ClusterID) string { return "" }

func (o *outbox) Notify(peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notified++
}

// notices returns how often the peer was told since the last time.
func (o *outbox) notices() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.notified
	o.notified = 0
	return n
}

// holder is a Registry that notes what is held.
type holder struct {
	neighbours
	held []bool
}

func (h *holder) Hold(_ peer.ClusterID, hold bool) { h.held = append(h.held, hold) }

// TestCallerIsTriedAgain: a peer that calls is there, so what failed with it is tried
// at once, and nothing else is.
func TestCallerIsTriedAgain(t *testing.T) {
	sent := &outbox{}
	c := New(Config{})
	c.remote = sent
	c.Called(testID)
	if sent.checked != 0 {
		t.Error("asked although nothing failed")
	}
	sent.seen.Err = errors.New("it does not know us")
	if c.Called(testID); sent.checked != 1 {
		t.Errorf("asked %d times", sent.checked)
	}
}

// TestPeerIsTold: a peer is told when what it waits for changes, and only then.
func TestPeerIsTold(t *testing.T) {
	decisions := &diary{}
	c, s, _ := connected(t, decisions, nil)
	sent := &outbox{}
	c.remote = sent
	version := 0
	request := func(change func(*api.PeeringRequest)) func() {
		return func() {
			r := &api.PeeringRequest{}
			if found := s.requests.Get(string(testID)); found != nil {
				r = found.DeepCopy()
			}
			version++
			r.Name, r.ResourceVersion = string(testID), strconv.Itoa(version)
			change(r)
			s.requests.Wrote(r)
		}
	}
	offer := func(change func(*api.Advertisement)) func() {
		return func() {
			a := &api.Advertisement{}
			if found := s.offers.Get(string(testID)); found != nil {
				a = found.DeepCopy()
			}
			version++
			a.Name, a.ResourceVersion = string(testID), strconv.Itoa(version)
			change(a)
			s.offers.Wrote(a)
		}
	}
	for i, step := range []struct {
		name   string
		change func()
		told   int
	}{
		{"first look", func() {}, 0},
		{"nothing new", func() {}, 0},
		{"request", request(func(r *api.PeeringRequest) { r.UID, r.Generation = "r1", 1 }), 1},
		{"nothing new", func() {}, 0},
		{"its labels", request(func(r *api.PeeringRequest) { r.Labels = map[string]string{"a": "b"} }), 0},
		{"its phase", request(func(r *api.PeeringRequest) { r.Status.Phase = api.RequestAccepted }), 1},
		{"its reason", request(func(r *api.PeeringRequest) { r.Status.Message = "because" }), 1},
		{"its spec", request(func(r *api.PeeringRequest) { r.Generation = 2 }), 1},
		{"what it says of our offer", request(func(r *api.PeeringRequest) { r.Status.AdvertisementStatus = api.AdvertisementAccepted }), 0},
		{"another one", request(func(r *api.PeeringRequest) { r.UID = "r2" }), 1},
		{"deleted request", func() { s.requests.Deleted(string(testID), "r2") }, 1},
		{"offer", offer(func(a *api.Advertisement) { a.UID = "a1" }), 1},
		{"its status", offer(func(a *api.Advertisement) { a.Status.AdvertisementStatus = api.AdvertisementAccepted }), 1},
		{"its spec", offer(func(a *api.Advertisement) { a.Generation = 7 }), 1},
		{"deleted offer", func() { s.offers.Deleted(string(testID), "a1") }, 1},
		{"the end", func() { decisions.policy.Ended = "A person ended it." }, 1},
		{"consuming", func() {
			decisions.policy.Pin = &peer.Pin{Fingerprint: barn().Fingerprint}
			fc := &foreign.Cluster{ForeignCluster: *made(barn())}
			fc.Spec.Join = true
			decisions.policy.Connect = plan.Yes
			s.foreign.Wrote(fc)
		}, 1},
	} {
		step.change()
		s.settle(testID, plan.Decision{})
		if got := sent.notices(); got != step.told {
			t.Errorf("step %d, %s: told %d times, want %d", i, step.name, got, step.told)
		}
	}
}

// TestNote: what a decision says besides its actions reaches whom it is for, once.
func TestNote(t *testing.T) {
	c, s, _ := connected(t, &diary{}, nil)
	sent, registry := &outbox{}, &holder{}
	c.remote, c.cfg.Registry = sent, registry
	now := t0
	c.cfg.Now = func() time.Time { return now }

	s.note(testID, plan.Decision{Hold: true, TearingDown: true, Remote: plan.RemoteSpec{Contact: true}})
	s.note(testID, plan.Decision{Hold: true, TearingDown: true})
	if sent.desired.Contact || !slices.Equal(registry.held, []bool{true}) {
		t.Errorf("desired %+v, held %v", sent.desired, registry.held)
	}
	now = now.Add(time.Second)
	if obs := c.observe(s, testID); obs.TearingDown != time.Second {
		t.Errorf("tearing down for %v", obs.TearingDown)
	}
	s.note(testID, plan.Decision{})
	if obs := c.observe(s, testID); obs.TearingDown != 0 || !slices.Equal(registry.held, []bool{true, false}) {
		t.Errorf("tearing down for %v, held %v", obs.TearingDown, registry.held)
	}
}

// TestForgotten: what nothing is known about any more takes no memory.
func TestForgotten(t *testing.T) {
	c, s, _ := connected(t, &diary{}, nil)
	pool := offer.Pool{Nodes: 1, Free: offer.Amounts{"cpu": 1000}}
	for known, want := range map[bool]int{true: 1, false: 0} {
		registry := neighbours{}
		if known {
			registry.known = barn()
		}
		c.cfg.Registry = registry
		c.allocator.Admit(testID, true, api.RequestedResources{})
		c.allocator.Measure(pool, offer.Terms{Percentage: 100}, t0)
		c.allocator.Offer("self", testID, offer.Prior{}, t0)
		s.settle(testID, plan.Decision{})
		if offered := c.allocator.Due(testID, t0) > 0; len(c.peers.peers) != want || c.allocator.Consumers() != want || offered != known {
			t.Errorf("known %v: %d and %d are kept, offered %v", known, len(c.peers.peers), c.allocator.Consumers(), offered)
		}
		c.peers.forget(testID)
		c.allocator.Admit(testID, false, api.RequestedResources{})
	}
}

// TestBeingDeleted: while the peer deletes its request, nothing is decided about
// it, and a deletion that nothing came of is no obstacle for long.
func TestBeingDeleted(t *testing.T) {
	decisions := &diary{}
	c, s, fake := connected(t, decisions, func(_ *http.Request, body string) (int, string) {
		// As it was applied.
		return http.StatusOK, strings.Replace(body, `"metadata":{`, `"metadata":{"uid":"r1","resourceVersion":"9",`, 1)
	})
	c.remote = &outbox{seen: plan.RemoteStatus{State: &wire.State{Kubernetes: true, Consumes: true}}}
	now := t0
	c.cfg.Now = func() time.Time { return now }
	decisions.policy = plan.Policy{
		Pin: &peer.Pin{Fingerprint: barn().Fingerprint}, LastServed: true,
		Accept: plan.AcceptDecision{Phase: api.RequestAccepted, Reason: "r", Message: "m"},
	}
	r := &api.PeeringRequest{}
	r.Name, r.UID, r.ResourceVersion = string(testID), "r1", "1"
	if err := kubetest.Tell(s.requests).Update(r); err != nil {
		t.Fatal(err)
	}
	c.DeletedByPeer(testID, api.PluralPeeringRequests)
	decisions.policy.LastServed = false
	decisions.take()
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.Take()) != 0 || len(decisions.take()) != 0 {
		t.Errorf("it is decided about: %v", err)
	}
	now = now.Add(deletionPatience)
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.Take()) == 0 || !slices.Contains(decisions.take(), "served true m") {
		t.Errorf("it is never decided about: %v", err)
	}
}

// TestProcess maps each outcome to when the cluster is looked at again.
func TestProcess(t *testing.T) {
	for _, tc := range []struct {
		name        string
		status      int
		reason      metav1.StatusReason
		soon, later time.Duration // it comes back after soon, and not before
	}{
		{"conflict", http.StatusConflict, metav1.StatusReasonConflict, objects.RetryFirst, objects.RetryFirst / 2},
		{"failure", http.StatusInternalServerError, metav1.StatusReasonInternalError, objects.RetryFirst, objects.RetryFirst / 2},
		{"invalid", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, objects.RefusedRetry, objects.RefusedRetry / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := New(Config{
					Registry: neighbours{barn()}, Decisions: &diary{}, Peers: silence{}, Namespace: "liqo", Logger: quietLogger(),
					Greeting: func() wire.Greeting { return wire.Greeting{} }, LostAfter: func() time.Duration { return 0 },
				})
				s := refused(t, c, tc.status, tc.reason)
				if waited := kubetest.Again(t, s.queue, testID, s.process); waited < tc.later || waited > tc.soon {
					t.Errorf("it is looked at after %v", waited)
				}
			})
		})
	}
}

// TestInheritance: the store tells an edit that follows ours within the same
// second from the one before it.
func TestInheritance(t *testing.T) {
	s := objects.NewStore(foreign.Kind(), func(_, _ *foreign.Cluster, _ bool) {}, nil)
	put := func(uid types.UID, version int, manager string) fields.Owner {
		fc := versioned(made(barn()), version)
		fc.UID, fc.Spec.Join = uid, manager != fields.ManagerIntent
		at := metav1.NewTime(t0)
		fc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:join":{}}}`)}}
		s.Wrote(fc)
		kept := s.Get(fc.Name)
		if copied := kept.DeepCopyObject().(*foreign.Cluster); kept.ManagedFields != nil || copied.Owners != kept.Owners {
			t.Errorf("kept %+v, copied %+v", kept, copied)
		}
		return kept.Owners.Join
	}
	first := put("1", 1, "kubectl")
	put("1", 2, fields.ManagerIntent)
	second := put("1", 3, "kubectl")
	if second != (fields.Owner{Manager: "kubectl", Stamp: first.Stamp + "+"}) {
		t.Errorf("%q and %q", first.Stamp, second.Stamp)
	}
	put("1", 4, fields.ManagerIntent)
	if other := put("2", 5, "kubectl"); strings.HasSuffix(other.Stamp, "+") {
		t.Errorf("another object's edit is %q", other.Stamp)
	}
}

// A key that is not trusted any more is not even sent what was owed to its
// holder.
func TestNothingIsOwedToStrangers(t *testing.T) {
	decisions := &diary{}
	decisions.policy.Pin = &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}
	c, s, _ := connected(t, decisions, nil)
	sent := &outbox{}
	c.remote = sent
	s.remote = sent
	s.note(testID, plan.Decision{Remote: plan.RemoteSpec{Contact: true}})
	if !sent.desired.Contact || sent.forgot != 0 {
		t.Errorf("%+v", sent)
	}
	decisions.mu.Lock()
	decisions.policy.Pin = nil
	decisions.mu.Unlock()
	s.note(testID, plan.Decision{})
	if sent.forgot != 1 {
		t.Errorf("%+v", sent)
	}
}

// TestReadersMoveNothing: how often somebody asks how a peer stands is nothing that
// decisions depend on.
func TestReadersMoveNothing(t *testing.T) {
	decisions := &diary{}
	c, s, _ := connected(t, decisions, nil)
	now, away := t0, barn()
	away.Phase = peer.PhaseUnreachable
	c.cfg.Now, c.cfg.Registry = func() time.Time { return now }, neighbours{away}
	adv := offerFor(1)
	adv.Name, adv.UID, adv.ResourceVersion = string(testID), "a1", "1"
	if err := kubetest.Tell(s.offers).Update(adv); err != nil {
		t.Fatal(err)
	}
	c.peers.forget(testID)
	read := func() {
		t.Helper()
		c.State(testID)
		c.View(testID)
		c.View("nobody")
		c.Leftovers(testID)
		if _, err := c.Offers(); err != nil {
			t.Error(err)
		}
		if err := c.Explain(io.Discard); err != nil {
			t.Error(err)
		}
	}
	decisions.policy.Generation = 1
	read()
	now = now.Add(time.Hour)
	obs := c.observe(s, testID)
	if obs.Away > time.Second || obs.Quiet > time.Second || !obs.GenerationSince.Equal(now) {
		t.Errorf("away for %v, quiet for %v, anew since %v", obs.Away, obs.Quiet, obs.GenerationSince)
	}
	if life := adv.Spec.TimeToLive.Sub(adv.Spec.Timestamp.Time); obs.OfferLeft != life {
		t.Errorf("the offer stands for %v, want %v", obs.OfferLeft, life)
	}
	// A return is for who decides to see, too: the provider then has time to renew.
	now = now.Add(6 * time.Hour)
	c.cfg.Registry = neighbours{barn()}
	read()
	if obs = c.observe(s, testID); obs.OfferExpired || obs.OfferLeft != offerGrace {
		t.Errorf("expired: %v, left %v", obs.OfferExpired, obs.OfferLeft)
	}
	if len(c.peers.peers) != 1 {
		t.Errorf("%d clusters are remembered", len(c.peers.peers))
	}
	// Without a connection, absences go on as the registry tells of them.
	c.attach(nil, gateway.Upstream{})
	c.cfg.Registry = neighbours{away}
	c.Enqueue(testID)
	now = now.Add(time.Minute)
	c.Enqueue(testID)
	if got := c.peek(nil, testID).Away; got != time.Minute {
		t.Errorf("away for %v", got)
	}
}

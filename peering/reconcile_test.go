package peering

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/remote"
	"liqo.io/agent/sharing/offer"
)

// outbox is a syncer that notes what it is to do.
type outbox struct {
	mu       sync.Mutex
	seen     remote.Observed
	desired  remote.Desired
	notified int
	checked  int
	forgot   int
}

func (o *outbox) Forget(peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired, o.forgot = remote.Desired{}, o.forgot+1
}

func (o *outbox) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (o *outbox) Check(peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked++
}

func (o *outbox) Set(_ peer.ClusterID, d remote.Desired) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired = d
}

func (o *outbox) Get(peer.ClusterID) remote.Observed {
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
	ledger := &diary{}
	c, s, _ := connected(t, ledger, nil)
	sent := &outbox{}
	c.remote = sent
	version := 0
	request := func(change func(*api.PeeringRequest)) func() {
		return func() {
			r := &api.PeeringRequest{}
			if found := s.requests.get(string(testID)); found != nil {
				r = found.DeepCopy()
			}
			version++
			r.Name, r.ResourceVersion = string(testID), strconv.Itoa(version)
			change(r)
			s.requests.wrote(r)
		}
	}
	offer := func(change func(*api.Advertisement)) func() {
		return func() {
			a := &api.Advertisement{}
			if found := s.offers.get(string(testID)); found != nil {
				a = found.DeepCopy()
			}
			version++
			a.Name, a.ResourceVersion = string(testID), strconv.Itoa(version)
			change(a)
			s.offers.wrote(a)
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
		{"deleted request", func() { s.requests.deleted(string(testID), "r2") }, 1},
		{"offer", offer(func(a *api.Advertisement) { a.UID = "a1" }), 1},
		{"its status", offer(func(a *api.Advertisement) { a.Status.AdvertisementStatus = api.AdvertisementAccepted }), 1},
		{"its spec", offer(func(a *api.Advertisement) { a.Generation = 7 }), 1},
		{"deleted offer", func() { s.offers.deleted(string(testID), "a1") }, 1},
		{"the end", func() { ledger.standing.Ended = "A person ended it." }, 1},
		{"consuming", func() {
			ledger.standing.Pin = &peer.Pin{Fingerprint: barn().Fingerprint}
			fc := &foreignCluster{ForeignCluster: *made(barn())}
			fc.Spec.Join = true
			ledger.standing.Connect = WishYes
			s.foreign.wrote(fc)
		}, 1},
	} {
		step.change()
		s.settle(testID, Decision{})
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

	s.note(testID, Decision{Hold: true, TearingDown: true, Remote: remote.Desired{Contact: true}})
	s.note(testID, Decision{Hold: true, TearingDown: true})
	if sent.desired.Contact || !slices.Equal(registry.held, []bool{true}) {
		t.Errorf("desired %+v, held %v", sent.desired, registry.held)
	}
	now = now.Add(time.Second)
	if obs := c.observe(s, testID); obs.TearingDown != time.Second {
		t.Errorf("tearing down for %v", obs.TearingDown)
	}
	s.note(testID, Decision{})
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
		c.book.Admit(testID, true)
		c.book.Measure(pool, offer.Terms{Percentage: 100}, t0)
		c.book.Offer("self", testID, offer.Prior{}, t0)
		s.settle(testID, Decision{})
		if offered := c.book.Due(testID, t0) > 0; len(c.memory.peers) != want || c.book.Consumers() != want || offered != known {
			t.Errorf("known %v: %d and %d are kept, offered %v", known, len(c.memory.peers), c.book.Consumers(), offered)
		}
		c.memory.forget(testID)
		c.book.Admit(testID, false)
	}
}

// TestBeingDeleted: while the peer deletes its request, nothing is decided about
// it, and a deletion that nothing came of is no obstacle for long.
func TestBeingDeleted(t *testing.T) {
	ledger := &diary{}
	c, s, fake := connected(t, ledger, func(_ *http.Request, body string) (int, string) {
		// As it was applied.
		return http.StatusOK, strings.Replace(body, `"metadata":{`, `"metadata":{"uid":"r1","resourceVersion":"9",`, 1)
	})
	c.remote = &outbox{seen: remote.Observed{State: &endpoint.State{Kubernetes: true, Consumes: true}}}
	now := t0
	c.cfg.Now = func() time.Time { return now }
	ledger.standing = Standing{
		Pin: &peer.Pin{Fingerprint: barn().Fingerprint}, LastServed: true,
		Accept: AcceptDecision{Phase: api.RequestAccepted, Reason: "r", Message: "m"},
	}
	r := &api.PeeringRequest{}
	r.Name, r.UID, r.ResourceVersion = string(testID), "r1", "1"
	if err := s.requests.Update(r); err != nil {
		t.Fatal(err)
	}
	c.DeletedByPeer(testID, api.PluralPeeringRequests)
	ledger.standing.LastServed = false
	ledger.take()
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.take()) != 0 || len(ledger.take()) != 0 {
		t.Errorf("it is decided about: %v", err)
	}
	now = now.Add(deletionPatience)
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.take()) == 0 || !slices.Contains(ledger.take(), "served true m") {
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
		{"conflict", http.StatusConflict, metav1.StatusReasonConflict, retryFirst, retryFirst / 2},
		{"failure", http.StatusInternalServerError, metav1.StatusReasonInternalError, retryFirst, retryFirst / 2},
		{"invalid", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, refusedRetry, refusedRetry / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{
					Registry: neighbours{barn()}, Ledger: &diary{}, Peers: silence{}, Namespace: "liqo", Logger: quietLogger(),
					Greeting: func() endpoint.Greeting { return endpoint.Greeting{} }, LostAfter: func() time.Duration { return 0 },
				})
				s := c.newSession(refusingClient(t, tc.status, tc.reason))
				defer s.queue.ShutDown()
				defer s.named.ShutDown()
				begun := time.Now()
				s.process(t.Context(), testID)
				id, _ := s.queue.Get()
				if waited := time.Since(begun); id != testID || waited < tc.later || waited > tc.soon {
					t.Errorf("it is looked at after %v", waited)
				}
				s.queue.Done(id)
			})
		})
	}
}

// TestInheritance: the store tells an edit that follows ours within the same
// second from the one before it.
func TestInheritance(t *testing.T) {
	s := newStore(foreignClusterKind(), func(_, _ *foreignCluster, _ bool) {})
	put := func(uid types.UID, version int, manager string) Owner {
		fc := versioned(made(barn()), version)
		fc.UID, fc.Spec.Join = uid, manager != ManagerIntent
		at := metav1.NewTime(t0)
		fc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:join":{}}}`)}}
		s.wrote(fc)
		return s.get(fc.Name).owners.Join
	}
	first := put("1", 1, "kubectl")
	put("1", 2, ManagerIntent)
	second := put("1", 3, "kubectl")
	if first.Stamp == second.Stamp || baseStamp(second.Stamp) != first.Stamp {
		t.Errorf("%q and %q", first.Stamp, second.Stamp)
	}
	put("1", 4, ManagerIntent)
	if other := put("2", 5, "kubectl"); baseStamp(other.Stamp) != other.Stamp {
		t.Errorf("another object's edit is %q", other.Stamp)
	}
}

// A key that is not trusted any more is not even sent what was owed to its
// holder.
func TestNothingIsOwedToStrangers(t *testing.T) {
	ledger := &diary{}
	ledger.standing.Pin = &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}
	c, s, _ := connected(t, ledger, nil)
	sent := &outbox{}
	c.remote = sent
	s.remote = sent
	s.note(testID, Decision{Remote: remote.Desired{Contact: true}})
	if !sent.desired.Contact || sent.forgot != 0 {
		t.Errorf("%+v", sent)
	}
	ledger.mu.Lock()
	ledger.standing.Pin = nil
	ledger.mu.Unlock()
	s.note(testID, Decision{})
	if sent.forgot != 1 {
		t.Errorf("%+v", sent)
	}
}

package peering

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/remote"
	"liqo.io/agent/sharing/offer"
)

// TestTenancy says of everything that can become of a consumer whether it may run
// pods here, and what is shown and done about its offer.
func TestTenancy(t *testing.T) {
	const admitted, ended, asItIs = "admitted", "ended", "as it is"
	off := func(obs *Observed) { obs.NotSharing = true }
	lostRequest := both(ask, func(obs *Observed) { obs.Objects[0].Status.Incoming = api.IncomingPeering{} })
	obs := bothWays(t)
	for _, tc := range []struct {
		name    string
		change  seen
		want    string
		reason  string // of the condition
		offered string // what happens with the offer
	}{
		{"served", func(*Observed) {}, admitted, ReasonJoined, "there"},
		{"served, away", unreachable, admitted, ReasonConsumerAway, "there"},
		{"served, nothing heard since the start", silent, admitted, ReasonJoined, "there"},
		{"served, its API server down", down, admitted, ReasonConsumerDown, "there"},
		{"served, denied", denied(endpoint.ReasonNotTrusted), admitted, ReasonAwaitingConsumer, "there"},
		{"other key seen", otherOne, admitted, ReasonConsumerAway, "there"},
		{"not welcome", theirs(func(s *endpoint.State) { s.AdvertisementWelcome = false }), admitted, ReasonJoined, ""},
		{"our API server unknown", func(obs *Observed) { obs.RequestsKnown = false }, asItIs, "", ""},
		{"request missing", lostRequest, asItIs, ReasonRequestMissing, ""},
		{"request going", func(obs *Observed) { obs.Request.DeletionTimestamp = &metav1.Time{} }, asItIs, ReasonRequestMissing, ""},
		{"request missing, not shared", both(lostRequest, off), ended, ReasonRequestMissing, "gone"},
		{"request missing, blocked", both(lostRequest, blocked), ended, ReasonBlocked, "gone"},
		{"request going, blocked", both(blocked, func(obs *Observed) { obs.Request.DeletionTimestamp = &metav1.Time{} }), ended, ReasonRequestMissing, ""},
		{"lost", lost, ended, ReasonLost, ""},
		{"withdrawn", theirs(func(s *endpoint.State) { s.Consumes = false }), ended, ReasonWithdrawn, "gone"},
		{"withdrawn before", both(ask, deleted(DeletedByPeer), func(obs *Observed) { obs.Standing.LastServed = false }), ended, ReasonWithdrawn, "gone"},
		{"deleted by a person, who is noted first", both(ask, deleted(DeletedByPerson)), ended, ReasonEnded, ""},
		{"blocked", blocked, ended, ReasonBlocked, "gone"},
		{"not trusted", unpinned, ended, ReasonAwaitingDecision, ""},
		{"distrusted", distrusted, ended, ReasonAwaitingDecision, ""},
		{"refused", accepts(api.RequestRefused), ended, ReasonRefused, "gone"},
		{"waiting", accepts(api.RequestPending), ended, ReasonAwaitingDecision, "gone"},
		{"disconnected here", both(accepts(api.RequestPending), func(obs *Observed) { obs.Standing.Ended = "Enough." }), ended, ReasonEnded, "gone"},
		{"not shared", off, ended, ReasonNotSharing, "gone"},
		{"not shared, nothing heard since the start", both(off, silent), ended, ReasonNotSharing, "gone"},
		{"not shared, taken back", both(off, theirs(func(s *endpoint.State) { s.Advertisement = nil })), ended, ReasonNotSharing, ""},
		{"nothing known about it", func(obs *Observed) { *obs = Observed{ID: obs.ID, RequestsKnown: true, Settled: true} }, ended, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := obs.change(tc.change)
			if obs.Request != nil {
				obs.Request = obs.Request.DeepCopy()
				obs.Request.Spec.ClusterIdentity.ClusterName = "named"
			}
			d := Plan(obs, obs.Remote.At.Add(time.Millisecond))
			got := asItIs
			if d.Tenancy != nil {
				got = ended
				if d.Tenancy.Admitted {
					got = admitted
				}
				if d.Tenancy.ID != obs.ID || (d.Tenancy.Offer != nil) != d.Tenancy.Admitted {
					t.Errorf("%+v", d.Tenancy)
				}
			}
			offered := ""
			switch {
			case d.Remote.Advertisement != nil:
				offered = "there"
			case d.Remote.AdvertisementGone:
				offered = "gone"
			}
			in := obs.View().Incoming
			if !obs.RequestsKnown {
				in.Reason = ""
			}
			if got != tc.want || offered != tc.offered || in.Reason != tc.reason {
				t.Errorf("it is %s, the offer is to be %q, %s: %s", got, offered, in.Reason, in.Message)
			}
			// Something is left as long as the end is not through.
			obs.Hosting = true
			left := strings.HasSuffix(obs.View().Incoming.Message, leftovers)
			over := got == ended && in.Reason != ReasonAwaitingDecision && in.Reason != ReasonRefused && in.Reason != ReasonRequestMissing
			if left != over {
				t.Errorf("with something left: %s", obs.View().Incoming.Message)
			}
		})
	}
}

// TestLeftoversEnd: that namespaces are being removed is not said for ever, to
// nobody else, and is no reason to keep anything.
func TestLeftoversEnd(t *testing.T) {
	w := peered(t)
	b := w.b
	b.book.Ended, b.book.Accept = "alice had enough.", api.RequestPending
	mustRest(t, w)
	obs := b.observe()
	obs.Hosting = true
	d := Plan(obs, w.now)
	if len(d.Actions) != 1 || d.Actions[0].Kind != UpdatePeering || d.Remote.Reason != "" && strings.HasSuffix(d.Remote.Reason, leftovers) {
		t.Fatalf("%+v", d)
	}
	b.apply(d.Actions[0])
	obs = b.observe()
	obs.Hosting = true
	if d := Plan(obs, w.now); len(d.Actions) != 0 {
		t.Errorf("it is shown again: %v", kinds(d.Actions))
	}
	obs.Hosting = false
	d = Plan(obs, w.now)
	if len(d.Actions) != 1 {
		t.Fatalf("%v", kinds(d.Actions))
	}
	b.apply(d.Actions[0])
	if obs := b.observe(); strings.Contains(obs.View().Incoming.Message, leftovers) || len(Plan(obs, w.now).Actions) != 0 {
		t.Errorf("%s", obs.View().Incoming.Message)
	}
}

// hall is a Sharing that notes what it is told.
type hall struct {
	mu   sync.Mutex
	told []Tenancy
	busy bool
}

func (h *hall) Provide(Provision) Use { return Use{} }

func (h *hall) Host(t Tenancy) Tenant {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, t)
	return Tenant{Busy: h.busy}
}

func (h *hall) take() []Tenancy {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told = nil
	return told
}

// TestHostIsTold looks at a cluster of which nothing is known, but that something
// of it is here.
func TestHostIsTold(t *testing.T) {
	c, s, fake := connected(t, &diary{}, nil)
	rooms := &hall{busy: true}
	c.cfg.Sharing, c.cfg.Registry = rooms, neighbours{}
	c.remote = &outbox{}
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.take()) != 0 {
		t.Fatal(err)
	}
	told := rooms.take()
	if len(told) == 0 || told[0].Admitted || told[0].ID != testID {
		t.Errorf("%+v", told)
	}
	if len(told) > 2 || len(c.memory.peers) != 0 {
		t.Errorf("told %d times, %d are kept", len(told), len(c.memory.peers))
	}
	// What is decided about is not told before it is.
	if s.host(Decision{Replan: true, Tenancy: &Tenancy{ID: testID}}) || s.host(Decision{}) || len(rooms.take()) != 0 {
		t.Error("told too early")
	}
	for i, want := range []bool{true, false, false} {
		if got := s.host(Decision{Tenancy: &Tenancy{ID: testID}}); got != want {
			t.Errorf("call %d: news %v", i, got)
		}
	}
	c.cfg.Sharing = nil
	if s.host(Decision{Tenancy: &Tenancy{ID: testID, Admitted: true}}) || c.book.Consumers() != 1 {
		t.Error("without anybody who hosts, consumers are not counted")
	}
}

// served puts an accepted request into the store.
func served(t *testing.T, s *session, id peer.ClusterID) {
	t.Helper()
	r := &api.PeeringRequest{}
	r.Name, r.UID, r.ResourceVersion = string(id), "r1", "1"
	r.Status.Phase = api.RequestAccepted
	if err := s.requests.Update(r); err != nil {
		t.Fatal(err)
	}
}

// TestFollowCapacity measures what there is to offer while there is a consumer,
// and only then.
func TestFollowCapacity(t *testing.T) {
	ledger := &diary{}
	ledger.standing = Standing{Pin: &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}, Accept: AcceptDecision{Phase: api.RequestAccepted}}
	var mu sync.Mutex
	allowed, asked := false, 0
	c, s, _ := connected(t, ledger, func(r *http.Request, _ string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		switch {
		case !allowed:
			return failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "":
			return http.StatusOK, ""
		case r.URL.Query().Get("watch") != "":
			return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		}
		return http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
			{"metadata":{"name":"a","namespace":"n","resourceVersion":"4"},"spec":{"nodeName":"box","containers":[{"resources":{"requests":{"cpu":"1500m"}}}]}}]}`
	})
	said := &strings.Builder{}
	c.cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	c.remote = &outbox{seen: remote.Observed{State: &endpoint.State{Kubernetes: true, Consumes: true}}}
	n := &offer.Node{}
	n.Name, n.ResourceVersion = "box", "1"
	n.Status.Allocatable = map[string]string{"cpu": "4"}
	n.Status.Conditions = []offer.NodeCondition{{Type: offer.NodeReady, Status: "True"}}
	if err := s.nodes.Update(n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		s.followCapacity(ctx, &rest.Config{Host: s.client.rest.Get().URL().Scheme + "://" + s.client.rest.Get().URL().Host})
	})
	await := func(what string, condition func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waiting for %s; offered %+v", what, c.Offered())
			}
		}
	}
	if got := c.Offered(); got.Why != "There is no consumer." || got.Free != nil {
		t.Errorf("%+v", got)
	}
	mu.Lock()
	if asked != 0 {
		t.Error("pods are followed without a consumer")
	}
	mu.Unlock()

	served(t, s, testID)
	s.countConsumers()
	if c.book.Consumers() != 1 {
		t.Fatal("the consumer does not count")
	}
	wake(s.count)
	await("a refusal", func() bool { return strings.Contains(c.Offered().Why, "may not list") })
	if in := c.observe(s, testID).View().Incoming; in.Reason != ReasonNothingToOffer || !strings.Contains(in.Message, "may not list the pods") {
		t.Errorf("%+v", in)
	}
	mu.Lock()
	allowed = true
	mu.Unlock()
	await("the pods", func() bool { return c.Offered().Why == "" && c.Offered().Free != nil })
	if got := c.Offered(); got.Free["cpu"] != "2500m" || got.Nodes != 1 || len(got.Promises) != 1 || got.Promises[0].ID != testID {
		t.Errorf("%+v", got)
	}
	if spec := c.observe(s, testID).Offer; spec == nil || spec.ResourceQuota.Hard["cpu"] != "2500m" || c.Offered().Promises[0].Offer != spec {
		t.Errorf("offered %+v", spec)
	}
	if strings.Count(said.String(), "cannot be listed") != 1 {
		t.Errorf("said:\n%s", said)
	}
	c.book.Admit(testID, false)
	wake(s.count)
	await("the end of it", func() bool { return c.book.Summary().Pool == nil })
}

// TestOfferedWhy says why nothing is offered.
func TestOfferedWhy(t *testing.T) {
	c, _, _ := connected(t, &diary{}, nil)
	settings := defaultSharing
	c.cfg.SharingSettings = func() SharingSettings { return settings }
	c.book.Admit(testID, true)
	pool := func(nodes int, cpu, memory int64) func() {
		return func() {
			c.book.Measure(offer.Pool{Nodes: nodes, Free: offer.Amounts{"cpu": cpu, "memory": memory}}, settings.terms(), t0)
		}
	}
	for _, tc := range []struct {
		change func()
		want   string
	}{
		{func() {}, "being found out"},
		{func() { c.book.Unknown("Because.") }, "Because."},
		{pool(1, 1, 1), ""},
		{pool(1, 0, 1), "all of its cpu"},
		{pool(1, 1, 0), "all of its memory"},
		{pool(0, 0, 0), "No node of this cluster"},
		{func() { settings.Percentage = 0 }, "sharing.percentage is 0"},
		{func() { c.attach(nil, endpoint.Upstream{}) }, messageNoAPIServer},
		{func() { c.book.Admit(testID, false) }, "no consumer"},
		{func() { settings.Enable = false }, "sharing.enable"},
	} {
		tc.change()
		if got := c.Offered().Why; !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	c.book.Admit("b", true)
	c.book.Admit("a", true)
	if got := fmt.Sprint(c.Offered().Promises); got != "[{a <nil>} {b <nil>}]" {
		t.Errorf("promises %s", got)
	}
}

package peering

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/offer"
	"liqo.io/agent/sharing/spec"
)

// hall is a Sharing that notes what it is told.
type hall struct {
	mu   sync.Mutex
	told []spec.Tenant
	busy bool
	node spec.NodeStatus
}

func (h *hall) Provide(spec.Node, peer.Target) spec.NodeStatus { return h.node }

func (*hall) Network(peer.ClusterID) spec.Network { return spec.Network{} }

func (h *hall) Host(t spec.Tenant) spec.TenantStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, t)
	return spec.TenantStatus{Busy: h.busy}
}

func (h *hall) take() []spec.Tenant {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told = nil
	return told
}

// TestNodeNotKnown: whether a peer has a node is known when somebody has looked, and not when Sharing was asked.
func TestNodeNotKnown(t *testing.T) {
	c, s, _ := connected(t, &diary{}, nil)
	rooms := &hall{}
	c.cfg.Sharing, c.cfg.Registry = rooms, neighbours{}
	for _, known := range []bool{false, true} {
		rooms.node = spec.NodeStatus{Busy: true, Unknown: !known}
		obs := s.observe(s, testID)
		if s.provide(&obs); obs.NodeKnown != known {
			t.Errorf("somebody has looked: %v, and the node is known: %v", known, obs.NodeKnown)
		}
	}
}

// TestAllAreTold: all are told when Sharing was told of everybody who was there at the beginning.
func TestAllAreTold(t *testing.T) {
	c, s, _ := connected(t, &diary{}, nil)
	c.cfg.Sharing, c.cfg.Registry = &hall{}, neighbours{}
	c.remote = &outbox{}
	s.untold[testID] = struct{}{}
	if c.Told() {
		t.Error("nobody was told, and all were")
	}
	if err := s.reconcile(t.Context(), testID); err != nil {
		t.Fatal(err)
	}
	if !c.Told() {
		t.Error("all were told, and somebody was not")
	}
	if c.attach(nil, gateway.Upstream{}); c.Told() {
		t.Error("without a connection, all were told")
	}
}

// TestHostIsTold looks at a cluster of which nothing is known, but that something
// of it is here.
func TestHostIsTold(t *testing.T) {
	c, s, fake := connected(t, &diary{}, nil)
	rooms := &hall{busy: true}
	c.cfg.Sharing, c.cfg.Registry = rooms, neighbours{}
	c.remote = &outbox{}
	if err := s.reconcile(t.Context(), testID); err != nil || len(fake.Take()) != 0 {
		t.Fatal(err)
	}
	told := rooms.take()
	if len(told) == 0 || told[0].Admitted || told[0].ID != testID {
		t.Errorf("%+v", told)
	}
	if len(told) > 2 || len(c.peers.peers) != 0 {
		t.Errorf("told %d times, %d are kept", len(told), len(c.peers.peers))
	}
	// What is decided about is not told before it is.
	if s.host(plan.Decision{Replan: true, Tenant: &spec.Tenant{ID: testID}}) || s.host(plan.Decision{}) || len(rooms.take()) != 0 {
		t.Error("told too early")
	}
	for i, want := range []bool{true, false, false} {
		if got := s.host(plan.Decision{Tenant: &spec.Tenant{ID: testID}}); got != want {
			t.Errorf("call %d: news %v", i, got)
		}
	}
	c.cfg.Sharing = nil
	if s.host(plan.Decision{Tenant: &spec.Tenant{ID: testID, Admitted: true}}) || c.allocator.Consumers() != 1 {
		t.Error("without anybody who hosts, consumers are not counted")
	}
}

// served puts an accepted request into the store.
func served(t *testing.T, s *session, id peer.ClusterID) {
	t.Helper()
	r := &api.PeeringRequest{}
	r.Name, r.UID, r.ResourceVersion = string(id), "r1", "1"
	r.Status.Phase = api.RequestAccepted
	if err := kubetest.Tell(s.requests).Update(r); err != nil {
		t.Fatal(err)
	}
}

// TestFollowCapacity measures what there is to offer while there is a consumer,
// and only then.
func TestFollowCapacity(t *testing.T) {
	decisions := &diary{}
	decisions.policy = plan.Policy{Pin: &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}, Accept: plan.AcceptDecision{Phase: api.RequestAccepted}}
	var mu sync.Mutex
	allowed, asked := false, 0
	c, s, fake := connected(t, decisions, func(r *http.Request, _ string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		switch {
		case !allowed:
			return kubetest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "":
			return http.StatusOK, ""
		case r.URL.Query().Get("watch") != "":
			return kubetest.Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		}
		return http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
			{"metadata":{"name":"a","namespace":"n","resourceVersion":"4"},"spec":{"nodeName":"box","containers":[{"resources":{"requests":{"cpu":"1500m"}}}]}}]}`
	})
	c.remote = &outbox{seen: plan.RemoteStatus{State: &wire.State{Kubernetes: true, Consumes: true}}}
	n := &offer.Node{}
	n.Name, n.ResourceVersion = "box", "1"
	n.Status.Allocatable = map[string]string{"cpu": "4"}
	n.Status.Conditions = []offer.NodeCondition{{Type: offer.NodeReady, Status: "True"}}
	if err := kubetest.Tell(s.nodes).Update(n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		s.followCapacity(ctx)
	})
	await := func(what string, condition func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
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
	if c.allocator.Consumers() != 1 {
		t.Fatal("the consumer does not count")
	}
	work.Wake(s.count)
	await("a refusal", func() bool { return strings.Contains(c.Offered().Why, "may not list") })
	if in := c.observe(s, testID).View().Incoming; in.Reason != reason.NothingToOffer || !strings.Contains(in.Message, "may not list the pods") {
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
	if said := fake.said.String(); strings.Count(said, "cannot be listed") != 1 {
		t.Errorf("said:\n%s", said)
	}
	c.allocator.Admit(testID, false, api.RequestedResources{})
	work.Wake(s.count)
	await("the end of it", func() bool { return c.allocator.Summary().Pool == nil })
}

// TestOfferedWhy says why nothing is offered.
func TestOfferedWhy(t *testing.T) {
	c, _, _ := connected(t, &diary{}, nil)
	settings := plan.DefaultSharing()
	c.cfg.SharingSettings = func() plan.SharingSettings { return settings }
	c.allocator.Admit(testID, true, api.RequestedResources{})
	pool := func(nodes int, cpu, memory int64) func() {
		return func() {
			c.allocator.Measure(offer.Pool{Nodes: nodes, Free: offer.Amounts{"cpu": cpu, "memory": memory}}, terms(settings), t0)
		}
	}
	for _, tc := range []struct {
		change func()
		want   string
	}{
		{func() {}, "not known yet"},
		{func() { c.allocator.Unknown("Because.") }, "Because."},
		{pool(1, 1, 1), ""},
		{pool(1, 0, 1), "all of its CPU"},
		{pool(1, 1, 0), "all of its memory"},
		{pool(0, 0, 0), "No node of this cluster"},
		{func() { settings.Percentage = 0 }, "sharing.percentage is 0"},
		{func() { c.attach(nil, gateway.Upstream{}) }, plan.MessageNoAPIServer},
		{func() { c.allocator.Admit(testID, false, api.RequestedResources{}) }, "no consumer"},
		{func() { settings.Enable = false }, "sharing.enable"},
	} {
		tc.change()
		if got := c.Offered().Why; !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	c.allocator.Admit("b", true, api.RequestedResources{})
	c.allocator.Admit("a", true, api.RequestedResources{})
	if got := fmt.Sprint(c.Offered().Promises); got != "[{a <nil>} {b <nil>}]" {
		t.Errorf("promises %s", got)
	}
}

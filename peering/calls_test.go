package peering

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
)

func TestEnsureAccess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refusals := 0
		status, reason := http.StatusForbidden, metav1.StatusReasonForbidden
		c, s, fake := connected(t, &diary{}, func(r *http.Request, _ string) (int, string) {
			if r.Header.Get("Impersonate-User") != "system:serviceaccount:liqo:liqo-peer-"+string(testID) || r.Header.Get("Impersonate-Group") != "liqo:peers" || r.Method != http.MethodGet {
				t.Errorf("%s as %q, %q", r.Method, r.Header.Get("Impersonate-User"), r.Header.Get("Impersonate-Group"))
			}
			if refusals--; refusals < 0 {
				return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
			}
			return kubetest.Failure(status, reason)
		})
		for _, n := range []int{0, 1, 4} {
			refusals = n
			if err := c.EnsureAccess(t.Context(), testID); err != nil || len(fake.Take()) != n+1 {
				t.Errorf("after %d refusals: %v", n, err)
			}
		}
		if s.queue.Len() != 1 {
			t.Error("the cluster is not looked at")
		}
		refusals = 1 << 30
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := c.EnsureAccess(short, testID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refused for ever: %v", err)
		}
		status, reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
		fake.Take()
		if err := c.EnsureAccess(t.Context(), testID); err == nil || len(fake.Take()) != 1 {
			t.Errorf("a server that fails: %v", err)
		}
		c.attach(nil, gateway.Upstream{})
		if err := c.EnsureAccess(t.Context(), testID); !errors.Is(err, ErrNotConnected) {
			t.Errorf("without a connection: %v", err)
		}
	})
}

func TestDeletedByPeer(t *testing.T) {
	decisions := &diary{policy: plan.Policy{LastServed: true}}
	c, s, _ := connected(t, decisions, nil)
	c.DeletedByPeer(testID, api.PluralPeeringRequests)
	if told := decisions.take(); len(told) != 1 || told[0] != "served false the peer took its request back" {
		t.Errorf("told %q", told)
	}
	if obs := c.observe(s, testID); obs.RequestDeleted != plan.DeletedByPeer || obs.OfferDeleted != plan.DeletedUnseen {
		t.Errorf("deleted by %v and %v", obs.RequestDeleted, obs.OfferDeleted)
	}
	decisions.policy.LastServed = false
	c.DeletedByPeer(testID, api.PluralPeeringRequests)
	c.DeletedByPeer(testID, api.PluralAdvertisements)
	if told := decisions.take(); len(told) != 0 {
		t.Errorf("told %q", told)
	}
	if obs := c.observe(s, testID); obs.OfferDeleted != plan.DeletedByPeer {
		t.Errorf("deleted by %v", obs.OfferDeleted)
	}
}

// TestDeletionByPeerThatFailed: a peer that deleted nothing is not the one when a person
// does.
func TestDeletionByPeerThatFailed(t *testing.T) {
	for status, want := range map[int]plan.Deleter{200: plan.DeletedByPeer, 202: plan.DeletedByPeer, 403: plan.DeletedByPerson, 404: plan.DeletedByPerson, 409: plan.DeletedByPerson,
		429: plan.DeletedByPerson, 0: plan.DeletedByPeer, 408: plan.DeletedByPeer, 500: plan.DeletedByPeer, 504: plan.DeletedByPeer} {
		c, s, _ := connected(t, &diary{}, nil)
		r := &api.PeeringRequest{}
		r.Name, r.UID, r.ResourceVersion = string(testID), "r1", "1"
		a := &api.Advertisement{}
		a.Name, a.UID, a.ResourceVersion = string(testID), "a1", "1"
		if err := errors.Join(kubetest.Tell(s.requests).Update(r), kubetest.Tell(s.offers).Update(a)); err != nil {
			t.Fatal(err)
		}
		c.DeletedByPeer(testID, api.PluralPeeringRequests)(status)
		c.DeletedByPeer(testID, api.PluralAdvertisements)(status)
		c.DeletedByPeer(testID, "pods")(status)
		if err := errors.Join(kubetest.Tell(s.requests).Delete(r), kubetest.Tell(s.offers).Delete(a)); err != nil {
			t.Fatal(err)
		}
		if obs := c.observe(s, testID); obs.RequestDeleted != want || obs.OfferDeleted != want {
			t.Errorf("after %d: deleted by %v and %v, want %v", status, obs.RequestDeleted, obs.OfferDeleted, want)
		}
	}
}

// TestWithdrawn has a peer give up while the API server is away, and change its
// mind.
func TestWithdrawn(t *testing.T) {
	decisions := &diary{policy: plan.Policy{LastServed: true}}
	c, s, fake := connected(t, decisions, func(*http.Request, string) (int, string) { return http.StatusOK, `{}` })
	r := &api.PeeringRequest{}
	r.Name, r.UID, r.ResourceVersion = string(testID), "r1", "1"
	a := &api.Advertisement{}
	a.Name, a.UID, a.ResourceVersion = string(testID), "a1", "1"
	s.requests.Wrote(r)
	s.offers.Wrote(a)

	c.attach(nil, gateway.Upstream{})
	c.Withdrawn(testID, wire.Withdrawal{Request: true, Reason: "no need"})
	c.Withdrawn(testID, wire.Withdrawal{Advertisement: true, Reason: "no more"})
	c.attach(s, gateway.Upstream{})
	if err := s.withdraw(t.Context(), testID); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"DELETE " + requestKind().Object(string(testID)) + ` {"preconditions":{"uid":"r1"}}`,
		"DELETE " + advertisementKind().Object(string(testID)) + ` {"preconditions":{"uid":"a1"}}`,
	}
	if sent := fake.Take(); !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	if told := decisions.take(); len(told) != 1 || told[0] != "served false no more" {
		t.Errorf("told %q", told)
	}
	if obs := c.observe(s, testID); obs.RequestDeleted != plan.DeletedByPeer || obs.OfferDeleted != plan.DeletedByPeer {
		t.Errorf("deleted by %v and %v", obs.RequestDeleted, obs.OfferDeleted)
	}
	if err := s.withdraw(t.Context(), testID); err != nil || len(fake.Take()) != 0 {
		t.Errorf("it is done twice: %v", err)
	}

	// Whoever says that it wants it after all has not given up.
	s.requests.Wrote(r)
	c.Withdrawn(testID, wire.Withdrawal{Request: true})
	c.remote = &outbox{seen: plan.RemoteStatus{At: time.Now().Add(time.Second), State: &wire.State{Kubernetes: true, Consumes: true}}}
	if err := s.withdraw(t.Context(), testID); err != nil || len(fake.Take()) != 0 {
		t.Errorf("a request that is wanted again is deleted: %v", err)
	}

	// Nor has who asks again.
	s.requests.Wrote(r)
	c.Withdrawn(testID, wire.Withdrawal{Request: true})
	fake.Say(func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	})
	if err := c.EnsureAccess(t.Context(), testID); err != nil {
		t.Fatal(err)
	}
	fake.Take()
	if err := s.withdraw(t.Context(), testID); err != nil || len(fake.Take()) != 0 {
		t.Errorf("a request that was asked for again is deleted: %v", err)
	}
}

func TestWithoutConnection(t *testing.T) {
	c, _, _ := connected(t, &diary{}, nil)
	if s := c.State(testID); !s.Kubernetes || s.Identity.ClusterID != "self" {
		t.Errorf("state %+v", s)
	}
	if _, ok := c.Upstream(); !ok {
		t.Error("no way to the API server")
	}
	c.attach(nil, gateway.Upstream{})
	if s := c.State(testID); s.Kubernetes || s.Identity.ClusterID != "self" || s.Request != nil {
		t.Errorf("state %+v", s)
	}
	if v := c.View(testID); v.Outgoing.Reason != reason.Unknown {
		t.Errorf("view %+v", v)
	}
	if _, ok := c.Upstream(); ok {
		t.Error("there is a way to an API server that is away")
	}
	c.Noticed(testID)
	// A peer that is back while the API server is away is not lost when that returns.
	away := func() (t time.Time) {
		c.peers.with(testID, func(m *peerState) { t = m.away })
		return t
	}
	c.peers.with(testID, func(m *peerState) { m.away = time.Now().Add(-time.Hour) })
	c.cfg.Registry = neighbours{}
	c.Enqueue(testID)
	if away().IsZero() {
		t.Error("a peer of which nothing is known has returned")
	}
	c.cfg.Registry = neighbours{barn()}
	c.Enqueue(testID)
	if !away().IsZero() {
		t.Error("the absence of a peer that is there goes on")
	}
	if name := c.ForeignCluster(testID); name != "" {
		t.Errorf("ForeignCluster %q", name)
	}
}

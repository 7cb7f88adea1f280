package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// told counts calls of Changed.
type told struct {
	mu sync.Mutex
	n  int
}

func (c *told) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *told) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = 0
	return n
}

func users() api.PeerUsers { return api.PeerUsers{Namespace: "liqo"} }

// configOf is for a Host that admits no images, and tells nobody anything.
func configOf(settings func() Settings) Config {
	return Config{
		Settings: settings, Registries: func() registry.List { return registry.List{} }, OnlyNode: func() string { return "" },
		Users: users, Changed: func(peer.ClusterID) {}, Logger: slog.New(slog.DiscardHandler),
	}
}

// connected has a Host work on caches that nobody fills but test.
func connected(t *testing.T, test func(h *Host, s *session, changed *told)) {
	bubble.Test(t, func(t *testing.T) {
		changed := &told{}
		cfg := configOf(func() Settings {
			return Settings{Prefix: "liqo", PodSecurity: "baseline", Enforce: "requests", MaxNamespaces: 1}
		})
		cfg.Registries = func() registry.List { return registry.List{Entries: []string{"docker.io", registry.Own}} }
		cfg.Changed = func(peer.ClusterID) { changed.add() }
		h := New(cfg)
		if stands := h.Set(spec.Tenant{ID: barn, Admitted: true}); !stands.Busy {
			t.Errorf("before anything is known it stands %+v", stands)
		}
		s := newSession(h, nil)
		h.adopt(s)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { s.work(ctx) })
		synctest.Wait()
		if changed.take() != 1 {
			t.Error("that nothing is here was not told")
		}
		if stands := h.Set(spec.Tenant{ID: barn, Admitted: true}); stands.Busy {
			t.Errorf("it stands %+v", stands)
		}
		test(h, s, changed)
		cancel()
		group.Wait()
	})
}

// TestUnreadSaysWhy: an API server that does not answer is a reason like any other, though nothing has failed yet.
func TestUnreadSaysWhy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSession(New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*listPatience)
		defer cancel()
		if s.filled(ctx) {
			t.Error("caches that nobody fills are filled")
		}
		if text := log.String(); !strings.Contains(text, "cannot be read yet") || !strings.Contains(text, "has not answered yet") {
			t.Errorf("it logs %q", text)
		}
		if err := s.policiesKnown(); err == nil || !strings.Contains(err.Error(), "has not answered yet") {
			t.Errorf("network policies: %v", err)
		}
	})
}

func newPod(i int) *guestPod {
	p := podOf(fmt.Sprint("pod-", i), fmt.Sprint("uid-", i), "Running", "cpu=100m memory=1Gi pods=1")
	p.Labels = map[string]string{workload.LabelOriginCluster: string(barn)}
	return p
}

// TestBurstIsToldOnce: many pods within a moment are one change.
func TestBurstIsToldOnce(t *testing.T) {
	connected(t, func(h *Host, s *session, changed *told) {
		for i := range 200 {
			s.countPod(nil, newPod(i))
			time.Sleep(2 * time.Millisecond)
			if stands := h.Stands(barn); stands.Pods != i+1 {
				t.Fatalf("with %d pods it stands %+v", i+1, stands)
			}
		}
		time.Sleep(5 * time.Second)
		if n := changed.take(); n == 0 || n > 5 {
			t.Errorf("200 pods were told %d times", n)
		}
		stands := h.Set(spec.Tenant{ID: barn, Admitted: true})
		if stands.Pods != 200 || stands.Used["cpu"] != "20" || stands.Used["pods"] != "200" || stands.Used["limits.cpu"] != "" {
			t.Errorf("it stands %+v", stands)
		}
		time.Sleep(time.Minute)
		if n := changed.take(); n != 0 {
			t.Errorf("told %d times although nothing changed", n)
		}
		ended := newPod(0)
		ended.Status.Phase = "Failed"
		s.countPod(newPod(0), ended)
		s.countPod(newPod(1), nil)
		time.Sleep(5 * time.Second)
		if n := changed.take(); n == 0 {
			t.Error("the end of pods was not told")
		}
		if stands := h.Set(spec.Tenant{ID: barn, Admitted: true}); stands.Pods != 198 {
			t.Errorf("it stands %+v", stands)
		}
	})
}

// TestCountedBeforeLookedAt: nobody looks at a consumer for a pod that is not counted yet,
// and would find nothing to tell.
func TestCountedBeforeLookedAt(t *testing.T) {
	connected(t, func(h *Host, s *session, changed *told) {
		a := h.tenants[barn].account
		a.mu.Lock()
		var counting sync.WaitGroup
		counting.Go(func() { s.countPod(nil, newPod(1)) })
		early := false
		for range 1000 { // until it waits for the account
			runtime.Gosched()
			_, due := s.queue.Due(barn)
			early = early || due
		}
		a.mu.Unlock()
		if early {
			t.Error("it is to be looked at before the pod is counted")
		}
		counting.Wait()
		time.Sleep(time.Minute)
		if stands := h.Stands(barn); changed.take() != 1 || stands.Pods != 1 {
			t.Errorf("it stands %+v, and that was not told once", stands)
		}
	})
}

// TestOldSessionIsNotHeard: what an ended connection still tells does not count.
func TestOldSessionIsNotHeard(t *testing.T) {
	connected(t, func(h *Host, s *session, _ *told) {
		s.countPod(nil, newPod(1))
		s.countObject(resourceSecrets, nil, &guestObject{weight: weight{bytes: 7}, ObjectMeta: newPod(1).ObjectMeta})
		next := newSession(h, nil)
		next.countPod(nil, newPod(2)) // it is not filled yet
		if stands := h.Set(spec.Tenant{ID: barn, Admitted: true}); stands.Pods != 1 {
			t.Errorf("it stands %+v", stands)
		}
		h.adopt(next)
		s.countPod(nil, newPod(3))
		if stands := h.Set(spec.Tenant{ID: barn, Admitted: true}); stands.Pods != 0 {
			t.Errorf("it stands %+v", stands)
		}
		if !h.tenants[barn].account.empty() {
			t.Error("an object of the old connection still counts")
		}
	})
}

// TestForgotten: who has nothing and may do nothing is not remembered.
func TestForgotten(t *testing.T) {
	connected(t, func(h *Host, s *session, _ *told) {
		s.countPod(nil, newPod(1))
		h.Set(spec.Tenant{ID: barn})
		synctest.Wait()
		if len(h.tenants) != 1 {
			t.Error("a consumer with a pod is forgotten")
		}
		s.countPod(newPod(1), nil)
		time.Sleep(5 * time.Second)
		h.mu.Lock()
		n := len(h.tenants)
		h.mu.Unlock()
		if n != 0 {
			t.Error("a consumer without anything is remembered")
		}
		if stands := h.Set(spec.Tenant{ID: barn}); stands.Busy || len(h.tenants) != 0 {
			t.Errorf("it stands %+v", stands)
		}
	})
}

// TestAsksAfterTheEnd: who is not admitted is told so whenever it asks, also when it had nothing here any more before it
// asked, and when the agent has started since.
func TestAsksAfterTheEnd(t *testing.T) {
	connected(t, func(h *Host, s *session, changed *told) {
		reason := func(want string) {
			t.Helper()
			var no *Refused
			if err := h.Owns(barn, "liqo-barn-shop"); !errors.As(err, &no) || no.Reason != want {
				t.Errorf("refused as %v, want %s", err, want)
			}
		}
		h.Set(spec.Tenant{ID: barn})
		synctest.Wait()
		changed.take()
		reason(ReasonNotReady)
		if changed.take() != 1 {
			t.Error("nobody is asked how it is to stand")
		}
		h.Set(spec.Tenant{ID: barn})
		synctest.Wait()
		reason(ReasonNotAdmitted)
		if changed.take() != 0 {
			t.Error("what is known is asked for again")
		}
		h.Set(spec.Tenant{ID: barn, Admitted: true})
		reason(ReasonNotYours)
		h.Set(spec.Tenant{ID: barn})
		synctest.Wait()
		reason(ReasonNotAdmitted)
	})
}

// TestRegistriesNotKnownYet: an image is not refused for good before it is known which
// registries the cluster's own pods use.
func TestRegistriesNotKnownYet(t *testing.T) {
	no := &workload.Refusal{Reason: workload.ReasonRegistryNotAllowed, Message: "not from there"}
	for _, tc := range []struct {
		list registry.List
		want string
	}{
		{registry.List{Entries: []string{registry.Own}}, ReasonNotReady},
		{registry.List{Entries: []string{registry.Own}, Own: []string{}}, workload.ReasonRegistryNotAllowed},
		{registry.List{Entries: []string{"docker.io"}}, workload.ReasonRegistryNotAllowed},
	} {
		if got := refusedIn(workload.Guest{Registries: tc.list}, no); got.Reason != tc.want || (got.Retry > 0) != (tc.want == ReasonNotReady) {
			t.Errorf("%+v: %+v, want %s", tc.list, got, tc.want)
		}
	}
}

// TestConsumer: whose a namespace is stays known when the connection to the API server ends, and when the consumer is not
// admitted any more. What the consumer may do does not.
func TestConsumer(t *testing.T) {
	connected(t, func(h *Host, s *session, _ *told) {
		guest := namespaceFor("liqo-barn-shop", barn, "shop", Settings{PodSecurity: "baseline"})
		guest.UID, guest.ResourceVersion = "n", "1"
		s.namespaces.Wrote(guest)
		whose := func(want peer.ClusterID) {
			t.Helper()
			for namespace, want := range map[string]peer.ClusterID{"liqo-barn-shop": want, "kube-system": ""} {
				if id, known := h.Consumer(namespace); id != want || !known {
					t.Errorf("%s is %q's, known: %v", namespace, id, known)
				}
			}
		}
		whose(barn)
		h.mu.Lock()
		s.ended = true
		h.mu.Unlock()
		whose(barn)
		if h.Owns(barn, "liqo-barn-shop") == nil {
			t.Error("it may do something without a connection")
		}
		h.Set(spec.Tenant{ID: barn})
		whose(barn)
		h.mu.Lock()
		h.session = nil
		h.mu.Unlock()
		if _, known := h.Consumer("liqo-barn-shop"); known {
			t.Error("known without a connection")
		}
		h.mu.Lock()
		h.session = s
		h.mu.Unlock()
	})
}

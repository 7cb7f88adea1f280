package integration

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// rooms is a peering.Sharing that notes who may be here.
type rooms struct {
	mu   sync.Mutex
	last map[peer.ClusterID]spec.Tenant
	busy bool
}

func (r *rooms) Provide(spec.Node, peer.Target) spec.NodeStatus { return spec.NodeStatus{} }

func (*rooms) Network(peer.ClusterID) spec.Network { return spec.Network{} }

func (r *rooms) Host(t spec.Tenant) spec.TenantStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[t.ID] = t
	return spec.TenantStatus{Busy: r.busy}
}

func (r *rooms) hold(busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = busy
}

func (r *rooms) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// is reports whether a cluster may run pods here, up to that much cpu.
func (r *rooms) is(id peer.ClusterID, admitted bool, cpu string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, told := r.last[id]
	has := t.Offer["cpu"]
	if !told || t.Admitted != admitted || has != cpu {
		return fmt.Errorf("told %v: %+v with cpu %q", told, t, has)
	}
	return nil
}

const podPath = "/api/v1/namespaces/default/pods"

// TestOffers has a provider whose capacity, settings and consumers change, and
// watches what its consumer is told.
func TestOffers(t *testing.T) {
	var settings atomic.Pointer[plan.SharingSettings]
	usual := plan.SharingSettings{
		Enable: true, Percentage: 100, Overcommit: 100, Hysteresis: 10, Labels: []string{"node.kubernetes.io/instance-type"},
		Use: true, MaxAccepted: 10, KeepaliveThreshold: 3, KeepaliveRetry: 5 * time.Second, DrainTimeout: time.Minute,
	}
	settings.Store(&usual)
	t.Parallel()
	kubes := bed.New(t).AddClusters(t.Context(), bed.HostSpec{Name: "consumer", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "provider", Prefix: "10.77.0.2/24"})
	a := newSite(t, "consumer", "aaaaaaaa-097b-4b7d-ba04-6bd2a0f9d24f", kubes[0], direct(t, kubes[0]))
	b := newSite(t, "provider", "bbbbbbbb-097b-4b7d-ba04-6bd2a0f9d24f", kubes[1], direct(t, kubes[1]))
	here := &rooms{last: map[peer.ClusterID]spec.Tenant{}}
	b.settings, b.sharing = func() plan.SharingSettings { return *settings.Load() }, here
	a.find(b)
	b.find(a)
	a.begin()
	b.begin()
	set := func(change func(*plan.SharingSettings)) {
		next := *settings.Load()
		change(&next)
		settings.Store(&next)
		b.SharingChanged()
	}
	told := func(cpu, memory, pods string) func() error {
		return func() error {
			adv, err := a.offer(b)
			if err != nil {
				return err
			}
			hard := adv.Spec.ResourceQuota.Hard
			if hard["cpu"] != cpu || hard["memory"] != memory || hard["pods"] != pods {
				return fmt.Errorf("offered %v, want %s, %s, %s", hard, cpu, memory, pods)
			}
			return here.is(a.id, true, cpu)
		}
	}
	version := func() string {
		t.Helper()
		adv, err := a.offer(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(adv.UID) + " " + adv.ResourceVersion
	}
	pod := func(name, node, labels, cpu string) {
		t.Helper()
		b.do("POST", podPath, jsonMIME, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%s}},"spec":{"nodeName":%q,"containers":[
			{"name":"c","image":"i","resources":{"requests":{"cpu":%q,"memory":"1Gi"}}}]}}`, name, labels, node, cpu))
	}
	if _, err := b.kube.Request(t.Context(), "POST", "/api/v1/namespaces/default/serviceaccounts", jsonMIME, []byte(`{"metadata":{"name":"default"}}`)); err != nil {
		t.Logf("service account: %v", err)
	}

	a.trusts(b, func(s *plan.Policy) { s.Connect = plan.Yes })
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "joined", func() error { return joined(a, b) })
	within(t, "the first offer", told("4", "8Gi", "110"))
	adv, err := a.offer(b)
	want := map[string]string{
		"kubernetes.io/arch": runtime.GOARCH, "kubernetes.io/os": "linux", "liqo.io/provider-version": "v1.36.3+k3s1", "node.kubernetes.io/instance-type": "k3s",
	}
	if err != nil || !maps.Equal(adv.Spec.Labels, want) {
		t.Errorf("labels %v, %v", adv.Spec.Labels, err)
	}

	t.Run("no news", func(t *testing.T) {
		before := version()
		pod("unbound", "", "", "2")
		pod("guest", "provider", `"liqo.io/origin-cluster-id":"x"`, "2")
		pod("small", "provider", "", "100m")
		b.do("PATCH", "/api/v1/nodes/provider", merge, `{"metadata":{"annotations":{"a":"b"}}}`)
		within(t, "the pods to be seen", func() error {
			if got := b.Offered(); got.Free["cpu"] != "3900m" || got.Free["pods"] != "109" {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		b.SharingChanged()
		looked(t, a, b)
		if after := version(); after != before {
			t.Errorf("written: %s, then %s", before, after)
		}
	})
	t.Run("pods of its own", func(t *testing.T) {
		begun := time.Now()
		pod("large", "provider", "", "1400m")
		within(t, "less", told("2500m", "6Gi", "108"))
		if took := time.Since(begun); took < 9*time.Second {
			t.Errorf("the consumer is told after %v", took)
		}
	})
	t.Run("a restart", func(t *testing.T) {
		before := version()
		b.stop()
		here.forget()
		b.begin()
		within(t, "the offer to be known", told("2500m", "6Gi", "108"))
		looked(t, a, b)
		if after := version(); after != before {
			t.Errorf("written: %s, then %s", before, after)
		}
	})
	other := peer.ClusterID("cccccccc-097b-4b7d-ba04-6bd2a0f9d24f")
	t.Run("another consumer", func(t *testing.T) {
		b.decisions.change(other, func(s *plan.Policy) {
			s.Pin, s.Accept, s.LastServed = pinOf(other, a.key.Fingerprint(), "test"), accepted, false
		})
		b.do("POST", prPath, jsonMIME, fmt.Sprintf(`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":%q},
			"spec":{"clusterIdentity":{"clusterID":%q,"clusterName":"third"},"namespace":"liqo","authUrl":""}}`, other, other))
		within(t, "half", told("1250m", "3Gi", "54"))
		within(t, "the other one's half", func() error { return here.is(other, true, "1250m") })
		if got := b.Offered(); len(got.Promises) != 2 || got.Why != "" {
			t.Errorf("%+v", got)
		}
		b.decisions.change(other, func(s *plan.Policy) { s.Blocked = true })
		within(t, "all", told("2500m", "6Gi", "108"))
		within(t, "its end", func() error { return here.is(other, false, "") })
	})
	t.Run("settings", func(t *testing.T) {
		set(func(s *plan.SharingSettings) { s.Percentage = 50 })
		within(t, "half", told("1250m", "3Gi", "54"))
		set(func(s *plan.SharingSettings) { s.Percentage = 49 })
		within(t, "a little less", told("1220m", "3010Mi", "52"))
		set(func(s *plan.SharingSettings) { s.Percentage = 100 })
		within(t, "all", told("2500m", "6Gi", "108"))
	})
	t.Run("not shared", func(t *testing.T) {
		here.hold(true)
		set(func(s *plan.SharingSettings) { s.Enable = false })
		within(t, "the offer to be gone", func() error { return a.missing(advPath + "/" + string(b.id)) })
		within(t, "the end", func() error { return here.is(a.id, false, "") })
		shows := func(at, of *site, kind, reason, message string) func() error {
			return func() error {
				fc, err := at.foreign(of)
				if err != nil {
					return err
				}
				if c := fc.Condition(kind); c == nil || c.Status != api.ConditionFalse || c.Reason != reason || message != "" && c.Message != message {
					return fmt.Errorf("%+v", c)
				}
				return nil
			}
		}
		const says = "The request is accepted, but this cluster shares nothing at the moment (sharing.enable)."
		within(t, "what the provider shows", shows(b, a, api.ConditionIncomingPeering, reason.NotSharing, says+" Its namespaces here are being removed."))
		within(t, "what the consumer shows", shows(a, b, api.ConditionOutgoingPeering, reason.AwaitingOffer, ""))
		here.hold(false)
		b.Enqueue(a.id)
		within(t, "the namespaces to be gone", shows(b, a, api.ConditionIncomingPeering, reason.NotSharing, says))
		looked(t, a, b)
		if req, err := b.request(a); err != nil || req.Status.Phase != api.RequestAccepted {
			t.Errorf("the request: %v", err)
		}
		if got := b.Offered(); got.Why == "" || len(got.Promises) != 0 {
			t.Errorf("%+v", got)
		}
		set(func(s *plan.SharingSettings) { s.Enable = true })
		within(t, "joined again", func() error {
			fc, err := a.foreign(b)
			if err == nil && !fc.Status.Outgoing.Joined {
				err = errors.New("not joined")
			}
			return errors.Join(err, told("2500m", "6Gi", "108")())
		})
	})
	t.Run("sent away", func(t *testing.T) {
		defer untilTold(t, a, b)()
		b.decisions.change(a.id, func(s *plan.Policy) {
			s.Accept, s.Ended = plan.AcceptDecision{Phase: api.RequestPending}, "Enough."
		})
		within(t, "the end", func() error {
			return errors.Join(here.is(a.id, false, ""), a.missing(advPath+"/"+string(b.id)), b.missing(prPath+"/"+string(a.id)))
		})
		within(t, "nobody to offer to", func() error {
			if got := b.Offered(); got.Free != nil || len(got.Promises) != 0 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	})
}

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/config"
	"liqo.io/agent/peering/events"
	"liqo.io/agent/peering/plan"
)

// kubeEvent is as much of an Event as is looked at.
type kubeEvent struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	InvolvedObject struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
		UID  string `json:"uid"`
	} `json:"involvedObject"`
	Reason, Message, Type string
	Count                 int
}

// events returns the Events about another site's ForeignCluster, oldest first.
func (s *site) events(other *site) ([]kubeEvent, error) {
	list, err := object[struct {
		Items []kubeEvent `json:"items"`
	}](s, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=ForeignCluster")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e kubeEvent) bool { return e.InvolvedObject.Name != string(other.id) }), nil
}

// hasEvents reports which of some reasons there is no Event for.
func (s *site) hasEvents(other *site, reasons ...string) error {
	all, err := s.events(other)
	if err != nil {
		return err
	}
	for _, reason := range reasons {
		if !slices.ContainsFunc(all, func(e kubeEvent) bool { return e.Reason == reason }) {
			return fmt.Errorf("%s has no Event %s: %+v", s.name, reason, all)
		}
	}
	return nil
}

// stripped returns a definition of ClusterConfigs as it was before they had a status.
func stripped(t *testing.T, definition []byte) string {
	t.Helper()
	var crd map[string]any
	if err := json.Unmarshal(definition, &crd); err != nil {
		t.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	delete(version, "subresources")
	delete(version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any), "status")
	delete(crd["metadata"].(map[string]any), "managedFields")
	text, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHealthAndEvents: what happens to a peering is told by Events, once, and the
// ClusterConfig says how the agent is, also one that was made before it could.
func TestHealthAndEvents(t *testing.T) {
	a, b := pair(t)
	a.trusts(b, nil)
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "the neighbour", func() error { _, err := a.foreign(b); return err })
	a.join(b, true)
	within(t, "both to be joined", func() error { return joined(a, b) })
	within(t, "Events", func() error {
		return errors.Join(a.hasEvents(b, events.EventJoined, events.EventOfferAccepted), b.hasEvents(a, events.EventServing))
	})

	t.Run("kubectl shows them", func(t *testing.T) {
		for _, args := range [][]string{{"describe", "fc", string(b.id)}, {"events", "--for", "foreigncluster/" + string(b.id)}} {
			within(t, "kubectl "+strings.Join(args, " "), func() error {
				out, err := a.kube.Kubectl(t.Context(), args...)
				if err == nil && (!strings.Contains(out, events.EventJoined) || !strings.Contains(out, "its offer is accepted")) {
					err = errors.New(out)
				}
				return err
			})
		}
	})

	t.Run("a restart repeats none", func(t *testing.T) {
		before, err := a.events(b)
		if err != nil {
			t.Fatal(err)
		}
		a.running.stop()
		a.begin()
		within(t, "both to be joined again", func() error { return joined(a, b) })
		looked(t, a, b)
		after, err := a.events(b)
		if err != nil || !slices.Equal(before, after) {
			t.Errorf("before %+v, after %+v (%v)", before, after, err)
		}
		fc, err := a.foreign(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range after {
			if e.InvolvedObject.UID != string(fc.UID) || e.Count != 1 || e.Message == "" {
				t.Errorf("%+v", e)
			}
		}
	})

	t.Run("an absence and a return", func(t *testing.T) {
		a.change(b.id, func(p *peer.Peer) { p.Phase, p.Reason = peer.PhaseUnreachable, "no answer in time" })
		within(t, "an Event", func() error { return a.hasEvents(b, events.EventUnreachable) })
		a.change(b.id, func(p *peer.Peer) { p.Phase, p.Reason = peer.PhasePresent, "" })
		within(t, "an Event", func() error { return a.hasEvents(b, events.EventReachable) })
	})

	t.Run("parting", func(t *testing.T) {
		a.join(b, false)
		within(t, "Events", func() error {
			return errors.Join(a.hasEvents(b, events.EventDisconnected), b.hasEvents(a, events.EventServingEnded))
		})
	})

	t.Run("the ClusterConfig of an earlier version", func(t *testing.T) {
		b.running.stop()
		definition, err := b.kube.Request(t.Context(), "GET", configCRDPath, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.do("PUT", configCRDPath, jsonMIME, stripped(t, definition))
		// Whatever somebody set is to survive.
		b.do("PATCH", configPath, merge, `{"spec":{"discoveryConfig":{"ttl":90}}}`)

		var health atomic.Pointer[config.Health]
		b.health = func() (config.Health, bool) {
			h := health.Load()
			if h == nil {
				return config.Health{}, false
			}
			return *h, true
		}
		say := func(h config.Health) {
			health.Store(&h)
			b.HealthChanged()
		}
		shows := func(status api.ConditionStatus, reason string) func() error {
			return func() error {
				c, err := object[api.ClusterConfig](b, configPath)
				if err != nil {
					return err
				}
				if got := c.Status.Condition(api.ConditionHealthy); got == nil || got.Status != status || got.Reason != reason {
					return fmt.Errorf("it shows %+v", got)
				}
				return nil
			}
		}
		say(config.Health{Healthy: true, Reason: "NoProblems", Message: "There are no problems."})
		b.begin()
		within(t, "the condition", shows(api.ConditionTrue, "NoProblems"))
		if _, err := b.kube.Kubectl(t.Context(), "wait", "--for=condition=Healthy", "clusterconfig", api.ClusterConfigName, "--timeout=10s"); err != nil {
			t.Error(err)
		}
		say(config.Health{Reason: "DiskFull", Message: "the disk is full"})
		within(t, "the condition", shows(api.ConditionFalse, "DiskFull"))
		c, err := object[api.ClusterConfig](b, configPath)
		if err != nil {
			t.Fatal(err)
		}
		if d := c.Spec.DiscoveryConfig; d == nil || d.TTL == nil || *d.TTL != 90 {
			t.Errorf("the spec is %+v", c.Spec)
		}
		for _, m := range c.ManagedFields {
			if (m.Manager == config.ManagerHealth) != (m.Subresource == "status") || m.Manager == config.ManagerHealth && strings.Contains(m.FieldsV1.String(), "f:spec") {
				t.Errorf("%s (%s) owns %s", m.Manager, m.Subresource, m.FieldsV1)
			}
		}
		out, err := b.kube.Kubectl(t.Context(), "get", "clusterconfigs", "-o", "wide")
		if err != nil || !strings.Contains(out, "HEALTHY") || !strings.Contains(out, "False") || !strings.Contains(out, "DiskFull") {
			t.Errorf("kubectl shows %q, %v", out, err)
		}
		within(t, "the version", func() error {
			if v := b.Status().Version; !strings.HasPrefix(v, "v1.") {
				return fmt.Errorf("%q", v)
			}
			return nil
		})
		if st := b.Status(); len(st.Forbidden) != 0 || st.ObjectsError != "" || st.WebhookError != "" || st.Trouble != conn.TroubleNone {
			t.Errorf("%+v", st)
		}
	})
}

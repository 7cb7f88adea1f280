package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/install"
	"liqo.io/agent/peering/reason"
)

// TestLifecycle follows one neighbour from its first sight to its loss, with a
// user who interferes on the way.
func TestLifecycle(t *testing.T) {
	k := startKube(t)
	path := direct(t, k)

	id, origin, err := install.ClusterIDFromAPI(t.Context(), path, "liqo")
	if err != nil || !strings.HasPrefix(origin, "UID of node") {
		t.Fatalf("ClusterIDFromAPI = %q, %q, %v", id, origin, err)
	}

	r := run(t, path, newRegistry())
	r.put(barn())
	first := awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))

	t.Run("first sight", func(t *testing.T) {
		spec := first.Spec
		if *spec.ClusterIdentity != (api.ClusterIdentity{ClusterID: string(barnID), ClusterName: "barn"}) || spec.Namespace != "liqo" ||
			spec.AuthURL != barn().URL || spec.DiscoveryType != api.DiscoveryLAN || spec.Join || spec.TrustMode != api.TrustUnknown {
			t.Errorf("spec = %+v", spec)
		}
		s := first.Status
		if s.Role != api.RoleUnknown || s.AuthStatus != api.AuthPending || s.Fingerprint != barn().Fingerprint.String() || s.TTL != 120 ||
			s.Outgoing.Joined || s.Modules.Networking.Enabled {
			t.Errorf("status = %+v", s)
		}
		if first.Labels[api.LabelDiscoveryType] != "LAN" || first.Labels[api.LabelManagedBy] != "liqo-agent" {
			t.Errorf("labels = %v", first.Labels)
		}
		for _, want := range []string{"joined:false", "networking:map[enabled:false]", "role:Unknown"} {
			var raw struct {
				Status map[string]any `json:"status"`
			}
			text, err := k.Request(t.Context(), "GET", fcPath+"/"+string(barnID), "", nil)
			if err != nil || json.Unmarshal(text, &raw) != nil || !strings.Contains(fmt.Sprint(raw.Status), want) {
				t.Errorf("status shows %v, want %s (%v)", raw.Status, want, err)
			}
		}
	})

	t.Run("owners of fields", func(t *testing.T) {
		for _, m := range first.ManagedFields {
			if m.Manager != fields.ManagerDiscovery || m.Operation != "Apply" {
				t.Errorf("fields are owned by %s (%s)", m.Manager, m.Operation)
			}
			for _, field := range []string{"f:join", "f:trustMode", "f:role", "f:modules"} {
				if strings.Contains(m.FieldsV1.String(), field) {
					t.Errorf("discovery owns %s", field)
				}
			}
		}
	})

	t.Run("kubectl", func(t *testing.T) {
		known(t, k, "fc")
		out, err := k.Kubectl(t.Context(), "get", "fc")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(strings.Split(out, "\n")[1]); !slices.Equal(got[:6], []string{string(barnID), "barn", "Unknown", "false", "false", "LAN"}) {
			t.Errorf("row is %q", got)
		}
		out, err = k.Kubectl(t.Context(), "get", "liqo", "-o", "wide")
		if err != nil || !strings.Contains(out, barn().URL) {
			t.Errorf("kubectl get liqo -o wide: %v\n%s", err, out)
		}
	})

	t.Run("the agent's own objects", func(t *testing.T) {
		within(t, "ConfigMap", func() error {
			id, origin, err := install.ClusterIDFromAPI(t.Context(), path, "liqo")
			if err == nil && (id != selfID || origin != "ConfigMap liqo/cluster-id") {
				err = fmt.Errorf("%s from %s", id, origin)
			}
			return err
		})
	})

	t.Run("nothing is written without a change", func(t *testing.T) {
		r.reg.settle(false)
		defer r.reg.settle(true)
		awaitInstalled(t, k)
		writes := r.Status().Writes
		for range 50 {
			r.Enqueue(barnID)
		}
		// A second controller sees everything for the first time, and has nothing to write either.
		reg := newRegistry()
		reg.put(barn())
		second := run(t, path, reg)
		within(t, "second controller", func() error {
			if s := second.Status(); !s.Connected || s.ForeignClusters != 1 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		// The queue works in order of arrival: when this peer is there, the ones before it were looked at.
		second.put(neighbour(1))
		awaitFC(t, k, string(neighbour(1).ID), condition(api.ConditionReachable, api.ConditionTrue))
		second.stop()
		if n := second.Status().Writes; n != 2 {
			t.Errorf("a new controller sent %d writes, want 2 for the new peer", n)
		}
		within(t, "first controller", func() error {
			if s := r.Status(); s.ForeignClusters != 2 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if n := r.Status().Writes - writes; n != 0 {
			t.Errorf("%d writes without a change", n)
		}
		if fc, err := get(t, k, string(barnID)); err != nil || fc.ResourceVersion != first.ResourceVersion {
			t.Errorf("the object changed: %v", err)
		}
	})

	t.Run("changes in place", func(t *testing.T) {
		r.change(barnID, func(p *peer.Peer) { p.URL, p.Name = "https://10.9.9.9:7000", "stable" })
		fc := awaitFC(t, k, string(barnID), hasURL("https://10.9.9.9:7000"))
		if fc.UID != first.UID || fc.Spec.ClusterIdentity.ClusterName != "stable" {
			t.Errorf("not changed in place: %+v", fc)
		}
		r.change(barnID, func(p *peer.Peer) { p.URL = "https://[fe80::1%25eth0]:6447" })
		awaitFC(t, k, string(barnID), hasURL("https://[fe80::1%25eth0]:6447"))
	})

	t.Run("a user edits", func(t *testing.T) {
		request(t, k, "PATCH", fcPath+"/"+string(barnID), merge,
			`{"spec":{"join":true,"trustMode":"Trusted","authUrl":"https://wrong:1","discoveryType":"Manual"},"metadata":{"labels":{"mine":"x"},"annotations":{"note":"y"}}}`)
		fc := awaitFC(t, k, string(barnID), hasURL("https://[fe80::1%25eth0]:6447"))
		if !fc.Spec.Join || fc.Spec.TrustMode != api.TrustTrusted || fc.Labels["mine"] != "x" || fc.Annotations["note"] != "y" || fc.Spec.DiscoveryType != api.DiscoveryLAN {
			t.Errorf("after the edit: %+v %+v", fc.ObjectMeta, fc.Spec)
		}
		// Nobody but the user owns join, so applying it by another tool conflicts with no manager of the agent.
		request(t, k, "PATCH", fcPath+"/"+string(neighbour(2).ID)+"?fieldManager=gitops", "application/apply-patch+yaml",
			`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"`+string(neighbour(2).ID)+`"},"spec":{"join":true,"clusterIdentity":{"clusterID":"`+string(neighbour(2).ID)+`"}}}`)
	})

	t.Run("lost while joined", func(t *testing.T) {
		r.change(barnID, func(p *peer.Peer) { p.Phase, p.Reason = peer.PhaseUnreachable, "three checks failed" })
		awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionFalse))
		r.change(barnID, func(p *peer.Peer) { p.Phase = peer.PhaseLost })
		awaitFC(t, k, string(barnID), func(fc *api.ForeignCluster) error {
			if c := fc.Condition(api.ConditionReachable); c.Reason != reason.Lost {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		// Not joined any more, it goes.
		request(t, k, "PATCH", fcPath+"/"+string(barnID), merge, `{"spec":{"join":false}}`)
		awaitGone(t, k, fcPath+"/"+string(barnID))
	})

	t.Run("deleted by a user", func(t *testing.T) {
		r.change(barnID, func(p *peer.Peer) { p.Phase = peer.PhasePresent })
		before := awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
		request(t, k, "DELETE", fcPath+"/"+string(barnID), "", "")
		awaitFC(t, k, string(barnID), func(fc *api.ForeignCluster) error {
			if fc.UID == before.UID {
				return errors.New("still the old object")
			}
			return condition(api.ConditionReachable, api.ConditionTrue)(fc)
		})
	})

	t.Run("written by a user", func(t *testing.T) {
		p := neighbour(3)
		request(t, k, "POST", fcPath, jsonMIME, `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"mine"},"spec":{"clusterIdentity":{"clusterID":"`+string(p.ID)+`"},"authUrl":"https://mine.example:1"}}`)
		r.put(p)
		awaitFC(t, k, "mine", condition(api.ConditionReachable, api.ConditionTrue))
		// If the watch was slower than the test, the agent made one, and takes it back.
		awaitGone(t, k, fcPath+"/"+string(p.ID))
		r.change(p.ID, func(p *peer.Peer) { p.Phase = peer.PhaseLost })
		fc := awaitFC(t, k, "mine", condition(api.ConditionReachable, api.ConditionFalse))
		if fc.Spec.AuthURL != "https://mine.example:1" {
			t.Errorf("the user's URL became %s", fc.Spec.AuthURL)
		}
		// And when the user has one for a peer that the agent made one for, the agent's makes room.
		request(t, k, "POST", fcPath, jsonMIME, `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"my-barn"},"spec":{"clusterIdentity":{"clusterID":"`+string(barnID)+`"}}}`)
		awaitGone(t, k, fcPath+"/"+string(barnID))
		request(t, k, "DELETE", fcPath+"/my-barn", "", "")
		awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
	})

	t.Run("another cluster's object under the name", func(t *testing.T) {
		p := neighbour(4)
		request(t, k, "POST", fcPath, jsonMIME, `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"`+string(p.ID)+`"},"spec":{"authUrl":"https://someone.example:1"}}`)
		within(t, "the object in the cache", func() error {
			if items, err := list(t, k); err != nil || r.Status().ForeignClusters != len(items) {
				return fmt.Errorf("%d of %d: %v", r.Status().ForeignClusters, len(items), err)
			}
			return nil
		})
		r.put(p)
		within(t, "the complaint", func() error {
			if !strings.Contains(r.log.String(), "has its ID as name") {
				return errors.New("nothing was logged")
			}
			return nil
		})
		request(t, k, "DELETE", fcPath+"/"+string(p.ID), "", "")
		awaitFC(t, k, string(p.ID), hasURL(p.URL))
	})

	t.Run("refused by the API server", func(t *testing.T) {
		p := neighbour(6)
		p.URL = "not a URL"
		r.put(p)
		within(t, "the complaint", func() error {
			if !strings.Contains(r.log.String(), sayScheme) {
				return errors.New("nothing was logged")
			}
			return nil
		})
		r.put(neighbour(6))
		awaitFC(t, k, string(p.ID), condition(api.ConditionReachable, api.ConditionTrue))
		if n := strings.Count(r.log.String(), sayScheme); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
	})

	t.Run("the custom resource is deleted", func(t *testing.T) {
		before := awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
		request(t, k, "DELETE", crdPath, "", "")
		awaitFC(t, k, string(barnID), func(fc *api.ForeignCluster) error {
			if fc.UID == before.UID {
				return errors.New("still the old object")
			}
			return condition(api.ConditionReachable, api.ConditionTrue)(fc)
		})
		if s := r.Status(); !s.Connected {
			t.Errorf("status = %+v", s)
		}
	})

	t.Run("restart", func(t *testing.T) {
		r.stop()
		reg := newRegistry()
		reg.settle(false)
		again := run(t, path, reg)
		again.put(neighbour(5))
		awaitFC(t, k, string(neighbour(5).ID), condition(api.ConditionReachable, api.ConditionTrue))
		if _, err := get(t, k, string(barnID)); err != nil {
			t.Errorf("a peer that was not seen yet: %v", err)
		}
		reg.settle(true)
		awaitGone(t, k, fcPath+"/"+string(barnID))
		lines := again.log.Lines(slog.LevelInfo)
		for i := len(lines) - 1; i > 0; i-- { // a busy machine may lose the connection, and has another then
			if strings.Contains(lines[i], "lost the connection to the API server") {
				lines = slices.Delete(lines, i, min(i+2, len(lines)))
			}
		}
		if len(lines) != 1 {
			t.Errorf("want one line about the connection, got:\n%s", strings.Join(lines, "\n"))
		}
	})
}

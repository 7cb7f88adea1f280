//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
)

// Two boxes find each other; then everything a user can look at is looked at.
func TestTwoBoxesFindEachOther(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newClusters(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start()
	mill.start()
	barnID, millID := barn.id(), mill.id()

	t.Run("a ForeignCluster on both", func(t *testing.T) {
		fc := barn.awaitFC("appears", millID, reachable)
		if got := fc.Spec; got.ClusterIdentity.ClusterID != millID || got.ClusterIdentity.ClusterName != "mill" ||
			got.Namespace != "liqo" || got.Join || got.DiscoveryType != "LAN" || got.AuthURL != "https://10.77.0.2:6447" {
			t.Errorf("spec = %+v", got)
		}
		if fc.Status.Fingerprint != mill.mustStatus().Identity.Fingerprint || fc.Status.Role != "Unknown" || fc.Status.TTL <= 0 {
			t.Errorf("status = %+v", fc.Status)
		}
		mill.awaitFC("appears", barnID, reachable)
	})

	t.Run("the ID is that of the control-plane node and is kept in the ConfigMap", func(t *testing.T) {
		out, err := barn.kube.Kubectl(t.Context(), "get", "node", "barn", "-o", "jsonpath={.metadata.uid}")
		if err != nil || out != barnID {
			t.Errorf("node UID %q, cluster ID %q, %v", out, barnID, err)
		}
		barn.eventually("ConfigMap", func() error {
			out, err := barn.kube.Kubectl(t.Context(), "get", "configmap", "cluster-id", "-n", "liqo", "-o", "jsonpath={.data.CLUSTER_ID}")
			if err != nil || out != barnID {
				return fmt.Errorf("ConfigMap says %q: %w", out, err)
			}
			return nil
		})
	})

	t.Run("who manages which field", func(t *testing.T) {
		fc, err := barn.foreignCluster(millID)
		if err != nil {
			t.Fatal(err)
		}
		owner := make(map[string]string)
		for _, m := range fc.Metadata.ManagedFields {
			if m.Operation != "Apply" {
				t.Errorf("manager %s wrote by %s, want server-side apply", m.Manager, m.Operation)
			}
			var fields struct {
				Spec   map[string]json.RawMessage `json:"f:spec"`
				Status map[string]json.RawMessage `json:"f:status"`
			}
			if err := json.Unmarshal(m.FieldsV1, &fields); err != nil {
				t.Fatal(err)
			}
			for f := range fields.Spec {
				owner["spec."+f] = m.Manager
			}
			for f := range fields.Status {
				owner["status."+f] = m.Manager
			}
		}
		for _, f := range []string{"spec.f:clusterIdentity", "spec.f:namespace", "spec.f:authUrl", "spec.f:discoveryType", "status.f:ttl"} {
			if owner[f] != "liqo-agent-discovery" {
				t.Errorf("%s is managed by %q", f, owner[f])
			}
		}
		if owner["spec.f:join"] == "liqo-agent-discovery" {
			t.Error("discovery manages spec.join, which is the user's")
		}
	})

	t.Run("kubectl get", func(t *testing.T) {
		out, err := barn.kube.Kubectl(t.Context(), "get", "fc")
		if err != nil {
			t.Fatal(err)
		}
		header := strings.Join(strings.Fields(strings.SplitN(out, "\n", 2)[0]), " ")
		if header != "NAME CLUSTER NAME ROLE OUTGOING INCOMING DISCOVERY ACCESS AGE" || !strings.Contains(out, millID) {
			t.Errorf("kubectl get fc:\n%s", out)
		}
	})

	t.Run("curl /ids", func(t *testing.T) {
		out, err := barn.host.Run(t.Context(), "curl", "--silent", "--insecure", "https://10.77.0.2:6447/ids")
		want := fmt.Sprintf(`{"clusterId":"%s","clusterName":"mill","guestNamespace":"liqo"}`, millID)
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
	})

	t.Run("peers list", func(t *testing.T) {
		p := barn.awaitPeer(millID, "Present")
		if !p.Verified || !p.Remembered || p.URL != "https://10.77.0.2:6447" || p.ForeignCluster != millID || !slices.Equal(p.Links, []string{"eth0"}) {
			t.Errorf("peer = %+v", p)
		}
		out, err := barn.cli("peers", "list")
		if err != nil || !strings.Contains(out, "mill") || strings.Contains(out, "\x1b") {
			t.Errorf("%v:\n%s", err, out)
		}
		for _, ref := range []string{"mill", millID[:6]} {
			if out, err := barn.cli("peers", "show", ref); err != nil || !strings.Contains(out, millID) {
				t.Errorf("peers show %s: %v:\n%s", ref, err, out)
			}
		}
	})

	t.Run("an alias names a peer", func(t *testing.T) {
		if _, err := barn.cli("peers", "alias", "mill", "grandma"); err != nil {
			t.Fatal(err)
		}
		if out, err := barn.cli("peers", "show", "grandma"); err != nil || !strings.Contains(out, millID) {
			t.Errorf("%v:\n%s", err, out)
		}
	})

	t.Run("history", func(t *testing.T) {
		barn.eventually("history tells of the first meeting", func() error {
			events, err := cliJSON[[]control.Event](barn, "peers", "history", "mill")
			if err != nil || len(events) == 0 || events[0].Kind != "appeared" {
				return fmt.Errorf("%v: %v", events, err)
			}
			return nil
		})
	})

	t.Run("scan without a daemon", func(t *testing.T) {
		visitor := b.AddHost("visitor", "10.77.0.9/24")
		barn.eventually("a scan finds both", func() error {
			out, err := visitor.Run(t.Context(), barn.bin, "scan")
			if err == nil && (!strings.Contains(out, "barn") || !strings.Contains(out, "mill")) {
				err = errors.New(out)
			}
			return err
		})
	})

	t.Run("a stopped agent leaves its peers readable", func(t *testing.T) {
		mill.stop()
		out, err := mill.cli("peers", "list", "--all")
		if err != nil || !strings.Contains(out, "barn") {
			t.Errorf("%v:\n%s", err, out)
		}
		barn.awaitNoFC(millID)
		if p := barn.awaitPeer(millID, "Lost"); !strings.Contains(p.Reason, "goodbye") {
			t.Errorf("reason = %q", p.Reason)
		}
	})

	t.Run("and comes back under the same ForeignCluster name", func(t *testing.T) {
		mill.start()
		if mill.id() != millID {
			t.Errorf("ID changed from %s to %s", millID, mill.id())
		}
		barn.awaitFC("comes back", millID, reachable)
	})
}

// An address, a name and a port change in place: the object stays the same one. It goes while the box is away, and comes back with it.
func TestChangesAreFollowedInPlace(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn, mill := newClusters(t, b, "barn")[0], newBoxes(t, b, "mill")[0]
	barn.start()
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	before := barn.awaitFC("appears", millID, reachable)

	mill.host.Link("eth0").SetAddress("10.77.0.22/24")
	after := barn.awaitFC("has the new address", millID, func(fc foreignCluster) bool {
		return fc.Spec.AuthURL == "https://10.77.0.22:6447" && reachable(fc)
	})
	if after.Metadata.UID != before.Metadata.UID {
		t.Error("the ForeignCluster was made anew for a new address")
	}
	barn.eventually("the old address is forgotten", func() error {
		p, err := barn.peer(millID)
		if err != nil || slices.Contains(p.Addresses, "10.77.0.2:6447") {
			return fmt.Errorf("addresses %v, %v", p.Addresses, err)
		}
		return nil
	})

	mill.configure("[cluster]\nname = \"windmill\"\n\n[discovery]\ncheck_interval = \"1s\"\n")
	mill.reload()
	after = barn.awaitFC("has the new name", millID, func(fc foreignCluster) bool {
		return fc.Spec.ClusterIdentity.ClusterName == "windmill"
	})
	if after.Metadata.UID != before.Metadata.UID {
		t.Error("the ForeignCluster was made anew for a new name")
	}

	mill.stop()
	mill.configure("[endpoint]\nlisten = \":7777\"\n\n[discovery]\ncheck_interval = \"1s\"\n")
	mill.start("--kubeconfig", "none")
	barn.awaitFC("has the new port", millID, func(fc foreignCluster) bool {
		return fc.Spec.AuthURL == "https://10.77.0.22:7777" && reachable(fc)
	})

	// A box whose cable is cut says no goodbye.
	mill.host.Link("eth0").Unplug()
	barn.awaitNoFC(millID)
	if p := barn.awaitPeer(millID, "Lost"); p.Reason == "" {
		t.Error("no reason is given")
	}
	mill.host.Link("eth0").Plug()
	barn.awaitFC("comes back", millID, reachable)
}

// Both switches work without a restart.
func TestSwitches(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")
	mill.awaitPeer(barnID, "Present")

	mill.configure("[discovery]\nenable_advertisement = false\n")
	mill.reload()
	barn.awaitPeer(millID, "Lost")
	mill.keeps(barnID, "mill stopped to advertise")
	mill.configure("")
	mill.reload()
	barn.awaitPeer(millID, "Present")

	barn.configure("[discovery]\nenable_discovery = false\n")
	barn.reload()
	barn.awaitPeer(millID, "Lost")
	mill.keeps(barnID, "barn stopped to discover")
	barn.configure("")
	barn.reload()
	barn.awaitPeer(millID, "Present")

	barn.configure("[discovery]\nenable_discovry = true\n")
	barn.reload()
	barn.eventually("a bad file is reported", func() error {
		for _, p := range barn.mustStatus().Problems {
			if strings.Contains(p.Text, "enable_discovery") {
				return nil
			}
		}
		return fmt.Errorf("problems: %v", barn.mustStatus().Problems)
	})
	barn.keeps(millID, "a bad file changes nothing")
}

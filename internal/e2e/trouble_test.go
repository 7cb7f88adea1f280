//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
)

// The API server appears long after the agent, goes, hangs and comes back.
func TestAPIServerComesAndGoes(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start()
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")

	startKubes(t, b, nil, barn)
	barn.awaitFC("appears with the API server", millID, reachable)
	if barn.id() != barnID {
		t.Errorf("the cluster ID changed from %s to %s when an API server appeared", barnID, barn.id())
	}
	barn.eventually("ConfigMap", func() error {
		out, err := barn.kube.Kubectl(t.Context(), "get", "configmap", "cluster-id", "-n", "liqo", "-o", "jsonpath={.data.CLUSTER_ID}")
		if err != nil || out != barnID {
			return fmt.Errorf("ConfigMap says %q: %w", out, err)
		}
		return nil
	})

	if err := barn.kube.Kill(); err != nil {
		t.Fatal(err)
	}
	barn.eventually("the agent notices that the API server is gone", func() error {
		if barn.mustStatus().Kubernetes.Connected {
			return fmt.Errorf("status says connected")
		}
		return nil
	})
	// K3s starts: somebody answers at the port, who is no API server yet.
	started, err := barn.kube.Starting()
	if err != nil {
		t.Fatal(err)
	}
	barn.eventually("the agent says that the API server is not ready", func() error {
		if st := barn.mustStatus().Kubernetes; st.Connected || !strings.Contains(st.LastError, "503") && !strings.Contains(st.LastError, "apiserver not ready") {
			return fmt.Errorf("connected: %t, %q", st.Connected, st.LastError)
		}
		return nil
	})
	// What changes meanwhile is not lost.
	mill.stop()
	barn.awaitPeer(millID, "Lost")
	if err := errors.Join(started(), barn.kube.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	barn.awaitNoFC(millID)

	mill.start("--kubeconfig", "none")
	barn.awaitFC("comes back", millID, reachable)

	// Somebody deletes what the agent made.
	if _, err := barn.kube.Kubectl(t.Context(), "delete", "fc", millID); err != nil {
		t.Fatal(err)
	}
	barn.awaitFC("is made again", millID, reachable)
	if _, err := barn.kube.Kubectl(t.Context(), "delete", "crd", "foreignclusters.discovery.liqo.io"); err != nil {
		t.Fatal(err)
	}
	barn.awaitFC("is made again with its definition", millID, reachable)

	if _, err := barn.kube.Kubectl(t.Context(), "delete", "configmap", "cluster-id", "-n", "liqo"); err != nil {
		t.Fatal(err)
	}
	barn.stop()
	barn.start()
	if barn.id() != barnID {
		t.Errorf("deleting the ConfigMap changed the ID from %s to %s", barnID, barn.id())
	}
}

// While nothing changes nothing is written, neither to the API server nor to
// the database.
func TestQuietLANIsNotWrittenAbout(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newClusters(t, b, "barn")[0]
	boxes := newBoxes(t, b, "mill", "pond")
	mill, pond := boxes[0], boxes[1]
	barn.start()
	mill.start("--kubeconfig", "none")
	pond.start("--kubeconfig", "none")
	for _, x := range []*box{mill, pond} {
		barn.awaitFC("appears", x.id(), reachable)
	}
	settled := func() (writes uint64, versions string) {
		all, err := barn.foreignClusters()
		if err != nil {
			t.Fatal(err)
		}
		for _, fc := range all {
			versions += fc.Metadata.Name + "@" + fc.Metadata.ResourceVersion + " "
		}
		return barn.mustStatus().Kubernetes.Writes, versions
	}
	// Twenty rounds of checks, counted at the peers.
	rounds := func(x *box) uint64 { return x.mustStatus().Endpoint.Requests }
	barn.undisturbed(func() error {
		barn.calm(mill)
		writes, versions := settled()
		from := rounds(mill)
		barn.eventually("twenty checks of a neighbour", func() error {
			if n := rounds(mill) - from; n < 20 {
				return fmt.Errorf("%d checks", n)
			}
			return nil
		})
		if w, v := settled(); w != writes || v != versions {
			return fmt.Errorf("%d writes while nothing changed; objects %q -> %q", w-writes, versions, v)
		}
		return nil
	})
	if log := barn.agent.Log(); strings.Count(log, "\n") > 40 {
		t.Errorf("the log of a quiet LAN has %d lines", strings.Count(log, "\n"))
	}
}

// A copied disk: the same ID and key twice is one box with two places; the same
// ID with another key is a conflict on everybody's screen.
func TestClonedIDIsAConflict(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newClusters(t, b, "barn")[0]
	boxes := newBoxes(t, b, "mill", "clone")
	mill, clone := boxes[0], boxes[1]
	barn.start()
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	before := barn.awaitFC("appears", millID, reachable)

	clone.configure("[cluster]\nid = \"" + millID + "\"\n\n[discovery]\ncheck_interval = \"1s\"\n")
	clone.start("--kubeconfig", "none")
	barn.eventually("barn reports the conflict", func() error {
		p, err := barn.peer(millID)
		if err != nil || p.Conflict == nil {
			return fmt.Errorf("%+v: %v", p, err)
		}
		return nil
	})
	after := barn.awaitFC("shows the conflict", millID, func(fc foreignCluster) bool { return fc.condition("Conflict") == "True" })
	if after.Metadata.UID != before.Metadata.UID || after.Spec.AuthURL != before.Spec.AuthURL || after.Status.Fingerprint != before.Status.Fingerprint {
		t.Errorf("the conflict changed the ForeignCluster: %+v", after)
	}
	for _, x := range []*box{mill, clone} {
		x.eventually(x.host.Name+" learns that its ID is used twice", func() error {
			for _, p := range x.mustStatus().Problems {
				if strings.Contains(p.Text, "our cluster ID") {
					return nil
				}
			}
			return fmt.Errorf("problems: %v", x.mustStatus().Problems)
		})
	}
}

// A box that meets itself: two links into one LAN, and the cni0 address that
// every K3s box has.
func TestBoxIsNeverItsOwnPeer(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.host.AddLink(b.LAN(), "eth1", "10.77.0.51/24")
	barn.configure("[discovery]\ninterfaces = [\"eth*\", \"cni0\"]\n")
	mill.configure("[discovery]\ninterfaces = [\"eth*\", \"cni0\"]\n")
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")
	p := mill.awaitPeer(barnID, "Present")
	if !strings.HasPrefix(p.URL, "https://10.77.0.") {
		t.Errorf("mill reaches barn at %s", p.URL)
	}
	for _, x := range boxes {
		peers, err := cliJSON[[]control.Peer](x, "peers", "list", "--all")
		if err != nil || len(peers) != 1 {
			t.Errorf("%s knows %d peers, want 1: %+v, %v", x.host.Name, len(peers), peers, err)
		}
	}
}

// Only IPv6 link-local addresses, then a link that is plugged in late.
func TestLinksAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	for _, x := range boxes {
		x.host.Link("eth0").DelAddress(x.addr.String() + "/24")
		x.start("--kubeconfig", "none")
	}
	barnID, millID := barn.id(), mill.id()
	if p := barn.awaitPeer(millID, "Present"); !strings.Contains(p.URL, "fe80") || !strings.Contains(p.URL, "eth0") {
		t.Errorf("URL = %s, want a link-local address with its zone", p.URL)
	}
	other := b.AddLAN("other")
	barn.host.AddLink(other, "eth1", "10.78.0.1/24")
	mill.host.AddLink(other, "eth1", "10.78.0.2/24")
	barn.eventually("seen on both links", func() error {
		p, err := barn.peer(millID)
		if err != nil || len(p.Links) != 2 {
			return fmt.Errorf("%v, %v", p.Links, err)
		}
		return nil
	})
	mill.host.Link("eth0").Remove()
	barn.eventually("reached by the other link", func() error {
		p, err := barn.peer(millID)
		if err != nil || p.URL != "https://10.78.0.2:6447" || p.Phase != "Present" {
			return fmt.Errorf("%s %s, %v", p.URL, p.Phase, err)
		}
		return nil
	})
	mill.awaitPeer(barnID, "Present")
}

// Killed without warning, again and again; the peer and the ID stay.
func TestKilledAgentRemembers(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")
	for range 5 {
		if err := barn.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		barn.start("--kubeconfig", "none")
		if barn.id() != barnID {
			t.Fatalf("the ID changed from %s to %s", barnID, barn.id())
		}
		barn.awaitPeer(millID, "Present")
	}
}

// Starts that cannot work say so; those that can work a little do.
func TestStartsInTrouble(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.start("--kubeconfig", "none")

	t.Run("a second agent on the same state", func(t *testing.T) {
		out, err := barn.cli("run", "--kubeconfig", "none", "--set", "endpoint.listen=:0", "--socket", "/run/other.sock")
		if err == nil || !strings.Contains(err.Error(), "another") {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("the endpoint's port is taken", func(t *testing.T) {
		_, err := barn.cli("run", "--kubeconfig", "none", "--state-dir", "/var/lib/other", "--socket", "/run/other.sock")
		if err == nil || !strings.Contains(err.Error(), "6447") || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a directory nobody can write", func(t *testing.T) {
		barn.stop()
		barn.host.WriteFile("/var/lib/ro/keep", "")
		if _, err := barn.host.Run(t.Context(), "mount", "-t", "tmpfs", "-o", "ro", "none", "/var/lib/ro"); err != nil {
			t.Fatal(err)
		}
		out, err := barn.cli("run", "--kubeconfig", "none", "--state-dir", "/var/lib/ro")
		if err == nil || !strings.Contains(err.Error(), "/var/lib/ro") {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("a damaged database is set aside", func(t *testing.T) {
		id := ""
		barn.start("--kubeconfig", "none")
		id = barn.id()
		barn.stop()
		barn.host.WriteFile(statePath, strings.Repeat("this is no database\n", 1000))
		barn.start("--kubeconfig", "none")
		st := barn.mustStatus()
		if st.State.Recovered == "" || len(st.Problems) == 0 {
			t.Errorf("status does not tell: %+v", st.State)
		}
		kept, err := filepath.Glob(barn.host.Path(statePath + ".damaged-*"))
		if err != nil || len(kept) == 0 {
			t.Errorf("the damaged file is gone: %v", err)
		}
		t.Logf("ID before %s, after %s", id, st.Identity.ClusterID)
	})
}

// Neighbours that run avahi see us, and we see them.
func TestAvahiIsANeighbour(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	for _, x := range boxes {
		x.host.StartAvahi(t.Context())
	}
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barnID, millID := barn.id(), mill.id()
	barn.awaitPeer(millID, "Present")
	mill.awaitPeer(barnID, "Present")

	for _, x := range boxes {
		x.eventually("avahi-browse on "+x.host.Name+" sees both agents", func() error {
			found, err := x.host.AvahiBrowse(t.Context(), "_liqo._tcp")
			for _, id := range []string{barnID, millID} {
				if err != nil || !slices.ContainsFunc(found, func(i bed.AvahiInstance) bool { return i.Name == id && i.Port == 6447 }) {
					return fmt.Errorf("%v: %+v", err, found)
				}
			}
			return nil
		})
	}
	if _, err := mill.host.AvahiPublish(t.Context(), "Printer in the mill", "_ipp._tcp", 631); err != nil {
		t.Fatal(err)
	}
	barn.eventually("scan sees what avahi publishes", func() error {
		out, err := barn.cli("scan", "--service", "_ipp._tcp", "--timeout", "3s")
		if err != nil || !strings.Contains(out, "Printer in the mill") {
			return fmt.Errorf("%w:\n%s", err, out)
		}
		return nil
	})
}

// One signal is an orderly stop, a second one ends the program at once, whatever
// it is doing.
func TestSignals(t *testing.T) {
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.start("--kubeconfig", "none")
	barn.stop()
	if _, err := barn.cli("status"); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("status of a stopped agent: %v", err)
	}
	code := 0
	// An orderly stop takes a few milliseconds, and may be over before the second signal is looked at.
	for try := 0; try < 10 && code == 0; try++ {
		barn.start("--kubeconfig", "none")
		// Both wait for it, so that it sees the second before it is done with the first.
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT} {
			if err := barn.agent.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		code = exitCode(barn.agent.Wait(ctx))
		cancel()
	}
	if code != 128+int(syscall.SIGINT) && code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d after two signals\n%s", code, barn.agent.Log())
	}
	// What it left behind does not keep the next one from starting.
	barn.start("--kubeconfig", "none")
}

//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/api"
	"liqo.io/agent/kube/conn"
)

// backedUp has a consumer backed up and reset, so that it is gone for its provider in order; with its backup it is back as if nothing
// had happened.
func (p *pair) backedUp(t *testing.T) {
	p.a.apply(deployment("web", 1, p.b.asNode(), ""))
	p.settled(1)

	m, err := cliJSON[statedir.Manifest](p.a, "state", "backup", "/etc/liqo-agent/alder.tar")
	if err != nil || m.ClusterID != p.aID || m.Fingerprint != p.a.mustStatus().Identity.Fingerprint {
		t.Fatalf("%+v, %v", m, err)
	}
	if out, err := p.a.cli("state", "backup", "/etc/liqo-agent/alder.tar"); err == nil || !strings.Contains(out+err.Error(), "--force") {
		t.Errorf("a backup was overwritten: %s %v", out, err)
	}
	if r, err := cliJSON[statedir.Report](p.a, "state", "check"); err != nil || !r.Sound || r.Database.ClusterID != p.aID {
		t.Errorf("%+v, %v", r, err)
	}
	manual := "apiVersion: discovery.liqo.io/v1alpha1\nkind: ForeignCluster\nmetadata: {name: by-hand}\nspec: {authUrl: \"https://192.0.2.77:6447\"}\n"
	p.a.apply(manual)

	done := p.a.reset("--stop")
	if len(done.Peers) != 1 || done.Peers[0].ID != p.bID || done.Peers[0].State != control.ResetPeerTold {
		t.Errorf("peers: %+v", done.Peers)
	}
	if err := p.a.agent.Wait(t.Context()); err != nil {
		t.Errorf("the agent ended with: %v", err)
	}
	// The other side: nothing of the first is left, and nobody speaks of trouble.
	p.b.gone(prPath + "/" + p.aID)
	p.b.eventually("no guests", func() error {
		pods, err := p.b.guests(p.aID)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	p.b.awaitPeer(p.aID, "Lost")
	p.b.gone(fcPath + "/" + p.aID)
	for _, problem := range p.b.mustStatus().Problems {
		t.Errorf("the peer has a problem: %s: %s", problem.Code, problem.Text)
	}
	// Here: what people wrote is there, and nothing else.
	for _, path := range []string{fcPath + "/" + p.bID, advPath + "/" + p.bID, secretPath + "/liqo-peer-" + p.bID, rolePath + "/liqo:peer:" + p.bID, "/api/v1/nodes/" + p.b.asNode()} {
		p.a.gone(path)
	}
	p.a.uidOf(fcPath + "/by-hand")

	p.a.mustCLI("state", "restore", "/etc/liqo-agent/alder.tar")
	p.a.start()
	if id := p.a.id(); id != p.aID {
		t.Errorf("restored as %s, was %s", id, p.aID)
	}
	p.a.awaitStatus("joined again", p.bID, outgoing(true))
	p.a.awaitNode(p.b.asNode(), true)
	p.settled(1)
	noProblems(p.a, p.b)
}

// noProblems waits until nobody has any: one that the machine is slow passes.
func noProblems(boxes ...*box) {
	for _, x := range boxes {
		x.t.Helper()
		x.eventually("has no problems", func() error {
			for _, problem := range x.mustStatus().Problems {
				return fmt.Errorf("%s: %s", problem.Code, problem.Text)
			}
			return nil
		})
	}
}

// A reset that is killed goes on with the next start; one without an agent clears what it can reach. A provider that is reset goes
// on as a fresh agent: with its old identity its consumer is a stranger to it, with a new one both are to each other, and nobody sees
// a conflict.
func TestReset(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	p.join()
	t.Run("killed", func(t *testing.T) {
		dir := filepath.Dir(statePath)
		// It does not end before it is looked for: A waits for an answer of B.
		if err := p.b.agent.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begun := make(chan error, 1)
		go func() { _, err := p.a.cli("reset", "--yes"); begun <- err }()
		p.a.eventually("a reset is under way", func() error {
			_, err := os.Stat(p.a.host.Path(dir + "/reset.pending"))
			return err
		})
		if err := errors.Join(p.a.agent.Kill(), p.b.agent.Signal(syscall.SIGCONT)); err != nil {
			t.Fatal(err)
		}
		p.a.start()
		p.a.eventually("the reset ends by itself", func() error {
			r, err := p.a.asks.ResetState(t.Context())
			if err == nil && r.Phase != control.ResetDone {
				err = errors.New(r.Phase)
			}
			return err
		})
		<-begun
		p.b.gone(prPath + "/" + p.aID)
		if known := p.a.awaitPeer(p.bID, "Present"); known.Trust.Fingerprint != "" {
			t.Errorf("trust is remembered: %+v", known.Trust)
		}
		p.b.awaitStatus("nothing is shared", p.aID, incoming(false))
	})
	if t.Failed() {
		return
	}
	t.Run("without an agent", func(t *testing.T) {
		p.b.stop()
		out := p.b.mustCLI("reset", "--yes", "--all", "--crds", "--kubeconfig", conn.K3sKubeconfig, "-o", "json")
		if !strings.Contains(out, `"phase": "done"`) || strings.Contains(out, `"failed": [`+"\n    \"") {
			t.Errorf("%s", out)
		}
		for _, m := range api.CRDs() {
			p.b.gone("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + m.Name)
		}
		p.b.start()
		if id := p.b.id(); id != p.bID {
			t.Errorf("ID %s, was %s", id, p.bID)
		}
		p.b.awaitFC("appears again", p.aID, reachable)
	})
	if t.Failed() {
		return
	}
	t.Run("a provider", func(t *testing.T) {
		p.join()
		st := p.b.mustStatus().Identity

		done := p.b.reset()
		if done.ClusterID != p.bID || len(done.Peers) != 1 || done.Peers[0].State != control.ResetPeerTold || len(done.Failed) > 0 {
			t.Errorf("%+v", done)
		}
		p.a.awaitStatus("ended by its side", p.bID, outgoing(false))
		if after := p.b.mustStatus().Identity; after.ClusterID != p.bID || after.Fingerprint != st.Fingerprint {
			t.Errorf("the identity was to stay: %+v, was %+v", after, st)
		}
		stranger := p.b.awaitPeer(p.aID, "Present")
		if stranger.Trust.Fingerprint != "" || stranger.Preferences.AutoAccept == control.Yes {
			t.Errorf("something is remembered: %+v %+v", stranger.Trust, stranger.Preferences)
		}

		done = p.b.reset("--identity")
		newID := p.b.id()
		if newID == p.bID || newID != done.ClusterID {
			t.Errorf("ID %s, was %s, the reset said %s", newID, p.bID, done.ClusterID)
		}
		if after := p.b.mustStatus().Identity; after.Fingerprint == st.Fingerprint {
			t.Error("the key stayed")
		}
		p.b.eventually("the API server follows", func() error {
			cm, _, err := get[struct{ Data map[string]string }](p.b, "/api/v1/namespaces/liqo/configmaps/cluster-id")
			if err == nil && cm.Data["CLUSTER_ID"] != newID {
				err = fmt.Errorf("it says %v", cm.Data)
			}
			return err
		})
		p.a.awaitPeer(newID, "Present")
		p.a.awaitPeer(p.bID, "Lost")
		noProblems(p.a, p.b)
		p.b.stop()
		p.b.start()
		if id := p.b.id(); id != newID {
			t.Errorf("after a restart it is %s, was %s", id, newID)
		}
	})
}

// reset resets the agent of a box.
func (x *box) reset(args ...string) control.Reset {
	x.t.Helper()
	done, err := cliJSON[control.Reset](x, append([]string{"reset", "--yes"}, args...)...)
	if err != nil || done.Phase != control.ResetDone {
		x.t.Fatalf("%s: reset: %+v, %v", x.host.Name, done, err)
	}
	return done
}

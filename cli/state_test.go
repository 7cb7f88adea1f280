package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// livedIn leaves in the state directory of a world what an agent does. It returns
// the fingerprint of its key.
func (w *world) livedIn(t *testing.T, id string) string {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(w.dir, statedir.Database), state.Options{})
	if err == nil {
		err = s.SetClusterID(t.Context(), peer.ClusterID(id), "test")
	}
	if err == nil {
		err = s.Close()
	}
	var key *trust.Key
	if err == nil {
		key, err = trust.LoadOrCreateKey(w.dir)
	}
	if err == nil {
		err = os.Chmod(w.dir, 0o750)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key.Fingerprint().String()
}

func TestStateCommands(t *testing.T) {
	w := noAgent(t)
	fp := w.livedIn(t, idFarm)
	file := filepath.Join(t.TempDir(), "farm.tar")
	for _, tc := range []struct {
		args string
		code int
		out  string // in the output
		err  string // in what goes to the terminal
	}{
		{"state backup", ExitUsage, "", "state backup needs FILE"},
		{"state backup " + file, 0, "cluster " + idFarm + ", key " + fp, ""},
		{"state backup " + file, ExitError, "", "the file exists already: " + file + "\ntry: liqo-agent state backup " + file + " --force\n"},
		{"state backup " + file + " --force -o json", 0, `"clusterId": "` + idFarm + `"`, ""},
		{"state backup -", 0, "manifest.json", ""},
		{"state backup " + file + "2 --state-dir /nonexistent", ExitError, "", "has the agent ever run, and with this state.dir?"},
		{"state check", 0, "schema ", ""},
		{"state check -o json", 0, `"sound": true`, ""},
		{"state check --state-dir /nonexistent", ExitError, "", "try: name the state directory of the agent: --state-dir DIR"},
		{"state restore " + file + "2", ExitError, "", "open the backup: "},
		{"state restore -", ExitError, "", "no usable backup: manifest.json is missing"},
		{"state restore " + file, 0, "What was there before is in $DIR/before-restore-20261121T120000Z.\n", ""},
		{"state restore " + file + " -o json", 0, `"aside": "$DIR/before-restore-20261121T120000Z-2"`, ""},
		{"state check", 0, "Kept: $DIR/before-restore-20261121T120000Z\n", ""},
	} {
		stdout, stderr, code := w.run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(stdout, tc.out) || !strings.Contains(stderr, tc.err) || tc.err == "" && stderr != "" {
			t.Errorf("%s: exit code %d\n%.600s\n%s", tc.args, code, stdout, stderr)
		}
	}
	if err := os.Chmod(filepath.Join(w.dir, trust.KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := w.run(t.Context(), "state", "check"); code != ExitError || !strings.Contains(stdout, "error: ") || !strings.Contains(stdout, "try: chmod 600 ") || !strings.Contains(stderr, "not sound: 1 error\n") {
		t.Errorf("an exposed key: exit code %d\n%s%s", code, stdout, stderr)
	}
	release, err := state.Hold(filepath.Join(w.dir, statedir.Database))
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := w.run(t.Context(), "state", "restore", file); code != ExitError || !strings.Contains(stderr, "try: systemctl stop liqo-agent") {
		t.Errorf("beside an agent: exit code %d, %s", code, stderr)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	w.terminal = true
	if _, stderr, code := w.run(t.Context(), "state", "backup", "-"); code != ExitUsage || !strings.Contains(stderr, "try: liqo-agent state backup - > FILE") {
		t.Errorf("to a terminal: exit code %d, %s", code, stderr)
	}
}

func TestReset(t *testing.T) {
	barn := control.ResetPeer{ID: idBarn, Name: "barn", State: control.ResetPeerWaits}
	told := barn
	told.State = control.ResetPeerTold
	done := control.Reset{Phase: control.ResetDone, ClusterID: idFarm, Peers: []control.ResetPeer{told}, Deleted: []string{"ForeignCluster " + idBarn},
		Kept: []string{"SearchDomain farms"}, Failed: []string{"Node x: it is forbidden"}}
	for _, tc := range []struct {
		args, typed string
		terminal    bool
		code        int
		told        string
		golden      string
	}{
		{"reset", "", false, ExitUsage, "", "reset-no-terminal"},
		{"reset", "n\n", true, ExitNotTrusted, "", "reset-no"},
		{"reset", "y\n", true, 0, "reset plain", "reset-yes"},
		{"reset --yes --identity --stop", "", false, 0, "reset identity stop", "reset-identity"},
		{"reset --yes -o json", "", false, 0, "reset plain", "reset-json"},
		{"reset --yes --crds", "", false, ExitUsage, "", "reset-crds"},
		{"reset --yes --crds --all", "", false, ExitUsage, "", "reset-crds-without-stop"},
	} {
		w := withAgent(t, &memory{
			resetPlan: control.ResetPlan{ClusterID: idFarm, ClusterName: "farm", Fingerprint: fpBarn, Peers: []control.ResetPeer{barn},
				Deletes: []string{"ForeignCluster " + idBarn}, Keeps: []string{"SearchDomain farms"}, Unknown: []string{"Nodes: it is forbidden"}},
			resets: []control.Reset{{Phase: control.ResetParting, Peers: []control.ResetPeer{barn}},
				{Phase: control.ResetClearing, Peers: []control.ResetPeer{told}}, done},
		})
		w.terminal, w.stdin = tc.terminal, strings.NewReader(tc.typed)
		stdout, stderr, code := w.run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", tc.args, code, tc.code, stderr)
		}
		golden(t, tc.golden, stdout+"-- stderr --\n"+stderr)
	}
}

func TestResetStopped(t *testing.T) {
	w := noAgent(t)
	w.env = []string{"LIQO_AGENT_CLUSTER_KUBECONFIG=none", "LIQO_AGENT_CLUSTER_NAME=farm"}
	fp := w.livedIn(t, idFarm)
	if _, stderr, code := w.run(t.Context(), "reset"); code != ExitUsage || !strings.Contains(stderr, "The agent is not running: no peer is told.") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	stdout, stderr, code := w.run(t.Context(), "reset", "--yes")
	if code != 0 || stdout != "The agent is reset, with the same ID and key: cluster "+idFarm+".\n" || !strings.Contains(stderr, "no peer is told") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if key, err := trust.LoadOrCreateKey(w.dir); err != nil || key.Fingerprint().String() != fp {
		t.Errorf("the key is another: %v", err)
	}
	if id, _, err := statedir.Claim(w.dir); err != nil || string(id) != idFarm {
		t.Errorf("claims %s, %v", id, err)
	}
	stdout, _, code = w.run(t.Context(), "reset", "--yes", "--identity", "-o", "json")
	if code != 0 || !strings.Contains(stdout, `"phase": "done"`) || strings.Contains(stdout, idFarm) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	if _, err := os.Stat(filepath.Join(w.dir, trust.KeyFile)); !os.IsNotExist(err) {
		t.Errorf("the key is still there: %v", err)
	}
	w.env = append(w.env, "LIQO_AGENT_CLUSTER_ID="+idFarm)
	if _, stderr, code := w.run(t.Context(), "reset", "--yes", "--identity"); code != ExitRefused || !strings.Contains(stderr, "take cluster.id out of the configuration") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

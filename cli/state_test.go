package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// livedIn leaves in the state directory of a world what an agent does. It returns
// the fingerprint of its key.
func livedIn(t *testing.T, w *clitest.World, id string) string {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(w.Dir, statedir.Database), state.Options{})
	if err == nil {
		err = s.SetClusterID(t.Context(), peer.ClusterID(id), "test")
	}
	if err == nil {
		err = s.Close()
	}
	var key *trust.Key
	if err == nil {
		key, err = trust.LoadOrCreateKey(w.Dir)
	}
	if err == nil {
		err = os.Chmod(w.Dir, 0o750)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key.Fingerprint().String()
}

func TestStateCommands(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	fp := livedIn(t, w, clitest.FarmID)
	file := filepath.Join(t.TempDir(), "farm.tar")
	for _, tc := range []struct {
		args string
		code int
		out  string // in the output
		err  string // in what goes to the terminal
	}{
		{"state backup", command.ExitUsage, "", "state backup needs FILE"},
		{"state backup " + file, 0, "cluster " + clitest.FarmID + ", key " + fp, ""},
		{"state backup " + file, command.ExitError, "", "the file exists already: " + file + "\ntry: liqo-agent state backup " + file + " --force\n"},
		{"state backup " + file + " --force -o json", 0, `"clusterId": "` + clitest.FarmID + `"`, ""},
		{"state backup -", 0, "manifest.json", ""},
		{"state backup " + file + "2 --state-dir /nonexistent", command.ExitError, "", "has the agent ever run, and with this state.dir?"},
		{"state check", 0, "schema ", ""},
		{"state check -o json", 0, `"sound": true`, ""},
		{"state check --state-dir /nonexistent", command.ExitError, "", "try: name the state directory of the agent: --state-dir DIR"},
		{"state restore " + file + "2", command.ExitError, "", "open the backup: "},
		{"state restore -", command.ExitError, "", "no usable backup: manifest.json is missing"},
		{"state restore " + file, 0, "The previous state is in $DIR/before-restore-20261121T120000Z.\n", ""},
		{"state restore " + file + " -o json", 0, `"aside": "$DIR/before-restore-20261121T120000Z-2"`, ""},
		{"state check", 0, "Kept: $DIR/before-restore-20261121T120000Z\n", ""},
	} {
		stdout, stderr, code := w.Run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(stdout, tc.out) || !strings.Contains(stderr, tc.err) || tc.err == "" && stderr != "" {
			t.Errorf("%s: exit code %d\n%.600s\n%s", tc.args, code, stdout, stderr)
		}
	}
	if err := os.Chmod(filepath.Join(w.Dir, trust.KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := w.Run(t.Context(), "state", "check"); code != command.ExitError || !strings.Contains(stdout, "error: ") || !strings.Contains(stdout, "try: chmod 600 ") || !strings.Contains(stderr, "the state has 1 error\n") {
		t.Errorf("an exposed key: exit code %d\n%s%s", code, stdout, stderr)
	}
	release, err := state.Hold(t.Context(), filepath.Join(w.Dir, statedir.Database))
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := w.Run(t.Context(), "state", "restore", file); code != command.ExitError || !strings.Contains(stderr, "try: systemctl stop liqo-agent") {
		t.Errorf("beside an agent: exit code %d, %s", code, stderr)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	w.Terminal = true
	if stdout, stderr, code := w.Run(t.Context(), "state", "backup", "-"); code != 0 || !strings.Contains(stdout, "manifest.json") {
		t.Errorf("from a terminal to a pipe: exit code %d, %s", code, stderr)
	}
	w.Screen = true
	if _, stderr, code := w.Run(t.Context(), "state", "backup", "-"); code != command.ExitUsage || !strings.Contains(stderr, "try: liqo-agent state backup - > FILE") {
		t.Errorf("to a terminal: exit code %d, %s", code, stderr)
	}
}

func TestReset(t *testing.T) {
	barn := control.ResetPeer{ID: clitest.Barn, Name: "barn", State: control.ResetPeerWaits}
	told := barn
	told.State = control.ResetPeerTold
	done := control.Reset{Phase: control.ResetDone, ClusterID: clitest.FarmID, Peers: []control.ResetPeer{told}, Deleted: []string{"ForeignCluster " + clitest.Barn},
		Kept: []string{"SearchDomain farms"}, Failed: []string{"Node x: it is forbidden"}}
	for _, tc := range []struct {
		args, typed string
		terminal    bool
		code        int
		told        string
		golden      string
	}{
		{"reset", "", false, command.ExitUsage, "", "reset-no-terminal"},
		{"reset", "n\n", true, command.ExitNotTrusted, "", "reset-no"},
		{"reset", "y\n", true, 0, "reset plain", "reset-yes"},
		{"reset --yes --identity --stop", "", false, 0, "reset identity stop", "reset-identity"},
		{"reset --yes -o json", "", false, 0, "reset plain", "reset-json"},
		{"reset --yes --crds", "", false, command.ExitUsage, "", "reset-crds"},
		{"reset --yes --crds --all", "", false, command.ExitUsage, "", "reset-crds-without-stop"},
	} {
		w := clitest.WithAgent(t, cli.New, &clitest.Memory{
			ResetPlan: control.ResetPlan{ClusterID: clitest.FarmID, ClusterName: "farm", Fingerprint: clitest.BarnKey, Peers: []control.ResetPeer{barn},
				Deletes: []string{"ForeignCluster " + clitest.Barn}, Keeps: []string{"SearchDomain farms"}, Unknown: []string{"Nodes: it is forbidden"}},
			Resets: []control.Reset{{Phase: control.ResetParting, Peers: []control.ResetPeer{barn}},
				{Phase: control.ResetClearing, Peers: []control.ResetPeer{told}}, done},
		})
		w.Terminal, w.Stdin = tc.terminal, strings.NewReader(tc.typed)
		stdout, stderr, code := w.Run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", tc.args, code, tc.code, stderr)
		}
		clitest.Golden(t, tc.golden, stdout+"-- stderr --\n"+stderr)
	}
}

// interruptedReset is an agent during whose reset somebody presses Ctrl-C.
type interruptedReset struct {
	*clitest.Memory
	interrupt func()
}

func (a interruptedReset) ResetState(ctx context.Context) (control.Reset, error) {
	a.interrupt()
	return a.Memory.ResetState(ctx)
}

func TestResetInterrupted(t *testing.T) {
	for args, want := range map[string]string{
		"reset --yes": "liqo-agent: the reset continues in the background\ntry: liqo-agent status\n",
		"reset --yes --all": "liqo-agent: the reset continues in the background; what people created is not deleted\n" +
			"try: liqo-agent status; when the agent is reset: liqo-agent reset --yes --all\n",
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		w := clitest.WithAgent(t, cli.New, interruptedReset{&clitest.Memory{}, interrupt})
		if _, stderr, code := w.Run(ctx, strings.Fields(args)...); code != command.ExitInterrupted || stderr != want {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestResetStopped(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	w.Env = []string{"LIQO_AGENT_CLUSTER_KUBECONFIG=none", "LIQO_AGENT_CLUSTER_NAME=farm"}
	fp := livedIn(t, w, clitest.FarmID)
	if _, stderr, code := w.Run(t.Context(), "reset"); code != command.ExitUsage || !strings.Contains(stderr, "The agent is not running: its peers are not told.") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	stdout, stderr, code := w.Run(t.Context(), "reset", "--yes")
	if code != 0 || stdout != "The agent is reset, with the same ID and key: cluster "+clitest.FarmID+".\n" || !strings.Contains(stderr, "its peers are not told") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if key, err := trust.LoadOrCreateKey(w.Dir); err != nil || key.Fingerprint().String() != fp {
		t.Errorf("the key is another: %v", err)
	}
	if id, _, err := statedir.Claim(w.Dir); err != nil || string(id) != clitest.FarmID {
		t.Errorf("claims %s, %v", id, err)
	}
	stdout, _, code = w.Run(t.Context(), "reset", "--yes", "--identity", "-o", "json")
	if code != 0 || !strings.Contains(stdout, `"phase": "done"`) || strings.Contains(stdout, clitest.FarmID) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	if _, err := os.Stat(filepath.Join(w.Dir, trust.KeyFile)); !os.IsNotExist(err) {
		t.Errorf("the key is still there: %v", err)
	}
	w.Env = append(w.Env, "LIQO_AGENT_CLUSTER_ID="+clitest.FarmID)
	if _, stderr, code := w.Run(t.Context(), "reset", "--yes", "--identity"); code != command.ExitRefused || !strings.Contains(stderr, "remove cluster.id from the configuration") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

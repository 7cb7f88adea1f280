package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// What replaces or empties a state must not go on with the usual places, which are those of another agent,
// where the configuration that it was given cannot be used.
func TestNoGuessesBeforeLoss(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	bad := filepath.Join(w.Dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("[state]\ndir = \"/srv/second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"reset", "reset --all --identity", "state restore /nonexistent"} { // nothing is lost by these in any case
		_, stderr, code := w.Run(t.Context(), append(strings.Fields(args), "--config", bad)...)
		if code != command.ExitError || !strings.Contains(stderr, "not TOML") || strings.Contains(stderr, "trying /") || strings.Contains(stderr, "This resets") ||
			!strings.HasSuffix(stderr, "try: liqo-agent config check $DIR/bad.toml\n") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
	if _, stderr, _ := w.Run(t.Context(), "state", "restore", "/nonexistent", "--config", bad, "--state-dir", w.Dir); !strings.Contains(stderr, "open the backup") {
		t.Errorf("with --state-dir: %s", stderr)
	}
}

// Advice repeats all that was said: without --identity a reset keeps the key of a device that is given away,
// and without --state-dir another agent's state is restored.
func TestAdviceRepeatsOptions(t *testing.T) {
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	config := filepath.Join(w.Dir, "my settings.toml")
	if err := os.WriteFile(config, []byte("[cluster]\nkubeconfig = \"none\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(w.Dir, "farm.tar")
	if err := os.WriteFile(backup, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	livedIn(t, w, clitest.FarmID)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"reset", "--all", "--identity", "--stop", "-c", config}, "liqo-agent reset --all --identity --stop --config '$DIR/my settings.toml' --yes"},
		{[]string{"state", "backup", backup, "--state-dir", w.Dir}, "liqo-agent state backup --state-dir $DIR $DIR/farm.tar --force"},
		{[]string{"peers", "forget", "barn", "--socket=" + w.Socket()}, "liqo-agent peers forget --socket=$DIR/agent.sock barn --yes"},
		{[]string{"rbac", "--apply", "--namespace", "edge", "--out", backup}, "the same command with the right --kubeconfig FILE"},
		{[]string{"rbac", "--delete", "--namespace", "edge"}, "liqo-agent rbac --delete --namespace edge --yes"},
	} {
		_, stderr, code := w.Run(t.Context(), tc.args...)
		if code == command.ExitOK || !strings.Contains(stderr, "try: "+tc.want+"\n") {
			t.Errorf("%q: exit code %d, %s; want %s", tc.args, code, stderr, tc.want)
		}
	}
}

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
		if code != command.ExitError || !strings.Contains(stderr, "not TOML") || strings.Contains(stderr, "trying /") || strings.Contains(stderr, "This resets") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
	if _, stderr, _ := w.Run(t.Context(), "state", "restore", "/nonexistent", "--config", bad, "--state-dir", w.Dir); !strings.Contains(stderr, "open the backup") {
		t.Errorf("with --state-dir: %s", stderr)
	}
}

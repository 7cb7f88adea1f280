package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// A configuration that cannot be used does not keep a command from finding an
// agent in the usual place, but the user learns of it.
func TestPlaces(t *testing.T) {
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	bad := filepath.Join(w.Dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("[nonsense]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Whether one runs there is not for this test to say.
	_, stderr, _ := w.Run(t.Context(), "status", "--config", bad)
	if !strings.Contains(stderr, "nonsense") || !strings.Contains(stderr, "trying /run/liqo-agent/agent.sock") {
		t.Errorf("stderr: %s", stderr)
	}
	_, stderr, code := w.Run(t.Context(), "status", "--config", bad, "--socket", w.Socket())
	if code != command.ExitOK || stderr != "" {
		t.Errorf("with --socket: exit code %d, %s", code, stderr)
	}
	good := filepath.Join(w.Dir, "good.toml")
	if err := os.WriteFile(good, []byte("[state]\nsocket = \""+w.Socket()+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := cli.New(command.Options{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer), Now: time.Now})
	if err := app.Run(t.Context(), []string{command.Name, "status", "--config", good}); err != nil {
		t.Errorf("with the socket of the configuration: %v", err)
	}
}

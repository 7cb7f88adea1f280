package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestConfigCommands(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	write := func(name, text string) string {
		path := filepath.Join(w.Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.toml", "[cluster]\nname = \"barn\"\n")
	bad := write("bad.toml", "[cluster]\nnmae = \"barn\"\n[log]\nlevel = \"loud\"\n")
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"config-check", []string{"config", "check", good}, 0},
		{"config-check-bad", []string{"config", "check", bad}, command.ExitError},
		{"config-check-missing", []string{"config", "check", filepath.Join(w.Dir, "none.toml")}, command.ExitError},
		{"config-check-twice", []string{"config", "check", good, "--config", bad}, command.ExitUsage},
		{"config-show", []string{"config", "show", "--config", good, "--set", "discovery.interfaces=eth*,en*", "--log-level=debug"}, 0},
		{"run-bad", []string{"run", "--config", bad}, command.ExitError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := w.Run(t.Context(), tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			clitest.Golden(t, tc.name, "$ liqo-agent "+strings.ReplaceAll(strings.Join(tc.args, " "), w.Dir, "$DIR")+"\n"+stdout+"--- stderr\n"+stderr)
		})
	}

	// What the agent at the socket of that configuration has from the ClusterConfig
	// goes before everything else; nothing else of the agent's does.
	running := clitest.WithAgent(t, cli.New, clitest.Farm())
	text, stderr, code := running.Run(t.Context(), "config", "show", "--config", good, "--set", "discovery.ttl=20m")
	for _, want := range []string{"\nautojoin = false  # ClusterConfig liqo-configuration\n", "\nttl = \"10m\"  # ClusterConfig liqo-configuration\n",
		"\nlevel = \"info\"  # default\n", "\nname = \"barn\"  # file "} {
		if code != command.ExitOK || stderr != "" || !strings.Contains(text, want) {
			t.Errorf("exit code %d, %s; want %q in\n%s", code, stderr, want, text)
		}
	}
	stdout, stderr, code := w.Run(t.Context(), "config", "show", "-o", "json", "--config", good)
	var shown struct {
		Path    string
		Values  map[string]any
		Sources map[string]string
	}
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil || code != command.ExitOK {
		t.Fatalf("%v, exit code %d, %s", err, code, stderr)
	}
	cluster, ok := shown.Values["cluster"].(map[string]any)
	if !ok || cluster["name"] != "barn" || shown.Path != "$DIR/good.toml" || !strings.HasPrefix(shown.Sources["cluster.name"], "file ") ||
		!strings.HasPrefix(shown.Sources["state.socket"], "environment ") {
		t.Errorf("shown: %+v", shown)
	}
}

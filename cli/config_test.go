package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConfigCommands(t *testing.T) {
	w := noAgent(t)
	write := func(name, text string) string {
		path := filepath.Join(w.dir, name)
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
		{"config-check-bad", []string{"config", "check", bad}, ExitError},
		{"config-check-missing", []string{"config", "check", filepath.Join(w.dir, "none.toml")}, ExitError},
		{"config-check-twice", []string{"config", "check", good, "--config", bad}, ExitUsage},
		{"config-show", []string{"config", "show", "--config", good, "--set", "discovery.interfaces=eth*,en*", "--log-level=debug"}, 0},
		{"run-bad", []string{"run", "--config", bad}, ExitError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := w.run(t.Context(), tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			golden(t, tc.name, "$ liqo-agent "+strings.ReplaceAll(strings.Join(tc.args, " "), w.dir, "$DIR")+"\n"+stdout+"--- stderr\n"+stderr)
		})
	}

	// What the agent at the socket of that configuration has from the ClusterConfig
	// goes before everything else; nothing else of the agent's does.
	running := withAgent(t, farm())
	text, stderr, code := running.run(t.Context(), "config", "show", "--config", good, "--set", "discovery.ttl=20m")
	for _, want := range []string{"\nautojoin = false  # ClusterConfig liqo-configuration\n", "\nttl = \"10m\"  # ClusterConfig liqo-configuration\n",
		"\nlevel = \"info\"  # default\n", "\nname = \"barn\"  # file "} {
		if code != ExitOK || stderr != "" || !strings.Contains(text, want) {
			t.Errorf("exit code %d, %s; want %q in\n%s", code, stderr, want, text)
		}
	}
	stdout, stderr, code := w.run(t.Context(), "config", "show", "-o", "json", "--config", good)
	var shown shownConfig
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil || code != ExitOK {
		t.Fatalf("%v, exit code %d, %s", err, code, stderr)
	}
	cluster, ok := shown.Values["cluster"].(map[string]any)
	if !ok || cluster["name"] != "barn" || shown.Path != "$DIR/good.toml" || !strings.HasPrefix(shown.Sources["cluster.name"], "file ") ||
		!strings.HasPrefix(shown.Sources["state.socket"], "environment ") {
		t.Errorf("shown: %+v", shown)
	}
}

// A configuration that cannot be used does not keep a command from finding an
// agent in the usual place, but the user learns of it.
func TestPlaces(t *testing.T) {
	w := withAgent(t, farm())
	bad := filepath.Join(w.dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("[nonsense]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Whether one runs there is not for this test to say.
	_, stderr, _ := w.run(t.Context(), "status", "--config", bad)
	if !strings.Contains(stderr, "nonsense") || !strings.Contains(stderr, "trying /run/liqo-agent/agent.sock") {
		t.Errorf("stderr: %s", stderr)
	}
	_, stderr, code := w.run(t.Context(), "status", "--config", bad, "--socket", w.socket())
	if code != ExitOK || stderr != "" {
		t.Errorf("with --socket: exit code %d, %s", code, stderr)
	}
	good := filepath.Join(w.dir, "good.toml")
	if err := os.WriteFile(good, []byte("[state]\nsocket = \""+w.socket()+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := New(Options{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer), Now: time.Now})
	if err := app.Run(t.Context(), []string{Name, "status", "--config", good}); err != nil {
		t.Errorf("with the socket of the configuration: %v", err)
	}
}

func TestLogHandler(t *testing.T) {
	for _, tc := range []struct {
		format  string
		journal bool
		want    string // how a line begins
	}{
		{"auto", false, "time="},
		{"auto", true, "<4>msg=hello time="},
		{"text", false, "time="},
		{"text", true, "<4>time="},
		{"json", false, `{"time":`},
		{"json", true, `<4>{"time":`},
	} {
		var out bytes.Buffer
		slog.New(logHandler(&out, tc.journal, tc.format, slog.LevelInfo)).Warn("hello", "time", "not the time", "level", "not the level")
		if !strings.HasPrefix(out.String(), tc.want) || !strings.Contains(out.String(), "not the time") || !strings.Contains(out.String(), "not the level") {
			t.Errorf("%s %v: %s", tc.format, tc.journal, out.String())
		}
	}
}

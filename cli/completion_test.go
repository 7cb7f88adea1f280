package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestComplete(t *testing.T) {
	w, none := clitest.WithAgent(t, cli.New, clitest.Farm()), clitest.NoAgent(t, cli.New)
	asking := &clitest.Memory{Has: clitest.Has{Requests: []control.Request{{ID: clitest.Tractor, Name: "tractor"}}}}
	for _, tc := range []struct {
		w     *clitest.World
		words []string
		want  []string
	}{
		{w, []string{"pe"}, []string{"peers"}},
		{w, []string{"--v"}, []string{"--version"}},
		{w, []string{"peers", "h"}, []string{"history"}},
		{w, []string{"peers", "show", ""}, []string{"Halle 3", "barn", "shed"}},
		{w, []string{"peers", "show", "b"}, []string{"barn"}},
		{w, []string{"peers", "show", "-o", "json", "b"}, []string{"barn"}},
		{none, []string{"peers", "show", "--socket", w.Socket(), "b"}, []string{"barn"}},
		{none, []string{"peers", "show", "--socket=" + w.Socket(), "b"}, []string{"barn"}},
		{none, []string{"--socket", w.Socket(), "peers", "show", "b"}, []string{"barn"}},
		{none, []string{"peers", "--socket=" + w.Socket(), "show", "b"}, []string{"barn"}},
		{w, []string{"--socket", ""}, []string{":files"}},
		{w, []string{"--socket", "x", "pee"}, []string{"peers"}},
		{w, []string{"--so"}, []string{"--socket"}},
		{w, []string{"peers", "-o", "json", "h"}, []string{"history"}},
		{w, []string{"-o", ""}, nil},
		{none, []string{"peers", "show", ""}, nil},
		{w, []string{"peers", "show", "barn", ""}, nil},
		{w, []string{"peers", "connect", "b"}, []string{"barn"}},
		// Names that could control a terminal are not offered.
		{w, []string{"peers", "accept", ""}, []string{"Halle 3", "barn", "shed"}},
		{clitest.WithAgent(t, cli.New, asking), []string{"peers", "accept", ""}, []string{"tractor"}},
		{clitest.WithAgent(t, cli.New, asking), []string{"peers", "show", ""}, nil},
		{w, []string{"peers", "set", "barn", "--auto-connect", ""}, []string{"yes", "no", "default"}},
		{w, []string{"info", "barn", "Halle 3", "s"}, []string{"shed"}},
		{w, []string{"invite", ""}, []string{"create", "list", "revoke"}},
		{w, []string{"invite", "revoke", ""}, []string{"0a1b2c3d4e5f6071"}},
		{w, []string{"domains", ""}, []string{"list", "show", "add", "remove", "refresh"}},
		{w, []string{"domains", "show", ""}, []string{"example.com", "example.net", "example.org", "lab.example.com"}},
		{w, []string{"domains", "remove", "l"}, []string{"lab.example.com"}},
		{w, []string{"domains", "refresh", "example.com", ""}, nil},
		{w, []string{"domains", "add", ""}, nil},
		{w, []string{"domains", "add", "--no"}, []string{"--no-autojoin", "--no-wait"}},
		{none, []string{"domains", "show", ""}, nil},
		{w, []string{"fleet", "sign", "--ca", ""}, []string{":files"}},
		{w, []string{"peers", "show", "--o"}, []string{"--output"}},
		{w, []string{"peers", "show", "-o", "j"}, []string{"json"}},
		{w, []string{"peers", "show", "--output=j"}, []string{"--output=json"}},
		{w, []string{"peers", "show", "--nosuch=j"}, nil},
		{w, []string{"nosuch", ""}, nil},
		{w, []string{"run", "--config", ""}, []string{":files"}},
		{w, []string{"run", "--log-level", "w"}, []string{"warn"}},
		{w, []string{"log", "level", "de"}, []string{"debug"}},
		{w, []string{"completion", "z"}, []string{"zsh"}},
		{w, []string{"run", "--set", "log.l"}, []string{"log.level="}},
		{w, nil, []string{"run", "service", "peers", "invite", "info", "domains", "adverts", "network", "storage", "scan", "status", "doctor", "key", "fleet", "log", "config", "state", "reset", "crds", "rbac", "completion", "version", "help"}},
	} {
		stdout, stderr, code := tc.w.Run(t.Context(), append([]string{command.CompleteCommand}, tc.words...)...)
		var got []string
		for _, line := range strings.Split(strings.TrimSuffix(stdout, "\n"), "\n") {
			if value, _, _ := strings.Cut(line, "\t"); value != "" {
				got = append(got, value)
			}
		}
		if code != command.ExitOK || stderr != "" || !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, exit code %d, %s; want %q", tc.words, got, code, stderr, tc.want)
		}
	}
}

// TestBashCompletion runs the script in a real bash, which calls this test
// binary as liqo-agent.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	script := filepath.Join(t.TempDir(), "completion.bash")
	stdout, _, _ := w.Run(t.Context(), "completion", "bash")
	if err := os.WriteFile(script, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	program := asProgram(t)
	for _, tc := range []struct {
		line string // what is typed; words are split as bash would
		want string
	}{
		{"'pe'", "peers"},
		{"peers 'sh'", "show"},
		{"peers show ''", `Halle\ 3|barn|shed`},
		{`peers show 'Halle\ '`, `Halle\ 3`},
		{"peers list --output '=' 'y'", "yaml"},
		{"peers list --output '='", "table|wide|json|yaml"},
		{"peers list -o 'wi'", "wide"},
		{"run --config ''", "compopt -o default"},
		{"nosuch ''", ""},
	} {
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", `
			source "$1"
			compopt() { echo "compopt $*"; }
			COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
			COMP_WORDS=("$2" `+tc.line+`)
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			_liqo_agent
			IFS='|'; echo "${COMPREPLY[*]}"; complete -p liqo-agent >&2`, "bash", script, program)
		cmd.Env = append(append(os.Environ(), w.Environ()...), programVariable+"=1")
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.line, got, err, tc.want)
		}
	}
}

// TestOtherShells has the shells check the scripts they are given, and offer
// something.
func TestOtherShells(t *testing.T) {
	w := clitest.WithAgent(t, cli.New, clitest.Farm())
	program := asProgram(t)
	for _, tc := range []struct {
		shell string
		args  []string
		want  string
	}{
		{"fish", []string{"--no-config", "-c", `source $argv[1]; complete --do-complete "liqo-agent peers show ba"`}, "barn\tPresent 192.0.2.7:6447"},
		{"fish", []string{"--no-config", "-c", `source $argv[1]; complete --do-complete "liqo-agent peers sh"`}, "show\tshow everything known about one cluster"},
		{"zsh", []string{"-f", "-c", `autoload -U compinit; compinit -D -u; source $1
			_describe() { print -l -- ${(P)2}; }
			words=(liqo-agent peers show ba); CURRENT=4; _liqo_agent`, "zsh"}, "barn:Present 192.0.2.7:6447"},
	} {
		t.Run(tc.shell, func(t *testing.T) {
			shell, err := exec.LookPath(tc.shell)
			if err != nil {
				t.Skipf("%s is not installed", tc.shell)
			}
			script := filepath.Join(t.TempDir(), "script")
			stdout, _, _ := w.Run(t.Context(), "completion", tc.shell)
			if err := os.WriteFile(script, []byte(stdout), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), shell, append(tc.args, script)...)
			cmd.Env = append(append(os.Environ(), w.Environ()...), programVariable+"=1", "HOME="+t.TempDir(),
				"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// programVariable makes the test binary behave as liqo-agent.
const programVariable = "LIQO_AGENT_TEST_PROGRAM"

// asProgram returns a file called liqo-agent that is this test binary.
func asProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), command.Name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func runAsProgram() int {
	return command.Report(os.Stderr, cli.New(command.Options{Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Now: time.Now, Pace: command.Pace{Answer: time.Minute}}).Run(context.Background(), os.Args))
}

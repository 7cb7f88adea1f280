package cli_test

import (
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// walk calls each for every command below path.
func walk(path []string, commands []command.Command, each func(path []string, c command.Command)) {
	for _, c := range commands {
		full := append(path[:len(path):len(path)], c.Name)
		each(full, c)
		walk(full, c.Commands, each)
	}
}

func TestEveryCommand(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	seen := make(map[string]bool)
	walk(nil, cli.Tree(), func(path []string, c command.Command) {
		name := strings.Join(path, " ")
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			if c.Usage == "" || strings.HasSuffix(c.Usage, ".") || c.Usage != strings.TrimSpace(c.Usage) {
				t.Errorf("usage %q: want one phrase", c.Usage)
			}
			if !strings.HasSuffix(c.About, ".") || !strings.Contains(strings.Join(c.Examples, "\n"), command.Name+" "+path[0]) {
				t.Errorf("about %q, examples %q: want sentences and an example of the command", c.About, c.Examples)
			}
			for _, line := range strings.Split(c.About, "\n") {
				if len(line) > 110 {
					t.Errorf("a line of the description is %d bytes long: %s", len(line), line)
				}
			}
			for _, f := range c.AllFlags() {
				if d, ok := f.(urfave.DocGenerationFlag); !ok || d.GetUsage() == "" {
					t.Errorf("option %v has no usage", f.Names())
				}
			}

			for _, args := range [][]string{append(path, "--help"), append([]string{"help"}, path...)} {
				stdout, stderr, code := w.Run(t.Context(), args...)
				if code != command.ExitOK || stderr != "" {
					t.Errorf("%v: exit code %d, stderr %q", args, code, stderr)
				}
				if name == "help" {
					continue // its help is that of the program
				}
				for _, want := range []string{"liqo-agent " + name + " - " + c.Usage, "USAGE:\n   liqo-agent " + name, "Example:", "--help"} {
					if !strings.Contains(stdout, want) {
						t.Errorf("%v does not show %q:\n%s", args, want, stdout)
					}
				}
			}

			_, stderr, code := w.Run(t.Context(), append(path, "--hlep")...)
			if code != command.ExitUsage || !strings.Contains(stderr, "has no option --hlep; did you mean --help?\ntry: liqo-agent "+name+" --help\n") {
				t.Errorf("an unknown option: exit code %d, %s", code, stderr)
			}
			if c.Group() {
				first := c.Commands[0].Name
				_, stderr, code := w.Run(t.Context(), append(path, first+"x")...)
				if code != command.ExitUsage || !strings.Contains(stderr, `did you mean "`+name+" "+first+`"?`) {
					t.Errorf("an unknown command: exit code %d, %s", code, stderr)
				}
				return
			}
			if c.Max >= 0 {
				args := append(path, strings.Fields(strings.Repeat(" x", c.Max+1))...)
				_, stderr, code := w.Run(t.Context(), args...)
				if code != command.ExitUsage || !strings.Contains(stderr, `unexpected argument "x"`) {
					t.Errorf("too many arguments: exit code %d, %s", code, stderr)
				}
			}
			if c.Min > 0 {
				_, stderr, code := w.Run(t.Context(), path...)
				if code != command.ExitUsage || !strings.Contains(stderr, name+" needs "+c.Args) {
					t.Errorf("no arguments: exit code %d, %s", code, stderr)
				}
			}
			if len(c.Formats) > 0 {
				args := append(path, append(strings.Fields(strings.Repeat(" x", c.Min)), "-o", "xml")...)
				_, stderr, code := w.Run(t.Context(), args...)
				if code != command.ExitUsage || !strings.Contains(stderr, `output format "xml": want `+strings.Join(c.Formats, ", ")) {
					t.Errorf("a wrong format: exit code %d, %s", code, stderr)
				}
			}
		})
	})
	for _, name := range []string{"run", "peers list", "peers show", "peers watch", "peers history", "peers alias", "peers connect", "peers disconnect", "peer", "unpeer",
		"peers requests", "peers accept", "peers reject", "peers block", "peers unblock", "peers trust", "peers set", "peers forget", "invite", "invite create",
		"invite list", "invite revoke", "domains list", "domains show", "domains add", "domains remove", "domains refresh", "info", "key show", "key rotate", "key csr", "fleet init", "fleet sign", "scan", "status",
		"log level", "config check", "config show", "crds", "rbac", "completion", "version", "help"} {
		if !seen[name] {
			t.Errorf("there is no command %q", name)
		}
	}
}

// A group of commands may stand for one of its own.
func TestDefaultCommand(t *testing.T) {
	a := cli.New(command.Options{})
	for in, want := range map[string]string{
		"invite": "invite create --", "invite --ttl 1h": "invite create --ttl 1h --", "invite -o json": "invite create --output json --", "invite list": "invite list --",
		"invite --help": "invite --help", "invite -h": "invite -h", "peers": "peers", "": "",
	} {
		got, err := a.Arrange(append([]string{command.Name}, strings.Fields(in)...))
		if err != nil || strings.Join(got[1:], " ") != want {
			t.Errorf("%q becomes %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"invite --tll 1h", "invite lsit", "invite list --ttl"} {
		if got, err := a.Arrange(append([]string{command.Name}, strings.Fields(in)...)); err == nil {
			t.Errorf("%q becomes %q", in, got)
		}
	}
}

func TestArrange(t *testing.T) {
	a := cli.New(command.Options{})
	for _, tc := range []struct{ in, want string }{
		{"peers show barn -o json", "peers show --output json -- barn"},
		{"peers show -ojson barn", "peers show --output json -- barn"},
		{"peers show --output=json barn", "peers show --output=json -- barn"},
		{"peers alias barn --remove", "peers alias --remove -- barn"},
		{"peers show -- --odd", "peers show -- --odd"},
		{"peers show - -o json", "peers show --output json -- -"},
		{"run --set a.b=1 --set c.d=2", "run --set a.b=1 --set c.d=2 --"},
		{"peers --help", "peers --help"},
		{"--version", "--version"},
		{"--socket a.sock peers list", "peers list --socket a.sock --"},
		{"-c a.toml peers --socket=a.sock show barn -ojson", "peers show --config a.toml --socket=a.sock --output json -- barn"},
		{"-ojson --state-dir d status", "status --output json --state-dir d --"},
		{"-o json invite --ttl 1h", "invite create --output json --ttl 1h --"},
		{"--config peers run --socket list", "run --config peers --socket list --"},
		{"", ""},
	} {
		got, err := a.Arrange(append([]string{command.Name}, strings.Fields(tc.in)...))
		if err != nil || strings.Join(got[1:], " ") != tc.want {
			t.Errorf("%q becomes %q, %v; want %q", tc.in, got, err, tc.want)
		}
	}
	for in, want := range map[string]string{
		"peers show -o":       "peers show: option -o needs a value",
		"pers list":           `there is no command "pers"; did you mean "peers"?`,
		"xyzzy":               `there is no command "xyzzy"`,
		"--verison":           "liqo-agent has no option --verison; did you mean --version?",
		"peers list --output": "peers list: option --output needs a value",
		"scan --tiemout=3s":   "scan has no option --tiemout; did you mean --timeout?",
		"--socket a.sock":     "liqo-agent --socket: which command?",
		"peers --socket=a":    "liqo-agent peers --socket=a: which command?",
		"--socket":            "liqo-agent --socket: which command?",
		"--socket a version":  "version has no option --socket",
		"--socket a xyzzy":    `there is no command "xyzzy"`,
		"--sokcet a status":   "liqo-agent has no option --sokcet",
	} {
		if _, err := a.Arrange(append([]string{command.Name}, strings.Fields(in)...)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	if _, err := a.Arrange([]string{command.Name, strings.Repeat("x", 1<<20)}); err == nil {
		t.Error("a very long command was accepted")
	}
}

package cli

import (
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"
)

// walk calls each for every command below path.
func walk(path []string, commands []*urfave.Command, each func(path []string, c *urfave.Command)) {
	for _, c := range commands {
		full := append(path[:len(path):len(path)], c.Name)
		each(full, c)
		walk(full, c.Subcommands, each)
	}
}

func TestEveryCommand(t *testing.T) {
	w := noAgent(t)
	seen := make(map[string]bool)
	walk(nil, New(Options{}).root.Commands, func(path []string, c *urfave.Command) {
		name := strings.Join(path, " ")
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			if c.Usage == "" || strings.HasSuffix(c.Usage, ".") || c.Usage != strings.TrimSpace(c.Usage) {
				t.Errorf("usage %q: want one phrase", c.Usage)
			}
			about, examples, ok := strings.Cut(c.Description, "\n\nExample:\n\n   ")
			if !ok || !strings.HasSuffix(about, ".") || !strings.Contains(examples, Name+" "+path[0]) {
				t.Errorf("description %q: want sentences and an example of the command", c.Description)
			}
			for _, line := range strings.Split(c.Description, "\n") {
				if len(line) > 150 {
					t.Errorf("a line of the description is %d bytes long", len(line))
				}
			}
			for _, f := range c.Flags {
				if d, ok := f.(urfave.DocGenerationFlag); !ok || d.GetUsage() == "" {
					t.Errorf("option %v has no usage", f.Names())
				}
			}

			for _, args := range [][]string{append(path, "--help"), append([]string{"help"}, path...)} {
				stdout, stderr, code := w.run(t.Context(), args...)
				if code != ExitOK || stderr != "" {
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

			_, stderr, code := w.run(t.Context(), append(path, "--hlep")...)
			if code != ExitUsage || !strings.Contains(stderr, "has no option --hlep; did you mean --help?\ntry: liqo-agent "+name+" --help\n") {
				t.Errorf("an unknown option: exit code %d, %s", code, stderr)
			}
			if len(c.Subcommands) > 0 {
				first := c.Subcommands[0].Name
				_, stderr, code := w.run(t.Context(), append(path, first+"x")...)
				if code != ExitUsage || !strings.Contains(stderr, `did you mean "`+name+" "+first+`"?`) {
					t.Errorf("an unknown command: exit code %d, %s", code, stderr)
				}
				return
			}
			l := New(Options{}).leafAt(path)
			if l.max >= 0 {
				args := append(path, strings.Fields(strings.Repeat(" x", l.max+1))...)
				_, stderr, code := w.run(t.Context(), args...)
				if code != ExitUsage || !strings.Contains(stderr, `unexpected argument "x"`) {
					t.Errorf("too many arguments: exit code %d, %s", code, stderr)
				}
			}
			if l.min > 0 {
				_, stderr, code := w.run(t.Context(), path...)
				if code != ExitUsage || !strings.Contains(stderr, name+" needs "+l.args) {
					t.Errorf("no arguments: exit code %d, %s", code, stderr)
				}
			}
			if len(l.formats) > 0 {
				args := append(path, append(strings.Fields(strings.Repeat(" x", l.min)), "-o", "xml")...)
				_, stderr, code := w.run(t.Context(), args...)
				if code != ExitUsage || !strings.Contains(stderr, `output format "xml": want `+strings.Join(l.formats, ", ")) {
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

// leafAt returns the leaf at path.
func (a *App) leafAt(path []string) leaf {
	cmd, _ := a.descend(path)
	return a.leaves[cmd]
}

// A group of commands may stand for one of its own.
func TestComplement(t *testing.T) {
	a := New(Options{})
	for in, want := range map[string]string{
		"invite": "invite create", "invite --ttl 1h": "invite create --ttl 1h", "invite -o json": "invite create -o json", "invite list": "invite list",
		"invite --help": "invite --help", "invite -h": "invite -h", "invite --tll 1h": "invite --tll 1h", "invite lsit": "invite lsit",
		"peers": "peers", "invite list --ttl": "invite list --ttl", "": "",
	} {
		got := a.complement(append([]string{Name}, strings.Fields(in)...))
		if strings.Join(got[1:], " ") != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestArrange(t *testing.T) {
	a := New(Options{})
	for _, tc := range []struct{ in, want string }{
		{"peers show barn -o json", "peers show -o json -- barn"},
		{"peers show -ojson barn", "peers show -o json -- barn"},
		{"peers show --output=json barn", "peers show --output=json -- barn"},
		{"peers alias barn --remove", "peers alias --remove -- barn"},
		{"peers show -- --odd", "peers show -- --odd"},
		{"peers show - -o json", "peers show -o json -- -"},
		{"run --set a.b=1 --set c.d=2", "run --set a.b=1 --set c.d=2 --"},
		{"peers --help", "peers --help"},
		{"--version", "--version"},
		{"--socket a.sock peers list", "peers list --socket a.sock --"},
		{"-c a.toml peers --socket=a.sock show barn -ojson", "peers show -c a.toml --socket=a.sock -o json -- barn"},
		{"-ojson --state-dir d status", "status -o json --state-dir d --"},
		{"-o json invite --ttl 1h", "invite create -o json --ttl 1h --"},
		{"--config peers run --socket list", "run --config peers --socket list --"},
		{"", ""},
	} {
		got, err := a.arrange(a.complement(a.hoist(append([]string{Name}, strings.Fields(tc.in)...))))
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
		if _, err := a.arrange(a.complement(a.hoist(append([]string{Name}, strings.Fields(in)...)))); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	if _, err := a.arrange([]string{Name, strings.Repeat("x", 1<<20)}); err == nil {
		t.Error("a very long command was accepted")
	}
}

func TestSpan(t *testing.T) {
	for in, want := range map[string]string{"-1s": "0s", "999ms": "0s", "119s": "119s", "2m": "2m", "119m": "119m", "2h": "2h", "47h": "47h", "48h": "2d", "2400h": "100d"} {
		if got := span(mustDuration(t, in)); got != want {
			t.Errorf("span(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	for in, want := range map[string]string{
		"90m": "2026-11-21T10:30:00Z", "2d": "2026-11-19T12:00:00Z", "2026-11-20": "2026-11-20T00:00:00Z",
		"2026-11-20 08:15": "2026-11-20T08:15:00Z", "2026-11-20T08:15:00+02:00": "2026-11-20T08:15:00+02:00",
	} {
		got, err := parseSince(in, now)
		if err != nil || got.Format("2006-01-02T15:04:05Z07:00") != want {
			t.Errorf("parseSince(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"-1h", "-2d", "d", "soon", "21.11.2026"} {
		if got, err := parseSince(in, now); err == nil {
			t.Errorf("parseSince(%q) = %v", in, got)
		}
	}
}

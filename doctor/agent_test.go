package doctor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/trust"
)

// quiet is an agent that says how it is, and nothing else.
type quiet struct {
	agent
	err    error
	status control.Status
}

func (s quiet) Status(context.Context) (control.Status, error) { return s.status, s.err }

func (s quiet) Peers(context.Context, bool) ([]control.Peer, error) { return nil, s.err }

// A key or a database that somebody has deleted is lost at the next start, and the peers are with it.
func TestMissingStateIsTold(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) look.File { return look.File{Path: filepath.Join(dir, name), Mode: 0o600} }
	database := control.State{Path: filepath.Join(dir, databaseName)}
	for _, tc := range []struct {
		name, want string
		files      []look.File
		state      control.State
		stopped    bool
	}{
		{"all there", "ok", []look.File{file(trust.KeyFile), file(databaseName)}, database, false},
		{"no key", "error state-missing", []look.File{file(databaseName)}, database, false},
		{"no key, stopped", "error state-missing", []look.File{file(databaseName)}, database, true},
		{"no database", "error state-missing", []look.File{file(trust.KeyFile)}, database, false},
		{"reset, stopped", "ok", []look.File{file(trust.KeyFile)}, database, true},
		{"another directory", "ok", nil, control.State{Path: "/srv/agent.db"}, false},
		{"in memory", "ok", []look.File{file(trust.KeyFile)}, control.State{Path: database.Path, Volatile: true}, false},
	} {
		b := boxOf()
		b.stateDir = dir
		s := quiet{status: control.Status{State: tc.state}}
		if tc.stopped {
			s.err = &control.Error{Kind: control.ErrNotRunning}
		}
		b.agent = s
		b.ask.modes = func(string, ...string) ([]look.File, error) {
			return append([]look.File{{Path: dir, Mode: os.ModeDir | 0o750}}, tc.files...), nil
		}
		b.ask.database = func(context.Context, string) (stored, error) { return stored{}, nil }
		judged(t, tc.name, checkState(t.Context(), b), tc.want)
	}
}

// That this user may not read a configuration does not make it invalid.
func TestUnreadableConfigIsNotBad(t *testing.T) {
	_, err := config.Load(config.Options{Path: "/proc/self/nonexistent", PathExplicit: true})
	if err == nil {
		t.Fatal("it was read")
	}
	b := boxOf()
	b.loadError = err
	judged(t, "missing", checkConfig(t.Context(), b), "error config-bad")
	hidden := config.Faults{{Source: "file x", Err: os.ErrPermission}}
	b.loadError = hidden
	judged(t, "hidden", checkConfig(t.Context(), b), "skipped")
	b.opts.Root = true
	judged(t, "hidden from root", checkConfig(t.Context(), b), "error config-bad")
	b.opts.Root, b.loadError = false, append(hidden, config.Fault{Source: "environment X", Err: errors.New("is no key")})
	judged(t, "more faults", checkConfig(t.Context(), b), "error config-bad")
}

// A table that was added to the file, or changed in it, is in use after a reload only.
func TestUnusedTablesAreTold(t *testing.T) {
	load := func(text string) *config.Loaded {
		path := filepath.Join(t.TempDir(), "liqo-agent.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Load(config.Options{Path: path, PathExplicit: true})
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	const barn = "[[search_domain]]\ndomain = \"barn.example.com\"\n"
	for _, tc := range []struct{ name, file, used, want string }{
		{"the same", barn, barn, "ok"},
		{"added", barn, "", "warning restart-needed"},
		{"removed", "", barn, "warning restart-needed"},
		{"changed", barn + "server = \"192.0.2.53\"\n", barn, "warning restart-needed"},
		{"one more", barn + "[[search_domain]]\ndomain = \"shed.example.com\"\n", barn, "warning restart-needed"},
	} {
		used := load(tc.used)
		var text bytes.Buffer
		if err := used.WriteTOML(&text, false); err != nil {
			t.Fatal(err)
		}
		judged(t, tc.name, judgeConfig(load(tc.file), &control.Config{Path: used.Path, TOML: text.String(), Sources: used.Sources}), tc.want)
	}
}

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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

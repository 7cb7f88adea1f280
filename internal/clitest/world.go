package clitest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/generated"
)

// Patience bounds waiting for what should happen at once.
const Patience = 20 * time.Second

// Now is the time in all tests.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Output does not depend on where the tests run.
func init() { time.Local = time.UTC }

// World is a machine with an agent, or without one.
type World struct {
	New    func(command.Options) *command.App // the program
	Dir    string
	Server *socket.Server
	Stop   func() // ends the agent
	Color  bool
	Screen bool // the output is a terminal

	Terminal bool      // somebody can be asked
	Stdin    io.Reader // what is typed
	Env      []string
	Pace     command.Pace
	Service  bool // the agent is a service of the machine
}

// Socket returns the path of the agent's socket.
func (w *World) Socket() string { return filepath.Join(w.Dir, "agent.sock") }

// Environ returns the environment of the program.
func (w *World) Environ() []string {
	return append([]string{"LIQO_AGENT_STATE_SOCKET=" + w.Socket(), "LIQO_AGENT_STATE_DIR=" + w.Dir}, w.Env...)
}

// Run runs a command line and returns what it wrote and its exit code. The
// directory of the world reads $DIR in all output.
func (w *World) Run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out bytes.Buffer
	stderr, code = w.RunTo(ctx, &out, args...)
	return w.Place(out.String()), stderr, code
}

// RunTo is Run with an output that can be looked at meanwhile.
func (w *World) RunTo(ctx context.Context, stdout io.Writer, args ...string) (stderr string, code int) {
	var errs bytes.Buffer
	start := control.RunAgent
	if w.Service {
		start = "sudo systemctl start liqo-agent"
	}
	pace := w.Pace
	pace.Answer = cmp.Or(pace.Answer, time.Minute) // a busy machine is no reason to offer nothing
	app := w.New(command.Options{Version: "1.2.3", Commit: "abcdef", Stdin: w.Stdin, Stdout: stdout, Stderr: &errs, Environ: w.Environ(), Color: w.Color, Screen: w.Screen,
		Interactive: w.Terminal, Now: func() time.Time { return Now }, Pace: pace, StartCommand: func() string { return start }})
	code = command.Report(&errs, app.Run(ctx, append([]string{command.Name}, args...)))
	return w.Place(errs.String()), code
}

// Place returns text in which the directory of the world reads $DIR.
func (w *World) Place(s string) string { return strings.ReplaceAll(s, w.Dir, "$DIR") }

// NoAgent is a machine on which no agent runs or ever ran.
func NoAgent(t *testing.T, program func(command.Options) *command.App) *World {
	return &World{New: program, Dir: t.TempDir()}
}

// WithAgent is a machine with an agent that answers from b.
func WithAgent(t *testing.T, program func(command.Options) *command.App, b socket.Backend) *World {
	t.Helper()
	w := NoAgent(t, program)
	if m, ok := b.(*Memory); ok {
		m.Publish = func(id string) {
			w.Server.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: id}})
		}
	}
	w.Server = socket.NewServer(socket.ServerConfig{Path: w.Socket(), Backend: b, Level: new(slog.LevelVar),
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return Now }})
	if err := w.Server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.Stop = stop
	done := make(chan error, 1)
	go func() { done <- w.Server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// Worlds returns a machine whose agent knows the farm, one whose agent knows nothing, one
// without an agent, and the first once more, with colors.
func Worlds(t *testing.T, program func(command.Options) *command.App) (full, empty, none, colored *World) {
	t.Helper()
	full, empty = WithAgent(t, program, Farm()), WithAgent(t, program, &Memory{})
	colored = WithAgent(t, program, Farm())
	colored.Color = true
	return full, empty, NoAgent(t, program), colored
}

// Golden compares what a command wrote with testdata/name.golden.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	generated.File(t, filepath.Join("testdata", name+".golden"), got)
}

// Check runs a command line as a test of its own, and compares what it writes with a
// golden file.
func (w *World) Check(t *testing.T, name, args string, want int) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		stdout, stderr, code := w.Run(t.Context(), strings.Fields(args)...)
		if code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		Golden(t, name, "$ liqo-agent "+args+"\n"+stdout+"--- stderr\n"+stderr)
	})
}

package config_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// reloads answers a reload as a test says.
type reloads struct {
	answer control.Reload
	err    error
}

func (r reloads) Reload(context.Context) (control.Reload, error) { return r.answer, r.err }
func (r reloads) Generation() int64                              { return r.answer.Generation }

func TestConfigReload(t *testing.T) {
	for _, tc := range []struct {
		name           string
		reloads        reloads
		args           string
		stdout, stderr string
		code           int
	}{
		{"nothing", reloads{}, "", "No changes.\n", "", 0},
		{"some", reloads{answer: control.Reload{Changed: []string{"log.level", "endpoint.listen", "sharing.enable"}, Restart: []string{"endpoint.listen"}}}, "",
			"Changed, and in effect: log.level, sharing.enable\nNeeds a restart of the agent: endpoint.listen\n", "", 0},
		{"later only", reloads{answer: control.Reload{Restart: []string{"endpoint.listen"}}}, "", "Needs a restart of the agent: endpoint.listen\n", "", 0},
		{"JSON", reloads{answer: control.Reload{Path: "/x", Changed: []string{"log.level"}, Generation: 1}}, "-o json",
			"{\n  \"path\": \"/x\",\n  \"changed\": [\n    \"log.level\"\n  ],\n  \"restart\": [],\n  \"rebuilding\": false,\n  \"generation\": 1\n}\n", "", 0},
		{"bad", reloads{err: &control.Error{Kind: control.ErrInvalid, Message: "the old settings stay in use: bad configuration: x", Advice: "fix the file"}}, "",
			"", "liqo-agent: the old settings stay in use: bad configuration: x\ntry: fix the file\n", command.ExitError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := clitest.NoAgent(t, cli.New)
			server := socket.NewServer(socket.ServerConfig{Path: w.Socket(), Backend: &clitest.Memory{}, Reloader: tc.reloads, Level: new(slog.LevelVar), Logger: slog.New(slog.DiscardHandler)})
			if err := server.Listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- server.Run(ctx) }()
			defer func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			stdout, stderr, code := w.Run(t.Context(), append([]string{"config", "reload"}, strings.Fields(tc.args)...)...)
			if stdout != tc.stdout || stderr != tc.stderr || code != tc.code {
				t.Errorf("exit code %d\n%s--- stderr\n%s", code, stdout, stderr)
			}
		})
	}
	_, stderr, code := clitest.NoAgent(t, cli.New).Run(t.Context(), "config", "reload")
	if code != command.ExitNotRunning || !strings.Contains(stderr, "the agent is not running") {
		t.Errorf("without an agent: exit code %d, %s", code, stderr)
	}
}

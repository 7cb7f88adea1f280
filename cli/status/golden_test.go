package status_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full := clitest.WithAgent(t, cli.New, clitest.Farm())
	empty := clitest.WithAgent(t, cli.New, &clitest.Memory{})
	none := clitest.NoAgent(t, cli.New)
	colored := clitest.WithAgent(t, cli.New, clitest.Farm())
	colored.Color = true
	for _, tc := range []struct {
		name string
		w    *clitest.World
		args string
		code int
	}{
		{"info", full, "info", 0},
		{"info-color", colored, "info", 0},
		{"info-json", full, "info -o json", 0},
		{"info-empty", empty, "info", 0},
		{"info-peers", full, "info barn 0558de48-1", 0},
		{"info-peer-json", full, "info barn -o json", 0},
		{"info-peer", full, "info peer barn", 0},
		{"info-peer-all", full, "info peer", 0},
		{"info-peer-none", empty, "info peer", 0},
		{"info-peer-get", full, "info peer barn silo --get id", 0},
		{"info-unknown", full, "info barn cellar", command.ExitNotFound},
		{"status", full, "status", 0},
		{"status-json", full, "status -o json", 0},
		{"status-empty", empty, "status", 0},
		{"status-none", none, "status", command.ExitNotRunning},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

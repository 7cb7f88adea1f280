package peers_test

import (
	"strings"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full := clitest.WithAgent(t, cli.New, clitest.Farm())
	empty := clitest.WithAgent(t, cli.New, &clitest.Memory{})
	none := clitest.NoAgent(t, cli.New)
	onlyLost := clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Peers: clitest.Farm().Has.Peers[2:3]}})
	colored := clitest.WithAgent(t, cli.New, clitest.Farm())
	colored.Color = true
	left := clitest.Farm().Has.Peers[2:3]
	left[0].Outgoing.Joined = true
	saidGoodbye := clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Peers: left}})
	service := clitest.NoAgent(t, cli.New)
	service.Service = true
	for _, tc := range []struct {
		name string
		w    *clitest.World
		args string
		code int
	}{
		{"list", full, "peers list", 0},
		{"list-all", full, "peers list --all", 0},
		{"list-wide", full, "peers list -a -o wide", 0},
		{"list-json", full, "peers list --all -o json", 0},
		{"list-yaml", full, "peers list -oyaml", 0},
		{"list-color", colored, "peers list --all", 0},
		{"list-empty", empty, "peers list", 0},
		{"list-empty-json", empty, "peers list -o json", 0},
		{"list-only-lost", onlyLost, "peers list", 0},
		{"list-said-goodbye", saidGoodbye, "peers list", 0},
		{"list-none", none, "peers list", command.ExitNotRunning},
		{"list-none-service", service, "peers list", command.ExitNotRunning},
		{"show", full, "peers show barn", 0},
		{"show-conflict", full, "peers show 0558de48-1", 0},
		{"show-blocked", full, "peers show shed", 0},
		{"show-hostile", full, "peers show d00d", 0},
		{"show-json", full, "peers show barn -o json", 0},
		{"show-ambiguous", full, "peers show 0558", command.ExitNotFound},
		{"show-unknown", full, "peers show cellar", command.ExitNotFound},
		{"requests", full, "peers requests", 0},
		{"requests-json", full, "peers requests -o json", 0},
		{"requests-empty", empty, "peers requests", 0},
		{"history", full, "peers history", 0},
		{"history-one", full, "peers history barn --since 1d", 0},
		{"history-json", full, "peers history --limit 1 -o json", 0},
		{"history-empty", full, "peers history --since 10s", 0},
		{"history-bad-since", full, "peers history --since yesterday", command.ExitUsage},
		{"alias", full, "peers alias 9c1b cellar", 0},
		{"alias-taken", full, "peers alias barn cellar", command.ExitUsage},
		{"alias-remove", full, "peers alias cellar --remove", 0},
		{"alias-forgotten", full, "peers alias barn", command.ExitUsage},
		{"alias-long", full, "peers alias barn -- Halle-3-" + strings.Repeat("x", 60), command.ExitUsage},
		{"watch-none", none, "peers watch", command.ExitNotRunning},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

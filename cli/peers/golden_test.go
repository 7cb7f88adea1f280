package peers_test

import (
	"strings"
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	onlyLost := clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Peers: clitest.Farm().Has.Peers[2:3]}})
	left := clitest.Farm().Has.Peers[2:3]
	left[0].Outgoing.Joined = true
	saidGoodbye := clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Peers: left}})
	service := clitest.NoAgent(t, cli.New)
	service.Service = true
	full.Check(t, "list", "peers list", 0)
	full.Check(t, "list-all", "peers list --all", 0)
	full.Check(t, "list-wide", "peers list -a -o wide", 0)
	full.Check(t, "list-json", "peers list --all -o json", 0)
	full.Check(t, "list-yaml", "peers list -oyaml", 0)
	colored.Check(t, "list-color", "peers list --all", 0)
	empty.Check(t, "list-empty", "peers list", 0)
	empty.Check(t, "list-empty-json", "peers list -o json", 0)
	onlyLost.Check(t, "list-only-lost", "peers list", 0)
	saidGoodbye.Check(t, "list-said-goodbye", "peers list", 0)
	none.Check(t, "list-none", "peers list", command.ExitNotRunning)
	service.Check(t, "list-none-service", "peers list", command.ExitNotRunning)
	full.Check(t, "show", "peers show barn", 0)
	full.Check(t, "show-conflict", "peers show 0558de48-1", 0)
	full.Check(t, "show-blocked", "peers show shed", 0)
	full.Check(t, "show-hostile", "peers show d00d", 0)
	full.Check(t, "show-json", "peers show barn -o json", 0)
	full.Check(t, "show-ambiguous", "peers show 0558", command.ExitNotFound)
	full.Check(t, "show-unknown", "peers show cellar", command.ExitNotFound)
	full.Check(t, "requests", "peers requests", 0)
	full.Check(t, "requests-json", "peers requests -o json", 0)
	empty.Check(t, "requests-empty", "peers requests", 0)
	full.Check(t, "history", "peers history", 0)
	full.Check(t, "history-one", "peers history barn --since 1d", 0)
	full.Check(t, "history-json", "peers history --limit 1 -o json", 0)
	full.Check(t, "history-empty", "peers history --since 10s", 0)
	full.Check(t, "history-bad-since", "peers history --since yesterday", command.ExitUsage)
	full.Check(t, "alias", "peers alias 9c1b cellar", 0)
	full.Check(t, "alias-taken", "peers alias barn cellar", command.ExitUsage)
	full.Check(t, "alias-remove", "peers alias cellar --remove", 0)
	full.Check(t, "alias-forgotten", "peers alias barn", command.ExitUsage)
	full.Check(t, "alias-long", "peers alias barn -- Halle-3-"+strings.Repeat("x", 60), command.ExitUsage)
	none.Check(t, "watch-none", "peers watch", command.ExitNotRunning)
}

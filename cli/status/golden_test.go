package status_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	full.Check(t, "info", "info", 0)
	colored.Check(t, "info-color", "info", 0)
	full.Check(t, "info-json", "info -o json", 0)
	empty.Check(t, "info-empty", "info", 0)
	full.Check(t, "info-peers", "info barn 0558de48-1", 0)
	full.Check(t, "info-peer-json", "info barn -o json", 0)
	full.Check(t, "info-peer", "info peer barn", 0)
	full.Check(t, "info-peer-all", "info peer", 0)
	empty.Check(t, "info-peer-none", "info peer", 0)
	full.Check(t, "info-peer-get", "info peer barn silo --get id", 0)
	full.Check(t, "info-unknown", "info barn cellar", command.ExitNotFound)
	full.Check(t, "status", "status", 0)
	full.Check(t, "status-json", "status -o json", 0)
	empty.Check(t, "status-empty", "status", 0)
	none.Check(t, "status-none", "status", command.ExitNotRunning)
}

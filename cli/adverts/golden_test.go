package adverts_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	full.Check(t, "adverts-list", "adverts list", 0)
	colored.Check(t, "adverts-list-color", "adverts list", 0)
	full.Check(t, "adverts-list-json", "adverts list -o json", 0)
	empty.Check(t, "adverts-list-yaml", "adverts list -o yaml", 0)
	empty.Check(t, "adverts-list-empty", "adverts list", 0)
	none.Check(t, "adverts-list-none", "adverts list", command.ExitNotRunning)
	full.Check(t, "adverts-show", "adverts show barn", 0)
	full.Check(t, "adverts-show-pending", "adverts show 0558de48-1", 0)
	full.Check(t, "adverts-show-refused", "adverts show shed", 0)
	full.Check(t, "adverts-show-json", "adverts show barn -o json", 0)
	full.Check(t, "adverts-show-unknown", "adverts show cellar", command.ExitNotFound)
	full.Check(t, "adverts-show-nothing", "adverts show d00d", command.ExitNotFound)
	none.Check(t, "adverts-accept-none", "adverts accept barn", command.ExitNotRunning)
	full.Check(t, "adverts-accept-ambiguous", "adverts accept 0558", command.ExitNotFound)
}

package adverts_test

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
		{"adverts-list", full, "adverts list", 0},
		{"adverts-list-color", colored, "adverts list", 0},
		{"adverts-list-json", full, "adverts list -o json", 0},
		{"adverts-list-yaml", empty, "adverts list -o yaml", 0},
		{"adverts-list-empty", empty, "adverts list", 0},
		{"adverts-list-none", none, "adverts list", command.ExitNotRunning},
		{"adverts-show", full, "adverts show barn", 0},
		{"adverts-show-pending", full, "adverts show 0558de48-1", 0},
		{"adverts-show-refused", full, "adverts show shed", 0},
		{"adverts-show-json", full, "adverts show barn -o json", 0},
		{"adverts-show-unknown", full, "adverts show cellar", command.ExitNotFound},
		{"adverts-show-nothing", full, "adverts show d00d", command.ExitNotFound},
		{"adverts-accept-none", none, "adverts accept barn", command.ExitNotRunning},
		{"adverts-accept-ambiguous", full, "adverts accept 0558", command.ExitNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

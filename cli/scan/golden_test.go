package scan_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	none := clitest.NoAgent(t, cli.New)
	for _, tc := range []struct {
		name string
		w    *clitest.World
		args string
		code int
	}{
		{"scan-bad-service", none, "scan --service http", command.ExitUsage},
		{"scan-bad-timeout", none, "scan --timeout 0s --interface lo", command.ExitUsage},
		{"scan-no-link", none, "scan --interface nosuch*", command.ExitError},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

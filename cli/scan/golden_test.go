package scan_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	none := clitest.NoAgent(t, cli.New)
	none.Check(t, "scan-bad-service", "scan --service http", command.ExitUsage)
	none.Check(t, "scan-bad-timeout", "scan --timeout 0s --interface lo", command.ExitUsage)
	none.Check(t, "scan-no-link", "scan --interface nosuch*", command.ExitError)
}

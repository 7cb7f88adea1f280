package config_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full := clitest.WithAgent(t, cli.New, clitest.Farm())
	full.Check(t, "config-running", "config show --running -o json", 0)
	full.Check(t, "config-running-text", "config show --running", 0)
}

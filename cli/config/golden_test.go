package config_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full := clitest.WithAgent(t, cli.New, clitest.Farm())
	for _, tc := range []struct {
		name string
		w    *clitest.World
		args string
		code int
	}{
		{"config-running", full, "config show --running -o json", 0},
		{"config-running-text", full, "config show --running", 0},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

package domains_test

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
		{"domains-list", full, "domains list", 0},
		{"domains-list-wide", full, "domains list -o wide", 0},
		{"domains-list-json", full, "domains list -o json", 0},
		{"domains-list-color", colored, "domains list", 0},
		{"domains-list-empty", empty, "domains list", 0},
		{"domains-list-empty-json", empty, "domains list -o json", 0},
		{"domains-list-none", none, "domains list", 0},
		{"domains-show", full, "domains show Example.COM.", 0},
		{"domains-show-timeout", full, "domains show example.net", 0},
		{"domains-show-no-name", full, "domains show example.org", 0},
		{"domains-show-new", full, "domains show lab.example.com", 0},
		{"domains-show-json", full, "domains show example.org -o json", 0},
		{"domains-show-unknown", full, "domains show example.info", command.ExitNotFound},
		{"domains-add-none", none, "domains add example.com", command.ExitNotRunning},
		{"domains-add-both", full, "domains add example.com --autojoin --no-autojoin", command.ExitUsage},
		{"domains-add-interval", full, "domains add example.com --min-interval 500ms", command.ExitUsage},
		{"domains-add-bad", full, "domains add https://example.com", command.ExitUsage},
		{"domains-add-bad-server", full, "domains add example.com --server https://192.0.2.53", command.ExitUsage},
		{"domains-add-bad-timeout", full, "domains add example.com --timeout -1s", command.ExitUsage},
		{"domains-remove-unknown", full, "domains remove example.info", command.ExitNotFound},
		{"domains-refresh-unknown", full, "domains refresh example.info", command.ExitNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.w.Check(t, tc.name, tc.args, tc.code) })
	}
}

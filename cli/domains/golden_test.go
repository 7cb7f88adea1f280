package domains_test

import (
	"testing"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	full.Check(t, "domains-list", "domains list", 0)
	full.Check(t, "domains-list-wide", "domains list -o wide", 0)
	full.Check(t, "domains-list-json", "domains list -o json", 0)
	colored.Check(t, "domains-list-color", "domains list", 0)
	empty.Check(t, "domains-list-empty", "domains list", 0)
	empty.Check(t, "domains-list-empty-json", "domains list -o json", 0)
	none.Check(t, "domains-list-none", "domains list", 0)
	full.Check(t, "domains-show", "domains show Example.COM.", 0)
	full.Check(t, "domains-show-timeout", "domains show example.net", 0)
	full.Check(t, "domains-show-no-name", "domains show example.org", 0)
	full.Check(t, "domains-show-new", "domains show lab.example.com", 0)
	full.Check(t, "domains-show-json", "domains show example.org -o json", 0)
	full.Check(t, "domains-show-unknown", "domains show example.info", command.ExitNotFound)
	none.Check(t, "domains-add-none", "domains add example.com", command.ExitNotRunning)
	full.Check(t, "domains-add-both", "domains add example.com --autojoin --no-autojoin", command.ExitUsage)
	full.Check(t, "domains-add-interval", "domains add example.com --min-interval 500ms", command.ExitUsage)
	full.Check(t, "domains-add-bad", "domains add https://example.com", command.ExitUsage)
	full.Check(t, "domains-add-bad-server", "domains add example.com --server https://192.0.2.53", command.ExitUsage)
	full.Check(t, "domains-add-bad-timeout", "domains add example.com --timeout -1s", command.ExitUsage)
	full.Check(t, "domains-remove-unknown", "domains remove example.info", command.ExitNotFound)
	full.Check(t, "domains-refresh-unknown", "domains refresh example.info", command.ExitNotFound)
}

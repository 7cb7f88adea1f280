package storage_test

import (
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	full.Check(t, "storage-list", "storage list", 0)
	colored.Check(t, "storage-list-color", "storage list", 0)
	full.Check(t, "storage-list-json", "storage list -o json", 0)
	empty.Check(t, "storage-list-empty", "storage list", 0)
	none.Check(t, "storage-list-none", "storage list", command.ExitNotRunning)

	full.Check(t, "storage-reclaim", "storage reclaim "+clitest.Shed+" --yes", 0)
	full.Check(t, "storage-reclaim-json", "storage reclaim "+clitest.Shed+" --yes -o json", 0)
	full.Check(t, "storage-reclaim-no-terminal", "storage reclaim "+clitest.Shed, command.ExitUsage)
	full.Check(t, "storage-reclaim-unknown", "storage reclaim nobody", command.ExitNotFound)
	full.Check(t, "storage-reclaim-in-use", "storage reclaim "+clitest.Van+" --yes", command.ExitRefused)
	none.Check(t, "storage-reclaim-none", "storage reclaim barn", command.ExitNotRunning)

	offers := control.Storage{Class: "liqo", OfferedBytes: 20 << 30}
	clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Storage: offers}}).Check(t, "storage-list-offered", "storage list", 0)
}

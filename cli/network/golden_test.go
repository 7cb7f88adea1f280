package network_test

import (
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

func TestGolden(t *testing.T) {
	full, empty, none, colored := clitest.Worlds(t, cli.New)
	full.Check(t, "network-list", "network list", 0)
	colored.Check(t, "network-list-color", "network list", 0)
	full.Check(t, "network-list-json", "network list -o json", 0)
	empty.Check(t, "network-list-empty", "network list", 0)
	empty.Check(t, "network-list-empty-yaml", "network list -o yaml", 0)
	none.Check(t, "network-list-none", "network list", command.ExitNotRunning)

	full.Check(t, "network-probe", "network probe barn --count 3 --interval 100ms", 0)
	full.Check(t, "network-probe-json", "network probe barn --count 1 -o json", 0)
	full.Check(t, "network-probe-silent", "network probe "+clitest.Silo+" --count 2 --interval 100ms", command.ExitError)
	full.Check(t, "network-probe-unknown", "network probe nobody", command.ExitNotFound)
	full.Check(t, "network-probe-count", "network probe barn --count 0", command.ExitUsage)
	full.Check(t, "network-probe-interval", "network probe barn --interval 1ms", command.ExitUsage)
	none.Check(t, "network-probe-none", "network probe barn", command.ExitNotRunning)

	off := func(reason, message string) control.Network {
		return control.Network{Reason: reason, Message: message, Peers: []control.NetworkPeer{
			{ID: clitest.Barn, Name: "barn", State: control.NetworkOff, Reason: reason, Message: message}}}
	}
	clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Network: off("Off", "sharing.network is off.")}}).
		Check(t, "network-list-off", "network list", 0)
	silent := control.Network{Names: control.Names{Message: "the cluster DNS does not know kubernetes.default.svc.corp.lan.: NXDOMAIN"}}
	clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Network: silent}}).Check(t, "network-list-names", "network list", 0)
	clitest.WithAgent(t, cli.New, &clitest.Memory{Has: clitest.Has{Network: off("SeveralNodes", "This cluster has 2 nodes of its own. Only a cluster with one node can be connected.")}}).
		Check(t, "network-list-nodes", "network list", 0)
}

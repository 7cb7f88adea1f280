package cli

import (
	"liqo.io/agent/cli/adverts"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/config"
	"liqo.io/agent/cli/domains"
	"liqo.io/agent/cli/network"
	"liqo.io/agent/cli/peers"
	"liqo.io/agent/cli/scan"
	"liqo.io/agent/cli/status"
	"liqo.io/agent/cli/storage"
)

// New returns the program with all its commands.
func New(opts command.Options) *command.App { return newApp(opts, usualMachine()) }

// machine is what commands use of the machine beside files and the agent's socket.
// Tests put others in their place.
type machine struct {
	services func() (services, error)
	examiner examiner // looks at it for the doctor
}

func usualMachine() machine { return machine{systemd, thisBox{}} }

func newApp(opts command.Options, m machine) *command.App {
	return command.New(opts, "find nearby clusters and peer with them",
		"Runs beside K3s on an edge device. Finds other clusters on the same network, verifies their\n"+
			"identity, and creates a ForeignCluster for each of them in the local API server.\n\n"+
			"Example:\n\n   sudo liqo-agent run\n   liqo-agent peers list",
		tree(m)...)
}

// tree returns every command there is.
func tree(m machine) []command.Command {
	return []command.Command{
		runCommand(), serviceCommand(m.services),
		peers.Command(), peers.ConnectCommand(), peers.DisconnectCommand(),
		inviteCommand(),
		status.InfoCommand(),
		domains.Command(), adverts.Command(), network.Command(), storage.Command(),
		scan.Command(),
		status.Command(),
		doctorCommand(m.examiner),
		keyCommand(),
		fleetCommand(),
		logCommand(),
		config.Command(), stateCommand(), resetCommand(),
		crdsCommand(),
		rbacCommand(),
		completionCommand(),
		versionCommand(),
		helpCommand(),
	}
}

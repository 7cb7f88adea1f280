package cli

import "liqo.io/agent/cli/command"

// Tree returns every command there is.
func Tree() []command.Command { return tree(usualMachine()) }

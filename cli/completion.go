package cli

import (
	"context"
	_ "embed" // for the scripts
	"fmt"

	"liqo.io/agent/cli/command"
)

//go:embed completion/bash.sh
var bashScript string

//go:embed completion/zsh.sh
var zshScript string

//go:embed completion/fish.sh
var fishScript string

func completionCommand() command.Command {
	scripts := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	return command.Command{
		Name:  "completion",
		Usage: "print a shell completion script",
		Args:  "bash|zsh|fish",
		About: "Print a completion script for bash, zsh or fish. It completes commands, options and values, and\n" +
			"asks the running agent for the names of peers.",
		Examples: []string{
			"source <(liqo-agent completion bash)",
			"source <(liqo-agent completion zsh)",
			"liqo-agent completion fish | source",
		},
		Min: 1, Max: 1,
		Words: func(context.Context, command.Typed) []command.Candidate { return command.Fixed("bash", "zsh", "fish") },
		Run: func(c *command.Call) error {
			script, ok := scripts[c.Args[0]]
			if !ok {
				return command.UsageError(fmt.Sprintf("no completion for shell %q: there is bash, zsh and fish", c.Args[0]),
					command.Name+" completion bash")
			}
			c.Out.Printf("%s", script)
			return nil
		},
	}
}

package cli

import (
	"context"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

func logCommand() command.Command {
	level := command.Command{
		Name:  "level",
		Usage: "show or set the log level",
		Args:  "[debug|info|warn|error]",
		About: "Show the log level of the running agent, or set it until the agent restarts or reloads its\n" +
			"configuration.",
		Examples: []string{"liqo-agent log level", "liqo-agent log level debug"},
		Max:      1,
		Agent:    true,
		Words: func(context.Context, command.Typed) []command.Candidate {
			return command.Fixed("debug", "info", "warn", "error")
		},
		Run: func(c *command.Call) error {
			if len(c.Args) > 0 {
				if _, err := control.ParseLevel(c.Args[0]); err != nil {
					return err
				}
			}
			client := c.Client()
			defer client.Close()
			if len(c.Args) > 0 {
				return c.Interrupted(client.SetLogLevel(c.Ctx(), c.Args[0]))
			}
			now, err := client.LogLevel(c.Ctx())
			if err != nil {
				return err
			}
			c.Out.Printf("%s\n", render.Clean(now))
			return nil
		},
	}
	return command.Command{
		Name:     "log",
		Usage:    "control the log of the running agent",
		About:    "Control the log of the running agent.",
		Examples: []string{"liqo-agent log level debug"},
		Commands: []command.Command{
			level,
		},
	}
}

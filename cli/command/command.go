package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/render"
)

// Command is a command that does something, or a group of commands.
type Command struct {
	Name     string
	Usage    string   // one phrase
	About    string   // sentences: what a user should know
	Examples []string // command lines
	Hidden   bool     // not shown by help

	// Commands are those of a group, and Default is the one of them that the group
	// stands for; "" is none.
	Commands []Command
	Default  string

	// The rest is of a command that does something.

	Args     string // for the usage line, e.g. "PEER [NAME]"
	Min, Max int    // number of arguments; Max -1 = any
	// Agent: it asks the agent, and has the options that say where that is.
	Agent   bool
	Flags   []urfave.Flag
	Formats []string // allowed values of --output, the default first; none = no such option
	Run     func(*Call) error
	// Words offers values for the next argument.
	Words func(ctx context.Context, t Typed) []Candidate
	// Values offers values for an option, by its name. Those that name files of the
	// agent need none.
	Values map[string]func(ctx context.Context) []Candidate
}

// Group reports whether c has commands, and does nothing itself.
func (c Command) Group() bool { return len(c.Commands) > 0 }

// AllFlags returns the options of c, without --help.
func (c Command) AllFlags() []urfave.Flag {
	var flags []urfave.Flag
	if c.Agent {
		flags = AgentFlags()
	}
	flags = append(flags, c.Flags...)
	if len(c.Formats) > 0 {
		flags = append(flags, outputOption(c.Formats))
	}
	return flags
}

// Synopsis returns what is typed to run c, which is below path.
func (c Command) Synopsis(path string) string {
	if c.Group() {
		return path + " " + c.Name + " COMMAND"
	}
	return strings.TrimSpace(path+" "+c.Name+" "+c.Args) + " [options]"
}

const outputFlag = "output"

// outputOption is the option for one of formats, the first of which is the default.
func outputOption(formats []string) urfave.Flag {
	f := &urfave.StringFlag{Name: outputFlag, Aliases: []string{"o"}, Usage: "output `FORMAT`: " + strings.Join(formats, ", ")}
	if len(formats) > 0 {
		f.Value = formats[0]
	}
	return f
}

// build makes the commands below path.
func (a *App) build(path string, commands []Command) []*urfave.Command {
	out := make([]*urfave.Command, 0, len(commands))
	for _, c := range commands {
		cmd := &urfave.Command{
			Name:            c.Name,
			Usage:           c.Usage,
			UsageText:       c.Synopsis(path),
			Description:     c.About + "\n\nExample:\n\n   " + strings.Join(c.Examples, "\n   "),
			Flags:           c.AllFlags(),
			HideHelpCommand: true,
			Hidden:          c.Hidden,
			OnUsageError:    onUsageError,
			Action:          func(in *urfave.Context) error { return a.invoke(c, in) },
		}
		if c.Group() {
			cmd.Action = a.group
			cmd.Subcommands = a.build(path+" "+c.Name, c.Commands)
		}
		a.commands[cmd] = c
		out = append(out, cmd)
	}
	return out
}

func onUsageError(c *urfave.Context, err error, _ bool) error {
	path := pathOf(c)
	return UsageError(fmt.Sprintf("%s: %v", path, err), HelpOf(path))
}

func (a *App) invoke(l Command, c *urfave.Context) error {
	path := pathOf(c)
	args := c.Args().Slice()
	switch {
	case len(args) < l.Min:
		return UsageError(fmt.Sprintf("%s needs %s", path, l.Args), HelpOf(path))
	case l.Max >= 0 && len(args) > l.Max:
		return UsageError(fmt.Sprintf("%s: unexpected argument %q", path, args[l.Max]), HelpOf(path))
	}
	in := &Call{Context: c, Options: a.opts, Args: args}
	if len(l.Formats) > 0 {
		in.Format = c.String(outputFlag)
		if !slices.Contains(l.Formats, in.Format) {
			return UsageError(fmt.Sprintf("%s: output format %q: want %s", path, in.Format, strings.Join(l.Formats, ", ")),
				Name+" "+path+" -o "+l.Formats[0])
		}
	}
	in.Out = render.New(a.opts.Stdout, in.Format, a.opts.Color, a.opts.Now())
	if err := l.Run(in); err != nil {
		return err
	}
	return in.Out.Flush()
}

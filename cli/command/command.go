package command

import (
	"context"
	"flag"
	"fmt"
	"io"
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
		return strings.TrimSpace(path+" "+c.Name) + " COMMAND"
	}
	return strings.TrimSpace(path+" "+c.Name+" "+c.Args) + " [options]"
}

// The options that are made here.
const (
	outputFlag  = "output"
	helpFlag    = "help"
	versionFlag = "version"
)

// outputOption is the option for one of formats, the first of which is the default.
func outputOption(formats []string) urfave.Flag {
	f := &urfave.StringFlag{Name: outputFlag, Aliases: []string{"o"}, Usage: "output `FORMAT`: " + strings.Join(formats, ", ")}
	if len(formats) > 0 {
		f.Value = formats[0]
	}
	return f
}

// list is what was said with an option that can be repeated.
type list []string

// Set adds a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// String returns nothing: there is no default.
func (l *list) String() string { return "" }

// ListFlag returns an option that can be repeated; Call.List has its values, as they were typed.
func ListFlag(name, usage string, aliases ...string) urfave.Flag {
	return &urfave.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: new(list)}
}

// options returns all options that c takes; a command without a name is the program.
func (c Command) options() []urfave.Flag {
	flags := append(c.AllFlags(), urfave.HelpFlag)
	if c.Name == "" {
		flags = append(flags, urfave.VersionFlag)
	}
	return flags
}

// find returns the command of that name in a group, nil if there is none.
func (c *Command) find(name string) *Command {
	for i := range c.Commands {
		if c.Commands[i].Name == name {
			return &c.Commands[i]
		}
	}
	return nil
}

// dispatch runs an arranged command line.
func (a *App) dispatch(ctx context.Context, args []string) error {
	cmd, rest := a.descend(args)
	path := strings.Join(args[:len(args)-len(rest)], " ")
	set := flag.NewFlagSet(path, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range cmd.options() {
		if err := f.Apply(set); err != nil {
			return fmt.Errorf("%s: option %s: %w", path, f.Names()[0], err)
		}
	}
	if err := set.Parse(rest); err != nil {
		return UsageError(fmt.Sprintf("%s: %v", path, err), HelpOf(path))
	}
	in := &Call{Context: urfave.NewContext(nil, set, nil), Options: a.opts, Args: set.Args(), path: path}
	in.Context.Context = ctx
	if at := slices.Index(rest, "--"); at >= 0 { // Arrange puts one behind the options
		in.said = rest[:at]
	}
	in.Out = render.New(a.opts.Stdout, "", a.opts.Color, a.opts.Now())
	switch {
	case in.Bool(versionFlag) && !in.Bool(helpFlag):
		in.Out.Printf("%s version %s\n", Name, a.opts.Version)
		return in.Out.Flush()
	case in.Bool(helpFlag), cmd.Group():
		cmd.help(in.Out, path, a.opts.Version)
		return in.Out.Flush()
	}
	return a.invoke(cmd, in)
}

// invoke runs a command that does something.
func (a *App) invoke(cmd *Command, in *Call) error {
	switch path := in.path; {
	case len(in.Args) < cmd.Min:
		return UsageError(fmt.Sprintf("%s needs %s", path, cmd.Args), HelpOf(path))
	case cmd.Max >= 0 && len(in.Args) > cmd.Max:
		return UsageError(fmt.Sprintf("%s: unexpected argument %q", path, in.Args[cmd.Max]), HelpOf(path))
	}
	if len(cmd.Formats) > 0 {
		in.Format = in.String(outputFlag)
		if !slices.Contains(cmd.Formats, in.Format) {
			return UsageError(fmt.Sprintf("%s: output format %q: want %s", in.path, in.Format, strings.Join(cmd.Formats, ", ")),
				in.Name()+" -o "+cmd.Formats[0])
		}
		in.Out = render.New(a.opts.Stdout, in.Format, a.opts.Color, a.opts.Now())
	}
	if err := cmd.Run(in); err != nil {
		return err
	}
	return in.Out.Flush()
}

package cli

import (
	"strings"

	urfave "github.com/urfave/cli/v2"

	settings "liqo.io/agent/agent/config"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/config"
	"liqo.io/agent/cli/peers"
)

// Command is what there is to say about one command, for references that are made
// of it. Texts are plain, without a terminal's control characters.
type Command struct {
	Path     []string // its name and those of the groups it is in, without the program's
	Usage    string   // one phrase
	About    string   // sentences; their line breaks mean nothing
	Synopsis string   // what is typed: the program's name, Path, arguments
	Examples []string // command lines
	Options  []Option // without --help, which every command has
	// Formats are the values of --output, the default first; none: it has no such
	// option.
	Formats []string
	// Default is the command of Commands that a group stands for; "" is none.
	Default  string
	Commands []Command // of a group, in their order
}

// Option is one option of a command.
type Option struct {
	Names   []string // with their hyphens, the long one first
	Value   string   // the placeholder of its value; "" takes none
	Usage   string
	Default string // "" when there is none, or it goes without saying
	// Environment are the variables that say the same; the option wins.
	Environment []string
	// Key is the key of the configuration that the option stands for; "" is none.
	Key string
}

// AgentOptions returns the options by which commands find the agent and what it
// leaves behind. Describe has them, too, with every command that takes them.
func AgentOptions() []Option {
	var out []Option
	for _, f := range command.AgentFlags() {
		out = append(out, describeOption(f))
	}
	return out
}

// ExitCode is one way for the program to end.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes returns every code that the program ends with by itself, in order.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{command.ExitOK, "success"},
		{command.ExitError, "failure"},
		{command.ExitUsage, "the command line or a value in it is wrong"},
		{command.ExitNotRunning, "the agent is not running, and its database does not help"},
		{command.ExitNotFound, "not found, or ambiguous: a peer, a search domain, an offer, an invite or the service"},
		{command.ExitNotTrusted, "a key is not confirmed; nothing was changed"},
		{command.ExitRefused, "refused by the other cluster, or by an earlier decision here"},
		{command.ExitTimeout, "--timeout is over; the operation continues in the background"},
		{command.ExitWarnings, "doctor or state check found only warnings"},
		{command.ExitInterrupted, "Ctrl-C: while waiting, the operation continues, a reset without an agent when that starts; at a question, nothing was changed"},
	}
}

// Describe returns every command that help shows, in its order. It is a function
// of its own, which nothing in the program calls, so that the program does not
// contain it.
func Describe() []Command { return describe(nil, tree(usualMachine())) }

func describe(above []string, commands []command.Command) []Command {
	var out []Command
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		path := append(above[:len(above):len(above)], c.Name)
		d := Command{
			Path:     path,
			Usage:    c.Usage,
			About:    c.About,
			Synopsis: c.Synopsis(strings.Join(append([]string{command.Name}, above...), " ")),
			Examples: c.Examples,
			Formats:  c.Formats,
			Default:  c.Default,
			Commands: describe(path, c.Commands),
		}
		for _, f := range c.AllFlags() {
			d.Options = append(d.Options, describeOption(f))
		}
		out = append(out, d)
	}
	return out
}

// describeOption panics for an option that cannot be described: it is for tests and
// generators.
func describeOption(f urfave.Flag) Option {
	d := f.(urfave.DocGenerationFlag)
	var o Option
	for _, name := range f.Names() {
		o.Names = append(o.Names, command.Dashed(name))
	}
	usage := d.GetUsage()
	if d.TakesValue() {
		o.Value = "VALUE"
		if before, rest, ok := strings.Cut(usage, "`"); ok {
			var after string
			o.Value, after, _ = strings.Cut(rest, "`")
			usage = before + o.Value + after
		}
		o.Default = strings.Trim(d.GetDefaultText(), `" `)
	}
	o.Usage = usage
	name := f.Names()[0]
	if o.Key = config.KeyOf(name, usage); o.Key != "" {
		o.Environment = []string{settings.EnvName(o.Key)}
	}
	if name == peers.TokenFlag {
		o.Environment = []string{peers.TokenVariable}
	}
	return o
}

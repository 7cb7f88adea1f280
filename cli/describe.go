package cli

import (
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
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
	for _, f := range placeFlags() {
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
		{ExitOK, "done"},
		{ExitError, "it failed"},
		{ExitUsage, "the command line, or a value in it, is wrong"},
		{ExitNotRunning, "the agent is not running (and its database does not help)"},
		{ExitNotFound, "no such peer or search domain, or more than one fits; or a peer that offers nothing"},
		{ExitNotTrusted, "a key has to be confirmed first, or was not confirmed: nothing was changed"},
		{ExitRefused, "refused: by the other cluster, or by what was decided here earlier"},
		{ExitTimeout, "--timeout is over: what was begun goes on in the background"},
		{ExitWarnings, "doctor found warnings, and nothing worse"},
		{ExitInterrupted, "Ctrl-C while waiting: likewise; or at a question: nothing was changed"},
	}
}

// Describe returns every command that help shows, in its order. It is a function
// of its own, which nothing in the program calls, so that the program does not
// contain it.
func Describe() []Command {
	a := New(Options{})
	return a.describe(nil, a.root.Commands)
}

func (a *App) describe(above []string, commands []*urfave.Command) []Command {
	var out []Command
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		about, examples, _ := strings.Cut(c.Description, "\n\nExample:\n\n   ")
		d := Command{
			Path:     append(above[:len(above):len(above)], c.Name),
			Usage:    c.Usage,
			About:    about,
			Synopsis: c.UsageText,
			Examples: strings.Split(examples, "\n   "),
			Formats:  a.leaves[c].formats,
			Default:  a.defaults[c],
		}
		for _, f := range c.Flags {
			if f != urfave.HelpFlag {
				d.Options = append(d.Options, describeOption(f))
			}
		}
		d.Commands = a.describe(d.Path, c.Subcommands)
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
		o.Names = append(o.Names, dashed(name))
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
	for _, one := range runFlags {
		if one.name == name && (name == socketFlag || name == stateDirFlag || strings.HasSuffix(usage, "("+one.key+")")) {
			o.Key = one.key
			o.Environment = []string{config.EnvName(one.key)}
		}
	}
	if name == tokenFlag {
		o.Environment = []string{tokenVariable}
	}
	return o
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// leaf describes a command that does something.
type leaf struct {
	name     string
	usage    string // one line
	about    string // what a user should know
	examples []string
	args     string // for the usage line, e.g. "PEER [NAME]"
	min, max int    // number of arguments; max -1 = any
	flags    []urfave.Flag
	formats  []string // allowed values of --output, the default first; none = no such option
	run      func(*call) error
	// words offers values for the next argument.
	words func(ctx context.Context, t typed) []candidate
	// values offers values for an option, by its name.
	values map[string]func(ctx context.Context) []candidate
	hidden bool
}

// call is one invocation of a leaf.
type call struct {
	*urfave.Context
	app    *App
	args   []string
	format string
	out    *printer
}

const outputFlag = "output"

func (a *App) leaf(l leaf) *urfave.Command {
	flags := slices.Clone(l.flags)
	if len(l.formats) > 0 {
		flags = append(flags, outputOption(l.formats))
	}
	cmd := &urfave.Command{
		Name:            l.name,
		Usage:           l.usage,
		Description:     l.about + "\n\nExample:\n\n   " + strings.Join(l.examples, "\n   "),
		Flags:           flags,
		HideHelpCommand: true,
		Hidden:          l.hidden,
		OnUsageError:    onUsageError,
		Action:          func(c *urfave.Context) error { return a.invoke(l, c) },
	}
	a.leaves[cmd] = l
	return cmd
}

// outputOption is the option for one of formats, the first of which is the default.
func outputOption(formats []string) urfave.Flag {
	f := &urfave.StringFlag{Name: outputFlag, Aliases: []string{"o"}, Usage: "`FORMAT` of the output: " + strings.Join(formats, ", ")}
	if len(formats) > 0 {
		f.Value = formats[0]
	}
	return f
}

func (a *App) branch(name, usage, about string, examples []string, commands ...*urfave.Command) *urfave.Command {
	return &urfave.Command{
		Name:            name,
		Usage:           usage,
		Description:     about + "\n\nExample:\n\n   " + strings.Join(examples, "\n   "),
		Subcommands:     commands,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Action:          a.group,
	}
}

func onUsageError(c *urfave.Context, err error, _ bool) error {
	path := pathOf(c)
	return &usageError{message: fmt.Sprintf("%s: %v", path, err), try: helpOf(path)}
}

func (a *App) invoke(l leaf, c *urfave.Context) error {
	path := pathOf(c)
	args := c.Args().Slice()
	switch {
	case len(args) < l.min:
		return &usageError{message: fmt.Sprintf("%s needs %s", path, l.args), try: helpOf(path)}
	case l.max >= 0 && len(args) > l.max:
		return &usageError{message: fmt.Sprintf("%s: unexpected argument %q", path, args[l.max]), try: helpOf(path)}
	}
	in := &call{Context: c, app: a, args: args}
	if len(l.formats) > 0 {
		in.format = c.String(outputFlag)
		if !slices.Contains(l.formats, in.format) {
			return &usageError{message: fmt.Sprintf("%s: output format %q: want %s", path, in.format, strings.Join(l.formats, ", ")),
				try: Name + " " + path + " -o " + l.formats[0]}
		}
	}
	in.out = newPrinter(a.opts, in.format)
	if err := l.run(in); err != nil {
		return err
	}
	return in.out.flush()
}

package command

import (
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// Arrange returns a command line, with the program's name first, as the library for options
// needs it: names of commands, options, "--", arguments. An option has its first name. Its
// error is a usage error.
func (a *App) Arrange(args []string) ([]string, error) {
	return a.arrange(a.complement(a.hoist(args)))
}

// arrange puts options in front of arguments, as the library needs it and as
// nobody types it: "peers show barn -o json". It stops with advice at an
// option that does not exist or lacks its value.
func (a *App) arrange(args []string) ([]string, error) {
	if len(args) == 0 {
		return []string{Name}, nil
	}
	cmd, rest := a.descend(args[1:])
	names := args[1 : len(args)-len(rest)]
	path := strings.Join(names, " ")
	if !cmd.Group() {
		options, arguments, err := split(path, cmd.options(), rest)
		if err != nil {
			return nil, err
		}
		out := append([]string{Name}, names...)
		out = append(append(out, options...), "--")
		return append(out, arguments...), nil
	}
	// What is left are options of the program or of a group of commands, or
	// the name of a command that does not exist.
	flags := cmd.options()
	missing := ""
	for len(rest) > 0 {
		if n := len(early(rest)); n > 0 {
			missing = fmt.Sprintf("%s %s: which command?", strings.TrimSpace(Name+" "+path), rest[0])
			rest = rest[n:]
			continue
		}
		arg := rest[0]
		rest = rest[1:]
		if !isOption(arg) {
			return nil, unknownCommand(path, arg, cmd.Commands)
		}
		if findFlag(flags, optionName(arg)) == nil {
			return nil, unknownOption(path, arg, flags)
		}
	}
	if missing != "" {
		return nil, UsageError(missing, HelpOf(path))
	}
	return args, nil
}

// hoist moves the options that most commands have from before a command's name
// behind it: "--socket PATH peers list" is "peers list --socket PATH".
func (a *App) hoist(args []string) []string {
	if len(args) == 0 {
		return args
	}
	var names, options []string
	rest := args[1:]
	for cmd := &a.root; cmd.Group() && len(rest) > 0; {
		if n := len(early(rest)); n > 0 {
			options, rest = append(options, rest[:n]...), rest[n:]
			continue
		}
		next := cmd.find(rest[0])
		if next == nil {
			break
		}
		names, cmd, rest = append(names, rest[0]), next, rest[1:]
	}
	return slices.Concat(args[:1], names, options, rest)
}

// early returns what args begin with that may stand before the name of a command: an
// option with its value.
func early(args []string) []string {
	flags := commonFlags()
	if !isOption(args[0]) {
		return nil
	}
	flag := findFlag(flags, optionName(args[0]))
	switch {
	case shortWithValue(flags, args[0]) != "":
		return args[:1]
	case flag == nil:
		return nil
	case strings.Contains(args[0], "="):
		return args[:1]
	}
	return args[:min(2, len(args))]
}

// commonFlags are the options that most commands have. All take a value.
func commonFlags() []urfave.Flag { return append(AgentFlags(), outputOption(nil)) }

// complement adds the command that a group of commands stands for: "invite --ttl
// 1h" is "invite create --ttl 1h".
func (a *App) complement(args []string) []string {
	if len(args) == 0 {
		return args
	}
	group, rest := a.descend(args[1:])
	if group.Default == "" {
		return args
	}
	if len(rest) > 0 {
		meant := findFlag(group.find(group.Default).options(), optionName(rest[0]))
		if !isOption(rest[0]) || meant == nil || meant == urfave.HelpFlag {
			return args
		}
	}
	at := len(args) - len(rest)
	return slices.Concat(args[:at], []string{group.Default}, rest)
}

// HelpOf returns the command that shows the help of the command at path.
func HelpOf(path string) string { return strings.Join(strings.Fields(Name+" "+path+" --help"), " ") }

// descend follows the names of commands and returns the last one, which is the
// program itself if there is none, and what comes after it.
func (a *App) descend(args []string) (*Command, []string) {
	cmd := &a.root
	for len(args) > 0 {
		next := cmd.find(args[0])
		if next == nil {
			break
		}
		cmd, args = next, args[1:]
	}
	return cmd, args
}

// split separates options with their values from arguments. "-ojson" becomes
// "--output json"; everything after "--" is an argument.
func split(path string, flags []urfave.Flag, args []string) (options, arguments []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return options, append(arguments, args...), nil
		case !isOption(arg):
			arguments = append(arguments, arg)
			continue
		}
		flag := findFlag(flags, optionName(arg))
		if short := shortWithValue(flags, arg); flag == nil && short != "" {
			options = append(options, Dashed(findFlag(flags, short[1:]).Names()[0]), arg[len(short):])
			continue
		}
		if flag == nil {
			return nil, nil, unknownOption(path, arg, flags)
		}
		name := Dashed(flag.Names()[0])
		if value, ok := optionValue(arg); ok || !takesValue(flag) {
			options = append(options, name+value)
			continue
		}
		if len(args) == 0 {
			return nil, nil, UsageError(fmt.Sprintf("%s: option %s needs a value", path, arg), HelpOf(path))
		}
		options = append(options, name, args[0])
		args = args[1:]
	}
	return options, arguments, nil
}

func isOption(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

func optionName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// optionValue returns "=json" for "--output=json".
func optionValue(arg string) (string, bool) {
	_, value, ok := strings.Cut(arg, "=")
	if !ok {
		return "", false
	}
	return "=" + value, true
}

// findFlag returns the flag of that name.
func findFlag(flags []urfave.Flag, name string) urfave.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f urfave.Flag) bool {
	d, ok := f.(urfave.DocGenerationFlag)
	return ok && d.TakesValue()
}

// shortWithValue returns "-o" for "-ojson".
func shortWithValue(flags []urfave.Flag, arg string) string {
	if len(arg) < 3 || arg[1] == '-' {
		return ""
	}
	if f := findFlag(flags, arg[1:2]); f != nil && takesValue(f) {
		return arg[:2]
	}
	return ""
}

func unknownOption(path, arg string, flags []urfave.Flag) error {
	var names []string
	for _, f := range flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				names = append(names, n)
			}
		}
	}
	e := UsageError(subject(path)+" has no option "+Dashed(optionName(arg)), HelpOf(path))
	if n := Nearest(optionName(arg), names); n != "" {
		e.Message += "; did you mean --" + n + "?"
	}
	return e
}

// subject is the command at path as the beginning of a sentence.
func subject(path string) string {
	if path == "" {
		return Name
	}
	return path
}

// Dashed returns the name of an option with its hyphens.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func unknownCommand(path, name string, commands []Command) error {
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	full := func(name string) string { return strings.TrimSpace(path + " " + name) }
	e := UsageError(fmt.Sprintf("there is no command %q", full(name)), HelpOf(path))
	if n := Nearest(name, names); n != "" {
		e.Message += fmt.Sprintf("; did you mean %q?", full(n))
		e.Advice = HelpOf(full(n))
	}
	return e
}

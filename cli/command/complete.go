package command

import (
	"context"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/render"
)

// CompleteCommand is what the shells' completion scripts call, with the words
// typed so far, the last of which is being typed.
const CompleteCommand = "__complete"

// CompleteFiles tells the scripts to offer file names.
const CompleteFiles = ":files"

// PeerArgument says how commands name a peer.
const PeerArgument = "PEER is an alias, a cluster name, or the first characters of a cluster ID."

// Candidate is one way to complete a word.
type Candidate struct {
	Value, Text string // Text says what it is
}

// Fixed returns candidates that need no explanation.
func Fixed(values ...string) []Candidate {
	out := make([]Candidate, 0, len(values))
	for _, v := range values {
		out = append(out, Candidate{Value: v})
	}
	return out
}

// Files has the shell offer file names.
func Files(context.Context) []Candidate { return Fixed(CompleteFiles) }

// complete writes a line per way to complete the last word: the value, and
// after a tab what it is. Failing to find any is no error.
func (a *App) complete(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.Pace.Answer)
	defer cancel()
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
		words = words[:len(words)-1]
	}
	out := render.New(a.opts.Stdout, "", false, a.opts.Now())
	for _, c := range a.candidates(ctx, words, current) {
		switch {
		case c.Value == CompleteFiles:
			out.Printf("%s\n", CompleteFiles)
		case strings.HasPrefix(c.Value, current) && render.Clean(c.Value) == c.Value:
			out.Printf("%s\t%s\n", c.Value, render.Clean(c.Text))
		}
	}
	return out.Flush()
}

func (a *App) candidates(ctx context.Context, words []string, current string) []Candidate {
	cmd, rest := a.descend(a.hoist(append([]string{Name}, words...))[1:])
	flags := cmd.options()
	if cmd.Group() {
		_, waiting, _ := scanWords(commonFlags(), rest)
		switch {
		case waiting != nil && waiting.Names()[0] != outputFlag:
			return Fixed(CompleteFiles)
		case waiting != nil:
			return nil // what there is depends on the command
		case isOption(current) || current == "-":
			return flagCandidates(append(flags, commonFlags()...))
		}
		for len(rest) > 0 && len(early(rest)) > 0 {
			rest = rest[len(early(rest)):]
		}
		if len(rest) > 0 {
			return nil
		}
		return commandCandidates(cmd.Commands)
	}
	typed, waiting, ended := scanWords(flags, rest)
	switch name, _, hasValue := strings.Cut(current, "="); {
	case waiting != nil:
		return cmd.flagValues(ctx, waiting)
	case !ended && strings.HasPrefix(current, "--") && hasValue:
		flag := findFlag(flags, optionName(current))
		if flag == nil {
			return nil
		}
		out := cmd.flagValues(ctx, flag)
		for i := range out {
			if out[i].Value != CompleteFiles {
				out[i].Value = name + "=" + out[i].Value
			}
		}
		return out
	case !ended && strings.HasPrefix(current, "-"):
		return flagCandidates(flags)
	case cmd.Words == nil || cmd.Max >= 0 && typed.Arguments >= cmd.Max:
		return nil
	}
	typed.opts = a.opts
	return cmd.Words(ctx, typed)
}

// Typed is what a command line says before the word that is being typed.
type Typed struct {
	Arguments int
	options   map[string]string // by the first name of the option
	opts      Options
}

// scanWords goes over complete words: it returns what they say, the option that
// waits for its value, and whether "--" was among them.
func scanWords(flags []urfave.Flag, words []string) (t Typed, waiting urfave.Flag, ended bool) {
	t.options = make(map[string]string)
	for _, word := range words {
		switch {
		case waiting != nil:
			t.options[waiting.Names()[0]] = word
			waiting = nil
		case !ended && word == "--":
			ended = true
		case !ended && isOption(word):
			f := findFlag(flags, optionName(word))
			if f == nil || !takesValue(f) {
				continue
			}
			if _, value, ok := strings.Cut(word, "="); ok {
				t.options[f.Names()[0]] = value
			} else {
				waiting = f
			}
		default:
			t.Arguments++
		}
	}
	return t, waiting, ended
}

func (c *Command) flagValues(ctx context.Context, f urfave.Flag) []Candidate {
	name := f.Names()[0]
	if name == outputFlag {
		return Fixed(c.Formats...)
	}
	switch values := c.Values[name]; {
	case values != nil:
		return values(ctx)
	case c.Agent && name != outputFlag && findFlag(AgentFlags(), name) != nil:
		return Files(ctx)
	}
	return nil
}

func flagCandidates(flags []urfave.Flag) []Candidate {
	var out []Candidate
	for _, f := range flags {
		text := ""
		if d, ok := f.(urfave.DocGenerationFlag); ok {
			text = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		out = append(out, Candidate{Value: Dashed(f.Names()[0]), Text: text})
	}
	return out
}

func commandCandidates(commands []Command) []Candidate {
	var out []Candidate
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, Candidate{Value: c.Name, Text: c.Usage})
		}
	}
	return out
}

// Client returns a client of the agent that a command line, as far as it is typed,
// is about; nil when there is no telling.
func (t Typed) Client() *client.Client {
	socket := t.options[SocketFlag]
	if socket == "" {
		at, err := t.opts.Places(t.options[ConfigFlag])
		if err != nil {
			return nil // there is nothing to offer, and no place for an error
		}
		socket = at.Socket
	}
	return client.New(socket)
}

// Listed offers what the running agent lists, each as one word; nothing when it cannot be asked.
func Listed[T any](ctx context.Context, t Typed, list func(*client.Client, context.Context) ([]T, error), offer func(T) Candidate) []Candidate {
	c := t.Client()
	if c == nil {
		return nil
	}
	defer c.Close()
	all, err := list(c, ctx)
	if err != nil {
		return nil // there is nothing to offer, and no place for an error
	}
	out := make([]Candidate, 0, len(all))
	for _, one := range all {
		out = append(out, offer(one))
	}
	return out
}

// FileValues completes options that name files.
func FileValues(names ...string) map[string]func(context.Context) []Candidate {
	out := make(map[string]func(context.Context) []Candidate, len(names))
	for _, name := range names {
		out[name] = Files
	}
	return out
}

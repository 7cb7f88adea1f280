package cli

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
)

// completeCommand is what the shells' completion scripts call, with the words
// typed so far, the last of which is being typed.
const completeCommand = "__complete"

// completeFiles tells the scripts to offer file names.
const completeFiles = ":files"

// completeTimeout bounds how long a press of the tab key waits for the agent.
const completeTimeout = 500 * time.Millisecond

//go:embed completion/bash.sh
var bashScript string

//go:embed completion/zsh.sh
var zshScript string

//go:embed completion/fish.sh
var fishScript string

// candidate is one way to complete a word.
type candidate struct {
	value, text string
}

func fixed(values ...string) []candidate {
	out := make([]candidate, 0, len(values))
	for _, v := range values {
		out = append(out, candidate{value: v})
	}
	return out
}

func files(context.Context) []candidate { return fixed(completeFiles) }

func (a *App) completionCommand() *urfave.Command {
	scripts := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	return a.leaf(leaf{
		name:  "completion",
		usage: "print a script that completes commands, options and peers in a shell",
		args:  "bash|zsh|fish",
		about: "Print a completion script. It completes commands, options and their values, and asks\n" +
			"the running agent for the names of peers.",
		examples: []string{
			"source <(liqo-agent completion bash)",
			"source <(liqo-agent completion zsh)",
			"liqo-agent completion fish | source",
		},
		min: 1, max: 1,
		words: func(context.Context, typed) []candidate { return fixed("bash", "zsh", "fish") },
		run: func(c *call) error {
			script, ok := scripts[c.args[0]]
			if !ok {
				return &usageError{message: fmt.Sprintf("no completion for shell %q: there is bash, zsh and fish", c.args[0]),
					try: Name + " completion bash"}
			}
			c.out.printf("%s", script)
			return nil
		},
	})
}

// complete writes a line per way to complete the last word: the value, and
// after a tab what it is. Failing to find any is no error.
func (a *App) complete(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
		words = words[:len(words)-1]
	}
	out := newPrinter(a.opts, "")
	for _, c := range a.candidates(ctx, words, current) {
		switch {
		case c.value == completeFiles:
			out.printf("%s\n", completeFiles)
		case strings.HasPrefix(c.value, current) && clean(c.value) == c.value:
			out.printf("%s\t%s\n", c.value, clean(c.text))
		}
	}
	return out.flush()
}

func (a *App) candidates(ctx context.Context, words []string, current string) []candidate {
	cmd, rest := a.descend(a.hoist(append([]string{Name}, words...))[1:])
	commands, flags := a.root.Commands, []urfave.Flag{urfave.VersionFlag}
	if cmd != nil {
		commands, flags = cmd.Subcommands, cmd.Flags
	}
	if len(commands) > 0 {
		_, waiting, _ := scanWords(commonFlags(), rest)
		switch {
		case waiting != nil && waiting.Names()[0] != outputFlag:
			return fixed(completeFiles)
		case waiting != nil:
			return nil // what there is depends on the command
		case isOption(current) || current == "-":
			return flagCandidates(withHelp(append(flags, commonFlags()...)))
		}
		for len(rest) > 0 && len(early(rest)) > 0 {
			rest = rest[len(early(rest)):]
		}
		if len(rest) > 0 {
			return nil
		}
		return commandCandidates(commands)
	}
	l := a.leaves[cmd]
	typed, waiting, ended := scanWords(flags, rest)
	switch name, _, hasValue := strings.Cut(current, "="); {
	case waiting != nil:
		return a.flagValues(ctx, l, waiting)
	case !ended && strings.HasPrefix(current, "--") && hasValue:
		flag := findFlag(flags, optionName(current))
		if flag == nil {
			return nil
		}
		out := a.flagValues(ctx, l, flag)
		for i := range out {
			if out[i].value != completeFiles {
				out[i].value = name + "=" + out[i].value
			}
		}
		return out
	case !ended && strings.HasPrefix(current, "-"):
		return flagCandidates(withHelp(flags))
	case l.words == nil || l.max >= 0 && typed.arguments >= l.max:
		return nil
	}
	return l.words(ctx, typed)
}

// typed is what a command line says before the word that is being typed.
type typed struct {
	arguments int
	options   map[string]string // by the first name of the option
}

// scanWords goes over complete words: it returns what they say, the option that
// waits for its value, and whether "--" was among them.
func scanWords(flags []urfave.Flag, words []string) (t typed, waiting urfave.Flag, ended bool) {
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
			t.arguments++
		}
	}
	return t, waiting, ended
}

func (a *App) flagValues(ctx context.Context, l leaf, f urfave.Flag) []candidate {
	name := f.Names()[0]
	if name == outputFlag {
		return fixed(l.formats...)
	}
	if values := l.values[name]; values != nil {
		return values(ctx)
	}
	return nil
}

func flagCandidates(flags []urfave.Flag) []candidate {
	var out []candidate
	for _, f := range flags {
		text := ""
		if d, ok := f.(urfave.DocGenerationFlag); ok {
			text = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		out = append(out, candidate{value: dashed(f.Names()[0]), text: text})
	}
	return out
}

func commandCandidates(commands []*urfave.Command) []candidate {
	var out []candidate
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, candidate{value: c.Name, text: c.Usage})
		}
	}
	return out
}

// asked returns a client of the agent that a command line, as far as it is typed,
// is about; nil when there is no telling.
func (a *App) asked(t typed) *control.Client {
	socket := t.options[socketFlag]
	if socket == "" {
		at, err := a.places(t.options[configFlag])
		if err != nil {
			return nil // there is nothing to offer, and no place for an error
		}
		socket = at.socket
	}
	return control.NewClient(socket)
}

// peerNames offers the peers that the running agent knows, by what they are
// called; those whose name another one shares, by ID.
func (a *App) peerNames(ctx context.Context, t typed) []candidate {
	if t.arguments > 0 {
		return nil
	}
	return a.names(ctx, t, false)
}

// morePeerNames is peerNames for commands that take any number of peers.
func (a *App) morePeerNames(ctx context.Context, t typed) []candidate { return a.names(ctx, t, false) }

// askerNames is peerNames with those who only asked to be let in.
func (a *App) askerNames(ctx context.Context, t typed) []candidate {
	if t.arguments > 0 {
		return nil
	}
	return a.names(ctx, t, true)
}

func (a *App) names(ctx context.Context, t typed, askers bool) []candidate {
	client := a.asked(t)
	if client == nil {
		return nil
	}
	defer client.Close()
	peers, err := client.Peers(ctx, true)
	if err != nil {
		return nil // as above
	}
	type offer struct{ label, id, text string }
	var offers []offer
	known := make(map[string]bool, len(peers))
	for _, p := range peers {
		known[p.ID] = true
		offers = append(offers, offer{p.Label(), p.ID, strings.TrimSpace(p.Phase + " " + addressOf(p))})
	}
	if askers {
		requests, err := client.Requests(ctx)
		if err != nil {
			return nil // as above
		}
		for _, r := range requests {
			if !known[r.ID] {
				offers = append(offers, offer{nameOf(r.Name, r.ID), r.ID, "asks to be let in"})
			}
		}
	}
	called := make(map[string]int, len(offers))
	for _, o := range offers {
		called[o.label]++
	}
	out := make([]candidate, 0, len(offers))
	for _, o := range offers {
		name := o.label
		if called[name] > 1 {
			name = o.id
		}
		out = append(out, candidate{value: name, text: o.text})
	}
	return out
}

// inviteIDs offers the invites that can be used.
func (a *App) inviteIDs(ctx context.Context, t typed) []candidate {
	client := a.asked(t)
	if client == nil || t.arguments > 0 {
		return nil
	}
	defer client.Close()
	made, err := client.Invites(ctx)
	if err != nil {
		return nil // as above
	}
	var out []candidate
	for _, i := range made {
		if i.State == control.InviteOpen {
			out = append(out, candidate{value: i.ID, text: i.Note})
		}
	}
	return out
}

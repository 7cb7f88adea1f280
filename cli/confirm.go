package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const (
	yesFlag         = "yes"
	fingerprintFlag = "fingerprint"
	// maxLine bounds what is read as an answer or a token.
	maxLine = 4096
)

// confirmFlags are the options of commands that may ask whether a key is the
// right one.
func confirmFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: fingerprintFlag, Usage: "trust exactly the key with this `FINGERPRINT`, without asking"},
		&urfave.BoolFlag{Name: yesFlag, Aliases: []string{"y"}, Usage: "trust the key that it shows now, without asking"},
	}
}

// errNothing is what happens at an empty standard input.
var errNothing = errors.New("nothing was entered")

// readLine reads one line from standard input, or returns when ctx ends. The
// goroutine that waits for the line then ends with the process.
func (c *call) readLine(ctx context.Context) (string, error) {
	if c.app.opts.Stdin == nil {
		return "", errNothing
	}
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(c.app.opts.Stdin, maxLine)).ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		line := strings.TrimSpace(r.line)
		if line == "" && r.err != nil {
			return "", errNothing
		}
		return line, nil
	}
}

// ask asks a question that has to be answered with yes. Anything else is no.
func (c *call) ask(ctx context.Context, question string) error {
	// A question that cannot be written will not be answered with yes.
	_, _ = fmt.Fprintf(c.app.opts.Stderr, "%s [y/N] ", question)
	answer, err := c.readLine(ctx)
	switch {
	case ctx.Err() != nil:
		c.newLine()
		return &outcome{message: "interrupted; nothing was changed", code: ExitInterrupted}
	case err != nil && !errors.Is(err, errNothing):
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return &outcome{message: "not confirmed; nothing was changed", code: ExitNotTrusted}
}

// newLine keeps what comes next apart from the "^C" that the terminal shows.
func (c *call) newLine() {
	if c.app.opts.Interactive {
		_, _ = fmt.Fprintln(c.app.opts.Stderr) // it is only for the looks
	}
}

// sure asks before something that cannot be undone. Where nobody can be asked,
// --yes has to say it.
func (c *call) sure(question string) error {
	switch {
	case c.Bool(yesFlag):
		return nil
	case !c.app.opts.Interactive:
		return &usageError{message: fmt.Sprintf("%s: there is no terminal to ask on whether you are sure", pathOf(c.Context)),
			try: strings.Join(append([]string{Name, pathOf(c.Context)}, c.args...), " ") + " --yes"}
	}
	return c.ask(c.Context.Context, question)
}

// confirming calls decide, and again with the fingerprint that a person confirmed
// if the key has to be. replace allows another key than the trusted one.
func (c *call) confirming(client *control.Client, replace bool, decide func(peer.Fingerprint) (control.Peer, error)) (control.Peer, error) {
	var given peer.Fingerprint
	if text := c.String(fingerprintFlag); text != "" {
		var err error
		if given, err = peer.ParseFingerprint(text); err != nil {
			return control.Peer{}, &usageError{message: "--" + fingerprintFlag + ": " + err.Error(), try: Name + " peers list -o wide"}
		}
	}
	p, err := decide(given)
	var asks *control.Error
	if !errors.Is(err, control.ErrNotTrusted) || !errors.As(err, &asks) || asks.Shown == nil {
		return p, c.interrupted(err)
	}
	if !given.IsZero() || asks.Shown.Pinned != "" && !replace {
		return p, err // it is another key than the one that was named or trusted
	}
	shown, parseErr := peer.ParseFingerprint(asks.Shown.Fingerprint)
	switch {
	case parseErr != nil:
		return p, fmt.Errorf("the agent's answer: %w", parseErr)
	case c.Bool(yesFlag):
	case !c.app.opts.Interactive:
		return p, err // it shows the code, and says what to do
	default:
		c.present(client, *asks.Shown)
		if err := c.ask(c.Context.Context, "Is it the same there?"); err != nil {
			return p, err
		}
	}
	p, err = decide(shown)
	return p, c.interrupted(err)
}

// present shows what is to be confirmed.
func (c *call) present(client *control.Client, s control.Shown) {
	out := newPrinter(c.app.opts, "")
	out.buf.Reset(c.app.opts.Stderr)
	name := nameOf(s.Name, s.ID)
	if s.Pinned != "" {
		out.printf("%s shows another key than the one that is trusted.\n\n", clean(name))
	} else {
		out.printf("The key of %s is not trusted yet.\n\n", clean(name))
	}
	out.fields("  ", [2]string{"Name", s.Name}, [2]string{"ID", s.ID}, [2]string{"Address", s.Address}, [2]string{"Trusted key", s.Pinned},
		[2]string{"Fingerprint", s.Fingerprint}, [2]string{"Code", s.Code})
	out.printf("\nCompare the code with the one that is shown there:  %s peers show %s\nor the fingerprint:  %s key show\n", Name,
		quoted(c.ownName(client)), Name)
	// What cannot be shown will not be confirmed.
	_ = out.flush()
}

// ownName is what this cluster is called by others.
func (c *call) ownName(client *control.Client) string {
	st, err := client.Status(c.Context.Context)
	if err != nil {
		return "NAME" // it is only part of an advice
	}
	return nameOf(st.Identity.Name, st.Identity.ClusterID)
}

func nameOf(name, id string) string {
	if name == "" {
		return id
	}
	return name
}

// quoted is a name as it is typed in a shell.
func quoted(name string) string {
	name = clean(name)
	if strings.HasPrefix(name, "-") {
		return "-- " + shellWord(name)
	}
	return shellWord(name)
}

func shellWord(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !strings.ContainsRune("-_.:/@%+,=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// interrupted tells a person's Ctrl-C from what else can go wrong with a call.
func (c *call) interrupted(err error) error {
	if err != nil && c.Context.Context.Err() != nil {
		return &outcome{message: "interrupted before the agent answered", try: Name + " peers list", code: ExitInterrupted}
	}
	return err
}

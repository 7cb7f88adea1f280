package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// YesFlag is the option that answers questions with yes.
const YesFlag = "yes"

// YesOption returns the option, which says what it does.
func YesOption(usage string) urfave.Flag {
	return &urfave.BoolFlag{Name: YesFlag, Aliases: []string{"y"}, Usage: usage}
}

// maxLine bounds what is read as an answer or a token.
const maxLine = 4096

// ErrNothing is what happens at an empty standard input.
var ErrNothing = errors.New("nothing was entered")

// ReadLine reads one line from standard input, or returns when the call ends. The
// goroutine that waits for the line then ends with the process.
func (c *Call) ReadLine() (string, error) {
	ctx := c.Ctx()
	if c.Options.Stdin == nil {
		return "", ErrNothing
	}
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(c.Options.Stdin, maxLine)).ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		line := strings.TrimSpace(r.line)
		if line == "" && r.err != nil {
			return "", ErrNothing
		}
		return line, nil
	}
}

// Ask asks a question that has to be answered with yes. Anything else is no.
func (c *Call) Ask(question string) error {
	// A question that cannot be written will not be answered with yes.
	_, _ = fmt.Fprintf(c.Options.Stderr, "%s [y/N] ", question)
	answer, err := c.ReadLine()
	switch {
	case c.Ctx().Err() != nil:
		c.NewLine()
		return &Error{Message: "interrupted; nothing was changed", Code: ExitInterrupted}
	case err != nil && !errors.Is(err, ErrNothing):
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return &Error{Message: "not confirmed; nothing was changed", Code: ExitNotTrusted}
}

// NewLine keeps what comes next apart from the "^C" that the terminal shows.
func (c *Call) NewLine() {
	if c.Options.Interactive {
		_, _ = fmt.Fprintln(c.Options.Stderr) // it is only for the looks
	}
}

// Sure asks before something that cannot be undone. Where nobody can be asked,
// --yes has to say it.
func (c *Call) Sure(question string) error {
	switch {
	case c.Bool(YesFlag):
		return nil
	case !c.Options.Interactive:
		return UsageError(c.Path()+": cannot ask for confirmation without a terminal", c.Line("--yes"))
	}
	return c.Ask(question)
}

// Interrupted tells a person's Ctrl-C from what else can go wrong with a call.
func (c *Call) Interrupted(err error) error {
	if err == nil || c.Ctx().Err() == nil {
		return err
	}
	look := "peers list"
	switch noun, _, _ := strings.Cut(c.path, " "); noun {
	case "adverts", "domains", "invite", "storage":
		look = noun + " list"
	case "key":
		look = "key show"
	case "log":
		look = "log level"
	case "config", "reset":
		look = "status"
	}
	return &Error{Message: "interrupted before the agent answered", Advice: Name + " " + look, Code: ExitInterrupted}
}

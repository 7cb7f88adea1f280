package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/service"
)

// Name is what the program is called.
const Name = "liqo-agent"

// The exit codes. They are part of the contract in docs/cli.md.
const (
	ExitOK         = 0
	ExitError      = 1
	ExitUsage      = 2
	ExitNotRunning = 3
	ExitNotFound   = 4 // no such peer or search domain, or more than one
	ExitNotTrusted = 5 // somebody has to confirm a key first
	ExitRefused    = 6 // the other cluster, or an earlier decision, says no
	ExitTimeout    = 7 // it goes on, but nobody waits for it any longer
	ExitWarnings   = 8 // doctor found nothing worse than warnings
	// ExitInterrupted is for SIGINT while waiting, as shells do it.
	ExitInterrupted = 130
)

// Options is the world as the command line sees it.
type Options struct {
	Version string
	Commit  string
	Stdin   io.Reader // nil = nothing can be read
	Stdout  io.Writer
	Stderr  io.Writer
	Environ []string // "NAME=value", as os.Environ returns it
	Color   bool     // whether Stdout takes colour
	// Interactive: somebody at a terminal reads Stderr and answers on Stdin.
	Interactive bool
	Now         func() time.Time
}

// App is the command line of one process.
type App struct {
	opts Options
	root *urfave.App
	// leaves describes the commands that do something, for completion and for
	// checking arguments.
	leaves map[*urfave.Command]leaf
	// defaults are the commands that a group of commands stands for when none of
	// its own is named.
	defaults map[*urfave.Command]string
	pace     pace
	services func() (services, error) // of this machine
	starts   func() string            // the command that starts the agent on it

	examiner examiner // looks at this machine for the doctor
}

// New builds the command tree.
func New(opts Options) *App {
	a := &App{opts: opts, leaves: make(map[*urfave.Command]leaf), defaults: make(map[*urfave.Command]string), pace: usualPace, services: systemd, starts: service.StartCommand, examiner: thisBox{}}
	a.root = &urfave.App{
		Name:  Name,
		Usage: "find the clusters around this one, and let them find it",
		Description: "Runs beside K3s on an edge device, finds other clusters on the same network, and\n" +
			"makes them known to the local API server as ForeignClusters.\n\n" +
			"Example:\n\n   sudo liqo-agent run\n   liqo-agent peers list",
		Version:                   opts.Version,
		Commands:                  a.tree(),
		UsageText:                 Name + " COMMAND",
		Flags:                     []urfave.Flag{urfave.HelpFlag},
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Writer:                    opts.Stdout,
		ErrWriter:                 opts.Stderr,
		ExitErrHandler:            func(*urfave.Context, error) {},
		Action:                    a.group,
	}
	a.setUsage(Name, a.root.Commands)
	return a
}

// Run runs the command that args (with the program's name first) ask for. What
// it returns is for Report.
func (a *App) Run(ctx context.Context, args []string) error {
	if len(args) > 1 && args[1] == completeCommand {
		return a.complete(ctx, args[2:])
	}
	arranged, err := a.arrange(a.complement(a.hoist(args)))
	if err != nil {
		return err
	}
	return a.startable(a.root.RunContext(ctx, arranged))
}

// startable is err with the advice that fits this machine, if the agent has to be
// started.
func (a *App) startable(err error) error {
	var e *control.Error
	if errors.As(err, &e) && e.Advice == control.RunAgent {
		return &advised{err, a.starts()}
	}
	return err
}

// advised is an error with other advice.
type advised struct {
	error
	try string
}

// Unwrap returns the error.
func (e *advised) Unwrap() error { return e.error }

// Try returns what to do about it.
func (e *advised) Try() string { return e.try }

// group is what a command does that only has commands: it shows its help, or
// says that there is no such command.
func (a *App) group(c *urfave.Context) error {
	if !c.Args().Present() {
		return urfave.ShowSubcommandHelp(c)
	}
	return unknownCommand(pathOf(c), c.Args().First(), c.Command.Subcommands)
}

// pathOf returns the names of the command being run, without the program's.
func pathOf(c *urfave.Context) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.Command.HelpName, Name), " ")
}

// setUsage writes the usage line of every command below path.
func (a *App) setUsage(path string, commands []*urfave.Command) {
	for _, c := range commands {
		full := path + " " + c.Name
		c.UsageText = strings.TrimSpace(full+" "+a.leaves[c].args) + " [options]"
		if len(c.Subcommands) > 0 {
			c.UsageText = full + " COMMAND"
			a.setUsage(full, c.Subcommands)
		}
	}
}

// usageError is a command line that cannot be run as it is.
type usageError struct {
	message string
	try     string
}

func (e *usageError) Error() string { return e.message }

// Try returns the command that leads further.
func (e *usageError) Try() string { return e.try }

// outcome is an error with an exit code of its own.
type outcome struct {
	message string
	try     string
	code    int
}

func (e *outcome) Error() string { return e.message }

// Try returns what leads further.
func (e *outcome) Try() string { return e.try }

// ExitCode returns the exit code.
func (e *outcome) ExitCode() int { return e.code }

// Report writes an error, and what to do about it where that is known, and
// returns the exit code for it.
func Report(w io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	// There is nowhere left to report to when this fails.
	_, _ = fmt.Fprintf(w, "%s: %s\n", Name, cleanLines(err.Error()))
	var advised interface{ Try() string }
	if errors.As(err, &advised) && advised.Try() != "" {
		_, _ = fmt.Fprintf(w, "try: %s\n", cleanLines(advised.Try()))
	}
	var usage *usageError
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &usage), errors.Is(err, control.ErrInvalid):
		return ExitUsage
	case errors.Is(err, control.ErrNotRunning):
		return ExitNotRunning
	case errors.Is(err, control.ErrNotFound), errors.Is(err, control.ErrAmbiguous):
		return ExitNotFound
	case errors.Is(err, control.ErrNotTrusted):
		return ExitNotTrusted
	case errors.Is(err, control.ErrRefused):
		return ExitRefused
	}
	return ExitError
}

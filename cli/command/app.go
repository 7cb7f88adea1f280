package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/service"
)

// Name is what the program is called.
const Name = "liqo-agent"

// Options is the world as the command line sees it.
type Options struct {
	Version string
	Commit  string
	Stdin   io.Reader // nil = nothing can be read
	Stdout  io.Writer
	Stderr  io.Writer
	Environ []string // "NAME=value", as os.Environ returns it
	Color   bool     // whether Stdout takes colour
	Screen  bool     // whether Stdout is a terminal
	// Interactive: somebody at a terminal reads Stderr and answers on Stdin.
	Interactive bool
	Now         func() time.Time
	Pace        Pace
	// StartCommand returns the command that starts the agent on this machine; nil
	// is service.StartCommand.
	StartCommand func() string
}

// Variable returns the value of an environment variable, "" for none.
func (o Options) Variable(name string) string {
	for _, pair := range o.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// App is a program: a tree of commands.
type App struct {
	opts Options
	root Command // the program itself: a group without a name
}

// New builds the program that has these commands.
func New(opts Options, usage, about string, commands ...Command) *App {
	opts.Pace = opts.Pace.orUsual()
	if opts.StartCommand == nil {
		opts.StartCommand = service.StartCommand
	}
	return &App{opts: opts, root: Command{Usage: usage, About: about, Commands: commands}}
}

// Run runs the command that args (with the program's name first) ask for. What
// it returns is for Report.
func (a *App) Run(ctx context.Context, args []string) error {
	if len(args) > 1 && args[1] == CompleteCommand {
		return a.complete(ctx, args[2:])
	}
	arranged, err := a.Arrange(args)
	if err != nil {
		return err
	}
	return a.startable(a.dispatch(ctx, arranged[1:]))
}

// startable is err with the advice that fits this machine, if the agent has to be
// started.
func (a *App) startable(err error) error {
	var e *control.Error
	if errors.As(err, &e) && e.Advice == control.RunAgent {
		return &Error{Message: err.Error(), Advice: a.opts.StartCommand(), Cause: err}
	}
	return err
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/render"
)

// Call is one invocation of a command.
type Call struct {
	*urfave.Context // its options
	Options         Options
	Args            []string
	Format          string // of the output
	Out             *render.Printer
	path            string   // see Path
	said            []string // the options, as they were typed
}

// Ctx ends when the command is to end.
func (c *Call) Ctx() context.Context { return c.Context.Context }

// Path returns the names of the command, without the program's.
func (c *Call) Path() string { return c.path }

// Name returns the command as it is typed, without its arguments.
func (c *Call) Name() string { return Name + " " + c.path }

// Line returns the command as it is typed, with its options and arguments, and with more options.
func (c *Call) Line(more ...string) string {
	words := []string{c.Name()}
	for _, option := range c.said {
		words = append(words, render.Word(option))
	}
	args := make([]string, 0, len(c.Args))
	for _, arg := range c.Args {
		args = append(args, render.Word(arg))
	}
	if slices.ContainsFunc(c.Args, isOption) {
		return strings.Join(slices.Concat(words, more, []string{"--"}, args), " ")
	}
	return strings.Join(slices.Concat(words, args, more), " ")
}

// List returns the values of a ListFlag.
func (c *Call) List(name string) []string { return *c.Generic(name).(*list) }

// Note tells the user something that is not the command's output.
func (c *Call) Note(format string, args ...any) {
	// A note that cannot be written must not fail the command.
	_, _ = fmt.Fprintf(c.Options.Stderr, "%s: %s\n", Name, render.CleanLines(fmt.Sprintf(format, args...)))
}

// The options that say where the agent is.
const (
	ConfigFlag   = "config"
	SocketFlag   = "socket"
	StateDirFlag = "state-dir"
)

// AgentFlags returns the options of every command that asks the agent.
func AgentFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: ConfigFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` of the agent; names its socket and database"},
		&urfave.StringFlag{Name: SocketFlag, Usage: "`PATH` of the agent's control socket"},
		&urfave.StringFlag{Name: StateDirFlag, Usage: "`DIR` of the agent's database"},
	}
}

// Places is where a running agent is found, and what it leaves behind.
type Places struct {
	Socket   string
	StateDir string
}

// Load reads a configuration file, or when path is "" the one in the usual place.
func (o Options) Load(path string) (*config.Loaded, error) {
	return config.Load(config.Options{Path: path, PathExplicit: path != "", Env: o.Environ})
}

// Places finds the agent as its configuration file at path says. A file that cannot
// be used does not keep anybody from looking: the defaults come with the error.
func (o Options) Places(path string) (Places, error) {
	loaded, err := o.Load(path)
	if err != nil {
		def := config.Default()
		return Places{def.State.Socket, def.State.Dir}, err
	}
	return Places{loaded.Config.State.Socket, loaded.Config.State.Dir}, nil
}

// Places is Options.Places with the options of this call on top.
func (c *Call) Places() Places {
	path := c.String(ConfigFlag)
	at, err := c.Options.Places(path)
	socket, dir := c.String(SocketFlag), c.String(StateDirFlag)
	// A file that this user may not read is nothing to talk about, and
	// neither is one that does not matter because the options say it all.
	if err != nil && socket == "" && (path != "" || !errors.Is(err, fs.ErrPermission)) {
		c.Note("%v; trying %s", err, at.Socket)
	}
	if socket != "" {
		at.Socket = socket
	}
	if dir != "" {
		at.StateDir = dir
	}
	return at
}

// Load reads the configuration file that this call names, or the usual one.
func (c *Call) Load() (*config.Loaded, error) { return c.Options.Load(c.String(ConfigFlag)) }

// Client returns a client of the running agent.
func (c *Call) Client() *client.Client { return client.New(c.Places().Socket) }

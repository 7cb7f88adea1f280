package cli

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/service/journal"
	"liqo.io/agent/service/notify"
)

func (a *App) runCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "run",
		usage: "run the agent",
		about: "Run the agent until it is interrupted: find other clusters, be found by them, and keep the\n" +
			"local API server's ForeignClusters up to date. Works without a configuration file and without\n" +
			"an API server. SIGHUP reads the configuration again, as liqo-agent config reload does; a second SIGINT or SIGTERM exits at once.\n" +
			"Every key can also be set by an environment variable, such as LIQO_AGENT_LOG_LEVEL.",
		examples: []string{"sudo liqo-agent run", "sudo liqo-agent run --config ./liqo-agent.toml --log-level debug",
			"sudo liqo-agent run --set discovery.interfaces=eth0 --set endpoint.listen=:7000"},
		flags:  settingFlags(),
		values: settingValues,
		run:    runAgent,
	})
}

func runAgent(c *call) error {
	loaded, err := c.load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	parsed, err := control.ParseLevel(loaded.Config.Log.Level)
	if err != nil {
		return err
	}
	level.Set(parsed)
	stderr, ok := c.app.opts.Stderr.(*os.File)
	toJournal := ok && journal.Connected(c.app.opts.Environ, stderr)
	logger := slog.New(logHandler(c.app.opts.Stderr, toJournal, loaded.Config.Log.Format, level))
	daemon, err := agent.New(agent.Options{Load: c.load, Version: c.app.opts.Version, Logger: logger, Level: level, Notify: notify.New(logger)})
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ctx := c.Context.Context
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-hangup:
			daemon.Reload()
		}
	}
}

// logHandler writes the log as the format says. In the journal each record has its
// level as sd-daemon(3) has it, and "auto" is text without time and level, of which
// the journal has its own.
func logHandler(w io.Writer, toJournal bool, format string, level slog.Leveler) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if toJournal && format == "auto" {
		opts.ReplaceAttr = withoutTimeAndLevel
	}
	formatter := func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, opts) }
	if format == "json" {
		formatter = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, opts) }
	}
	if !toJournal {
		return formatter(w)
	}
	return journal.NewHandler(w, formatter)
}

// withoutTimeAndLevel drops a record's own time and level, and no attribute that
// happens to be called so.
func withoutTimeAndLevel(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	if attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	if _, ok := attr.Value.Any().(slog.Level); ok && attr.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return attr
}

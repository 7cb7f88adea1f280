package cli

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"liqo.io/agent/agent"
	settings "liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/config"
	"liqo.io/agent/service/journal"
	"liqo.io/agent/service/notify"
)

func runCommand() command.Command {
	return command.Command{
		Name:  "run",
		Usage: "run the agent",
		About: "Run the agent in the foreground. It finds other clusters, answers when they look for it, and\n" +
			"keeps the ForeignClusters in the local API server up to date. It needs neither a configuration\n" +
			"file nor an API server.\n" +
			"SIGHUP reloads the configuration, like liqo-agent config reload. SIGINT or SIGTERM stops the\n" +
			"agent; a second one exits at once.\n" +
			"Each key of the configuration has an environment variable, such as LIQO_AGENT_LOG_LEVEL.",
		Examples: []string{"sudo liqo-agent run", "sudo liqo-agent run --config ./liqo-agent.toml --log-level debug",
			"sudo liqo-agent run --set discovery.interfaces=eth0 --set endpoint.listen=:7000"},
		Flags:  config.SettingFlags(),
		Values: config.SettingValues(),
		Run:    runAgent,
	}
}

func runAgent(c *command.Call) error {
	loaded, err := config.Load(c)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	parsed, err := control.ParseLevel(loaded.Config.Log.Level)
	if err != nil {
		return err
	}
	level.Set(parsed)
	stderr, ok := c.Options.Stderr.(*os.File)
	toJournal := ok && journal.Connected(c.Options.Environ, stderr)
	logger := slog.New(logHandler(c.Options.Stderr, toJournal, loaded.Config.Log.Format, level))
	daemon, err := agent.New(agent.Options{Load: func() (*settings.Loaded, error) { return config.Load(c) }, Version: c.Options.Version, Logger: logger, Level: level, Notify: notify.New(logger)})
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ctx := c.Ctx()
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

package cli

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent"
	"liqo.io/agent/agent/control"
)

func (a *App) runCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "run",
		usage: "run the agent",
		about: "Run the agent until it is interrupted: find other clusters, be found by them, and keep the\n" +
			"local API server's ForeignClusters up to date. Works without a configuration file and without\n" +
			"an API server. SIGHUP reads the configuration again; a second SIGINT or SIGTERM exits at once.\n" +
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
	logger := slog.New(logHandler(c.app.opts.Stderr, c.app.opts.Environ, loaded.Config.Log.Format, level))
	daemon, err := agent.New(agent.Options{Load: c.load, Version: c.app.opts.Version, Logger: logger, Level: level})
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

// logHandler writes the log as the format says. "auto" is text, without the
// time under systemd, whose journal has its own.
func logHandler(w io.Writer, environ []string, format string, level slog.Leveler) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.NewJSONHandler(w, opts)
	}
	if format == "auto" && hasVariable(environ, "JOURNAL_STREAM") {
		opts.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime {
				return slog.Attr{}
			}
			return attr
		}
	}
	return slog.NewTextHandler(w, opts)
}

func hasVariable(environ []string, name string) bool {
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok && value != "" {
			return true
		}
	}
	return false
}

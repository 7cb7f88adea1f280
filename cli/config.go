package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
)

const setFlag = "set"

// runFlags are the options that stand for keys of the configuration.
var runFlags = []struct{ name, key, usage string }{
	{"kubeconfig", "cluster.kubeconfig", "`FILE` to reach the local API server with; \"none\" works without one"},
	{"name", "cluster.name", "`NAME` of this cluster as others see it"},
	{stateDirFlag, "state.dir", "`DIR` for the database and the cluster's key"},
	{socketFlag, "state.socket", "`PATH` of the socket that this command line talks to"},
	{"listen", "endpoint.listen", "`ADDRESS` that peers connect to, such as :6447"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "auto, text or json"},
}

// settingFlags are the options of commands that read the whole configuration.
func settingFlags() []urfave.Flag {
	flags := []urfave.Flag{
		&urfave.StringFlag{Name: configFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` (default: " + config.DefaultPath + ", which may be missing)"},
		&urfave.StringSliceFlag{Name: setFlag, Usage: "`KEY=VALUE` sets any key, such as discovery.interfaces=eth*; can be repeated"},
	}
	for _, f := range runFlags {
		flags = append(flags, &urfave.StringFlag{Name: f.name, Usage: f.usage + " (" + f.key + ")"})
	}
	return flags
}

// settingValues completes settingFlags.
var settingValues = map[string]func(context.Context) []candidate{
	configFlag: files, "kubeconfig": files, stateDirFlag: files, socketFlag: files,
	"log-level":  func(context.Context) []candidate { return fixed("debug", "info", "warn", "error") },
	"log-format": func(context.Context) []candidate { return fixed("auto", "text", "json") },
	setFlag:      func(context.Context) []candidate { return settingKeys() },
}

func settingKeys() []candidate {
	keys := config.Keys()
	out := make([]candidate, 0, len(keys))
	for _, key := range keys {
		out = append(out, candidate{value: key + "="})
	}
	return out
}

// load reads the configuration as this call's options say. It may be called
// again, to read a file that has changed.
func (c *call) load() (*config.Loaded, error) {
	flags := make(map[string]string)
	for _, f := range runFlags {
		if c.IsSet(f.name) {
			flags[f.key] = c.String(f.name)
		}
	}
	path := c.String(configFlag)
	return config.Load(config.Options{Path: path, PathExplicit: path != "", Set: c.StringSlice(setFlag), Env: c.app.opts.Environ, Flags: flags})
}

func (a *App) configCommand() *urfave.Command {
	check := a.leaf(leaf{
		name:  "check",
		usage: "check the configuration, and list every fault",
		args:  "[FILE]",
		about: "Read the configuration as liqo-agent run would with the same options, and list every\n" +
			"fault in it. Nothing is changed.",
		examples: []string{"liqo-agent config check", "liqo-agent config check ./liqo-agent.toml", "liqo-agent config check --set discovery.check_interval=10s"},
		max:      1,
		flags:    settingFlags(),
		values:   settingValues,
		words:    func(context.Context, typed) []candidate { return fixed(completeFiles) },
		run:      checkConfig,
	})
	show := a.leaf(leaf{
		name:  "show",
		usage: "show the configuration, and where each value comes from",
		about: "Show every value that liqo-agent run would use with the same options, and where it comes\n" +
			"from: also what the ClusterConfig of the cluster sets, if an agent runs that can tell. With\n" +
			"--running, show what the running agent uses.",
		examples: []string{"liqo-agent config show", "liqo-agent config show --running", "liqo-agent config show -o json | jq .sources"},
		flags: append(settingFlags(),
			&urfave.BoolFlag{Name: "running", Usage: "ask the running agent"}),
		formats: []string{formatTOML, formatJSON, formatYAML},
		values:  settingValues,
		run:     showConfig,
	})
	reload := a.leaf(leaf{
		name:  "reload",
		usage: "have the running agent read its configuration again",
		about: "Have the running agent read its configuration file again, and wait until the new settings are in\n" +
			"effect. Says which settings changed, and which wait for a restart of the agent. When the file is bad\n" +
			"every fault is listed, the old settings stay, and the exit code is 1. systemctl reload liqo-agent does this.",
		examples: []string{"sudo liqo-agent config reload", "liqo-agent config check && liqo-agent config reload"},
		flags:    placeFlags(),
		values:   placeValues,
		formats:  []string{formatText, formatJSON, formatYAML},
		run:      reloadConfig,
	})
	return a.branch("config", "check, show or reload the configuration", "Check or show the configuration, or have the running agent read it again.",
		[]string{"liqo-agent config check", "liqo-agent config show"}, check, show, reload)
}

func reloadConfig(c *call) error {
	socket := c.String(socketFlag)
	if socket == "" {
		// What is wrong with the file, the agent tells; the usual socket is tried then.
		at, _ := c.app.places(c.String(configFlag))
		socket = at.socket
	}
	client := control.NewClient(socket)
	defer client.Close()
	done, err := client.Reload(c.Context.Context)
	var bad *control.Error
	if errors.As(err, &bad) && errors.Is(err, control.ErrInvalid) {
		// The command line was fine; it is the file that is not.
		return &outcome{message: bad.Message, try: bad.Advice, code: ExitError}
	}
	if err != nil {
		return err
	}
	if c.out.value(done) {
		return nil
	}
	now := without(done.Changed, done.Restart)
	switch {
	case len(now) > 0:
		c.out.printf("Changed, and in effect: %s\n", clean(strings.Join(now, ", ")))
	case len(done.Restart) == 0:
		c.out.printf("No setting has changed.\n")
	}
	if len(done.Restart) > 0 {
		c.out.printf("Waits for a restart of the agent: %s\n", clean(strings.Join(done.Restart, ", ")))
	}
	return nil
}

// without returns those that are not among others.
func without(all, others []string) []string {
	out := make([]string, 0, len(all))
	for _, one := range all {
		if !slices.Contains(others, one) {
			out = append(out, one)
		}
	}
	return out
}

func checkConfig(c *call) error {
	if len(c.args) == 1 {
		if c.IsSet(configFlag) {
			return &usageError{message: "the configuration file is named twice", try: c.Command.HelpName + " " + c.args[0]}
		}
		if err := c.Set(configFlag, c.args[0]); err != nil {
			return err
		}
	}
	loaded, err := c.load()
	if err != nil {
		return err
	}
	if loaded.Path == "" {
		c.out.printf("No configuration file; the defaults are fine.\n")
		return nil
	}
	c.out.printf("%s is fine.\n", clean(loaded.Path))
	return nil
}

// shownConfig is the JSON of config show.
type shownConfig struct {
	Path    string            `json:"path"`
	Values  map[string]any    `json:"values"`
	Sources map[string]string `json:"sources"`
}

func showConfig(c *call) error {
	shown, text, err := c.effective()
	if err != nil {
		return err
	}
	if c.format == formatTOML {
		c.out.printf("%s", cleanLines(text))
		return nil
	}
	if _, err := toml.Decode(text, &shown.Values); err != nil {
		return fmt.Errorf("reading the configuration back: %w", err)
	}
	c.out.value(shown)
	return nil
}

// effective returns the configuration in use, or the one that would be, with
// its text.
func (c *call) effective() (shownConfig, string, error) {
	if c.Bool("running") {
		client := c.client()
		defer client.Close()
		running, err := client.Config(c.Context.Context)
		return shownConfig{Path: running.Path, Sources: running.Sources}, withSources(running), err
	}
	loaded, err := c.load()
	if err != nil {
		return shownConfig{}, "", err
	}
	loaded = c.withRuntime(loaded)
	var text bytes.Buffer
	err = loaded.WriteTOML(&text, true)
	return shownConfig{Path: loaded.Path, Sources: loaded.Sources}, text.String(), err
}

// runtimeSource begins the source of what can be changed while the agent runs.
const runtimeSource = "ClusterConfig "

// withRuntime returns the configuration with what the agent that runs at its
// socket knows from the ClusterConfig, which goes before everything else.
func (c *call) withRuntime(loaded *config.Loaded) *config.Loaded {
	client := control.NewClient(loaded.Config.State.Socket)
	defer client.Close()
	running, err := client.Config(c.Context.Context)
	if errors.Is(err, control.ErrNotRunning) {
		return loaded
	}
	var tables map[string]any
	if err == nil {
		_, err = toml.Decode(running.TOML, &tables)
	}
	if err != nil {
		c.note("what a ClusterConfig sets is not shown: %v", err)
		return loaded
	}
	values := make(map[string]any)
	source := ""
	for key, from := range running.Sources {
		section, name, _ := strings.Cut(key, ".")
		if table, ok := tables[section].(map[string]any); ok && strings.HasPrefix(from, runtimeSource) {
			values[key], source = table[name], from
		}
	}
	merged, faults := loaded.Override(source, values)
	if len(faults) > 0 {
		c.note("not all that the ClusterConfig sets is shown: %v", faults)
	}
	return merged
}

// withSources writes behind each line of the running agent's configuration where
// it comes from.
func withSources(running control.Config) string {
	var out strings.Builder
	section, counts := "", make(map[string]int)
	for line := range strings.Lines(running.TOML) {
		line = strings.TrimSuffix(line, "\n")
		key := ""
		switch {
		case strings.HasPrefix(line, "[["):
			name := strings.Trim(line, "[]")
			key = fmt.Sprintf("%s[%d]", name, counts[name])
			section = key
			counts[name]++
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			name, _, _ := strings.Cut(line, " = ")
			key = section + "." + name
		}
		out.WriteString(line)
		if source := running.Sources[key]; source != "" {
			out.WriteString("  # " + clean(source))
		}
		out.WriteString("\n")
	}
	return out.String()
}

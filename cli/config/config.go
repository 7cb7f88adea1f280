package config

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
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

const setFlag = "set"

// settings are the options that stand for keys of the configuration.
var settings = []struct{ name, key, usage string }{
	{"kubeconfig", "cluster.kubeconfig", "kubeconfig `FILE` for the local API server; \"none\" runs without one"},
	{"name", "cluster.name", "`NAME` of this cluster that others see"},
	{command.StateDirFlag, "state.dir", "`DIR` of the database and the cluster key"},
	{command.SocketFlag, "state.socket", "`PATH` of the control socket"},
	{"listen", "endpoint.listen", "`ADDRESS` where peers connect, such as :6447"},
	{"log-level", "log.level", "log level: debug, info, warn or error"},
	{"log-format", "log.format", "log format: auto, text or json"},
}

// SettingFlags are the options of commands that read the whole configuration.
func SettingFlags() []urfave.Flag {
	flags := []urfave.Flag{
		&urfave.StringFlag{Name: command.ConfigFlag, Aliases: []string{"c"}, Usage: "configuration `FILE` (default: " + config.DefaultPath + ", if it exists)"},
		command.ListFlag(setFlag, "set a configuration key: `KEY=VALUE`, such as discovery.interfaces=eth*; can be repeated"),
	}
	for _, f := range settings {
		flags = append(flags, &urfave.StringFlag{Name: f.name, Usage: f.usage + " (" + f.key + ")"})
	}
	return flags
}

// SettingValues completes SettingFlags.
func SettingValues() map[string]func(context.Context) []command.Candidate {
	return map[string]func(context.Context) []command.Candidate{
		command.ConfigFlag: command.Files, "kubeconfig": command.Files, command.StateDirFlag: command.Files, command.SocketFlag: command.Files,
		"log-level":  func(context.Context) []command.Candidate { return command.Fixed("debug", "info", "warn", "error") },
		"log-format": func(context.Context) []command.Candidate { return command.Fixed("auto", "text", "json") },
		setFlag:      func(context.Context) []command.Candidate { return settingKeys() },
	}
}

func settingKeys() []command.Candidate {
	keys := config.Keys()
	out := make([]command.Candidate, 0, len(keys))
	for _, key := range keys {
		out = append(out, command.Candidate{Value: key + "="})
	}
	return out
}

// Load reads the configuration as this call's options say. It may be called
// again, to read a file that has changed.
func Load(c *command.Call) (*config.Loaded, error) {
	flags := make(map[string]string)
	for _, f := range settings {
		if c.IsSet(f.name) {
			flags[f.key] = c.String(f.name)
		}
	}
	path := c.String(command.ConfigFlag)
	return config.Load(config.Options{Path: path, PathExplicit: path != "", Set: c.List(setFlag), Env: c.Options.Environ, Flags: flags})
}

// KeyOf returns the key of the configuration that an option stands for, by its name
// and its usage; "" for none.
func KeyOf(name, usage string) string {
	for _, one := range settings {
		if one.name == name && (name == command.SocketFlag || name == command.StateDirFlag || strings.HasSuffix(usage, "("+one.key+")")) {
			return one.key
		}
	}
	return ""
}

// Command returns the commands about the configuration.
func Command() command.Command {
	check := command.Command{
		Name:  "check",
		Usage: "check the configuration",
		Args:  "[FILE]",
		About: "Check the configuration that liqo-agent run would use with the same options, and list every\n" +
			"error. Nothing is changed.",
		Examples: []string{"liqo-agent config check", "liqo-agent config check ./liqo-agent.toml", "liqo-agent config check --set discovery.check_interval=10s"},
		Max:      1,
		Flags:    SettingFlags(),
		Values:   SettingValues(),
		Words:    func(context.Context, command.Typed) []command.Candidate { return command.Fixed(command.CompleteFiles) },
		Run:      checkConfig,
	}
	show := command.Command{
		Name:  "show",
		Usage: "show the configuration and the source of each value",
		About: "Show every value that liqo-agent run would use with the same options, and where it comes from.\n" +
			"If an agent runs, the values of the ClusterConfig are included. With --running, show what the\n" +
			"running agent uses.",
		Examples: []string{"liqo-agent config show", "liqo-agent config show --running", "liqo-agent config show -o json | jq .sources"},
		Flags: append(SettingFlags(),
			&urfave.BoolFlag{Name: "running", Usage: "show the configuration of the running agent"}),
		Formats: []string{render.TOML, render.JSON, render.YAML},
		Values:  SettingValues(),
		Run:     showConfig,
	}
	reload := command.Command{
		Name:  "reload",
		Usage: "reload the configuration of the running agent",
		About: "Reload the configuration of the running agent, and wait until it is in effect. Prints the\n" +
			"settings that changed, and those that need a restart. If the file has errors, they are listed,\n" +
			"the old settings stay in use, and the exit code is 1. systemctl reload liqo-agent does the same.",
		Examples: []string{"sudo liqo-agent config reload", "liqo-agent config check && liqo-agent config reload"},
		Agent:    true,
		Formats:  []string{render.Text, render.JSON, render.YAML},
		Run:      reloadConfig,
	}
	return command.Command{
		Name:     "config",
		Usage:    "check, show or reload the configuration",
		About:    "Check or show the configuration, or reload it in the running agent.",
		Examples: []string{"liqo-agent config check", "liqo-agent config show"},
		Commands: []command.Command{
			check,
			show,
			reload,
		},
	}
}

func reloadConfig(c *command.Call) error {
	socket := c.String(command.SocketFlag)
	if socket == "" {
		// What is wrong with the file, the agent tells; the usual socket is tried then.
		at, _ := c.Options.Places(c.String(command.ConfigFlag))
		socket = at.Socket
	}
	client := client.New(socket)
	defer client.Close()
	done, err := client.Reload(c.Ctx())
	var bad *control.Error
	if errors.As(err, &bad) && errors.Is(err, control.ErrInvalid) {
		// The command line was fine; it is the file that is not.
		return &command.Error{Message: bad.Message, Advice: bad.Advice, Code: command.ExitError}
	}
	if err != nil {
		return c.Interrupted(err)
	}
	if c.Out.Value(done) {
		return nil
	}
	now := without(done.Changed, done.Restart)
	switch {
	case len(now) > 0:
		c.Out.Printf("Changed, and in effect: %s\n", render.Clean(strings.Join(now, ", ")))
	case len(done.Restart) == 0:
		c.Out.Printf("No changes.\n")
	}
	if len(done.Restart) > 0 {
		c.Out.Printf("Needs a restart of the agent: %s\n", render.Clean(strings.Join(done.Restart, ", ")))
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

func checkConfig(c *command.Call) error {
	if len(c.Args) == 1 {
		if c.IsSet(command.ConfigFlag) {
			return command.UsageError("two configuration files are given", c.Name()+" "+c.Args[0])
		}
		if err := c.Set(command.ConfigFlag, c.Args[0]); err != nil {
			return err
		}
	}
	loaded, err := Load(c)
	if err != nil {
		return err
	}
	if loaded.Path == "" {
		c.Out.Printf("No configuration file; the defaults are used.\n")
		return nil
	}
	c.Out.Printf("%s is valid.\n", render.Clean(loaded.Path))
	return nil
}

// shownConfig is the JSON of config show.
type shownConfig struct {
	Path    string            `json:"path"`
	Values  map[string]any    `json:"values"`
	Sources map[string]string `json:"sources"`
}

func showConfig(c *command.Call) error {
	shown, text, err := effective(c)
	if err != nil {
		return err
	}
	if c.Format == render.TOML {
		c.Out.Printf("%s", render.CleanLines(text))
		return nil
	}
	if _, err := toml.Decode(text, &shown.Values); err != nil {
		return fmt.Errorf("reading the configuration back: %w", err)
	}
	c.Out.Value(shown)
	return nil
}

// effective returns the configuration in use, or the one that would be, with
// its text.
func effective(c *command.Call) (shownConfig, string, error) {
	if c.Bool("running") {
		client := c.Client()
		defer client.Close()
		running, err := client.Config(c.Ctx())
		return shownConfig{Path: running.Path, Sources: running.Sources}, withSources(running), err
	}
	loaded, err := Load(c)
	if err != nil {
		return shownConfig{}, "", err
	}
	loaded = withRuntime(c, loaded)
	var text bytes.Buffer
	err = loaded.WriteTOML(&text, true)
	return shownConfig{Path: loaded.Path, Sources: loaded.Sources}, text.String(), err
}

// runtimeSource begins the source of what can be changed while the agent runs.
const runtimeSource = "ClusterConfig "

// withRuntime returns the configuration with what the agent that runs at its
// socket knows from the ClusterConfig, which goes before everything else.
func withRuntime(c *command.Call, loaded *config.Loaded) *config.Loaded {
	client := client.New(loaded.Config.State.Socket)
	defer client.Close()
	running, err := client.Config(c.Ctx())
	if errors.Is(err, control.ErrNotRunning) {
		return loaded
	}
	var tables map[string]any
	if err == nil {
		_, err = toml.Decode(running.TOML, &tables)
	}
	if err != nil {
		c.Note("the values of the ClusterConfig are not shown: %v", err)
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
		c.Note("some values of the ClusterConfig are not shown: %v", faults)
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
			out.WriteString("  # " + render.Clean(source))
		}
		out.WriteString("\n")
	}
	return out.String()
}

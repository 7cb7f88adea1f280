package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// EnvPrefix begins the name of every environment variable: section.key is
// LIQO_AGENT_SECTION_KEY.
const EnvPrefix = "LIQO_AGENT_"

// Options say where to look. Later ones win over earlier ones: the file, Env,
// Set, Flags.
type Options struct {
	Path         string            // the file; "" is DefaultPath
	PathExplicit bool              // the user named Path, so it has to exist
	Env          []string          // "NAME=value", such as os.Environ returns; others' variables are ignored
	Set          []string          // "section.key=value"; a list is separated by commas
	Flags        map[string]string // values of options that stand for a key
}

// Loaded is a valid configuration and its origin.
type Loaded struct {
	Config Config
	// Sources says for every key where its value comes from: SourceDefault, "file
	// PATH line N", "environment NAME", "--set" or "flag". The arrays of tables
	// have one entry each, such as "peer[0]".
	Sources map[string]string
	Path    string // the file that was read, or "" when there was none
}

// SourceDefault is the source of values that nobody set.
const SourceDefault = "default"

// Load reads the configuration. The error is of type Faults and lists
// everything that is wrong; there is no partial result. It may be called again
// at any time, to reload.
func Load(opts Options) (*Loaded, error) {
	l := loader{Loaded: Loaded{Config: Default(), Sources: make(map[string]string, len(settings))}}
	for _, s := range settings {
		l.Sources[s.key] = SourceDefault
	}
	l.file(opts)
	l.environment(opts.Env)
	for _, one := range opts.Set {
		key, text, ok := strings.Cut(one, "=")
		if !ok {
			l.fault("--set", "", fmt.Errorf("%s is not of the form section.key=value", shown(one)))
			continue
		}
		l.text("--set", strings.TrimSpace(key), text)
	}
	for _, s := range settings { // in this order, for the same list of faults every time
		if text, ok := opts.Flags[s.key]; ok {
			l.text("flag", s.key, text)
		}
	}
	for key := range opts.Flags {
		if _, ok := find(settings, key); !ok {
			return nil, fmt.Errorf("config: a flag stands for the key %q, which does not exist", key)
		}
	}
	l.together()
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	return &l.Loaded, nil
}

// loader is a configuration in the making. A key with a fault keeps the value
// it had.
type loader struct {
	Loaded
	faults Faults
}

func (l *loader) fault(source, key string, err error) {
	l.faults = append(l.faults, Fault{Source: source, Key: key, Err: err})
}

// set stores a value if the rule allows it.
func (l *loader) set(source string, s setting[Config], v any) {
	v = s.rule.normalise(v)
	if err := s.rule.accepts(v); err != nil {
		l.fault(source, s.key, badValue(v, err))
		return
	}
	assign(s.field(&l.Config), v)
	l.Sources[s.key] = source
}

// text stores a value given as text.
func (l *loader) text(source, key, text string) {
	s, ok := find(settings, key)
	if !ok {
		if name, _, _ := strings.Cut(key, "."); slices.Contains(arrays, name) {
			l.fault(source, key, errors.New("can be set in the file only"))
			return
		}
		l.fault(source, key, unknownKey(key, Keys()))
		return
	}
	v, err := fromText(s.field(&l.Config), text)
	if err != nil {
		l.fault(source, key, badValue(text, err))
		return
	}
	l.set(source, s, v)
}

// EnvName returns the environment variable of a key.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environment takes the variables that stand for keys. A misspelt key of a
// section we know is a fault; anything else that begins like ours may well
// belong to others (Kubernetes makes LIQO_AGENT_SERVICE_HOST for a Service
// named liqo-agent).
func (l *loader) environment(env []string) {
	given := map[string]string{}
	var names []string
	for _, one := range env {
		name, text, ok := strings.Cut(one, "=")
		if !ok || !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		if _, double := given[name]; !double {
			names = append(names, name)
		}
		given[name] = text
	}
	known := map[string]string{}
	for _, s := range settings {
		name := EnvName(s.key)
		known[name] = s.key
		if text, ok := given[name]; ok {
			l.text("environment "+name, s.key, text)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if _, ok := known[name]; ok {
			continue
		}
		for _, section := range sections {
			if rest, ok := strings.CutPrefix(name, EnvPrefix+strings.ToUpper(section.name)+"_"); ok {
				key := section.name + "." + strings.ToLower(rest)
				l.fault("environment "+name, key, unknownKey(key, Keys()))
			}
		}
	}
}

// together checks what concerns several keys.
func (l *loader) together() {
	for _, one := range together(l.Config) {
		l.fault(l.Sources[one.key], one.key, one.err)
	}
}

// discord is what is wrong with several keys at once.
type discord struct {
	key  string   // that is named as wrong
	with []string // the others that it depends on
	err  error
}

func together(c Config) []discord {
	d := c.Discovery
	if d.LostAfter < d.CheckInterval {
		return []discord{{"discovery.lost_after", []string{"discovery.check_interval"}, badValue(d.LostAfter,
			fmt.Errorf("must not be shorter than discovery.check_interval, which is %s", formatDuration(d.CheckInterval)))}}
	}
	return nil
}

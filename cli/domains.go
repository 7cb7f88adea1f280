package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/state"
)

const (
	serverFlag      = "server"
	autojoinFlag    = "autojoin"
	noAutojoinFlag  = "no-autojoin"
	minIntervalFlag = "min-interval"
	maxIntervalFlag = "max-interval"

	// lookTimeout is for how long a look at a domain is waited for, if nobody says
	// otherwise: DNS servers that do not answer take their time, several of them.
	lookTimeout = 30 * time.Second
)

func (a *App) domainsCommand() *urfave.Command {
	return a.branch("domains", "look for clusters in DNS domains, beyond the local network",
		"Show, add and remove the DNS domains in which the agent looks for clusters. Domains also come\n"+
			"from [[search_domain]] in the configuration file and from SearchDomain objects.",
		[]string{"liqo-agent domains list", "liqo-agent domains add example.com", "liqo-agent domains show example.com"},
		a.domainsListCommand(), a.domainsShowCommand(), a.domainsAddCommand(), a.domainsRemoveCommand(), a.domainsRefreshCommand())
}

func (a *App) domainsListCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "list",
		usage: "list the search domains, and what was found in them",
		about: "List the DNS domains in which the agent looks for clusters, where each comes from and what\n" +
			"the last look gave. When the agent is not running, they are read from its configuration file\n" +
			"and its database.",
		examples: []string{"liqo-agent domains list", "liqo-agent domains list -o wide",
			"liqo-agent domains list -o json | jq -r '.[].entries[] | select(.reason != \"\") | .name'"},
		flags:   placeFlags(),
		formats: []string{formatTable, formatWide, formatJSON, formatYAML},
		values:  placeValues,
		run: func(c *call) error {
			known, err := c.domains()
			switch {
			case err != nil:
				return err
			case c.out.value(known):
			case len(known) == 0:
				c.out.printf("There are no search domains. Add one: liqo-agent domains add DOMAIN\n")
			default:
				c.out.domains(known, c.format == formatWide)
			}
			return nil
		},
	})
}

func (a *App) domainsShowCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "show",
		usage: "show what a search domain lists, and what was left out and why",
		args:  "DOMAIN",
		about: "Show a search domain: what the last look at it gave, every cluster that it lists, and of what\n" +
			"was left out why, with what to do about it.",
		examples: []string{"liqo-agent domains show example.com", "liqo-agent domains show example.com -o json | jq .entries"},
		min:      1, max: 1,
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.domainNames,
		values:  placeValues,
		run: func(c *call) error {
			known, err := c.domains()
			if err != nil {
				return err
			}
			d, ok := control.FindDomain(known, c.args[0])
			if !ok {
				return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%q is no search domain", c.args[0]), Advice: "liqo-agent domains list"}
			}
			if !c.out.value(d) {
				c.out.domain(d)
			}
			return nil
		},
	})
}

func (a *App) domainsAddCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "add",
		usage: "look for clusters in a DNS domain, now and in future",
		args:  "DOMAIN",
		about: "Look for clusters in a DNS domain, now and in future, and print what is found there. Adding a\n" +
			"domain again changes it: options that are left out are the defaults then, too.",
		examples: []string{"liqo-agent domains add example.com", "liqo-agent domains add example.com --server tls://192.0.2.53 --no-autojoin"},
		min:      1, max: 1,
		flags: append(append(placeFlags(),
			&urfave.StringFlag{Name: serverFlag, Usage: "DNS `SERVER` to ask instead of the system's: HOST[:PORT], or tls://HOST[:PORT]"},
			&urfave.BoolFlag{Name: autojoinFlag, Usage: "join the clusters found there that are trusted, whatever discovery.autojoin says"},
			&urfave.BoolFlag{Name: noAutojoinFlag, Usage: "do not join them by itself, whatever discovery.autojoin says"},
			&urfave.DurationFlag{Name: minIntervalFlag, Usage: "look at most every `DURATION`, however short the TTL is (default: 30s)"},
			&urfave.DurationFlag{Name: maxIntervalFlag, Usage: "look at least every `DURATION`, however long the TTL is (default: 1h)"}),
			waitFlags(lookTimeout)...),
		formats: []string{formatText, formatJSON, formatYAML},
		values:  placeValues,
		run:     addDomain,
	})
}

func addDomain(c *call) error {
	opts, err := c.domainOptions()
	if err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	known, err := client.Domains(c.Context.Context)
	if err != nil {
		return c.interrupted(err)
	}
	before, was := control.FindDomain(known, opts.Name)
	d, err := client.AddDomain(c.Context.Context, opts)
	if err != nil {
		return c.interrupted(err)
	}
	if was && !c.Bool(noWaitFlag) {
		// What did not change is not looked at for that.
		if d, err = client.AskDomain(c.Context.Context, d.Name); err != nil {
			return c.interrupted(err)
		}
	}
	return c.look(client, d, before.LastQuery)
}

// domainOptions reads the command line of add.
func (c *call) domainOptions() (control.DomainOptions, error) {
	opts := control.DomainOptions{Name: c.args[0], Server: c.String(serverFlag)}
	if err := c.checkTimeout(); err != nil {
		return opts, err
	}
	if c.Bool(autojoinFlag) && c.Bool(noAutojoinFlag) {
		return opts, &usageError{message: "--autojoin and --no-autojoin exclude each other", try: helpOf("domains add")}
	}
	if yes := c.Bool(autojoinFlag); yes || c.Bool(noAutojoinFlag) {
		opts.Autojoin = &yes
	}
	for name, to := range map[string]*time.Duration{minIntervalFlag: &opts.MinInterval, maxIntervalFlag: &opts.MaxInterval} {
		if *to = c.Duration(name); *to < 0 || *to%time.Second != 0 {
			return opts, &usageError{message: fmt.Sprintf("--%s %s: want whole seconds, 1s to 24h", name, *to), try: helpOf("domains add")}
		}
	}
	return opts, nil
}

func (a *App) domainsRemoveCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "remove",
		usage: "no longer look for clusters in a DNS domain",
		args:  "DOMAIN",
		about: "No longer look for clusters in a DNS domain that was added with domains add. Clusters that only\n" +
			"this domain lists are forgotten, unless they are joined.",
		examples: []string{"liqo-agent domains remove example.com"},
		min:      1, max: 1,
		flags:  placeFlags(),
		words:  a.domainNames,
		values: placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			if err := client.RemoveDomain(c.Context.Context, c.args[0]); err != nil {
				return c.interrupted(err)
			}
			c.out.printf("Clusters are no longer looked for in %s.\n", clean(c.args[0]))
			return nil
		},
	})
}

func (a *App) domainsRefreshCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "refresh",
		usage:    "look at a search domain now",
		args:     "DOMAIN",
		about:    "Look at a search domain now, rather than when what is known expires, and print what is found.",
		examples: []string{"liqo-agent domains refresh example.com"},
		min:      1, max: 1,
		flags:   append(placeFlags(), waitFlags(lookTimeout)...),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.domainNames,
		values:  placeValues,
		run: func(c *call) error {
			if err := c.checkTimeout(); err != nil {
				return err
			}
			client := c.client()
			defer client.Close()
			known, err := client.Domains(c.Context.Context)
			if err != nil {
				return c.interrupted(err)
			}
			before, _ := control.FindDomain(known, c.args[0])
			d, err := client.AskDomain(c.Context.Context, c.args[0])
			if err != nil {
				return c.interrupted(err)
			}
			return c.look(client, d, before.LastQuery)
		},
	})
}

// domains returns the search domains: those of the running agent, or those it
// would start with, as far as that can be told without it.
func (c *call) domains() ([]control.Domain, error) {
	at := c.places()
	client := control.NewClient(at.socket)
	defer client.Close()
	known, err := client.Domains(c.Context.Context)
	if !errors.Is(err, control.ErrNotRunning) {
		return known, err
	}
	path := filepath.Join(at.stateDir, databaseName)
	store, dbErr := state.OpenReadOnly(c.Context.Context, path)
	var added []state.SearchDomain
	switch {
	case dbErr == nil:
		added, dbErr = store.SearchDomains(c.Context.Context)
		_ = store.Close() // it was only read: nothing can be lost
		if dbErr != nil {
			return nil, unreadable(err, dbErr)
		}
	case !errors.Is(dbErr, state.ErrNoDatabase): // none was ever added
		return nil, unreadable(err, dbErr)
	}
	file := c.String(configFlag)
	loaded, loadErr := config.Load(config.Options{Path: file, PathExplicit: file != "", Env: c.app.opts.Environ})
	if loadErr != nil {
		c.note("the search domains of the configuration file are not shown: %v", loadErr)
		loaded = &config.Loaded{}
	}
	c.note("the agent is not running; these are the search domains of its configuration file and its database (%s), without SearchDomain objects", path)
	return configuredDomains(loaded, added), nil
}

// configuredDomains merges the domains of the file with those that were added,
// which do not count where the file names the same one.
func configuredDomains(loaded *config.Loaded, added []state.SearchDomain) []control.Domain {
	known := make([]control.Domain, 0, len(loaded.Config.SearchDomains)+len(added))
	for i, d := range loaded.Config.SearchDomains {
		known = append(known, control.Domain{Name: d.Domain, Autojoin: &d.Autojoin, Server: d.Server, Source: loaded.Sources[fmt.Sprintf("search_domain[%d]", i)],
			MinIntervalSeconds: int64(d.MinInterval / time.Second), MaxIntervalSeconds: int64(d.MaxInterval / time.Second),
			Ignored: []string{}, Browsed: []string{}, Entries: []control.DomainEntry{}})
	}
	for _, d := range added {
		if i := slices.IndexFunc(known, func(k control.Domain) bool { return k.Name == d.Domain }); i >= 0 {
			known[i].Ignored = append(known[i].Ignored, addedBy(d.By))
			continue
		}
		known = append(known, control.Domain{Name: d.Domain, Autojoin: d.Autojoin, Server: d.Server, Source: addedBy(d.By),
			MinIntervalSeconds: int64(d.MinInterval / time.Second), MaxIntervalSeconds: int64(d.MaxInterval / time.Second),
			Ignored: []string{}, Browsed: []string{}, Entries: []control.DomainEntry{}})
	}
	slices.SortFunc(known, func(a, b control.Domain) int { return strings.Compare(a.Name, b.Name) })
	return known
}

// addedBy is where a domain comes from that somebody added, as the agent says it.
func addedBy(by string) string {
	return "command line (" + strings.TrimSuffix(by, " (command line)") + ")"
}

// domainNames offers the search domains that the running agent knows.
func (a *App) domainNames(ctx context.Context, t typed) []candidate {
	client := a.asked(t)
	if client == nil || t.arguments > 0 {
		return nil
	}
	defer client.Close()
	known, err := client.Domains(ctx)
	if err != nil {
		return nil // there is nothing to offer, and no place for an error
	}
	out := make([]candidate, 0, len(known))
	for _, d := range known {
		out = append(out, candidate{value: d.Name, text: domainResult(d)})
	}
	return out
}

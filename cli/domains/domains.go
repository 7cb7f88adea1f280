package domains

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
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
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

// Command returns the commands about search domains.
func Command() command.Command {
	return command.Command{
		Name:  "domains",
		Usage: "find clusters through DNS domains",
		About: "Show, add and remove the DNS domains in which the agent looks for clusters. Domains also come\n" +
			"from [[search_domain]] in the configuration file and from SearchDomain objects.",
		Examples: []string{"liqo-agent domains list", "liqo-agent domains add example.com", "liqo-agent domains show example.com"},
		Commands: []command.Command{
			listCommand(),
			showCommand(),
			addCommand(),
			removeCommand(),
			refreshCommand(),
		},
	}
}

func listCommand() command.Command {
	return command.Command{
		Name:  "list",
		Usage: "list search domains",
		About: "List the DNS domains in which the agent looks for clusters, with the source of each and the\n" +
			"result of its last query. If the agent is not running, the domains come from its configuration\n" +
			"file and its database.",
		Examples: []string{"liqo-agent domains list", "liqo-agent domains list -o wide",
			"liqo-agent domains list -o json | jq -r '.[].entries[] | select(.reason != \"\") | .name'"},
		Agent:   true,
		Formats: []string{render.Table, render.Wide, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			found, err := known(c)
			switch {
			case err != nil:
				return err
			case c.Out.Value(found):
			case len(found) == 0:
				c.Out.Printf("No search domains. Add one: liqo-agent domains add DOMAIN\n")
			default:
				printDomains(c.Out, found, c.Format == render.Wide)
			}
			return nil
		},
	}
}

func showCommand() command.Command {
	return command.Command{
		Name:  "show",
		Usage: "show a search domain and its clusters",
		Args:  "DOMAIN",
		About: "Show a search domain: the result of the last query, every cluster that the domain lists, and the\n" +
			"entries that were skipped, with the reason and what to do.",
		Examples: []string{"liqo-agent domains show example.com", "liqo-agent domains show example.com -o json | jq .entries"},
		Min:      1, Max: 1,
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   domainNames,
		Run: func(c *command.Call) error {
			found, err := known(c)
			if err != nil {
				return err
			}
			d, ok := control.FindDomain(found, c.Args[0])
			if !ok {
				return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%q is not a search domain", c.Args[0]), Advice: "liqo-agent domains list"}
			}
			if !c.Out.Value(d) {
				printDomain(c.Out, d)
			}
			return nil
		},
	}
}

func addCommand() command.Command {
	return command.Command{
		Name:  "add",
		Usage: "add a search domain",
		Args:  "DOMAIN",
		About: "Look for clusters in a DNS domain from now on, and print what is found. To change a domain, add\n" +
			"it again: options that you leave out get their defaults.",
		Examples: []string{"liqo-agent domains add example.com", "liqo-agent domains add example.com --server tls://192.0.2.53 --no-autojoin"},
		Min:      1, Max: 1,
		Agent: true,
		Flags: append([]urfave.Flag{
			&urfave.StringFlag{Name: serverFlag, Usage: "DNS `SERVER` to query instead of the system's: HOST[:PORT] or tls://HOST[:PORT]"},
			&urfave.BoolFlag{Name: autojoinFlag, Usage: "join trusted clusters found there, regardless of discovery.autojoin"},
			&urfave.BoolFlag{Name: noAutojoinFlag, Usage: "do not join clusters found there, regardless of discovery.autojoin"},
			&urfave.DurationFlag{Name: minIntervalFlag, Usage: "query at most every `DURATION`, even if the TTL is shorter (default: 30s)"},
			&urfave.DurationFlag{Name: maxIntervalFlag, Usage: "query at least every `DURATION`, even if the TTL is longer (default: 1h)"},
		}, command.WaitFlags(lookTimeout)...),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Run:     addDomain,
	}
}

func addDomain(c *command.Call) error {
	opts, err := domainOptions(c)
	if err != nil {
		return err
	}
	client := c.Client()
	defer client.Close()
	known, err := client.Domains(c.Ctx())
	if err != nil {
		return c.Interrupted(err)
	}
	before, was := control.FindDomain(known, opts.Name)
	d, err := client.AddDomain(c.Ctx(), opts)
	if err != nil {
		return c.Interrupted(err)
	}
	if was && !c.Bool(command.NoWaitFlag) {
		// What did not change is not looked at for that.
		if d, err = client.AskDomain(c.Ctx(), d.Name); err != nil {
			return c.Interrupted(err)
		}
	}
	return look(c, client, d, before.LastQuery)
}

// domainOptions reads the command line of add.
func domainOptions(c *command.Call) (control.DomainOptions, error) {
	opts := control.DomainOptions{Name: c.Args[0], Server: c.String(serverFlag)}
	if err := c.CheckTimeout(); err != nil {
		return opts, err
	}
	if c.Bool(autojoinFlag) && c.Bool(noAutojoinFlag) {
		return opts, command.UsageError("--autojoin and --no-autojoin cannot be combined", command.HelpOf("domains add"))
	}
	if yes := c.Bool(autojoinFlag); yes || c.Bool(noAutojoinFlag) {
		opts.Autojoin = &yes
	}
	for name, to := range map[string]*time.Duration{minIntervalFlag: &opts.MinInterval, maxIntervalFlag: &opts.MaxInterval} {
		if *to = c.Duration(name); *to < 0 || *to%time.Second != 0 {
			return opts, command.UsageError(fmt.Sprintf("--%s %s: want whole seconds, 1s to 24h", name, *to), command.HelpOf("domains add"))
		}
	}
	return opts, nil
}

func removeCommand() command.Command {
	return command.Command{
		Name:  "remove",
		Usage: "remove a search domain",
		Args:  "DOMAIN",
		About: "Remove a search domain that was added with domains add. Clusters that only this domain lists are\n" +
			"forgotten, unless they are joined.",
		Examples: []string{"liqo-agent domains remove example.com"},
		Min:      1, Max: 1,
		Agent: true,
		Words: domainNames,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			if err := client.RemoveDomain(c.Ctx(), c.Args[0]); err != nil {
				return c.Interrupted(err)
			}
			c.Out.Printf("Removed the search domain %s.\n", render.Clean(c.Args[0]))
			return nil
		},
	}
}

func refreshCommand() command.Command {
	return command.Command{
		Name:     "refresh",
		Usage:    "query a search domain now",
		Args:     "DOMAIN",
		About:    "Query a search domain now, without waiting for the TTL to expire, and print what is found.",
		Examples: []string{"liqo-agent domains refresh example.com"},
		Min:      1, Max: 1,
		Agent:   true,
		Flags:   command.WaitFlags(lookTimeout),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   domainNames,
		Run: func(c *command.Call) error {
			if err := c.CheckTimeout(); err != nil {
				return err
			}
			client := c.Client()
			defer client.Close()
			known, err := client.Domains(c.Ctx())
			if err != nil {
				return c.Interrupted(err)
			}
			before, _ := control.FindDomain(known, c.Args[0])
			d, err := client.AskDomain(c.Ctx(), c.Args[0])
			if err != nil {
				return c.Interrupted(err)
			}
			return look(c, client, d, before.LastQuery)
		},
	}
}

// known returns the search domains: those of the running agent, or those it
// would start with, as far as that can be told without it.
func known(c *command.Call) ([]control.Domain, error) {
	at := c.Places()
	client := client.New(at.Socket)
	defer client.Close()
	known, err := client.Domains(c.Ctx())
	if !errors.Is(err, control.ErrNotRunning) {
		return known, err
	}
	path := filepath.Join(at.StateDir, command.DatabaseName)
	store, dbErr := state.OpenReadOnly(c.Ctx(), path)
	var added []state.SearchDomain
	switch {
	case dbErr == nil:
		added, dbErr = store.SearchDomains(c.Ctx())
		_ = store.Close() // it was only read: nothing can be lost
		if dbErr != nil {
			return nil, command.Unreadable(err, dbErr)
		}
	case !errors.Is(dbErr, state.ErrNoDatabase): // none was ever added
		return nil, command.Unreadable(err, dbErr)
	}
	loaded, loadErr := c.Load()
	if loadErr != nil {
		c.Note("the search domains of the configuration file are not shown: %v", loadErr)
		loaded = &config.Loaded{}
	}
	c.Note("the agent is not running; showing the search domains of its configuration file and its database (%s), without SearchDomain objects", path)
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
func domainNames(ctx context.Context, t command.Typed) []command.Candidate {
	return command.Listed(ctx, t, (*client.Client).Domains, func(d control.Domain) command.Candidate {
		return command.Candidate{Value: d.Name, Text: domainResult(d)}
	})
}

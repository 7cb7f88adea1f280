package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
)

const (
	liqoService = "_liqo._tcp"
	localDomain = "local"
	scanTimeout = 3 * time.Second
)

func (a *App) scanCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "scan",
		usage: "look at the network, without the agent",
		about: "Ask the local network once who is there, and show the answers. Each Liqo cluster that\n" +
			"answers is then asked to prove its identity; until it does, or when it cannot, it is shown as\n" +
			"not verified, with the reason. Any other kind of DNS-SD service can be looked for as well.\n" +
			"The agent is not needed, and is not disturbed when it runs.\n\n" +
			"With --watch -o json a line of JSON is written for each event as it happens: its \"event\" is\n" +
			"found, updated or lost.",
		examples: []string{"liqo-agent scan", "liqo-agent scan --watch", "liqo-agent scan --service _http._tcp --timeout 10s",
			`liqo-agent scan --watch -o json | jq -r 'select(.event == "found") | .addr'`},
		flags: []urfave.Flag{
			&urfave.DurationFlag{Name: "timeout", Aliases: []string{"t"}, Usage: "how long to look (default: 3s, or until interrupted with --watch)", DefaultText: " "},
			&urfave.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "show events as they happen"},
			&urfave.StringFlag{Name: "service", Aliases: []string{"s"}, Value: liqoService, Usage: "DNS-SD service `TYPE` to look for"},
			&urfave.StringFlag{Name: "domain", Value: localDomain, Usage: "`DOMAIN` to look in"},
			&urfave.BoolFlag{Name: "no-verify", Usage: "do not ask Liqo clusters to prove their identity"},
			&urfave.BoolFlag{Name: "stats", Usage: "with --watch: end with a line that counts packets; its \"event\" is end"},
			&urfave.StringSliceFlag{Name: "interface", Aliases: []string{"i"}, Usage: "only network interfaces that match `GLOB`; can be repeated"},
		},
		formats: []string{formatTable, formatWide, formatJSON, formatYAML},
		values: map[string]func(context.Context) []candidate{
			"service": func(context.Context) []candidate {
				return fixed(liqoService, "_http._tcp", "_ssh._tcp", "_ipp._tcp", "_workstation._tcp")
			},
			"interface": linkNames,
		},
		run: scan,
	})
}

func linkNames(context.Context) []candidate {
	snapshot, err := ifwatch.Read(ifwatch.Filter{Include: []string{"*"}})
	if err != nil {
		return nil // completion has no place for an error
	}
	var out []candidate
	for _, l := range snapshot.Links {
		out = append(out, candidate{value: l.Name})
	}
	return out
}

func scan(c *call) error {
	s, err := newScan(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context.Context, context.CancelFunc(func() {})
	if timeout := c.Duration("timeout"); c.IsSet("timeout") || !c.Bool("watch") {
		if !c.IsSet("timeout") {
			timeout = scanTimeout
		}
		if timeout <= 0 {
			return &usageError{message: fmt.Sprintf("--timeout %s: want a time longer than 0", timeout), try: c.Command.HelpName + " --timeout 10s"}
		}
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	if err := s.look(ctx); err != nil {
		return err
	}
	switch {
	case !c.Bool("watch"):
		c.out.neighbours(s.list(), c.format == formatWide, s.service)
	case c.Bool("stats"):
		c.out.scanEnd(s.mdns.Stats())
	}
	return nil
}

func newScan(c *call) (*scanner, error) {
	if watch := c.Bool("watch"); watch && c.format != formatTable && c.format != formatJSON {
		return nil, &usageError{message: fmt.Sprintf("scan --watch: output format %q: want table, json", c.format), try: Name + " scan --watch -o json"}
	}
	service, domain := c.String("service"), strings.TrimSuffix(c.String("domain"), ".")
	if !validService(service) {
		e := &usageError{message: fmt.Sprintf("service type %q: want something like _http._tcp or _osc._udp", service), try: Name + " scan --service " + liqoService}
		if bare := "_" + strings.Trim(service, "_.") + "._tcp"; validService(bare) {
			e.try = Name + " scan --service " + bare
		}
		return nil, e
	}
	filter := ifwatch.Filter{Include: c.StringSlice("interface"), Exclude: ifwatch.DefaultExclude()}
	if err := filter.Validate(); err != nil {
		return nil, &usageError{message: err.Error(), try: c.Command.HelpName + " --interface 'eth*'"}
	}
	links, err := ifwatch.Read(filter)
	if err != nil {
		return nil, err
	}
	watch := c.Bool("watch")
	if len(links.Links) == 0 {
		if !watch {
			return nil, noLinks(filter)
		}
		c.note("%v; waiting for one", noLinks(filter))
	}
	logger := slog.New(slog.NewTextHandler(c.app.opts.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	mdns, err := mdnssvc.New(mdnssvc.Config{Service: service, Domain: domain, BrowseOnly: true, Logger: logger})
	if err != nil {
		return nil, err
	}
	s := newScanner(mdns, trimService(service, domain))
	s.links = links
	s.liqo = service == liqoService
	if s.liqo && !c.Bool("no-verify") {
		s.client = endpoint.NewClient(endpoint.ClientConfig{})
		s.self = c.ownFingerprint()
	}
	if watch {
		s.watcher = ifwatch.New(filter, logger)
		s.out = c.out
	}
	return s, nil
}

// ownFingerprint asks the agent on this machine, if there is one that answers
// this user, who it is, so that its own cluster is recognised.
func (c *call) ownFingerprint() string {
	at, err := c.app.places("")
	if err != nil {
		return "" // then its cluster is listed like any other
	}
	ctx, cancel := context.WithTimeout(c.Context.Context, completeTimeout)
	defer cancel()
	client := control.NewClient(at.socket)
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		return "" // as above
	}
	return status.Identity.Fingerprint
}

// validService reports whether s is a service type (RFC 6763 section 7).
func validService(s string) bool {
	name, proto, ok := strings.Cut(s, ".")
	label := strings.TrimPrefix(name, "_")
	return ok && (proto == "_tcp" || proto == "_udp") && strings.HasPrefix(name, "_") && label != "" && len(label) <= 63 &&
		strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func noLinks(filter ifwatch.Filter) error {
	if len(filter.Include) > 0 {
		return &control.Error{Message: "no network interface to look at matches " + strings.Join(filter.Include, ", "), Advice: "ip -brief address"}
	}
	return &control.Error{Message: "there is no network interface to look at", Advice: "plug a cable in, or name an interface: liqo-agent scan --interface NAME"}
}

// errStopped is a discovery service that ends by itself, which it never should.
var errStopped = errors.New("looking at the network ended unexpectedly")

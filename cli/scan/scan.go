package scan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	socketclient "liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
)

const (
	liqoService = "_liqo._tcp"
	localDomain = "local"
	scanTimeout = 3 * time.Second
)

// Command returns the command that looks at the network.
func Command() command.Command {
	return command.Command{
		Name:  "scan",
		Usage: "scan the network for clusters",
		About: "Scan the local network once and show the Liqo clusters that answer. Each cluster is asked to\n" +
			"prove its identity; until it does, it is shown as not verified, with the reason. You can scan\n" +
			"for other DNS-SD services too. No agent is needed, and a running agent is not affected.\n" +
			"\n" +
			"With --watch -o json, each event is a line of JSON; its \"event\" is found, updated or lost.",
		Examples: []string{"liqo-agent scan", "liqo-agent scan --watch", "liqo-agent scan --service _http._tcp --timeout 10s",
			`liqo-agent scan --watch -o json | jq -r 'select(.event == "found") | .addr'`},
		Flags: []urfave.Flag{
			&urfave.DurationFlag{Name: "timeout", Aliases: []string{"t"}, Usage: "how long to scan (default: 3s; with --watch, until interrupted)", DefaultText: " "},
			&urfave.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "show events as they happen"},
			&urfave.StringFlag{Name: "service", Aliases: []string{"s"}, Value: liqoService, Usage: "DNS-SD service `TYPE` to scan for"},
			&urfave.StringFlag{Name: "domain", Value: localDomain, Usage: "`DOMAIN` to scan"},
			&urfave.BoolFlag{Name: "no-verify", Usage: "do not ask clusters to prove their identity"},
			&urfave.BoolFlag{Name: "stats", Usage: "with --watch: end with packet counters; the \"event\" is end"},
			command.ListFlag("interface", "only interfaces that match `GLOB`; can be repeated", "i"),
		},
		Formats: []string{render.Table, render.Wide, render.JSON, render.YAML},
		Values: map[string]func(context.Context) []command.Candidate{
			"service": func(context.Context) []command.Candidate {
				return command.Fixed(liqoService, "_http._tcp", "_ssh._tcp", "_ipp._tcp", "_workstation._tcp")
			},
			"interface": linkNames,
		},
		Run: run,
	}
}

func linkNames(context.Context) []command.Candidate {
	snapshot, err := ifwatch.Read(ifwatch.Filter{Include: []string{"*"}})
	if err != nil {
		return nil // completion has no place for an error
	}
	var out []command.Candidate
	for _, l := range snapshot.Links {
		out = append(out, command.Candidate{Value: l.Name})
	}
	return out
}

func run(c *command.Call) error {
	s, err := newScan(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.Ctx(), context.CancelFunc(func() {})
	if timeout := c.Duration("timeout"); c.IsSet("timeout") || !c.Bool("watch") {
		if !c.IsSet("timeout") {
			timeout = scanTimeout
		}
		if timeout <= 0 {
			return command.UsageError(fmt.Sprintf("--timeout %s: want a time longer than 0", timeout), c.Name()+" --timeout 10s")
		}
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	if err := s.look(ctx); err != nil {
		return err
	}
	switch {
	case !c.Bool("watch"):
		printNeighbours(c.Out, s.list(), c.Format == render.Wide, s.service)
	case c.Bool("stats"):
		printEnd(c.Out, s.mdns.Stats())
	}
	return nil
}

func newScan(c *command.Call) (*scanner, error) {
	if watch := c.Bool("watch"); watch && c.Format != render.Table && c.Format != render.JSON {
		return nil, command.UsageError(fmt.Sprintf("scan --watch: output format %q: want table, json", c.Format), command.Name+" scan --watch -o json")
	}
	service, domain := c.String("service"), strings.TrimSuffix(c.String("domain"), ".")
	if !validService(service) {
		e := command.UsageError(fmt.Sprintf("service type %q: want something like _http._tcp or _osc._udp", service), command.Name+" scan --service "+liqoService)
		if bare := "_" + strings.Trim(service, "_.") + "._tcp"; validService(bare) {
			e.Advice = command.Name + " scan --service " + bare
		}
		return nil, e
	}
	filter := ifwatch.Filter{Include: c.List("interface"), Exclude: ifwatch.DefaultExclude()}
	if err := filter.Validate(); err != nil {
		return nil, command.UsageError(err.Error(), c.Name()+" --interface 'eth*'")
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
		c.Note("%v; waiting for one", noLinks(filter))
	}
	logger := slog.New(slog.NewTextHandler(c.Options.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	mdns, err := mdnssvc.New(mdnssvc.Config{Service: service, Domain: domain, BrowseOnly: true, Logger: logger})
	if err != nil {
		return nil, err
	}
	s := newScanner(mdns, service+"."+domain)
	s.links = links
	s.liqo = service == liqoService
	if s.liqo && !c.Bool("no-verify") {
		s.client = client.New(client.Config{})
		s.self = ownFingerprint(c)
	}
	if watch {
		s.watcher = ifwatch.New(filter, logger)
		s.out = c.Out
	}
	return s, nil
}

// ownFingerprint asks the agent on this machine, if there is one that answers
// this user, who it is, so that its own cluster is recognised.
func ownFingerprint(c *command.Call) string {
	at, err := c.Options.Places("")
	if err != nil {
		return "" // then its cluster is listed like any other
	}
	ctx, cancel := context.WithTimeout(c.Ctx(), c.Options.Pace.Answer)
	defer cancel()
	client := socketclient.New(at.Socket)
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
		return &control.Error{Message: "no usable network interface matches " + strings.Join(filter.Include, ", "), Advice: "ip -brief address"}
	}
	return &control.Error{Message: "no usable network interface", Advice: "connect a network, or name an interface: liqo-agent scan --interface NAME"}
}

// errStopped is a discovery service that ends by itself, which it never should.
var errStopped = errors.New("the scan ended unexpectedly")

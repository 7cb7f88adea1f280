package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

func (a *App) statusCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "status",
		usage: "show how the agent is doing",
		about: "Show who this cluster is, what the agent does, what it logged last, and what is wrong, the worst\n" +
			"first, with what to do about it. The exit code is 0 whatever is wrong: scripts look at .problems.",
		examples: []string{"liqo-agent status", "liqo-agent status -o json | jq .identity.clusterId",
			"liqo-agent status -o json | jq -e '.problems == []'", "liqo-agent status -o json | jq -r '.problems[].code'"},
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		values:  placeValues,
		run:     showStatus,
	})
}

func showStatus(c *call) error {
	client := c.client()
	defer client.Close()
	st, err := client.Status(c.Context.Context)
	if err != nil {
		return err
	}
	if !c.out.value(st) {
		c.out.status(st)
	}
	return nil
}

func (p *printer) status(st control.Status) {
	p.groups([][2]string{
		{"Cluster", named(st.Identity.Name, st.Identity.ClusterID)},
		{"ID from", st.Identity.IDOrigin},
		{"Namespace", st.Identity.Namespace},
		{"Fingerprint", st.Identity.Fingerprint},
		{"Agent", agentText(st)},
	}, [][2]string{
		{"Discovery", discoveryText(st)},
		{"Advertisement", advertisementText(st)},
		{"Autojoin", autojoinText(st.Autojoin)},
		{"Networks", networksText(st.Networks)},
		{"Search domains", searchDomainsText(st.Domains)},
		{"Endpoint", fmt.Sprintf("%s, port %d, %s", st.Endpoint.Listen, st.Endpoint.Port, count(st.Endpoint.Connections, "connection", "connections"))},
		{"Packets", packetsText(st)},
	}, [][2]string{
		{"Kubernetes", kubernetesText(st.Kubernetes, p)},
		{"Database", stateText(st.State)},
	}, [][2]string{
		{"Peers", peersText(st.Peers)},
		{"Peering", peeringText(st.Peering)},
		{"Offers", offeringText(st.Sharing.Offering)},
		{"Uses", usingText(st.Sharing.Using)},
		{"Trust", trustText(st.Trust, p.now)},
	})
	p.sharing(st.Sharing, fewShared)
	p.notJoined(st.Autojoin.NotJoined)
	if st.Trust.Open != "" && !hasProblem(st.Problems, "open-to-anybody") {
		p.printf("\n%s\n", p.red(openText(st.Trust)))
	}
	p.lastErrors(st.LastErrors)
	p.problems(st.Problems)
}

// agentText is about the program and how long it has been running.
func agentText(st control.Status) string {
	text := "version " + st.Version
	if st.Protocol != "" {
		text += ", protocol " + st.Protocol
	}
	text += ", up " + span(time.Duration(st.UptimeSeconds)*time.Second)
	if !st.StartedAt.IsZero() {
		text += " since " + stamp(st.StartedAt)
	}
	return text + ", log level " + st.LogLevel
}

// red returns s cleaned and, where there is colour, in red.
func (p *printer) red(s string) string {
	if p.color {
		return colorRed + clean(s) + colorReset
	}
	return clean(s)
}

// openText warns of a cluster that anybody may use.
func openText(t control.TrustStatus) string { return "Warning: open to anybody: " + t.Open }

func peeringText(s control.PeeringStatus) string {
	if s == (control.PeeringStatus{}) {
		return "none"
	}
	parts := []string{fmt.Sprintf("uses %d of %s", s.Joined, count(s.Wanted, "wanted cluster", "wanted clusters")),
		"used by " + count(s.Serving, "cluster", "clusters")}
	if s.Requests > 0 {
		parts = append(parts, count(s.Requests, "waits for a decision (liqo-agent peers requests)", "wait for a decision (liqo-agent peers requests)"))
	}
	if s.Invites > 0 {
		parts = append(parts, count(s.Invites, "open invite", "open invites"))
	}
	return strings.Join(parts, ", ")
}

func trustText(t control.TrustStatus, now time.Time) string {
	text := ""
	if t.Accept != "" {
		text = fmt.Sprintf("requests: %s (trust.accept)", t.Accept)
	}
	if ca := t.FleetCA; ca != nil {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("fleet CA %s (%s)", ca.Name, ca.Path)
		switch {
		case !ca.NotAfter.IsZero() && ca.NotAfter.Before(now):
			text += ", which has expired"
		case !ca.Certified:
			text += ", which did not certify this cluster"
		}
	}
	return text
}

func named(name, id string) string {
	if name == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", name, id)
}

func discoveryText(st control.Status) string {
	if !st.Discovery.Enabled {
		return off("discovery.enable_discovery", st.Discovery.Source)
	}
	names, left := usedLinks(st, func(n control.LinkNetwork) bool { return n.Discover })
	where := "no interface"
	switch {
	case len(names) > 0:
		where = strings.Join(names, ", ")
	case len(left) > 0:
		where += ": the network rules leave out " + strings.Join(left, ", ")
	}
	return trimService(st.Discovery.Service, st.Discovery.Domain) + " on " + where + setBy(st.Discovery.Source)
}

// usedLinks returns the links that a network rule lets be used for something, and
// those that it does not.
func usedLinks(st control.Status, may func(control.LinkNetwork) bool) (used, left []string) {
	for _, l := range st.Links {
		at := slices.IndexFunc(st.Networks, func(n control.LinkNetwork) bool { return n.Link == l.Name })
		if at >= 0 && !may(st.Networks[at]) {
			left = append(left, l.Name)
		} else {
			used = append(used, l.Name)
		}
	}
	return used, left
}

func advertisementText(st control.Status) string {
	ad := st.Advertisement
	used, left := usedLinks(st, func(n control.LinkNetwork) bool { return n.Advertise })
	switch {
	case !ad.Enabled:
		return off("discovery.enable_advertisement", ad.Source)
	case len(used) == 0 && len(left) > 0:
		return "on no interface: the network rules leave out " + strings.Join(left, ", ") + setBy(ad.Source)
	case !ad.Established:
		return "on, not announced yet" + setBy(ad.Source)
	}
	return "on, announced as " + ad.Instance + setBy(ad.Source)
}

func kubernetesText(k control.Kubernetes, p *printer) string {
	switch {
	case k.Disabled:
		return `off (cluster.kubeconfig = "none")`
	case k.Connected:
		server := k.Server
		if k.Version != "" {
			server += " (" + k.Version + ")"
		}
		return fmt.Sprintf("connected to %s%s, %s, %d written since the start", server, lasting(p.since(k.Since)),
			count(k.ForeignClusters, "ForeignCluster", "ForeignClusters"), k.Writes)
	case k.LastError != "":
		return "not connected" + lasting(p.since(k.Since)) + ": " + k.LastError
	}
	return "not connected: waiting for an API server"
}

// lasting says for how long, when that is known.
func lasting(since string) string {
	if since == "" {
		return ""
	}
	return " for " + since
}

func stateText(s control.State) string {
	switch {
	case s.Volatile:
		return "in memory only: nothing is kept"
	case s.Recovered != "":
		return fmt.Sprintf("%s (a damaged one was set aside as %s)", s.Path, s.Recovered)
	}
	return s.Path
}

func peersText(by map[string]int) string {
	var parts []string
	for _, phase := range []peer.Phase{peer.PhasePresent, peer.PhaseUnverified, peer.PhaseUnreachable, peer.PhaseLost} {
		if n := by[string(phase)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func packetsText(st control.Status) string {
	text := fmt.Sprintf("%d received, %d sent", st.Packets.Received, st.Packets.Sent)
	if st.Packets.SocketDrops > 0 {
		text += fmt.Sprintf(", %d lost by the kernel", st.Packets.SocketDrops)
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(st.Drops)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, st.Drops[reason]))
	}
	if len(parts) > 0 {
		text += "; not used: " + strings.Join(parts, ", ")
	}
	return text
}

func (a *App) logCommand() *urfave.Command {
	level := a.leaf(leaf{
		name:  "level",
		usage: "show or change how much the running agent logs",
		args:  "[debug|info|warn|error]",
		about: "Show the level the running agent logs at, or change it. A change lasts until the agent is\n" +
			"restarted or reads its configuration again.",
		examples: []string{"liqo-agent log level", "liqo-agent log level debug"},
		max:      1,
		flags:    placeFlags(),
		values:   placeValues,
		words:    func(context.Context, typed) []candidate { return fixed("debug", "info", "warn", "error") },
		run: func(c *call) error {
			if len(c.args) > 0 {
				if _, err := control.ParseLevel(c.args[0]); err != nil {
					return err
				}
			}
			client := c.client()
			defer client.Close()
			if len(c.args) > 0 {
				return client.SetLogLevel(c.Context.Context, c.args[0])
			}
			now, err := client.LogLevel(c.Context.Context)
			if err != nil {
				return err
			}
			c.out.printf("%s\n", clean(now))
			return nil
		},
	})
	return a.branch("log", "control what the running agent logs", "Control what the running agent logs.",
		[]string{"liqo-agent log level debug"}, level)
}

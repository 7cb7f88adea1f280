package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/domains"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

// Command returns the command that shows how the agent is doing.
func Command() command.Command {
	return command.Command{
		Name:  "status",
		Usage: "show the status of the agent",
		About: "Show this cluster, what the agent does, its recent errors, and all problems with what to do\n" +
			"about them, worst first. The exit code is 0 even if there are problems; scripts can read\n" +
			".problems.",
		Examples: []string{"liqo-agent status", "liqo-agent status -o json | jq .identity.clusterId",
			"liqo-agent status -o json | jq -e '.problems == []'", "liqo-agent status -o json | jq -r '.problems[].code'"},
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Run:     showStatus,
	}
}

func showStatus(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	st, err := client.Status(c.Ctx())
	if err != nil {
		return err
	}
	if !c.Out.Value(st) {
		printStatus(c.Out, st)
	}
	return nil
}

func printStatus(p *render.Printer, st control.Status) {
	p.Groups([][2]string{
		{"Cluster", render.Named(st.Identity.Name, st.Identity.ClusterID)},
		{"ID source", st.Identity.IDOrigin},
		{"Namespace", st.Identity.Namespace},
		{"Fingerprint", st.Identity.Fingerprint},
		{"Agent", agentText(st)},
	}, [][2]string{
		{"Discovery", discoveryText(st)},
		{"Advertisement", advertisementText(st)},
		{"Autojoin", autojoinText(st.Autojoin)},
		{"Networks", networksText(st.Networks)},
		{"Search domains", domains.Summary(st.Domains)},
		{"Endpoint", fmt.Sprintf("%s, port %d, %s", st.Endpoint.Listen, st.Endpoint.Port, render.Count(st.Endpoint.Connections, "connection", "connections"))},
		{"Packets", packetsText(st)},
	}, [][2]string{
		{"Kubernetes", kubernetesText(st.Kubernetes, p)},
		{"Liqo", liqoText(st.Liqo)},
		{"Database", stateText(st.State)},
	}, [][2]string{
		{"Peers", peersText(st.Peers)},
		{"Peering", peeringText(st.Peering)},
		{"Offers", offeringText(st.Sharing.Offering)},
		{"Uses", usingText(st.Sharing.Using)},
		{"Network", networkText(st.Network)},
		{"Trust", trustText(st.Trust, p.Now)},
	})
	printSharing(p, st.Sharing, fewShared)
	notJoined(p, st.Autojoin.NotJoined)
	if st.Trust.Open != "" && !hasProblem(st.Problems, "open-to-anybody") {
		p.Printf("\n%s\n", p.Paint(render.Red, render.Clean(openText(st.Trust))))
	}
	lastErrors(p, st.LastErrors)
	problems(p, st.Problems)
}

// liqoText is about the Liqo of this cluster.
func liqoText(l *control.Liqo) string {
	if l == nil {
		return ""
	}
	text := cmp.Or(l.ID, "unknown ID")
	if l.Version != "" {
		text += " (" + l.Version + ")"
	}
	text += ", peering.engine = \"" + l.Engine + "\""
	if l.Problem != "" {
		text += "; it cannot be used: " + l.Problem
	}
	return text
}

// agentText is about the program and how long it has been running.
func agentText(st control.Status) string {
	text := "version " + st.Version
	if st.Protocol != "" {
		text += ", protocol " + st.Protocol
	}
	text += ", up " + render.Span(time.Duration(st.UptimeSeconds)*time.Second)
	if !st.StartedAt.IsZero() {
		text += " since " + render.Stamp(st.StartedAt)
	}
	return text + ", log level " + st.LogLevel
}

// openText warns of a cluster that anybody may use.
func openText(t control.TrustStatus) string {
	return "Warning: anybody can use this cluster: " + t.Open
}

func peeringText(s control.PeeringStatus) string {
	if s == (control.PeeringStatus{}) {
		return "none"
	}
	parts := []string{fmt.Sprintf("connected to %d of %s", s.Joined, render.Count(s.Wanted, "wanted cluster", "wanted clusters")),
		"serving " + render.Count(s.Serving, "cluster", "clusters")}
	if s.Requests > 0 {
		parts = append(parts, render.Count(s.Requests, "pending request (liqo-agent peers requests)", "pending requests (liqo-agent peers requests)"))
	}
	if s.Invites > 0 {
		parts = append(parts, render.Count(s.Invites, "open invite", "open invites"))
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
		where += ": excluded by network rules: " + strings.Join(left, ", ")
	}
	return st.Discovery.Service + "." + strings.TrimSuffix(st.Discovery.Domain, ".") + " on " + where + setBy(st.Discovery.Source)
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
		return "on no interface: excluded by network rules: " + strings.Join(left, ", ") + setBy(ad.Source)
	case !ad.Established:
		return "on, not announced yet" + setBy(ad.Source)
	}
	return "on, announced as " + ad.Instance + setBy(ad.Source)
}

func kubernetesText(k control.Kubernetes, p *render.Printer) string {
	switch {
	case k.Disabled:
		return `off (cluster.kubeconfig = "none")`
	case k.Connected:
		server := k.Server
		if k.Version != "" {
			server += " (" + k.Version + ")"
		}
		return fmt.Sprintf("connected to %s%s, %s, %d written since the start", server, lasting(p.Since(k.Since)),
			render.Count(k.ForeignClusters, "ForeignCluster", "ForeignClusters"), k.Writes)
	case k.LastError != "":
		return "not connected" + lasting(p.Since(k.Since)) + ": " + k.LastError
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
		return "in memory only; lost when the agent stops"
	case s.Recovered != "":
		return fmt.Sprintf("%s (a damaged database was moved to %s)", s.Path, s.Recovered)
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
		text += "; dropped: " + strings.Join(parts, ", ")
	}
	return text
}

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/peer"
)

const (
	mdnsPort = 5353
	// listening is how long answers are waited for: RFC 6762 has them sent within
	// 0.12 s, and has a question repeated after a second.
	listening = 2500 * time.Millisecond
)

func checkMDNSPort(ctx context.Context, b *Box) []Finding {
	port, err := b.ask.port(ctx, mdnsPort)
	if err != nil {
		return []Finding{skipped("%v", err)}
	}
	_, running := b.agentSays(ctx)
	return judgeMDNSPort(port, running == nil)
}

// judgeMDNSPort says what the holders of port 5353 mean.
func judgeMDNSPort(port look.Port, agentRuns bool) []Finding {
	var others []string
	ours := 0
	for _, h := range port.Holders {
		switch {
		case strings.HasPrefix(h.Name, "liqo-agent"):
			ours++
		case h.Name == "":
			others = append(others, fmt.Sprintf("a process of user %d", h.UID))
		default:
			others = append(others, fmt.Sprintf("%s (process %d)", h.Name, h.PID))
		}
	}
	others = slices.Compact(others)
	if agentRuns && ours == 0 && port.Unnamed && len(others) == 1 {
		others = nil // the one that cannot be named is the agent
	}
	who := strings.Join(others, ", ")
	if port.Unnamed && who != "" {
		who += " (its name needs root)"
	}
	switch {
	case !port.Shared && who == "":
		who = "another process"
		fallthrough
	case !port.Shared:
		return []Finding{{Code: "mdns-port", Status: Error, What: fmt.Sprintf("UDP port %d is in use by %s, which does not share it", mdnsPort, who),
			Why: "without multicast DNS, this cluster finds no clusters on the local network, and none finds it",
			Do: []string{"stop that program, or make it share the port: it must bind with SO_REUSEADDR, like avahi-daemon and systemd-resolved",
				fmt.Sprintf("show the program: sudo ss -ulpn 'sport = :%d'", mdnsPort)}}}
	case who != "":
		return []Finding{fine("shared with %s", who)}
	case ours > 0 || agentRuns:
		return []Finding{fine("in use by the agent, and shared")}
	}
	return []Finding{fine("free")}
}

// heard is what a look at the mDNS group found, and on which links.
type heard struct {
	look.Heard
	links ifwatch.Snapshot
}

// listen looks at the mDNS group once.
func (b *Box) listen(ctx context.Context) (heard, error) {
	return b.heard.get(ctx, networks, func(ctx context.Context) (heard, error) {
		links, err := b.ask.usable(b.filter())
		if err != nil || len(links.Links) == 0 {
			return heard{}, err
		}
		d := b.config().Discovery
		found, err := b.ask.multicast(ctx, links, d.Service, d.Domain, listening)
		return heard{found, links}, err
	})
}

func checkMulticast(ctx context.Context, b *Box) []Finding {
	found, err := b.listen(ctx)
	switch {
	case err != nil:
		return []Finding{skipped("cannot query the local network: %v", err)}
	case len(found.links.Links) == 0:
		return []Finding{skipped("no network interface is in use")}
	}
	says, err := b.agentSays(ctx)
	var self string
	if err == nil {
		self = says.status.Identity.Fingerprint
	}
	return judgeMulticast(found, says.peers, self, b.firewall(ctx))
}

// judgeMulticast says what was heard means. peers are those that the agent knows, and
// self is the fingerprint of this cluster; neither is there without a running agent.
func judgeMulticast(found heard, peers []control.Peer, self string, fire look.Firewall) []Finding {
	var names []string
	for _, l := range found.links.Links {
		names = append(names, l.Name)
	}
	where := strings.Join(names, ", ")
	drops := fire.Drops(look.Incoming, "udp", mdnsPort)
	switch {
	case found.Sent == 0 && found.Unsent == 0:
		return []Finding{skipped("no query was sent on %s in time, because this box is overloaded; run it again", where)}
	case found.Sent == 0:
		return []Finding{withRules(Finding{Code: "multicast-unsent", Status: Error,
			What: fmt.Sprintf("the kernel does not send queries to the mDNS group on %s", where),
			Why:  "this cluster finds no clusters on the local network, and none finds it",
			Do:   firewallHelp(fire, "udp", mdnsPort, "the mDNS groups 224.0.0.251 and ff02::fb")}, fire.Drops(look.Outgoing, "udp", mdnsPort))}
	case found.Echoes == 0:
		return []Finding{withRules(Finding{Code: "multicast-blocked", Status: Error,
			What: fmt.Sprintf("this box does not receive its own queries to the mDNS group on %s", where),
			Why:  "something on this box drops packets to UDP port 5353, so it finds no clusters on the local network and answers none",
			Do:   firewallHelp(fire, "udp", mdnsPort, "the mDNS groups 224.0.0.251 and ff02::fb")}, drops)}
	}
	others := make(map[peer.ClusterID]bool)
	for _, c := range found.Clusters {
		if self == "" || c.Fingerprint.String() != self {
			others[c.ClusterID] = true
		}
	}
	if unheard := silent(found.links, peers, others); len(unheard) > 0 {
		return []Finding{{Code: "multicast-isolated", Status: Warning,
			What: fmt.Sprintf("%s answers at an address in this subnet, but not by multicast", strings.Join(unheard, ", ")),
			Why:  "new clusters are not found; usually, a switch with IGMP snooping but no querier, or an access point with client isolation, drops multicast",
			Do: []string{"on the switch: disable IGMP snooping, or enable an IGMP querier", "on the access point: disable client (AP) isolation, and change the setting of multicast enhancement",
				"on that cluster: check whether it announces itself: liqo-agent doctor",
				"peers with a URL or in a search domain do not need multicast: liqo-agent peers connect https://ADDRESS:6447"}}}
	}
	var out []Finding
	if len(others) == 0 {
		out = append(out, fine("works on %s, as far as this box can see; no other cluster answers", where))
	} else {
		out = append(out, fine("works on %s: %d other %s", where, len(others), plural(len(others), "cluster answers", "clusters answer")))
	}
	if len(drops) > 0 {
		out = append(out, info("multicast-rule", "a firewall rule drops some packets: %s", drops[0]))
	}
	return out
}

// silent returns the peers that are there and in the same network, and are not heard.
func silent(links ifwatch.Snapshot, peers []control.Peer, heard map[peer.ClusterID]bool) []string {
	var out []string
	for _, p := range peers {
		if p.Phase != string(peer.PhasePresent) || heard[peer.ClusterID(p.ID)] || slices.Contains(p.Sources, string(peer.LAN)) {
			continue
		}
		for _, a := range p.Addresses {
			at, err := netip.ParseAddrPort(a)
			if err == nil && slices.ContainsFunc(links.Links, func(l ifwatch.Link) bool {
				return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
					return p.Contains(at.Addr().WithZone("")) && !p.Addr().IsLinkLocalUnicast()
				})
			}) {
				out = append(out, p.Label())
				break
			}
		}
	}
	return out
}

// withRules adds the firewall's rules that explain a finding.
func withRules(f Finding, rules []string) Finding {
	if len(rules) > 0 {
		f.What += "; a firewall rule drops them: " + rules[0]
	}
	return f
}

// firewallHelp says how to open a port, with the firewall that is used here first.
func firewallHelp(fire look.Firewall, protocol string, port int, what string) []string {
	lines := map[string]string{
		"ufw":       fmt.Sprintf("sudo ufw allow %d/%s", port, protocol),
		"firewalld": fmt.Sprintf("sudo firewall-cmd --permanent --add-port=%d/%s && sudo firewall-cmd --reload", port, protocol),
		"nftables":  fmt.Sprintf("sudo nft insert rule inet filter input %s dport %d accept", protocol, port),
	}
	out := []string{fmt.Sprintf("allow %s port %d for %s", strings.ToUpper(protocol), port, what)}
	if line, ok := lines[fire.Name()]; ok {
		return append(out, "with "+fire.Name()+": "+line)
	}
	for _, name := range []string{"ufw", "firewalld", "nftables"} {
		out = append(out, "with "+name+": "+lines[name])
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

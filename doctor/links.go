package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/doctor/look"
	"liqo.io/agent/ifwatch"
)

func checkLinks(_ context.Context, b *Box) []Finding {
	all, err := b.ask.links()
	if err != nil {
		return []Finding{skipped("cannot list the network interfaces: %v", err)}
	}
	used, err := b.ask.usable(b.filter())
	if err != nil {
		return []Finding{skipped("cannot read the network interfaces: %v", err)}
	}
	return judgeLinks(all, used, b.filter())
}

// judgeLinks says what the interfaces that are used, among all, mean.
func judgeLinks(all []look.Link, used ifwatch.Snapshot, filter ifwatch.Filter) []Finding {
	if len(used.Links) == 0 {
		return []Finding{noLinks(all, filter)}
	}
	var out []Finding
	if f, bad := addressless(used); bad {
		out = append(out, f)
	}
	out = append(out, overlaps(all, used)...)
	if len(out) == 0 {
		var names []string
		for _, l := range used.Links {
			names = append(names, fmt.Sprintf("%s (%s)", l.Name, prefixes(l)))
		}
		out = append(out, fine("%s", strings.Join(names, ", ")))
	}
	return out
}

func prefixes(l ifwatch.Link) string {
	var out []string
	for _, p := range l.Addrs {
		if !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.String())
		}
	}
	if len(out) == 0 {
		return "no routable address"
	}
	return strings.Join(out, ", ")
}

// noLinks explains why no interface is left.
func noLinks(all []look.Link, filter ifwatch.Filter) Finding {
	var down, excluded, other []string
	for _, l := range all {
		switch {
		case !filter.Allows(l.Name):
			if !l.Loopback {
				excluded = append(excluded, l.Name)
			}
		case l.Loopback:
		case !l.Up || !l.Carrier:
			down = append(down, l.Name)
		default:
			other = append(other, l.Name)
		}
	}
	what := "no network interface is in use"
	for _, part := range []struct {
		text  string
		names []string
	}{
		{"without carrier (no cable, or switched off): %s", down}, {"without multicast, or part of a bridge or bond: %s", other},
		{"excluded by discovery.interfaces or discovery.exclude_interfaces: %s", excluded},
	} {
		if len(part.names) > 0 {
			what += "; " + fmt.Sprintf(part.text, strings.Join(part.names, ", "))
		}
	}
	f := Finding{Code: "no-links", Status: Error, What: what,
		Why: "this cluster finds no clusters on the local network, and none finds it"}
	if len(down) > 0 {
		f.Do = append(f.Do, "connect the cable, or: sudo ip link set "+down[0]+" up")
	}
	if len(excluded) > 0 {
		f.Do = append(f.Do, "or name the interface in the configuration: [discovery] interfaces = [\""+excluded[0]+"\"]")
	}
	if len(f.Do) == 0 {
		f.Do = []string{"list the interfaces: ip -brief address"}
	}
	return f
}

// addressless reports that no used interface has an address that works across links.
func addressless(used ifwatch.Snapshot) (Finding, bool) {
	any, names := false, make([]string, 0, len(used.Links))
	for _, l := range used.Links {
		names = append(names, l.Name)
		for _, p := range l.Addrs {
			if !p.Addr().IsLinkLocalUnicast() {
				return Finding{}, false
			}
			any = true
		}
	}
	who := strings.Join(names, ", ")
	if !any {
		return Finding{Code: "no-address", Status: Error, What: who + " has no address",
			Why: "without an address, this cluster cannot connect to others, and they cannot connect to it",
			Do:  []string{"find out why DHCP assigns no address, or set one: ip -brief address"}}, true
	}
	return Finding{Code: "only-link-local", Status: Warning, What: who + " has only link-local addresses",
		Why: "they do not work across routers, so people and clusters elsewhere cannot use them",
		Do:  []string{"find out why DHCP assigns no address, or set one: ip -brief address"}}, true
}

// overlaps finds networks of used interfaces that are those of containers, too.
func overlaps(all []look.Link, used ifwatch.Snapshot) []Finding {
	plumbing := ifwatch.Filter{Exclude: ifwatch.DefaultExclude()}
	var out []Finding
	for _, l := range used.Links {
		for _, other := range all {
			if other.Loopback || !other.Up || plumbing.Allows(other.Name) || other.Name == l.Name {
				continue
			}
			for _, a := range l.Addrs {
				at := slices.IndexFunc(other.Addrs, a.Overlaps)
				if at < 0 || a.Addr().IsLinkLocalUnicast() {
					continue
				}
				out = append(out, Finding{Code: "network-overlap", Status: Error,
					What: fmt.Sprintf("%s has %s, which overlaps %s of %s", l.Name, a, other.Addrs[at], other.Name),
					Why:  "packets to neighbours in that range go to containers on this box, and vice versa",
					Do: []string{"use another range for the local network",
						"or for the containers: --cluster-cidr and --service-cidr of K3s, default-address-pools of docker"}})
				break
			}
		}
	}
	return out
}

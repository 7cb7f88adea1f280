package connectivity

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/network/filter"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/names"
	"liqo.io/agent/sharing/vnode"
	"liqo.io/agent/sharing/workload"
)

// The cluster DNS is pods with this label in kube-system, in K3s as everywhere.
const (
	labelApp   = "k8s-app"
	clusterDNS = "kube-dns"
)

// ranges returns the ranges of pods that are on this machine, one of each family.
func (c *Connectivity) ranges(nodes []*corev1.Node) []netip.Prefix {
	machine, err := c.cfg.Addresses()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, n := range nodes {
		if _, virtual := vnode.ProviderOf(n); virtual {
			continue
		}
		for _, text := range rangesOf(n) {
			pods, err := netip.ParsePrefix(text)
			if err != nil || slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Addr().Is4() == pods.Addr().Is4() }) {
				continue
			}
			if _, here := within(pods, machine); here {
				out = append(out, pods.Masked())
			}
		}
	}
	return out
}

// asked returns who may ask for names here, and where. That is nobody while nobody could be
// connected, and no guest that was told to ask is left. It also returns all guests. c.mu is held.
func (c *Connectivity) asked(w *watched, pods []netip.Prefix, providers map[string]peer.ClusterID, connectable bool) (filter.Names, *names.State, map[peer.ClusterID][]netip.Prefix) {
	state := &names.State{Pods: pods, Guests: make(map[netip.Addr]names.Guest), Others: make(map[netip.Addr]bool), Domain: c.domain, Nodes: make(map[string]bool)}
	for _, n := range w.nodes.All() {
		// One that is a name of the network, too, says nothing about this cluster.
		if _, virtual := providers[n.Name]; !virtual && !strings.Contains(n.Name, ".") {
			state.Nodes[n.Name] = true
		}
	}
	holders := make(map[netip.Addr]int)
	told, elsewhere, dns := false, false, false
	for _, p := range w.pods.All() {
		if _, virtual := providers[p.Spec.NodeName]; virtual || workload.Ended(p.Status.Phase) {
			continue
		}
		if p.Namespace == metav1.NamespaceSystem && p.Labels[labelApp] == clusterDNS {
			dns = true
			for _, ip := range p.Status.PodIPs {
				if addr, err := netip.ParseAddr(ip.IP); err == nil {
					state.Servers = append(state.Servers, netip.AddrPortFrom(addr, names.AskPort))
				}
			}
		}
		if p.Spec.HostNetwork {
			continue
		}
		consumer, _ := c.cfg.Consumer(p.Namespace)
		guest := consumer != ""
		var searches []string
		if asks := p.Spec.DNSConfig; guest && asks != nil {
			searches = asks.Searches
			told = told || slices.ContainsFunc(names.Addresses, func(a netip.Addr) bool { return slices.Contains(asks.Nameservers, a.String()) })
		}
		here := addresses(p, pods)
		elsewhere = elsewhere || guest && len(here) == 0 && len(p.Status.PodIPs) > 0
		for _, a := range here {
			holders[a.Addr()]++
			if guest {
				domain, _ := workload.ClusterDomain(searches)
				state.Guests[a.Addr()] = names.Guest{Consumer: consumer, Domain: domain, Server: c.server(p, consumer)}
			} else {
				state.Others[a.Addr()] = true
			}
		}
	}
	for a, n := range holders {
		if n > 1 { // until one of them is gone, it is not known who asks
			delete(state.Guests, a)
			delete(state.Others, a)
		}
	}
	c.tellElsewhere(elsewhere)
	guests := make(map[peer.ClusterID][]netip.Prefix)
	for a, g := range state.Guests {
		guests[g.Consumer] = append(guests[g.Consumer], netip.PrefixFrom(a, a.BitLen()))
	}
	for _, all := range guests {
		slices.SortFunc(all, netip.Prefix.Compare)
	}
	var others []netip.Prefix
	for a := range state.Others {
		others = append(others, netip.PrefixFrom(a, a.BitLen()))
	}
	state.Starting = dns && len(state.Servers) == 0
	switch {
	case told:
	case !connectable || len(c.serves) == 0:
		return filter.Names{}, new(names.State), guests
	case len(state.Servers) == 0:
		return filter.Names{}, &names.State{Starting: state.Starting}, guests
	}
	slices.SortFunc(state.Servers, netip.AddrPort.Compare) // so that what is the same looks the same
	slices.SortFunc(others, netip.Prefix.Compare)
	for _, a := range names.Addresses {
		if slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
			state.Addresses = append(state.Addresses, a)
		}
	}
	return filter.Names{Addresses: state.Addresses, AskPort: names.AskPort, Port: names.Port, From: pods, Except: others}, state, guests
}

// tellElsewhere logs that there are guests which this machine cannot hold to what a peer may open. c.mu is held.
func (c *Connectivity) tellElsewhere(guests bool) {
	if guests && !c.elsewhere {
		c.cfg.Logger.Warn("what some pods of consumers open is not limited, because their addresses are in no range of pods (spec.podCIDR) of this machine: they may fill the table of tracked connections of their node")
	}
	c.elsewhere = guests
}

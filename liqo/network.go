package liqo

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer/text"
)

const (
	nodeBits = 24 // of the network that another node is taken to be in
	linkBits = 16 // of the largest network of this machine that no peer may have a part of
)

// followNetworking follows what connects networks until ctx ends, and returns what is closed when it is known.
func (s *session) followNetworking(ctx context.Context, running *sync.WaitGroup, follow func(*kube.Cache[*object], string)) []<-chan struct{} {
	networking := func(plural string) string { return api.Collection(document.Networking, plural) }
	follow(s.configurations, networking(document.PluralConfigurations))
	follow(s.servers, networking(document.PluralGatewayServers))
	follow(s.clients, networking(document.PluralGatewayClients))
	follow(s.publicKeys, networking(document.PluralPublicKeys))
	own := func(cache *kube.Cache[*object], q kube.Query) { running.Go(func() { cache.Follow(ctx, s.client, q) }) }
	own(s.networks, kube.Query{Path: api.Collection(document.IPAM, document.PluralNetworks),
		Labels: document.LabelNetworkType})
	own(s.serverTemplates, kube.Query{Path: networking(document.PluralServerTemplates)})
	own(s.clientTemplates, kube.Query{Path: networking(document.PluralClientTemplates)})
	return []<-chan struct{}{s.configurations.Synced(), s.servers.Synced(), s.clients.Synced(), s.publicKeys.Synced(), s.networks.Synced(),
		s.serverTemplates.Synced(), s.clientTemplates.Synced()}
}

// installedIn returns the namespace of Liqo.
func (s *session) installedIn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespace
}

// network returns the network of this cluster, or why Liqo does not connect it.
func (s *session) network() exchange.Network {
	if s.found.unconnected != "" {
		return exchange.Network{Problem: s.found.unconnected}
	}
	namespace := s.installedIn()
	// The chart has them only with its networking.
	if s.serverTemplates.Get(namespace, document.ServerTemplate) == nil || s.clientTemplates.Get(namespace, document.ClientTemplate) == nil {
		return exchange.Network{Problem: "Liqo was installed without its networking."}
	}
	var n exchange.Network
	var known []netip.Prefix
	for _, o := range s.networks.All() {
		if o.Namespace != namespace {
			continue
		}
		r, err := netip.ParsePrefix(o.Status.CIDR)
		kind := o.Labels[document.LabelNetworkType]
		switch {
		case err != nil && kind != document.NetworkPods && kind != document.NetworkExternal:
			continue
		case err != nil:
			return exchange.Network{Problem: "Liqo's networking is not ready: Network " + o.Name + " has no addresses."}
		case kind == document.NetworkPods:
			n.Pods = append(n.Pods, r)
		case kind == document.NetworkExternal:
			n.External = append(n.External, r)
		}
		known = append(known, r)
	}
	slices.SortFunc(n.Pods, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if len(n.Pods) == 0 || len(n.External) == 0 {
		return exchange.Network{Problem: "Liqo's networking is not ready: there is no Network with the addresses of the cluster."}
	}
	for address := range strings.FieldsSeq(s.addresses()) {
		if ip, err := netip.ParseAddr(address); err == nil {
			n.Taken = append(n.Taken, netip.PrefixFrom(ip.Unmap(), nodeBits).Masked())
		}
	}
	addresses, err := s.cfg.Addresses()
	if err != nil {
		return exchange.Network{Problem: "The addresses of this machine cannot be read: " + text.Sentence(err.Error()) + "."}
	}
	for _, address := range addresses {
		link, err := netip.ParsePrefix(address.String())
		// Liqo maps what is in a range that it knows, as the bridge of the pods is.
		if err != nil || slices.ContainsFunc(known, func(k netip.Prefix) bool { return k.Bits() <= link.Bits() && k.Contains(link.Addr()) }) {
			continue
		}
		// A cluster whose own pods are within such a large network has to live with others' there, too.
		n.Taken = append(n.Taken, netip.PrefixFrom(link.Addr(), max(link.Bits(), linkBits)).Masked())
	}
	return n
}

// connected returns what there is in a namespace to connect the network with the one of another cluster.
func (s *session) connected(inside string, id document.ClusterID) (c exchange.Connected) {
	one := func(cache *kube.Cache[*object], kind string) (found *object) {
		for _, o := range cache.By(byRemote(id)) {
			switch {
			case o.Namespace != inside:
			case found != nil:
				c.Several = kind
			default:
				found = o
			}
		}
		return found
	}
	if o := one(s.configurations, document.PluralConfigurations); o != nil {
		c.Configuration = &exchange.Configuration{Object: about(o), Ours: inCare(o) != "", Ranges: rangesOf(o.Spec.Remote), Applied: applies(o)}
	}
	if o := one(s.servers, document.PluralGatewayServers); o != nil {
		c.Server = s.gateway(o, o.Status.Endpoint)
	}
	if o := one(s.clients, document.PluralGatewayClients); o != nil {
		c.Client = s.gateway(o, o.Spec.Endpoint)
	}
	if o := one(s.publicKeys, document.PluralPublicKeys); o != nil {
		c.Key = &exchange.PublicKey{Object: about(o), Ours: inCare(o) != "", Key: o.Spec.PublicKey}
	}
	return c
}

// gateway describes a gateway that waits or calls at an endpoint.
func (s *session) gateway(o *object, at *endpoint) *exchange.Gateway {
	g := &exchange.Gateway{Object: about(o), Ours: inCare(o) != "", Endpoint: exchange.Endpoint{MTU: o.Spec.MTU}}
	if at != nil {
		g.Port = at.Port
		if len(at.Addresses) > 0 {
			g.Address = at.Addresses[0] // Liqo uses the first
		}
	}
	if ref := o.Status.SecretRef; ref != nil {
		if secret := s.secrets.Get(o.Namespace, ref.Name); secret != nil {
			g.Key = secret.Data[document.FieldPublicKey]
		}
	}
	return g
}

// applies reports whether Liqo uses the ranges of a Configuration: it says to which ones it maps them.
func applies(o *object) bool {
	want, have := o.Spec.Remote, o.Status.Remote
	return want != nil && have != nil && full(have.CIDR.Pod, len(want.CIDR.Pod)) && full(have.CIDR.External, len(want.CIDR.External))
}

func full(ranges []string, count int) bool {
	for _, r := range ranges {
		if r == "" {
			return false
		}
	}
	return count > 0 && len(ranges) == count
}

// rangesOf returns the ranges in a Configuration. One that cannot be read is like none.
func rangesOf(c *clusterConfig) (out exchange.Ranges) {
	if c == nil {
		return out
	}
	read := func(texts []string) (ranges []netip.Prefix) {
		for _, text := range texts {
			r, _ := netip.ParsePrefix(text)
			ranges = append(ranges, r)
		}
		return ranges
	}
	return exchange.Ranges{Pods: read(c.CIDR.Pod), External: read(c.CIDR.External)}
}

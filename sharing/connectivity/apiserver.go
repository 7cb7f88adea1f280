package connectivity

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"liqo.io/agent/peer"
)

// reachesHome is set on the pods in the cache that were told where the API server of their own
// cluster is.
const reachesHome = "reaches-home"

// server returns the addresses by which a guest reaches the API server of the consumer: that of the
// consumer's host, which lets those in whose namespace says so. There are none for a guest that was
// not told of it, as before there were tokens.
func (c *Connectivity) server(guest *corev1.Pod, consumer peer.ClusterID) []netip.Addr {
	if guest.Annotations[reachesHome] == "" {
		return nil
	}
	status, _ := c.cfg.Network.Status(consumer)
	at := status.Blocks.Gateways()
	slices.SortFunc(at, netip.Addr.Compare)
	return at[:min(len(at), 1)] // API servers have a Service of one family, mostly IPv4
}

// apiServer returns where the API server of this cluster is on this machine, not valid if it is
// elsewhere: packets that go on from here to another machine would not come back.
func (c *Connectivity) apiServer(w *watched) netip.AddrPort {
	machine, err := c.cfg.Addresses()
	if err != nil {
		return netip.AddrPort{}
	}
	var found []netip.AddrPort
	for _, s := range w.servers.All() {
		found = append(found, locate(s)...)
	}
	slices.SortFunc(found, netip.AddrPort.Compare)
	for _, at := range found {
		for _, a := range machine {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == at.Addr() && !at.Addr().IsLoopback() {
				return at
			}
		}
	}
	return netip.AddrPort{}
}

// locate returns the addresses in endpoints of the API server; none for no endpoints.
func locate(s *discoveryv1.EndpointSlice) []netip.AddrPort {
	var out []netip.AddrPort
	if s == nil {
		return nil
	}
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port <= 0 || *p.Port > 1<<16-1 {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					out = append(out, netip.AddrPortFrom(a, uint16(*p.Port)))
				}
			}
		}
	}
	return out
}

// tellServer logs that pods which may reach the API server cannot, because it is elsewhere. c.mu is
// held.
func (c *Connectivity) tellServer(w *watched, g *grants) {
	remote := false
	for _, a := range g.away {
		remote = remote || len(a.tokens) > 0 && !g.server.IsValid() && w.servers.HasSynced()
	}
	if remote && !c.remote {
		c.cfg.Logger.Warn("pods at providers do not reach the API server of this cluster, because none of its addresses (EndpointSlice kubernetes in namespace default) is of this machine")
	}
	c.remote = remote
}

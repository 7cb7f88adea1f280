package ifwatch

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// Link is one network interface as the kernel reported it.
type Link struct {
	Index        int
	Name         string
	MTU          int  // bytes of payload of one frame, IP header included
	Up           bool // administratively up, with a carrier
	Multicast    bool
	Loopback     bool
	PointToPoint bool
	HardwareAddr net.HardwareAddr
	// Addrs are the addresses that can be used and told to others, sorted;
	// each with the prefix that is on-link. Left out are those still in
	// duplicate address detection or failed by it, deprecated ones, and
	// temporary (privacy) ones, which would change every day. IPv6 link-local
	// addresses have no zone here: the zone is this link.
	Addrs []netip.Prefix
	// Gateways are the routers of the default routes of the main table that lead
	// through the link, sorted by address, each once. They are only read while
	// somebody follows them (Watcher.FollowGateways): GatewaysKnown tells a link
	// without a default route from one nobody looked at.
	Gateways      []Gateway
	GatewaysKnown bool
}

// Equal reports whether l and o say the same.
func (l Link) Equal(o Link) bool {
	return l.Index == o.Index && l.Name == o.Name && l.MTU == o.MTU && l.Up == o.Up &&
		l.Multicast == o.Multicast && l.Loopback == o.Loopback && l.PointToPoint == o.PointToPoint &&
		bytes.Equal(l.HardwareAddr, o.HardwareAddr) && slices.Equal(l.Addrs, o.Addrs) &&
		l.GatewaysKnown == o.GatewaysKnown && slices.EqualFunc(l.Gateways, o.Gateways, Gateway.Equal)
}

// Snapshot is the set of links that may be used at one moment, sorted by
// index. It may hold links without any address. A Snapshot is immutable: it is
// shared by everybody who asked for it.
type Snapshot struct {
	Links []Link
}

// Equal reports whether s and o hold the same links with the same addresses and
// gateways.
func (s Snapshot) Equal(o Snapshot) bool {
	return slices.EqualFunc(s.Links, o.Links, Link.Equal)
}

// ByName returns the link called name.
func (s Snapshot) ByName(name string) (Link, bool) {
	for _, l := range s.Links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

package mdnssvc

import (
	"net/netip"
	"slices"
	"strconv"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc/wire"
)

// Sizes of what one packet may carry on a link (RFC 6762 section 17): what is
// left of the MTU by the headers of IPv6 and UDP, at most what fits Ethernet
// because not every neighbour on a link needs to have jumbo frames, and in any
// case what every IP host must take.
const (
	headers    = 40 + 8
	maxPayload = 1500 - headers
	minPayload = 512
)

// wantedLink is a link of the last snapshot and what it is to be used for.
type wantedLink struct {
	ifwatch.Link
	use Use
}

// link is a link in use, for one thing at least.
type link struct {
	wantedLink
	families [2]bool // usable and joined, indexed by wire.Family
}

// payload returns how many bytes of DNS message fit one packet.
func (l *link) payload() int {
	return max(minPayload, min(l.MTU-headers, maxPayload))
}

// owns reports whether a is an address of this host on the link.
func (l *link) owns(a netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// local reports whether a is an address of the link's networks (RFC 6762
// section 11).
func (l *link) local(a netip.Addr) bool {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return true
	}
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// broadcasts reports whether a is a broadcast address on the link.
func (l *link) broadcasts(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	if a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
		return p.Addr().Is4() && p.Bits() < 31 && p.Contains(a) && lastAddr(p) == a
	})
}

// lastAddr returns the last address of an IPv4 network.
func lastAddr(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(a)
}

// has reports which families a link can be used with: those it has addresses
// for. Linux has no IPv6 multicast route on loopback.
func has(l ifwatch.Link) (families [2]bool) {
	for _, p := range l.Addrs {
		families[wire.FamilyOf(p.Addr())] = true
	}
	families[wire.IPv6] = families[wire.IPv6] && !l.Loopback
	return families
}

// source returns the address to send from, the zero value to leave that to the
// kernel, which knows best. Only 127.0.0.1 it never chooses for multicast, and
// takes another link's address instead.
func (l *link) source() netip.Addr {
	if !l.Loopback {
		return netip.Addr{}
	}
	for _, p := range l.Addrs {
		if p.Addr().Is4() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// reachable returns the addresses that can be a neighbour's on the link, with
// the zone of link-local ones turned from interface index to interface name. It
// does not change addrs.
func (l *link) reachable(addrs []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		switch {
		case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(), a.IsLoopback() && !l.Loopback:
			continue
		case a.Zone() == strconv.Itoa(l.Index):
			a = a.WithZone(l.Name)
		}
		out = append(out, a)
	}
	return out
}

package ifwatch

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxDumpAttempts bounds how often a dump is repeated that the kernel says was
// overtaken by changes. The last one is taken as it is: every change also
// sends a message, so the watcher looks again anyway.
const maxDumpAttempts = 5

// Read returns the links that may be used now. It is for one look, without a
// Watcher.
func Read(filter Filter) (Snapshot, error) {
	if err := filter.Validate(); err != nil {
		return Snapshot{}, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading network links: opening a netlink socket: %w", err)
	}
	defer h.Close()
	snapshot, _, _, err := read(h, filter)
	return snapshot, err
}

// candidate is a link with what decides about its use, beyond what users of a
// Link need to know.
type candidate struct {
	Link
	kind       string // kernel link type, such as "veth" or "wireguard"; "device" for hardware
	masterKind string // kind of the link it is a port of; "" when none
}

// omission says which link was left out and why.
type omission struct {
	name, reason string
}

// read reads the whole state, gateways apart, and applies the filter. carrier
// tells for every link of the machine whether it is up.
func read(h *netlink.Handle, filter Filter) (snapshot Snapshot, left []omission, carrier map[int]bool, err error) {
	links, err := dump(h.LinkList)
	if err != nil {
		return Snapshot{}, nil, nil, fmt.Errorf("reading network links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return Snapshot{}, nil, nil, fmt.Errorf("reading network addresses: %w", err)
	}
	usable := usableAddrs(addrs)
	kinds := make(map[int]string, len(links))
	for _, l := range links {
		kinds[l.Attrs().Index] = l.Type()
	}
	carrier = make(map[int]bool, len(links))
	for _, l := range links {
		c := newCandidate(l, kinds)
		carrier[c.Index] = c.Up
		if reason := omit(c, filter); reason != "" {
			left = append(left, omission{name: c.Name, reason: reason})
			continue
		}
		c.Addrs = usable[c.Index]
		snapshot.Links = append(snapshot.Links, c.Link)
	}
	slices.SortFunc(snapshot.Links, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	return snapshot, left, carrier, nil
}

// dump repeats a netlink dump that changes made inconsistent.
func dump[T any](list func() ([]T, error)) (items []T, err error) {
	for range maxDumpAttempts {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return items, err
		}
	}
	return items, nil
}

func newCandidate(l netlink.Link, kinds map[int]string) candidate {
	a := l.Attrs()
	return candidate{
		Link: Link{
			Index: a.Index,
			Name:  a.Name,
			MTU:   a.MTU,
			// IFF_RUNNING is the kernel's verdict on carrier and operational
			// state together (RFC 2863), also for drivers that report neither.
			Up:           a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0,
			Multicast:    a.RawFlags&unix.IFF_MULTICAST != 0,
			Loopback:     a.RawFlags&unix.IFF_LOOPBACK != 0,
			PointToPoint: a.RawFlags&unix.IFF_POINTOPOINT != 0,
			HardwareAddr: slices.Clone(a.HardwareAddr),
		},
		kind:       l.Type(),
		masterKind: kinds[a.MasterIndex],
	}
}

// omit returns why a link is not used, or "" when it is. Links are told apart
// by name and, for what is never a LAN, by kind; a veth may well be the
// machine's only real link when the machine is a container.
func omit(c candidate, filter Filter) string {
	switch {
	case !filter.Allows(c.Name):
		return "left out by name"
	case !c.Up:
		return "down or without carrier"
	case !c.Multicast && !c.Loopback:
		// Loopback lacks the flag, yet delivers multicast to this host.
		return "cannot multicast"
	case isAggregate(c.masterKind):
		return "port of a " + c.masterKind
	case filter.explicit():
		return ""
	case c.Loopback:
		return "loopback"
	case c.PointToPoint, isTunnel(c.kind):
		return "tunnel"
	case c.kind == "dummy":
		// Nobody is at the other end, and what lives there (the addresses of
		// node-local DNS or IPVS) is the same on every box.
		return "dummy"
	}
	return ""
}

// isAggregate reports whether a link that is a port of a master of this kind
// hands every packet it receives to the master.
func isAggregate(masterKind string) bool {
	switch masterKind {
	case "bridge", "bond", "team", "openvswitch":
		return true
	}
	return false
}

func isTunnel(kind string) bool {
	switch kind {
	case "tun", "tuntap", "wireguard", "ppp", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan",
		"ipip", "ip6tnl", "sit", "vti", "vti6", "xfrm", "xfrmi", "vxlan", "geneve", "bareudp", "gtp":
		return true
	}
	return false
}

// usableAddrs groups the addresses that can be told to others by link index.
func usableAddrs(addrs []netlink.Addr) map[int][]netip.Prefix {
	byLink := make(map[int][]netip.Prefix)
	for _, a := range addrs {
		if p, ok := usableAddr(a); ok {
			byLink[a.LinkIndex] = append(byLink[a.LinkIndex], p)
		}
	}
	for index, list := range byLink {
		slices.SortFunc(list, netip.Prefix.Compare)
		byLink[index] = slices.Compact(list)
	}
	return byLink
}

func usableAddr(a netlink.Addr) (netip.Prefix, bool) {
	if a.IPNet == nil || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED) != 0 {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	ip = ip.Unmap()
	// The same bit means "temporary" for IPv6 and "secondary" for IPv4, where
	// it is no reason to hide the address.
	if ip.Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 {
		return netip.Prefix{}, false
	}
	if !ip.IsGlobalUnicast() && !ip.IsLinkLocalUnicast() && !ip.IsLoopback() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(ip, prefixLength(a)), true
}

// prefixLength returns the length of the on-link prefix. An address with a
// peer has it on the peer's side; it holds for the address when both lie in
// one network, otherwise only the address itself is known to be there.
func prefixLength(a netlink.Addr) int {
	ones, _ := a.Mask.Size()
	if a.Peer != nil && a.Peer.Contains(a.IP) {
		ones, _ = (net.IPMask)(a.Peer.Mask).Size()
	}
	return ones
}

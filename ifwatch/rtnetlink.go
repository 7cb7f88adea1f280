package ifwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The messages about routes and neighbours are read here and not by the netlink
// package, because most of them are to be passed over as cheaply as possible,
// and because one route of a kind that is not known must not hide the others.

// gatewayKey is an address on a link.
type gatewayKey struct {
	link int // interface index
	addr netip.Addr
}

// neighbour is an entry of the kernel's tables of neighbours (ARP and NDP).
type neighbour struct {
	gatewayKey
	mac       net.HardwareAddr // nil: not resolved
	permanent bool             // a person's entry, which does not depend on the link
	confirmed time.Duration    // how long ago the kernel last knew that it is right
}

// Lengths in bytes of struct rtmsg, struct ndmsg and struct ifinfomsg.
const (
	sizeofRtMsg     = 12
	sizeofNdMsg     = 12
	sizeofIfInfomsg = 16
)

// clockTick is the unit in which the kernel tells ages (USER_HZ, 100 on every
// architecture that Go has).
const clockTick = 10 * time.Millisecond

// attributes goes through the attributes of a netlink message; it ends where
// they are cut off.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if n < unix.SizeofRtAttr || n > len(b) || !yield(kind, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// isDefault reports whether a route message may be about a default route.
func isDefault(b []byte) bool {
	return len(b) >= sizeofRtMsg && (b[0] == unix.AF_INET || b[0] == unix.AF_INET6) && b[1] == 0
}

// parseDefault returns the routers of a route, if it is a default route of the
// main table.
func parseDefault(b []byte) []gatewayKey {
	if !isDefault(b) || b[7] != unix.RTN_UNICAST || binary.NativeEndian.Uint32(b[8:])&unix.RTM_F_CLONED != 0 {
		return nil
	}
	table := uint32(b[4])
	var one gatewayKey
	var all []gatewayKey
	for kind, value := range attributes(b[sizeofRtMsg:]) {
		switch kind {
		case unix.RTA_TABLE:
			table = number(value)
		case unix.RTA_OIF:
			one.link = int(number(value))
		case unix.RTA_MULTIPATH:
			all = append(all, parseHops(value)...)
		default:
			parseGateway(&one, kind, value)
		}
	}
	if table != unix.RT_TABLE_MAIN {
		return nil
	}
	return slices.DeleteFunc(append(all, one), func(k gatewayKey) bool {
		return k.link == 0 || !k.addr.IsValid() || k.addr.IsUnspecified()
	})
}

// parseHops reads the struct rtnexthops of a route with several routers.
func parseHops(b []byte) (hops []gatewayKey) {
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		k := gatewayKey{link: int(int32(binary.NativeEndian.Uint32(b[4:])))}
		for kind, value := range attributes(b[unix.SizeofRtNexthop:n]) {
			parseGateway(&k, kind, value)
		}
		hops = append(hops, k)
		b = b[min(len(b), (n+3)&^3):]
	}
	return hops
}

// parseGateway reads the attributes that hold a router's address: the second is
// for one of another family than the route's.
func parseGateway(k *gatewayKey, kind uint16, value []byte) {
	switch kind {
	case unix.RTA_GATEWAY:
		k.addr, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA:
		if len(value) > 2 { // struct rtvia: family, address
			k.addr, _ = netip.AddrFromSlice(value[2:])
		}
	}
}

// parseNeighbour reads a neighbour message.
func parseNeighbour(b []byte) (n neighbour, ok bool) {
	if len(b) < sizeofNdMsg || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 || b[10]&unix.NTF_PROXY != 0 {
		return n, false
	}
	n.link = int(int32(binary.NativeEndian.Uint32(b[4:])))
	state := binary.NativeEndian.Uint16(b[8:])
	n.permanent = state&unix.NUD_PERMANENT != 0
	for kind, value := range attributes(b[sizeofNdMsg:]) {
		switch kind {
		case unix.NDA_DST:
			n.addr, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			n.mac = slices.Clone(value)
		case unix.NDA_CACHEINFO: // struct nda_cacheinfo: confirmed, used, updated, refcnt
			n.confirmed = time.Duration(number(value)) * clockTick
		}
	}
	const valid = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	if state&valid == 0 || !slices.ContainsFunc(n.mac, func(b byte) bool { return b != 0 }) {
		n.mac = nil
	}
	return n, n.addr.IsValid()
}

// parseLink returns which link a link message is about, and whether it is up
// with a carrier.
func parseLink(b []byte) (index int, up bool) {
	if len(b) < sizeofIfInfomsg {
		return 0, true
	}
	const running = unix.IFF_UP | unix.IFF_RUNNING
	return int(int32(binary.NativeEndian.Uint32(b[4:]))), binary.NativeEndian.Uint32(b[8:])&running == running
}

// number reads a 32 bit attribute, or the beginning of a longer one; 0 when it
// is shorter.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// readGateways reads the default routes and the neighbours.
func readGateways() (routers []gatewayKey, neighbours []neighbour, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := request(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: family}}, func(b []byte) {
			// A machine without IPv6 answers with all families.
			if len(b) > 0 && b[0] == family {
				routers = append(routers, parseDefault(b)...)
			}
		})
		if err != nil {
			return nil, nil, fmt.Errorf("reading default routes: %w", err)
		}
	}
	err = request(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, &netlink.Ndmsg{}, func(b []byte) {
		if n, ok := parseNeighbour(b); ok {
			neighbours = append(neighbours, n)
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the hardware addresses of gateways: %w", err)
	}
	return routers, neighbours, nil
}

// request asks the kernel for all entries of a table. What changes meanwhile
// also sends a message, so an inconsistent answer is not asked for again.
func request(ask int, answer uint16, header nl.NetlinkRequestData, each func([]byte)) error {
	req := nl.NewNetlinkRequest(ask, unix.NLM_F_DUMP)
	req.AddData(header)
	err := req.ExecuteIter(unix.NETLINK_ROUTE, answer, func(b []byte) bool { each(b); return true })
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

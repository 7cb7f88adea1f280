package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Taken returns the addresses for which this machine has routes, but those by the device, that of WireGuard beside it, and
// the default routes.
func Taken(device string) ([]netip.Prefix, error) {
	own := make(map[int]bool)
	for _, name := range []string{device, TunnelOf(device)} {
		if link, err := netlink.LinkByName(name); err == nil {
			own[link.Attrs().Index] = true
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // then another look follows
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	var out []netip.Prefix
	for _, r := range routes {
		if own[r.LinkIndex] || r.Dst == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		if !ok {
			continue
		}
		p := netip.PrefixFrom(addr.Unmap(), bits)
		if p.IsValid() && bits > 0 && unicast(p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// bridge returns the name of the device that has all these addresses; "" if there is none.
func bridge(host []netip.Addr) string {
	links, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, link := range links {
		own, err := link.Addrs()
		if err == nil && len(host) > 0 && !slices.ContainsFunc(host, func(h netip.Addr) bool {
			return !slices.ContainsFunc(own, func(a net.Addr) bool {
				p, err := netip.ParsePrefix(a.String())
				return err == nil && p.Addr() == h
			})
		}) {
			return link.Name
		}
	}
	return ""
}

// exists reports whether there is a network device of that name.
func exists(device string) bool {
	_, err := netlink.LinkByName(device)
	return err == nil
}

// tracked returns how many connections the kernel has room for; 0 if that is not known.
func tracked() int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

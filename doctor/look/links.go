package look

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Link is a network interface, whether it can be used or not.
type Link struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`   // as the kernel names it: device, bridge, veth, ...
	Master    string         `json:"master"` // the bridge or bond that it is a port of; "" = none
	Up        bool           `json:"up"`     // administratively
	Carrier   bool           `json:"carrier"`
	Multicast bool           `json:"multicast"`
	Loopback  bool           `json:"loopback"`
	MTU       int            `json:"mtu"`
	MAC       string         `json:"mac"`
	Addrs     []netip.Prefix `json:"addresses"`
}

// Links returns every network interface, by name.
func Links() ([]Link, error) {
	handle, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("look at the network interfaces: %w", err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	addrs, err := handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []Link
	for _, l := range links {
		a := l.Attrs()
		link := Link{
			Name: a.Name, Kind: l.Type(), Master: names[a.MasterIndex], MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Up: a.Flags&net.FlagUp != 0, Multicast: a.Flags&net.FlagMulticast != 0, Loopback: a.Flags&net.FlagLoopback != 0,
			Carrier: a.RawFlags&0x10000 != 0, // IFF_LOWER_UP
			Addrs:   []netip.Prefix{},
		}
		for _, at := range addrs {
			if at.LinkIndex == a.Index && at.IPNet != nil {
				if prefix, err := netip.ParsePrefix(at.IPNet.String()); err == nil {
					link.Addrs = append(link.Addrs, prefix)
				}
			}
		}
		out = append(out, link)
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Routes returns the main table's routes and the neighbours in sum, as lines for
// people.
func Routes() ([]string, error) {
	handle, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("look at the routes: %w", err)
	}
	defer handle.Close()
	routes, err := handle.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	var out []string
	for _, r := range routes {
		out = append(out, r.String())
	}
	neighbours, err := handle.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return out, fmt.Errorf("list the neighbours: %w", err)
	}
	states := make(map[string]int)
	for _, n := range neighbours {
		states[fmt.Sprintf("link %d, state 0x%02x", n.LinkIndex, n.State)]++
	}
	for _, state := range slices.Sorted(keys(states)) {
		out = append(out, fmt.Sprintf("%d neighbours: %s", states[state], state))
	}
	return out, nil
}

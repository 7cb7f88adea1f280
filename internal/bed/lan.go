//go:build linux

package bed

import (
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink"
)

// LAN is one Ethernet segment: a bridge that floods multicast to all of its ports, as an
// unmanaged switch does.
type LAN struct {
	// Name is the bridge's interface name in the bed's switch namespace.
	Name string

	bed    *Bed
	bridge netlink.Link
}

// AddLAN makes another LAN, for hosts with several links.
func (b *Bed) AddLAN(name string) *LAN {
	b.t.Helper()
	snooping := false // what IGMP snooping would filter must not depend on who has joined what so far
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := b.nl.LinkAdd(bridge); err != nil {
		b.t.Fatalf("bed: LAN %s: %v", name, err)
	}
	if err := b.nl.LinkSetUp(bridge); err != nil {
		b.t.Fatalf("bed: LAN %s: %v", name, err)
	}
	return &LAN{Name: name, bed: b, bridge: bridge}
}

// plug makes a cable between a port of the LAN, which it returns, and a new interface in a host,
// which stays down.
func (l *LAN) plug(h *Host, name string) (netlink.Link, error) {
	b := l.bed
	b.mu.Lock()
	b.ports++
	port := "port" + strconv.Itoa(b.ports)
	b.mu.Unlock()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = port
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(h.ns.net.Fd())}
	if err := b.nl.LinkAdd(cable); err != nil {
		return nil, fmt.Errorf("cable from %s to %s: %w", h.Name, l.Name, err)
	}
	if err := b.nl.LinkSetMaster(cable, l.bridge); err != nil {
		return nil, fmt.Errorf("port on %s: %w", l.Name, err)
	}
	if err := b.nl.LinkSetUp(cable); err != nil {
		return nil, fmt.Errorf("port on %s: %w", l.Name, err)
	}
	return cable, nil
}

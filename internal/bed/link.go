//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is an interface of a host and the cable that leads from it to a LAN. Its methods
// end the test when they fail and return when the kernel has done what they ask for.
type Link struct {
	// Name is the interface's name in the host, such as eth0.
	Name string
	// LAN is where the other end of the cable is.
	LAN *LAN

	host *Host
	port netlink.Link // the other end
	// inOrder ends what SetDisorder began; nil if nothing did.
	inOrder func() error
}

// AddLink gives the host another interface, brings it up and plugs it into a LAN. The prefix is its
// IPv4 address, such as "10.78.0.1/24"; empty means none yet. It has an IPv6 link-local address in any
// case.
func (h *Host) AddLink(lan *LAN, name, prefix string) *Link {
	h.bed.t.Helper()
	l, err := h.addLink(lan, name, prefix)
	if err != nil {
		h.bed.t.Fatalf("bed: host %s: link %s: %v", h.Name, name, err)
	}
	return l
}

func (h *Host) addLink(lan *LAN, name, prefix string) (*Link, error) {
	port, err := lan.plug(h, name)
	if err != nil {
		return nil, err
	}
	l := &Link{Name: name, LAN: lan, host: h, port: port}
	if prefix != "" {
		if err := l.addAddress(prefix); err != nil {
			return nil, err
		}
	}
	if err := l.setUp(); err != nil {
		return nil, err
	}
	h.bed.mu.Lock()
	h.links[name] = l
	h.bed.mu.Unlock()
	return l, nil
}

// Link returns the link of that name.
func (h *Host) Link(name string) *Link {
	h.bed.t.Helper()
	h.bed.mu.Lock()
	l := h.links[name]
	h.bed.mu.Unlock()
	if l == nil {
		h.bed.t.Fatalf("bed: host %s has no link %s", h.Name, name)
	}
	return l
}

// check ends the test if err is not nil.
func (l *Link) check(what string, err error) {
	l.host.bed.t.Helper()
	if err != nil {
		l.host.bed.t.Fatalf("bed: host %s: link %s: %s: %v", l.host.Name, l.Name, what, err)
	}
}

// Down takes the interface down, as `ip link set down` in the host does.
func (l *Link) Down() {
	l.host.bed.t.Helper()
	l.check("down", l.inHost(l.host.nl.LinkSetDown))
}

// Up brings the interface up again and waits until it is usable. IPv6 addresses other than the
// link-local one do not survive Down, as usual with Linux.
func (l *Link) Up() {
	l.host.bed.t.Helper()
	l.check("up", l.setUp())
}

// Unplug pulls the cable at the switch: the interface stays, without a carrier.
func (l *Link) Unplug() {
	l.host.bed.t.Helper()
	l.check("unplug", l.host.bed.nl.LinkSetDown(l.port))
	l.check("unplug", l.waitFor(func(s linkState) error {
		if s.carrier {
			return errors.New("still has a carrier")
		}
		return nil
	}))
}

// Plug puts the cable back and waits until the interface is usable.
func (l *Link) Plug() {
	l.host.bed.t.Helper()
	l.check("plug", l.host.bed.nl.LinkSetUp(l.port))
	l.check("plug", l.waitUsable())
}

// Remove makes the interface vanish, as a pulled USB adapter does.
func (l *Link) Remove() {
	l.host.bed.t.Helper()
	l.check("remove", l.inHost(l.host.nl.LinkDel))
	l.host.bed.mu.Lock()
	delete(l.host.links, l.Name)
	l.host.bed.mu.Unlock()
}

// AddAddress adds an IPv4 or IPv6 address with its prefix length, such as "10.77.0.9/24".
func (l *Link) AddAddress(prefix string) {
	l.host.bed.t.Helper()
	l.check("add "+prefix, l.addAddress(prefix))
}

// DelAddress removes an address.
func (l *Link) DelAddress(prefix string) {
	l.host.bed.t.Helper()
	l.check("remove "+prefix, l.delAddress(prefix))
}

// SetAddress replaces all IPv4 addresses by one, as a DHCP client with a new lease does: the old ones
// go first.
func (l *Link) SetAddress(prefix string) {
	l.host.bed.t.Helper()
	s, err := l.state()
	l.check("read", err)
	for _, p := range s.addrs {
		if p.Addr().Is4() {
			l.check("remove "+p.String(), l.delAddress(p.String()))
		}
	}
	l.check("add "+prefix, l.addAddress(prefix))
}

// Addresses returns the interface's addresses, IPv6 link-local ones without a zone.
func (l *Link) Addresses() []netip.Prefix {
	l.host.bed.t.Helper()
	s, err := l.state()
	l.check("read", err)
	return s.addrs
}

// HardwareAddr returns the interface's MAC address.
func (l *Link) HardwareAddr() net.HardwareAddr {
	l.host.bed.t.Helper()
	s, err := l.state()
	l.check("read", err)
	return s.mac
}

// Index returns the interface's index in the host.
func (l *Link) Index() int {
	l.host.bed.t.Helper()
	s, err := l.state()
	l.check("read", err)
	return s.index
}

// SetLoss makes the switch drop this share of the packets towards the host, in percent and at random;
// 0 ends that. It needs the program nft.
func (l *Link) SetLoss(percent int) {
	l.host.bed.t.Helper()
	port := l.port.Attrs().Name
	rules := fmt.Sprintf("add table bridge %[1]s\ndelete table bridge %[1]s\n", port)
	if percent > 0 {
		which := fmt.Sprintf("numgen random mod 100 < %d", percent)
		if percent >= 100 {
			which = "" // nft takes no bound that is always met
		}
		rules += fmt.Sprintf(`table bridge %[1]s {
			chain forward {
				type filter hook forward priority 0
				oifname %[1]s %[2]s drop
			}
		}`, port, which)
	}
	l.check("set loss", l.nft(rules))
}

// nft gives rules to the switch.
func (l *Link) nft(rules string) error {
	return l.host.bed.sw.do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// clearNetwork removes all interfaces but the loopback, and all rules.
func (h *Host) clearNetwork(ctx context.Context) error {
	links, err := h.nl.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		// The other end of a cable goes with the first.
		if err := h.nl.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove %s: %w", link.Attrs().Name, err)
		}
	}
	_, err = h.Run(ctx, "nft", "flush", "ruleset")
	return err
}

// linkState is what the kernel says about a link.
type linkState struct {
	index   int
	mac     net.HardwareAddr
	carrier bool
	addrs   []netip.Prefix // without tentative ones
}

func (l *Link) state() (linkState, error) {
	link, err := l.host.nl.LinkByName(l.Name)
	if err != nil {
		return linkState{}, err
	}
	s := linkState{
		index:   link.Attrs().Index,
		mac:     link.Attrs().HardwareAddr,
		carrier: link.Attrs().OperState == netlink.OperUp,
	}
	addrs, err := l.host.nl.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return linkState{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Flags&unix.IFA_F_TENTATIVE != 0 {
			continue
		}
		ones, _ := a.Mask.Size()
		s.addrs = append(s.addrs, netip.PrefixFrom(ip.Unmap(), ones))
	}
	return s, nil
}

// usable says what a link still lacks before it can carry IPv4 and IPv6.
func usable(s linkState) error {
	if !s.carrier {
		return errors.New("no carrier")
	}
	for _, p := range s.addrs {
		if p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return nil
		}
	}
	return errors.New("no IPv6 link-local address")
}

// waitUsable waits until the host can use the link and the switch forwards to it.
func (l *Link) waitUsable() error {
	if err := l.waitFor(usable); err != nil {
		return err
	}
	sw := l.host.bed.nl
	ctx, cancel := context.WithTimeout(l.host.bed.t.Context(), Hang)
	defer cancel()
	if err := Poll(ctx, func() error {
		port, err := sw.LinkByIndex(l.port.Attrs().Index)
		if err == nil && port.Attrs().OperState != netlink.OperUp {
			err = errors.New("the switch sees no carrier")
		}
		return err
	}); err != nil {
		return err
	}
	// The kernel begins to forward after it shows the carrier, in one go under the lock that this needs, too.
	return sw.LinkSetUp(l.port)
}

// waitFor polls the kernel until the condition holds.
func (l *Link) waitFor(condition func(linkState) error) error {
	ctx, cancel := context.WithTimeout(l.host.bed.t.Context(), Hang)
	defer cancel()
	return Poll(ctx, func() error {
		s, err := l.state()
		if err != nil {
			return err
		}
		return condition(s)
	})
}

func (l *Link) inHost(do func(netlink.Link) error) error {
	link, err := l.host.nl.LinkByName(l.Name)
	if err != nil {
		return err
	}
	return do(link)
}

func (l *Link) setUp() error {
	if err := l.inHost(l.host.nl.LinkSetUp); err != nil {
		return err
	}
	return l.waitUsable()
}

func (l *Link) addAddress(prefix string) error {
	addr, err := parseAddr(prefix)
	if err != nil {
		return err
	}
	return l.inHost(func(link netlink.Link) error { return l.host.nl.AddrAdd(link, addr) })
}

func (l *Link) delAddress(prefix string) error {
	addr, err := parseAddr(prefix)
	if err != nil {
		return err
	}
	return l.inHost(func(link netlink.Link) error { return l.host.nl.AddrDel(link, addr) })
}

func parseAddr(prefix string) (*netlink.Addr, error) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return nil, err
	}
	bits := p.Addr().BitLen()
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), bits)}}, nil
}

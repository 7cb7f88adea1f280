package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Protocol is the routing protocol number (RTA_PROTOCOL) of the routes that
// Configure makes, by which they are known as ours: `ip route show proto 241`.
const Protocol = 241

// ErrConflict means that somebody else has a route for the same prefix. It is
// left alone.
var ErrConflict = errors.New("another route has this prefix")

// Config is what a device should have.
type Config struct {
	// Addresses are the host's own on the device, each without a network around
	// it (/32 or /128).
	Addresses []netip.Addr
	// Routes are those through the device, in the main table, one for a prefix.
	Routes []Route
}

// Route leads a prefix through the device.
type Route struct {
	Prefix netip.Prefix // must be masked
	// Source is what the host itself uses as source address towards the prefix:
	// an address of this host, on whatever link. The zero Addr leaves it to the
	// kernel.
	Source netip.Addr
	// MTU is the length of the longest packet to there, in bytes; 0 is that of the
	// device.
	MTU int
}

// Configure compares the device with what is wanted, and changes the difference:
// settings that Open made and somebody changed, addresses, and routes. Nothing is
// written when there is none. The device loses all other addresses. Routes of
// others (with another protocol number) stay, unless the last IPv4 address goes:
// with it, the kernel deletes all IPv4 routes through the device.
//
// The kernel begins to deliver to a new IPv6 address a moment after Configure has
// returned, and tells a Watch of it then.
//
// It does what it can and returns the errors joined. They wrap ErrRemoved when
// the device is gone, and ErrConflict when the prefix of a route is taken. After
// Close the error is os.ErrClosed.
func (d *Device) Configure(want Config) error {
	if err := want.check(); err != nil {
		return fmt.Errorf("network device %s: %w", d.name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nl.sockets == nil {
		return os.ErrClosed
	}
	d.wanted.Store(&want.Routes)
	err := d.repair()
	if !errors.Is(err, ErrRemoved) {
		err = errors.Join(err, d.configure(want))
	}
	if err != nil {
		return fmt.Errorf("network device %s: %w", d.name, err)
	}
	return nil
}

func (c Config) check() error {
	for _, a := range c.Addresses {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("not an address for a device: %s", a)
		}
	}
	seen := make(map[netip.Prefix]bool, len(c.Routes))
	for _, r := range c.Routes {
		switch {
		case !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() || r.Prefix.Addr().Is4In6():
			return fmt.Errorf("not a prefix for a route: %s", r.Prefix)
		case r.Source.IsValid() && (r.Source.Is4() != r.Prefix.Addr().Is4() || r.Source.Zone() != ""):
			return fmt.Errorf("not a source address for the route to %s: %s", r.Prefix, r.Source)
		case seen[r.Prefix]:
			return fmt.Errorf("two routes to %s are wanted", r.Prefix)
		}
		seen[r.Prefix] = true
	}
	return nil
}

// configure changes addresses and routes. The order keeps routes valid: the
// kernel refuses and deletes those whose source is not an address here.
func (d *Device) configure(want Config) error {
	extra, missing, err := d.compareAddresses(want.Addresses)
	if err != nil {
		return err
	}
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: d.name, Index: d.index}}
	var errs []error
	for _, a := range missing {
		if err := d.nl.AddrAdd(link, hostAddress(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("adding the address %s: %w", a, err))
		}
	}
	routing := d.configureRoutes(want.Routes)
	for _, a := range extra {
		if err := d.nl.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("deleting the address %s: %w", a.IPNet, err))
		}
	}
	if len(extra) > 0 {
		// With the last IPv4 address, all IPv4 routes went.
		routing = d.configureRoutes(want.Routes)
	}
	return errors.Join(append(errs, routing)...)
}

// hostAddress is an address without a network.
func hostAddress(a netip.Addr) *netlink.Addr {
	bits := a.BitLen()
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, bits)},
		// Nobody else can have it here, and its route is in the local table already.
		Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE,
	}
}

func (d *Device) compareAddresses(want []netip.Addr) (extra []netlink.Addr, missing []netip.Addr, err error) {
	have, err := d.nl.AddrList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: d.index}}, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("reading its addresses: %w", err)
	}
	found := make(map[netip.Addr]bool, len(have))
	for _, x := range have {
		a, _ := netip.AddrFromSlice(x.IP)
		bits, size := x.Mask.Size()
		if size == 32 {
			a = a.Unmap()
		}
		if bits == size && slices.Contains(want, a) {
			found[a] = true
		} else {
			extra = append(extra, x)
		}
	}
	for _, a := range want {
		if !found[a] {
			missing = append(missing, a)
		}
	}
	return extra, missing, nil
}

// Routes returns the routes of ours through the device.
func (d *Device) Routes() ([]Route, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nl.sockets == nil {
		return nil, os.ErrClosed
	}
	return d.nl.routes(d.index)
}

// configureRoutes turns our routes that there are into those that are wanted.
func (d *Device) configureRoutes(want []Route) error {
	have, err := d.nl.routes(d.index)
	if err != nil {
		return err
	}
	var errs []error
	failed := func(doing string, r Route, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s the route to %s: %w", doing, r.Prefix, err))
		}
	}
	for _, r := range have {
		if !slices.ContainsFunc(want, func(w Route) bool { return w.Prefix == r.Prefix }) {
			if err := d.nl.RouteDel(d.netlinkRoute(r)); !errors.Is(err, unix.ESRCH) {
				failed("deleting", r, err)
			}
		}
	}
	for _, w := range want {
		i := slices.IndexFunc(have, func(r Route) bool { return r.Prefix == w.Prefix })
		switch {
		case i < 0:
			err := d.nl.RouteAdd(d.netlinkRoute(w))
			if errors.Is(err, unix.EEXIST) {
				err = ErrConflict
			}
			failed("adding", w, err)
		case have[i] != w:
			failed("changing", w, d.nl.RouteReplace(d.netlinkRoute(w)))
		}
	}
	return errors.Join(errs...)
}

func (d *Device) netlinkRoute(r Route) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: d.index,
		Dst:       &net.IPNet{IP: r.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.Prefix.Bits(), r.Prefix.Addr().BitLen())},
		Protocol:  Protocol,
		Table:     unix.RT_TABLE_MAIN,
		Type:      unix.RTN_UNICAST,
	}
	if r.Prefix.Addr().Is4() {
		route.Scope = unix.RT_SCOPE_LINK
	}
	route.MTU = r.MTU
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	return route
}

// routes reads our routes through the device.
func (c *conn) routes(index int) ([]Route, error) {
	var all []Route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Table: unix.RT_TABLE_MAIN, Protocol: Protocol}}
		req := c.request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, header, nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
		err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(b []byte) bool {
			// A machine without IPv6 answers with all families.
			if m, ok := parseRoute(b); ok && m.family == family && m.table == unix.RT_TABLE_MAIN && m.protocol == Protocol && m.link == index {
				all = append(all, m.Route)
			}
			return true
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("reading its routes: %w", err)
		}
	}
	return all, nil
}

// routeMessage is what a message about a route says, as far as it matters here.
type routeMessage struct {
	Route
	family   uint8
	protocol uint8
	table    uint32
	link     int // interface index
}

// parseRoute reads a struct rtmsg with its attributes.
func parseRoute(b []byte) (m routeMessage, ok bool) {
	if len(b) < unix.SizeofRtMsg || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return m, false
	}
	m.family, m.table, m.protocol = b[0], uint32(b[4]), b[5]
	address, bits := netip.IPv4Unspecified(), int(b[1])
	if m.family == unix.AF_INET6 {
		address = netip.IPv6Unspecified()
	}
	for kind, value := range attributes(b[unix.SizeofRtMsg:]) {
		switch {
		case kind == unix.RTA_DST:
			address, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_PREFSRC:
			m.Source, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_METRICS:
			for metric, value := range attributes(value) {
				if metric == unix.RTAX_MTU && len(value) >= 4 {
					m.MTU = int(binary.NativeEndian.Uint32(value))
				}
			}
		case kind == unix.RTA_OIF && len(value) >= 4:
			m.link = int(int32(binary.NativeEndian.Uint32(value)))
		case kind == unix.RTA_TABLE && len(value) >= 4:
			m.table = binary.NativeEndian.Uint32(value)
		}
	}
	m.Prefix = netip.PrefixFrom(address, bits)
	return m, m.Prefix.IsValid()
}

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

package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// inetConf is IFLA_INET_CONF: the settings of IPv4, in the order of the
	// kernel's IPV4_DEVCONF constants.
	inetConf = 1
	// rpFilter is IPV4_DEVCONF_RP_FILTER.
	rpFilter = 8
	// rpLoose accepts a source that is reachable by any link. The kernel takes the
	// greater one of the device's setting and that for all devices, so 0 would not
	// help where the latter is strict (1).
	rpLoose = 2
	// inet6AddrGenMode is IFLA_INET6_ADDR_GEN_MODE.
	inet6AddrGenMode = 8
	// addrGenNone is IN6_ADDR_GEN_MODE_NONE: no link-local address.
	addrGenNone = 1
)

// conn is a pair of netlink sockets of one network namespace.
type conn struct {
	*netlink.Handle
	sockets map[int]*nl.SocketHandle // for what Handle does not have; nil: closed
}

func newConn() (*conn, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	// The kernel then returns only the routes that are asked for. Where it cannot,
	// the others are left out here.
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return &conn{Handle: handle, sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}, nil
}

// close is not to be called together with anything else. Closing again is
// harmless; anything else would then go to the network namespace of the caller.
func (c *conn) close() {
	if c.sockets != nil {
		c.Handle.Close()
		c.sockets[unix.NETLINK_ROUTE].Close()
		c.sockets = nil
	}
}

// request begins a message to the kernel.
func (c *conn) request(kind, flags int, data ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = c.sockets
	for _, d := range data {
		req.AddData(d)
	}
	return req
}

// settings are what a device has and should have.
type settings struct {
	up       bool
	mtu      int
	rpFilter uint32
	addrGen  uint8
	ipv6     bool // the kernel has IPv6 on this device
}

// settings reads those of a device. It returns ErrRemoved when there is none.
func (c *conn) settings(index int) (s settings, err error) {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index)
	answers, err := c.request(unix.RTM_GETLINK, 0, header).Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENODEV) {
		return s, ErrRemoved
	}
	if err != nil {
		return s, fmt.Errorf("reading its settings: %w", err)
	}
	if len(answers) != 1 || len(answers[0]) < unix.SizeofIfInfomsg {
		return s, errors.New("reading its settings: the kernel's answer is incomplete")
	}
	s.up = binary.NativeEndian.Uint32(answers[0][8:])&unix.IFF_UP != 0
	for kind, value := range attributes(answers[0][unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_MTU && len(value) >= 4:
			s.mtu = int(binary.NativeEndian.Uint32(value))
		case kind == unix.IFLA_AF_SPEC:
			for family, value := range attributes(value) {
				s.parseFamily(family, value)
			}
		}
	}
	return s, nil
}

func (s *settings) parseFamily(family uint16, b []byte) {
	for kind, value := range attributes(b) {
		switch {
		case family == unix.AF_INET && kind == inetConf && len(value) >= 4*rpFilter:
			s.rpFilter = binary.NativeEndian.Uint32(value[4*(rpFilter-1):])
		case family == unix.AF_INET6 && kind == inet6AddrGenMode && len(value) >= 1:
			s.addrGen, s.ipv6 = value[0], true
		}
	}
}

// repair gives the device the settings that it should have, where they differ.
func (d *Device) repair() error {
	s, err := d.nl.settings(d.index)
	if err != nil {
		return err
	}
	var errs []error
	set := func(what string, different bool, do func() error) {
		if !different {
			return
		}
		if err := do(); err != nil {
			errs = append(errs, fmt.Errorf("setting its %s: %w", what, err))
		}
	}
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: d.name, Index: d.index}}
	set("MTU", s.mtu != d.mtu, func() error { return d.nl.LinkSetMTU(link, d.mtu) })
	set("rp_filter", s.rpFilter != rpLoose, func() error {
		return d.nl.setFamily(d.index, unix.AF_INET, nl.NewRtAttr(inetConf, nl.NewRtAttr(rpFilter, nl.Uint32Attr(rpLoose)).Serialize()))
	})
	// Before it is up, when it would get a link-local address.
	set("IPv6 address generation", s.ipv6 && s.addrGen != addrGenNone, func() error {
		return d.nl.setFamily(d.index, unix.AF_INET6, nl.NewRtAttr(inet6AddrGenMode, []byte{addrGenNone}))
	})
	set("state to up", !s.up, func() error { return d.nl.LinkSetUp(link) })
	return errors.Join(errs...)
}

// setFamily changes a setting of a device that belongs to an address family.
func (c *conn) setFamily(index, family int, setting *nl.RtAttr) error {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nl.NewRtAttr(family, setting.Serialize()).Serialize())
	_, err := c.request(unix.RTM_SETLINK, unix.NLM_F_ACK, header, spec).Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// SetMTU changes the length of the longest packet, in bytes, for good: Configure
// keeps it from then on. After Close the error is os.ErrClosed.
func (d *Device) SetMTU(mtu int) error {
	if err := checkMTU(mtu); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nl.sockets == nil {
		return os.ErrClosed
	}
	d.mtu = mtu
	if err := d.repair(); err != nil {
		return fmt.Errorf("network device %s: %w", d.name, err)
	}
	return nil
}

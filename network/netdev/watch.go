package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Watch calls changed once when it has begun to listen, and then after every
// change to the device, its addresses, its IPv4 settings, a route through it
// or with our protocol number, and every new route of others that overlaps one of
// the last Configure. A call only means "look again": Configure compares
// and writes nothing when all is as it should be. Changes that Configure makes
// are told, too; those that come at the same time are told once.
//
// It returns nil when ctx ends. changed is called from Watch's own goroutine, and
// may be called for nothing.
func (d *Device) Watch(ctx context.Context, changed func()) error {
	socket, err := listen()
	if err != nil {
		return fmt.Errorf("watching the network device %s: %w", d.name, err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	defer socket.Close()
	changed()
	buf := make([]byte, 64<<10) // more than the kernel puts into one message
	for {
		n, err := socket.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // messages were dropped
			changed()
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("watching the network device %s: %w", d.name, err)
		case d.concerns(buf[:n]):
			changed()
		}
	}
}

// listen subscribes to all that concerns links, addresses and routes.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	var groups uint32
	for _, g := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF,
	} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribing to netlink messages: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// collides reports whether a route takes addresses that one of the wanted routes is for. A default route does not.
func (d *Device) collides(with netip.Prefix) bool {
	routes := d.wanted.Load()
	return routes != nil && with.Bits() > 0 && slices.ContainsFunc(*routes, func(r Route) bool { return r.Prefix.Overlaps(with) })
}

// concerns reports whether one of the messages is about the device, or what it is for.
func (d *Device) concerns(b []byte) bool {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return false
		}
		body := b[unix.SizeofNlMsghdr:n]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
			// struct ifinfomsg and struct ifaddrmsg both have the index there.
			if len(body) >= 8 && int(int32(binary.NativeEndian.Uint32(body[4:]))) == d.index {
				return true
			}
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			m, ok := parseRoute(body)
			added := binary.NativeEndian.Uint16(b[4:]) == unix.RTM_NEWROUTE
			if ok && (m.link == d.index || m.protocol == Protocol || added && d.collides(m.Prefix)) {
				return true
			}
		case unix.RTM_NEWNETCONF:
			if netconfIndex(body) == d.index {
				return true
			}
		}
		b = b[min(len(b), (n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return false
}

// netconfIndex returns the interface index in a message about settings: a struct
// netconfmsg, which is one byte and padding, and attributes. 0 is none.
func netconfIndex(b []byte) int {
	const ifindex = 1 // NETCONFA_IFINDEX
	if len(b) < 4 {
		return 0
	}
	for kind, value := range attributes(b[4:]) {
		if kind == ifindex && len(value) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(value)))
		}
	}
	return 0
}

package ifwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// follower hears of default routes and of the hardware addresses of gateways.
// Run owns it; its goroutine only reads the socket.
type follower struct {
	*book
	socket   io.ReadCloser
	read     func() (routers []gatewayKey, neighbours []neighbour, err error)
	expected atomic.Pointer[expected] // nil: a look is being taken, so everything may be news
	failed   chan error
}

// follow begins to listen; kick is called for everything that is news.
func follow(kick func()) (*follower, error) {
	f, err := subscribe()
	if err == nil {
		f.start(kick)
	}
	return f, err
}

// subscribe returns a follower whose messages wait until it is started.
func subscribe() (*follower, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("following gateways: opening a netlink socket: %w", err)
	}
	// The larger buffer only makes overflows rarer, so failing to get it does not
	// matter.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, noticeBuffer)
	groups := uint32(1<<(unix.RTNLGRP_NEIGH-1) | 1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1))
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("following gateways: subscribing to netlink messages: %w", err), unix.Close(fd))
	}
	return &follower{book: newBook(), socket: os.NewFile(uintptr(fd), "netlink"), read: readGateways, failed: make(chan error, 1)}, nil
}

// start begins to read messages.
func (f *follower) start(kick func()) {
	go func() { f.failed <- f.notices(kick) }()
}

// notices reads messages until the socket is closed or fails.
func (f *follower) notices(kick func()) error {
	buf := make([]byte, 64<<10) // more than the kernel puts into one message
	for {
		n, err := f.socket.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS): // messages were dropped, so something changed
			kick()
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case f.news(buf[:n]):
			kick()
		}
	}
}

// news reports whether messages from the kernel are a reason to look again.
// Neighbours of all kinds change their state all the time, and pods come with
// routes and neighbours of their own; none of that is.
func (f *follower) news(b []byte) bool {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return false
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]
		switch kind {
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			if isDefault(body) {
				return true
			}
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			if x := f.expected.Load(); x == nil {
				return true
			} else if neighbour, ok := parseNeighbour(body); ok {
				if kind == unix.RTM_DELNEIGH {
					neighbour.mac = nil
				}
				if x.news(neighbour) {
					return true
				}
			}
		}
		b = b[min(len(b), (n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return false
}

// close ends the follower and waits for its goroutine, unless that was found to
// have ended.
func (f *follower) close(ended bool) {
	_ = f.socket.Close() // nothing is buffered that could be lost
	if !ended {
		<-f.failed
	}
}

// look reads routes and neighbours and adds to a snapshot what they say about
// its links. carrier and lapsed are as for book.look.
func (f *follower) look(now time.Time, s *Snapshot, carrier map[int]bool, lapsed func(int) bool) error {
	f.expected.Store(nil)
	routers, neighbours, err := f.read()
	if err != nil {
		return err
	}
	used := make(map[int]bool, len(s.Links))
	for _, l := range s.Links {
		used[l.Index] = true
	}
	f.book.look(now, carrier, used, lapsed, routers, neighbours)
	x := f.book.expected()
	f.expected.Store(&x)
	for i := range s.Links {
		l := &s.Links[i]
		l.Gateways, l.GatewaysKnown = f.on(l.Index), true
	}
	return nil
}

// discard is the port of the discard service (RFC 863). What is sent there says
// nothing, and nobody is expected to listen.
const discard = 9

// provoke makes the kernel ask for the hardware address of a router, by sending
// an empty datagram to it, which any process may do. It never goes further than
// the link.
func provoke(k gatewayKey) (err error) {
	var to unix.Sockaddr
	var control []byte
	family, level, hops := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL
	if k.addr.Is4() {
		to = &unix.SockaddrInet4{Port: discard, Addr: k.addr.As4()}
		control = unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(k.link)})
	} else {
		family, level, hops = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		to = &unix.SockaddrInet6{Port: discard, Addr: k.addr.As16(), ZoneId: uint32(k.link)}
		control = unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(k.link)})
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.SetsockoptInt(fd, level, hops, 1); err != nil {
		return err
	}
	_, err = unix.SendmsgN(fd, nil, control, to, unix.MSG_DONTWAIT)
	return err
}

package mdnssvc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"liqo.io/agent/mdnssvc/wire"
)

// hopLimit is the TTL of everything sent (RFC 6762 section 11).
const hopLimit = 255

// sendBuffer is the size in bytes of a socket's send buffer, enough for a
// burst of known answers.
const sendBuffer = 1 << 20

// poorBuffer is the receive buffer in bytes below which a person should know.
const poorBuffer = 1 << 20

// groups are the mDNS groups (RFC 6762 section 3), indexed by wire.Family.
var groups = [2]netip.Addr{
	wire.IPv4: netip.AddrFrom4([4]byte{224, 0, 0, 251}),
	wire.IPv6: netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 0xfb}),
}

// socket is the mDNS socket of one family. One goroutine reads, another does
// everything else.
type socket struct {
	family wire.Family
	conn   net.PacketConn
	raw    syscall.RawConn
	reader batchReader
}

// batchReader is recvmmsg; ipv4.Message and ipv6.Message are one type.
type batchReader interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
}

// openSockets opens the sockets of both families, indexed by wire.Family. A
// family the kernel does not have is left nil; it is an error when none is left
// or when a socket cannot be had although the family is there.
func openSockets(ctx context.Context, receiveBuffer int, log *slog.Logger) ([2]*socket, error) {
	var sockets [2]*socket
	var missing error
	for family := range sockets {
		k, err := openSocket(ctx, wire.Family(family), receiveBuffer, log)
		switch {
		case err == nil:
			sockets[family] = k
		case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EPROTONOSUPPORT):
			log.Debug("mDNS does not use an IP version that this machine lacks", "family", wire.Family(family), "error", err)
			missing = errors.Join(missing, err)
		default:
			for _, k := range sockets {
				if k != nil {
					k.close()
				}
			}
			return [2]*socket{}, err
		}
	}
	if sockets == [2]*socket{} {
		return sockets, fmt.Errorf("mDNS: this machine has neither IPv4 nor IPv6: %w", missing)
	}
	return sockets, nil
}

// openSocket opens a socket on port 5353 that shares the port. It is bound to
// the wildcard address, like those of avahi-daemon and systemd-resolved, because
// questions and answers may also be sent to this host directly; which links'
// multicasts it gets is up to join.
func openSocket(ctx context.Context, family wire.Family, receiveBuffer int, log *slog.Logger) (*socket, error) {
	network, address, options := "udp4", "0.0.0.0", options4()
	if family == wire.IPv6 {
		network, address, options = "udp6", "::", options6()
	}
	address = net.JoinHostPort(address, fmt.Sprint(wire.Port))
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if cerr := raw.Control(func(fd uintptr) { err = setOptions(int(fd), options, receiveBuffer, log) }); cerr != nil {
			return cerr
		}
		return err
	}}
	conn, err := lc.ListenPacket(ctx, network, address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("mDNS: another process holds UDP port %d without sharing it; find it with \"ss -ulpn sport = :%d\" and stop it, or make it share the port (SO_REUSEADDR): %w",
			wire.Port, wire.Port, err)
	}
	if err != nil {
		return nil, fmt.Errorf("mDNS: opening the %s socket: %w", family, err)
	}
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("mDNS: opening the %s socket: %w", family, err)
	}
	k := &socket{family: family, conn: conn, raw: raw}
	if family == wire.IPv6 {
		k.reader = ipv6.NewPacketConn(conn)
	} else {
		k.reader = ipv4.NewPacketConn(conn)
	}
	return k, nil
}

// option is one integer socket option.
type option struct {
	level, name, value int
	meaning            string
	optional           bool // older kernels do not have it
}

// optionsBoth are set on both sockets. Sharing the port takes both of the
// first: some ask for one, some for the other, of all others on the port.
func optionsBoth() []option {
	return []option{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR", false},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT", false},
		{unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, "SO_RXQ_OVFL", true},
	}
}

// options4: the MULTICAST_ALL options keep out what other processes' group
// memberships on other links let in; MULTICAST_LOOP lets others on this host
// hear us.
func options4() []option {
	return append(optionsBoth(),
		option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1, "IP_PKTINFO", false},
		option{unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, "IP_MULTICAST_ALL", true},
		option{unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1, "IP_MULTICAST_LOOP", false},
		option{unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit, "IP_MULTICAST_TTL", false},
		option{unix.IPPROTO_IP, unix.IP_TTL, hopLimit, "IP_TTL", false},
	)
}

func options6() []option {
	return append(optionsBoth(),
		option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, "IPV6_RECVPKTINFO", false},
		option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0, "IPV6_MULTICAST_ALL", true},
		option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1, "IPV6_MULTICAST_LOOP", false},
		option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit, "IPV6_MULTICAST_HOPS", false},
		option{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit, "IPV6_UNICAST_HOPS", false},
	)
}

// setOptions runs before bind, so that no packet is ever received without them.
func setOptions(fd int, options []option, receiveBuffer int, log *slog.Logger) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil && !o.optional {
			return fmt.Errorf("setting %s: %w", o.meaning, err)
		}
	}
	// A smaller send buffer only means that more of a burst is dropped, and counted.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("setting SO_RCVBUF: %w", err)
	}
	// The kernel reports twice what it grants, to account for its own overhead.
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && got/2 < min(receiveBuffer, poorBuffer) {
		log.Info("mDNS has a small receive buffer and may miss answers when there are hundreds of neighbours; grant CAP_NET_ADMIN or raise the sysctl net.core.rmem_max",
			"bytes", got/2, "wanted", receiveBuffer)
	}
	return nil
}

// join makes the socket a member of the mDNS group on a link.
func (k *socket) join(link int) error {
	return k.membership(link, unix.IP_ADD_MEMBERSHIP, unix.IPV6_JOIN_GROUP)
}

// leave ends a membership. The kernel may have ended it already, together with
// the link, so there is nothing to be done about an error.
func (k *socket) leave(link int) {
	_ = k.membership(link, unix.IP_DROP_MEMBERSHIP, unix.IPV6_LEAVE_GROUP)
}

func (k *socket) membership(link, name4, name6 int) error {
	var err error
	cerr := k.raw.Control(func(fd uintptr) {
		if k.family == wire.IPv6 {
			err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, name6,
				&unix.IPv6Mreq{Multiaddr: groups[wire.IPv6].As16(), Interface: uint32(link)})
		} else {
			err = unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, name4,
				&unix.IPMreqn{Multiaddr: groups[wire.IPv4].As4(), Ifindex: int32(link)})
		}
	})
	return errors.Join(cerr, err)
}

// send hands a packet to the kernel, to go out on a link. It returns
// unix.EAGAIN when the socket's buffer is full, unless wait is set: then it
// waits until the write deadline. Unless an IPv4 source is given, the kernel
// chooses the one of the link's addresses that fits the destination best.
func (k *socket) send(packet []byte, link int, source netip.Addr, to netip.AddrPort, wait bool) error {
	var control []byte
	var addr unix.Sockaddr
	if k.family == wire.IPv6 {
		control = unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(link)})
		a := &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		if to.Addr().IsLinkLocalUnicast() || to.Addr().IsLinkLocalMulticast() {
			a.ZoneId = uint32(link)
		}
		addr = a
	} else {
		info := unix.Inet4Pktinfo{Ifindex: int32(link)}
		if source.Is4() {
			info.Spec_dst = source.As4()
		}
		control = unix.PktInfo4(&info)
		addr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	var err error
	werr := k.raw.Write(func(fd uintptr) bool {
		for {
			_, err = unix.SendmsgN(int(fd), packet, control, addr, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		return !wait || !errors.Is(err, unix.EAGAIN)
	})
	if werr != nil {
		return werr
	}
	return err
}

// close closes the socket, which ends the reader.
func (k *socket) close() {
	_ = k.conn.Close() // nothing is buffered that could be lost
}

package mdnssvc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"liqo.io/agent/mdnssvc/wire"
)

// batchSize is how many packets one system call may return. There is room for as many of MaxPacket bytes, for each socket.
const batchSize = 8

// controlSpace holds the control messages of one packet: where it came in and
// how many were dropped before it.
const controlSpace = 128

// read moves packets from the socket to the queue until the socket is closed or
// broken, and returns why.
func (k *socket) read(q *queue, count *counters) error {
	messages := make([]ipv4.Message, batchSize)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, wire.MaxPacket)}
		messages[i].OOB = make([]byte, controlSpace)
	}
	var overflow uint32 // as last told by the kernel; it wraps
	batch := make([]datagram, 0, batchSize)
	for {
		n, err := k.reader.ReadBatch(messages, 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mDNS: receiving on the %s socket: %w", k.family, err)
		}
		count.received.Add(uint64(n))
		if q.full() {
			count.dropN(DropQueueFull, n)
			continue
		}
		batch = batch[:0]
		for i := range messages[:n] {
			m := &messages[i]
			d := datagram{family: k.family}
			var dropped uint32
			d.to, d.link, dropped = parseControl(m.OOB[:m.NN], overflow)
			count.socketDrops.Add(uint64(dropped - overflow))
			overflow = dropped
			from, ok := m.Addr.(*net.UDPAddr)
			switch {
			case m.Flags&unix.MSG_TRUNC != 0:
				count.drop(wire.DropTooLarge)
				continue
			case !ok || !d.to.IsValid():
				count.drop(DropBadSource)
				continue
			}
			ap := from.AddrPort()
			d.from = netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
			d.data = slices.Clone(m.Buffers[0][:m.N])
			batch = append(batch, d)
		}
		count.dropN(DropQueueFull, q.put(batch))
	}
}

// parseControl reads a packet's control messages: its destination, the link it
// came in on, and the number of packets the socket dropped so far, which is
// the one before when the kernel does not say.
func parseControl(b []byte, before uint32) (to netip.Addr, link int, dropped uint32) {
	dropped = before
	for len(b) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return to, link, dropped
		}
		switch {
		case hdr.Level == unix.IPPROTO_IP && hdr.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: index, local address, destination
			to, link = netip.AddrFrom4([4]byte(data[8:12])), int(binary.NativeEndian.Uint32(data))
		case hdr.Level == unix.IPPROTO_IPV6 && hdr.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			// struct in6_pktinfo: destination, index
			to, link = netip.AddrFrom16([16]byte(data[:16])), int(binary.NativeEndian.Uint32(data[16:]))
		case hdr.Level == unix.SOL_SOCKET && hdr.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			dropped = binary.NativeEndian.Uint32(data)
		}
		b = rest
	}
	return to, link, dropped
}

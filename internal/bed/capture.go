//go:build linux

package bed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	mdnsPort      = 5353
	captureBuffer = 64 << 20 // bytes of packets that may wait in the kernel
	ethernetSize  = 14
	ipv6Size      = 40
	udpSize       = 8
)

// Packet is one UDP datagram seen on a LAN.
type Packet struct {
	// Time is when the kernel of the switch saw it.
	Time time.Time
	// Src and Dst are its addresses; IPv6 link-local ones have no zone.
	Src, Dst netip.AddrPort
	// TTL is the IP time to live or hop limit.
	TTL uint8
	// Payload is what the datagram carries.
	Payload []byte
}

// Capture collects the mDNS traffic of a LAN: all UDP datagrams from or to port 5353, multicast and
// unicast. Of a datagram that was sent in fragments it has the first fragment.
type Capture struct {
	socket *os.File
	done   chan struct{}

	mu      sync.Mutex
	packets []Packet
	dropped uint64
	stopped bool
	err     error
}

// Capture starts to collect packets; those sent after it returns are seen. It ends with the test.
func (l *LAN) Capture() *Capture {
	l.bed.t.Helper()
	c := &Capture{done: make(chan struct{})}
	if err := l.bed.sw.do(func() error { return c.open(l.bridge.Attrs().Index) }); err != nil {
		l.bed.t.Fatalf("bed: capture on %s: %v", l.Name, err)
	}
	go c.read()
	l.bed.t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			l.bed.t.Errorf("bed: capture on %s: %v", l.Name, err)
		}
	})
	return c
}

func (c *Capture) open(ifindex int) error {
	// No protocol until the filter is in place, so that nothing slips in before.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if err := configureCapture(fd, ifindex); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	c.socket = os.NewFile(uintptr(fd), "capture")
	return nil
}

func configureCapture(fd, ifindex int) error {
	program, err := bpf.Assemble(captureFilter)
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("attach the filter: %w", err)
	}
	// Forcing needs a privilege on the machine, which root in a user namespace has not.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer); err != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, captureBuffer); err != nil {
			return fmt.Errorf("receive buffer: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("timestamps: %w", err)
	}
	// Without this the bridge would keep unicast between two ports to itself.
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}); err != nil {
		return fmt.Errorf("promiscuous mode: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: ifindex}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// captureFilter passes UDP datagrams with port 5353 on either side; of IPv6 those without extension
// headers.
var captureFilter = []bpf.Instruction{
	/*  0 */ bpf.LoadAbsolute{Off: 12, Size: 2}, // EtherType
	/*  1 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 9},
	/*  2 */ bpf.LoadAbsolute{Off: ethernetSize + 9, Size: 1}, // protocol
	/*  3 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 15},
	/*  4 */ bpf.LoadAbsolute{Off: ethernetSize + 6, Size: 2}, // fragment offset
	/*  5 */ bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 13},
	/*  6 */ bpf.LoadMemShift{Off: ethernetSize}, // header length
	/*  7 */ bpf.LoadIndirect{Off: ethernetSize, Size: 2}, // source port
	/*  8 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: mdnsPort, SkipTrue: 9},
	/*  9 */ bpf.LoadIndirect{Off: ethernetSize + 2, Size: 2}, // destination port
	/* 10 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: mdnsPort, SkipTrue: 7, SkipFalse: 8},
	/* 11 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipFalse: 7},
	/* 12 */ bpf.LoadAbsolute{Off: ethernetSize + 6, Size: 1}, // next header
	/* 13 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 5},
	/* 14 */ bpf.LoadAbsolute{Off: ethernetSize + ipv6Size, Size: 2}, // source port
	/* 15 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: mdnsPort, SkipTrue: 2},
	/* 16 */ bpf.LoadAbsolute{Off: ethernetSize + ipv6Size + 2, Size: 2}, // destination port
	/* 17 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: mdnsPort, SkipFalse: 1},
	/* 18 */ bpf.RetConstant{Val: 1 << 16},
	/* 19 */ bpf.RetConstant{Val: 0},
}

// read collects packets until the socket is closed.
func (c *Capture) read() {
	defer close(c.done)
	conn, err := c.socket.SyscallConn()
	if err != nil {
		c.fail(err)
		return
	}
	frame, oob := make([]byte, 1<<16), make([]byte, 128)
	for {
		var n, oobn int
		var recvErr error
		err := conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), frame, oob, 0)
			return !errors.Is(recvErr, unix.EAGAIN)
		})
		if err = errors.Join(err, recvErr); err != nil {
			c.fail(err)
			return
		}
		if p, ok := parseFrame(frame[:n]); ok {
			p.Time = timestamp(oob[:oobn])
			c.mu.Lock()
			c.packets = append(c.packets, p)
			c.mu.Unlock()
		}
	}
}

// fail records why reading ended, unless it was meant to.
func (c *Capture) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.err = err
	}
}

// Packets returns what has been collected so far, oldest first.
func (c *Capture) Packets() []Packet {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Packet(nil), c.packets...)
}

// WaitFor waits until a packet is found that matches, and returns the first one; packets collected
// earlier count.
func (c *Capture) WaitFor(ctx context.Context, match func(Packet) bool) (Packet, error) {
	var found Packet
	seen := 0
	err := Poll(ctx, func() error {
		c.mu.Lock()
		fresh, failed := c.packets[seen:], c.err
		c.mu.Unlock()
		if failed != nil {
			return fmt.Errorf("capture: %w", failed)
		}
		for _, p := range fresh {
			seen++
			if match(p) {
				found = p
				return nil
			}
		}
		return fmt.Errorf("none of the %d packets captured matches", seen)
	})
	return found, err
}

// Dropped returns how many packets the capture has lost because it was too slow. A test that counts
// packets checks that it is 0.
func (c *Capture) Dropped() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := c.socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var stats *unix.TpacketStats
	var statsErr error
	if err := conn.Control(func(fd uintptr) {
		stats, statsErr = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	}); err != nil {
		return 0, err
	}
	if statsErr != nil {
		return 0, statsErr
	}
	c.dropped += uint64(stats.Drops) // the kernel counts from zero again after each look
	return c.dropped, nil
}

// Stop ends the capture; what it collected stays. It returns what went wrong with it, if anything did.
func (c *Capture) Stop() error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	if err := c.socket.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// parseFrame takes apart an Ethernet frame with a UDP datagram that the filter has passed.
func parseFrame(b []byte) (Packet, bool) {
	if len(b) < ethernetSize+1 {
		return Packet{}, false
	}
	var src, dst netip.Addr
	var p Packet
	ip := b[ethernetSize:]
	switch ip[0] >> 4 {
	case 4:
		header := int(ip[0]&0xf) * 4
		if header < 20 || len(ip) < header+udpSize {
			return Packet{}, false
		}
		src, dst = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		p.TTL = ip[8]
		ip = ip[header:]
	case 6:
		if len(ip) < ipv6Size+udpSize {
			return Packet{}, false
		}
		src, dst = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		p.TTL = ip[7]
		ip = ip[ipv6Size:]
	default:
		return Packet{}, false
	}
	p.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(ip))
	p.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(ip[2:]))
	// Short frames are padded by some senders: the length that counts is the datagram's.
	end := min(max(int(binary.BigEndian.Uint16(ip[4:])), udpSize), len(ip))
	p.Payload = append([]byte(nil), ip[udpSize:end]...)
	return p, true
}

// timestamp returns the kernel's receive time from a control message, or else now.
func timestamp(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

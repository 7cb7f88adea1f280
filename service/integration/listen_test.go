package integration

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// listen hears the mDNS packets that arrive at a link of the machine. The function that it returns says whether one of
// them was a goodbye: a pointer to us with a TTL of zero (RFC 6762 section 10.1).
func (m *machine) listen(link string) func() bool {
	m.t.Helper()
	var heard atomic.Bool
	type opened struct {
		fd  int
		err error
	}
	ready := make(chan opened)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread stays in the machine's network, and ends with this goroutine
		fd, err := m.tap(link)
		ready <- opened{fd, err}
	}()
	o := <-ready
	if o.err != nil {
		m.t.Fatal(o.err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 64<<10)
		for {
			n, _, err := unix.Recvfrom(o.fd, packet, 0)
			if err == unix.EINTR || err == unix.EAGAIN {
				if heard.Load() {
					return
				}
				continue
			}
			if err != nil || n == 0 {
				return
			}
			if goodbye(packet[:n]) {
				heard.Store(true)
				return
			}
		}
	}()
	m.t.Cleanup(func() {
		heard.Store(true)
		<-done
		_ = unix.Close(o.fd)
	})
	return heard.Load
}

// tap opens a socket for all packets of a link, in the machine's network.
func (m *machine) tap(link string) (int, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", m.pid))
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, err
	}
	request, err := unix.NewIfreq(link)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, err
	}
	wake := unix.Timeval{Usec: 100_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wake); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(request.Uint32())})
}

// goodbye reports whether an IPv4 packet is one.
func goodbye(packet []byte) bool {
	const ip, udp = 20, 8
	if len(packet) < ip+udp || packet[0] != 0x45 || packet[9] != unix.IPPROTO_UDP {
		return false
	}
	var message dns.Msg
	if message.Unpack(packet[ip+udp:]) != nil || !message.Response {
		return false
	}
	for _, record := range message.Answer {
		if pointer, ok := record.(*dns.PTR); ok && pointer.Hdr.Name == "_liqo._tcp.local." && pointer.Hdr.Ttl == 0 {
			return true
		}
	}
	return false
}

//go:build linux

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
)

var mdnsGroup = netip.MustParseAddrPort("224.0.0.251:5353")

const (
	serviceName = "_liqo._tcp.local."
	cacheFlush  = dns.ClassINET | 1<<15
)

// attacker is a host that says what it likes.
type attacker struct {
	t    *testing.T
	host *bed.Host
	addr netip.Addr
	conn *net.UDPConn // from addr, port 5353
}

func newAttacker(t *testing.T, b *bed.Bed, name string, addr netip.Addr) *attacker {
	t.Helper()
	a := &attacker{t: t, host: b.AddHost(name, addr.String()+"/24"), addr: addr}
	a.conn = a.socket(addr)
	return a
}

// socket returns a socket that sends from an address of the host and port 5353.
func (a *attacker) socket(from netip.Addr) *net.UDPConn {
	a.t.Helper()
	var conn *net.UDPConn
	err := a.host.Do(func() error {
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}), err)
		}}
		pc, err := lc.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(from, 5353).String())
		if err != nil {
			return err
		}
		conn = pc.(*net.UDPConn)
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		p := ipv4.NewPacketConn(conn)
		return errors.Join(p.SetMulticastInterface(eth0), p.SetMulticastTTL(255), p.SetTTL(255))
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return conn
}

// send multicasts bytes. A packet that a full buffer swallows is like one lost.
func (a *attacker) send(b []byte) {
	a.t.Helper()
	if _, err := a.conn.WriteToUDPAddrPort(b, mdnsGroup); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
		a.t.Fatal(err)
	}
}

// say multicasts records as a response.
func (a *attacker) say(records ...dns.RR) {
	a.t.Helper()
	a.send(response(a.t, records...))
}

func response(t *testing.T, records ...dns.RR) []byte {
	t.Helper()
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Compress: true, Answer: records}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// whisper sends a response to the group's address, from an address that need
// not be ours, in a frame that only one host gets.
func (a *attacker) whisper(to net.HardwareAddr, from netip.Addr, payload []byte) {
	a.t.Helper()
	const ipHeader, udpHeader = 20, 8
	packet := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 255, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(packet[2:], uint16(cap(packet)))
	src, dst := from.As4(), mdnsGroup.Addr().As4()
	copy(packet[12:], src[:])
	copy(packet[16:], dst[:])
	var sum uint32
	for i := 0; i < ipHeader; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum>>16+sum))
	binary.BigEndian.PutUint16(packet[20:], 5353)
	binary.BigEndian.PutUint16(packet[22:], 5353)
	binary.BigEndian.PutUint16(packet[24:], uint16(udpHeader+len(payload))) // UDP over IPv4 needs no checksum
	packet = append(packet, payload...)
	err := a.host.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := &unix.SockaddrLinklayer{Protocol: 0x0008 /* IPv4 in network order */, Ifindex: eth0.Index, Halen: 6}
		copy(frame.Addr[:], to)
		return unix.Sendto(fd, packet, 0, frame)
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// claim is a neighbour as its records describe it.
type claim struct {
	instance, id string
	key          peer.Fingerprint
	host         string
	port         uint16
	addr         netip.Addr
	ttl          uint32
}

// claimFor describes a peer as it would describe itself, at another address.
func claimFor(id string, key peer.Fingerprint, addr netip.Addr) claim {
	return claim{instance: id, id: id, key: key, host: id, port: 6447, addr: addr, ttl: 120}
}

func (c claim) name() string {
	return strings.NewReplacer(" ", `\ `, "(", `\(`, ")", `\)`).Replace(c.instance) + "." + serviceName
}

func (c claim) header(name string, rrtype, class uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: class, Ttl: c.ttl}
}

func (c claim) ptr() dns.RR {
	return &dns.PTR{Hdr: c.header(serviceName, dns.TypePTR, dns.ClassINET), Ptr: c.name()}
}

func (c claim) srv() dns.RR {
	return &dns.SRV{Hdr: c.header(c.name(), dns.TypeSRV, cacheFlush), Port: c.port, Target: c.host + ".local."}
}

func (c claim) txt() dns.RR {
	return &dns.TXT{Hdr: c.header(c.name(), dns.TypeTXT, cacheFlush), Txt: []string{
		"txtvers=1", "id=" + c.id, "name=bogus", "ns=liqo", "fp=" + c.key.String(), "v=1"}}
}

func (c claim) a() dns.RR {
	return &dns.A{Hdr: c.header(c.host+".local.", dns.TypeA, cacheFlush), A: c.addr.AsSlice()}
}

func (c claim) all() []dns.RR { return []dns.RR{c.ptr(), c.srv(), c.txt(), c.a()} }

// ownGC lets an agent collect garbage as often as it does by itself, for tests that measure its memory.
var ownGC = []string{"GOGC="}

// memory is the resident set of a process, in MB.
func memory(t *testing.T, p *bed.Process) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	t.Fatal("no VmRSS in /proc/PID/status")
	return 0
}

// cpu is the processor time a process has used.
func cpu(t *testing.T, p *bed.Process) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture Linux has
	return time.Duration(user+system) * tick
}

// calms waits until a process uses less than a tenth of a processor.
func calms(t *testing.T, p *bed.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	from, used := time.Now(), cpu(t, p)
	if err := bed.Poll(ctx, func() error {
		passed := time.Since(from)
		if passed < 2*time.Second {
			return errors.New("measuring")
		}
		share := float64(cpu(t, p)-used) / float64(passed)
		from, used = time.Now(), cpu(t, p)
		if share > 0.1 {
			return fmt.Errorf("it uses %.0f %% of a processor", 100*share)
		}
		t.Logf("it uses %.1f %% of a processor", 100*share)
		return nil
	}); err != nil {
		t.Fatalf("%s does not calm down: %v", p.Name, err)
	}
}

package tun

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
)

var update = flag.Bool("update", false, "keep the frames for the tests of network/packet")

func listenTCP(a netip.Addr) (net.Listener, error) {
	return net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
}

// sorter keeps the first frame of every kind, and the longest superpackets.
type sorter struct {
	mu    sync.Mutex
	kinds map[string][]byte
}

func (s *sorter) add(f []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := kind(f); s.kinds[k] == nil || f[1] != 0 && len(f) > len(s.kinds[k]) {
		s.kinds[k] = append([]byte(nil), f...)
	}
}

// kind names a frame of the device, by what matters to whom it is checked.
func kind(f []byte) string {
	b := f[packet.HeaderLen:]
	protocol, header, fragment := b[9], int(b[0]&15)*4, binary.BigEndian.Uint16(b[6:])
	more, offset := fragment&0x2000 != 0, fragment&0x1fff
	if b[0]>>4 == 6 {
		protocol, header = b[6], 40
		more, offset = false, 0
		if protocol == 44 {
			x := binary.BigEndian.Uint16(b[42:])
			protocol, header, more, offset = b[40], 48, x&1 != 0, x>>3
		}
	}
	name := fmt.Sprintf("ipv%d-", b[0]>>4)
	switch protocol {
	case 1, 58:
		name += fmt.Sprintf("icmp-%d", b[header])
	case 6:
		name += "tcp"
	case 17:
		name += "udp"
	default:
		name += fmt.Sprint(protocol)
	}
	switch {
	case offset > 0 && more:
		name += "-middle-fragment"
	case offset > 0:
		name += "-last-fragment"
	case more:
		name += "-first-fragment"
	}
	if protocol == 6 && b[header+13]&2 != 0 {
		name += "-syn"
	}
	if f[0]&1 != 0 {
		name += "-partial"
	}
	if f[1] != 0 {
		name += fmt.Sprintf("-gso-%x", f[1])
	}
	return name
}

// echo sends an ICMP echo and waits for its answer.
func echo(t *testing.T, h *bed.Host, to netip.Addr, size int) {
	t.Helper()
	network, request, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), 1
	if to.Is6() {
		network, request, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, 58
	}
	on(t, h, func() error {
		c, err := net.ListenPacket(network, "")
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: 7, Seq: 1, Data: make([]byte, size)}}
		b, err := m.Marshal(icmp.IPv6PseudoHeader(net.IPv6zero, net.IPv6zero)) // the kernel sums
		if to.Is4() {
			b, err = m.Marshal(nil)
		}
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		for b := make([]byte, 65536); ; {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return err
			}
			if m, err := icmp.ParseMessage(protocol, b[:n]); err == nil && (m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply) {
				return nil
			}
		}
	})
}

// datagram sends UDP and waits for it, or for the error that says that nobody
// listens.
func datagram(t *testing.T, from, to *bed.Host, addr netip.Addr, size int, listen bool) {
	t.Helper()
	var server *net.UDPConn
	on(t, to, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	defer server.Close()
	if !listen {
		server.Close()
	}
	c, err := from.DialContext(t.Context(), "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if !listen {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("an answer from nobody")
		}
		return
	}
	_ = server.SetDeadline(time.Now().Add(patience))
	if n, _, err := server.ReadFrom(make([]byte, 65536)); err != nil || n != size {
		t.Fatalf("received %d of %d: %v", n, size, err)
	}
}

// All that two kernels have to say to each other passes the check, and arrives.
func TestFrames(t *testing.T) {
	s := sorter{kinds: map[string][]byte{}}
	bd := bed.New(t)
	a, b, _, _ := pair(t, bd, 1500, s.add)
	// Packets of a third host are forwarded, as those of pods are.
	pod := bd.AddHost("pod", "10.77.0.3/24")
	write(t, a, "/proc/sys/net/ipv4/ip_forward", "1")
	ip(t, pod, "route", "add", "241.0.0.0/8", "via", "10.77.0.1")
	ip(t, b, "route", "add", "10.77.0.3/32", "dev", device)
	send(t, pod, b, addrB, 4<<20)
	for _, to := range []netip.Addr{addrB, addrB6} {
		echo(t, a, to, 40)
		echo(t, a, to, 4000)
		datagram(t, a, b, to, 100, true)
		datagram(t, a, b, to, 30000, true)
		datagram(t, a, b, to, 100, false)
		send(t, a, b, to, 4<<20)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range []string{"ipv4-", "ipv6-"} {
		gso := map[string]string{"ipv4-": "1", "ipv6-": "4"}[v]
		for _, k := range []string{
			"tcp-syn-partial", "tcp-partial", "tcp-partial-gso-" + gso, "udp-partial",
			"udp-first-fragment", "udp-middle-fragment", "udp-last-fragment",
		} {
			if s.kinds[v+k] == nil {
				t.Errorf("no frame of kind %s", v+k)
			}
		}
	}
	if !*update {
		return
	}
	for k, f := range s.kinds {
		// The zeros at the end, which are the payload, go without saying.
		line := fmt.Sprintf("%d %x\n", len(f), bytes.TrimRight(f, "\x00"))
		if err := os.WriteFile(filepath.Join("..", "packet", "testdata", "frames", k), []byte(line), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// The kernel takes whatever passes the check: nothing that passes is a claim
// that it would have to refuse.
func TestKernelTakesWhatPasses(t *testing.T) {
	d := open(t, bed.New(t).AddHost("a", ""), 1500)
	configure(t, d, configA)
	files, err := filepath.Glob("../packet/testdata/frames/*")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	taken, segments := 0, 0
	for _, path := range files {
		line, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var length int
		var data []byte
		if _, err := fmt.Sscanf(string(line), "%d %x", &length, &data); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		real := append(data, make([]byte, length-len(data))...)
		for range 2000 {
			f := bytes.Clone(real)
			for range random.IntN(4) {
				// Nearly all that matters is in the headers.
				f[random.IntN(min(len(f), packet.HeaderLen+100))] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 && len(f) < 2000 {
				f = f[:packet.HeaderLen+1+random.IntN(len(f)-packet.HeaderLen)]
			}
			repair(f)
			if _, err := packet.Check(f, 1500); err != nil {
				continue
			}
			taken++
			if f[1] != 0 {
				segments++
			}
			if n, err := d.Write(f); err != nil || n != len(f) {
				t.Fatalf("%s: %d of %d, %v\n% x", path, n, len(f), err, f[:min(len(f), 120)])
			}
		}
	}
	if taken < 1000 || segments < 100 {
		t.Errorf("only %d were taken, %d of them superpackets", taken, segments)
	}
	t.Logf("%d taken, %d of them superpackets", taken, segments)
}

// repair makes length and checksum of an IPv4 header right, and the length of an
// IPv6 packet.
func repair(f []byte) {
	switch b := f[packet.HeaderLen:]; {
	case b[0]>>4 == 4 && len(b) >= 20:
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		b[10], b[11] = 0, 0
		var sum uint32
		for i := 0; i < min(int(b[0]&15)*4, len(b)&^1); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(b[10:], ^uint16(sum>>16+sum))
	case b[0]>>4 == 6 && len(b) >= 40:
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	}
}

// What one packet costs on its way through two devices, and how fast a
// connection over them is.
func BenchmarkDevices(b *testing.B) {
	bd := bed.New(b)
	hosts := []*bed.Host{bd.AddHost("a", "10.77.0.1/24"), bd.AddHost("b", "10.77.0.2/24")}
	devices := make([]*Device, 2)
	for i, c := range []netdev.Config{configA, configB} {
		if err := hosts[i].Do(func() (err error) { devices[i], err = Open(device, 1500); return err }); err != nil {
			b.Fatal(err)
		}
		if err := devices[i].Configure(c); err != nil {
			b.Fatal(err)
		}
	}
	var running sync.WaitGroup
	var frames atomic.Int64
	for i := range devices {
		running.Go(func() {
			for buf := make([]byte, packet.MaxLen); ; {
				n, err := devices[i].Read(buf)
				if err != nil {
					return
				}
				frames.Add(1)
				if _, err := packet.Check(buf[:n], 1500); err == nil {
					_, _ = devices[1-i].Write(buf[:n])
				}
			}
		})
	}
	defer running.Wait()
	defer devices[0].Close()
	defer devices[1].Close()
	var l net.Listener
	if err := hosts[1].Do(func() (err error) { l, err = listenTCP(addrB); return err }); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	running.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(io.Discard, c)
	})
	c, err := hosts[0].DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	chunk := make([]byte, 64<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := c.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(frames.Load())/float64(b.N), "frames/op")
}

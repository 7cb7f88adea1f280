package filter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// two are clusters a and b, with a pod each, that may talk both ways.
func two(t *testing.T, backend string) (w *world, a, b *box, x, y *pod) {
	t.Helper()
	t.Parallel()
	w = newWorld(t, "a", "b")
	a, b = w.boxes[0], w.boxes[1]
	a.flannel(backend)
	b.flannel(backend)
	w.join(a, b, prefixes("241.7.2.0/24", "fd99:a::/64"), prefixes("241.99.4.0/24", "fd99:b::/64"))
	x, y = a.addPod(5), b.addPod(5)
	allow([]*pod{x}, []*pod{y})
	allow([]*pod{y}, []*pod{x})
	a.set()
	b.set()
	return w, a, b, x, y
}

func TestPodsReachEachOther(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run("iptables-"+backend, func(t *testing.T) {
			if out, err := exec.Command("iptables-"+backend, "-w", "-L").CombinedOutput(); err != nil {
				t.Skipf("the kernel has no such iptables: %s", out)
			}
			w, a, b, x, y := two(t, backend)
			for _, network := range []string{"udp", "tcp"} {
				for _, six := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, IPv6 %v", network, six), func(t *testing.T) {
						checkAnswer(t, ask(t, x, network, a.seen(b, y.addr(six)), "hello"), b.seen(a, x.addr(six)))
						checkAnswer(t, ask(t, y, network, b.seen(a, x.addr(six)), "hello"), a.seen(b, y.addr(six)))
					})
				}
			}
			for _, six := range []bool{false, true} {
				ping(t, x, a.seen(b, y.addr(six)))
				ping(t, y, b.seen(a, x.addr(six)))
			}
			w.checkStrange()
		})
	}
}

func (p *pod) addr(six bool) netip.Addr {
	if six {
		return p.v6
	}
	return p.v4
}

// ping waits for the answer to an echo request.
func ping(t *testing.T, at place, to netip.Addr) {
	t.Helper()
	network, protocol := "ip4:icmp", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, protocol, request, reply = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var c *icmp.PacketConn
	if err := at.Do(func() (err error) { c, err = icmp.ListenPacket(network, ""); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	buffer := make([]byte, 1500)
	waitFor(t, func() error {
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: 77, Seq: 1, Data: []byte("hello")}}
		b, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		if err := c.SetReadDeadline(soon()); err != nil {
			return err
		}
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return fmt.Errorf("ping %v: %w", to, err)
			}
			if m, err := icmp.ParseMessage(protocol, buffer[:n]); err == nil && m.Type == reply && from.String() == to.String() {
				return nil
			}
		}
	})
}

func TestHostsReachPods(t *testing.T) {
	w, a, b, _, y := two(t, "nft")
	allowHost(a, b)
	b.set()
	for _, six := range []bool{false, true} {
		host := host4
		if six {
			host = host6
		}
		checkAnswer(t, ask(t, a, "tcp", a.seen(b, y.addr(six)), "from the host"), b.seen(a, host))
		ping(t, a, a.seen(b, host))
	}
	w.checkStrange()
}

// Clients of a Service here, whose endpoint is a pod there.
func TestServicesReachPods(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	allowHost(a, b)
	b.set()
	client := w.bed.AddHost("client", "192.0.2.99/24")
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		a.run(fmt.Sprintf(`
			iptables-nft -w -t nat -A %[1]s -d 10.43.0.9 ! -s 10.42.0.0/16 -j MARK --set-mark 0x4000
			iptables-nft -w -t nat -A %[1]s -d 192.0.2.1 -p tcp --dport 30007 -j MARK --set-mark 0x4000
			iptables-nft -w -t nat -A %[1]s -d 10.43.0.9 -p tcp --dport %[2]d -j DNAT --to %[3]v
			iptables-nft -w -t nat -A %[1]s -d 192.0.2.1 -p tcp --dport 30007 -j DNAT --to %[3]v:%[2]d
		`, chain, talk, a.seen(b, y.v4)))
	}
	a.run("ip route add default via 192.0.2.254")
	service := netip.MustParseAddr("10.43.0.9")
	t.Run("a pod", func(t *testing.T) {
		checkAnswer(t, ask(t, x, "tcp", service, "by a Service"), b.seen(a, x.v4))
	})
	t.Run("the host", func(t *testing.T) {
		checkAnswer(t, ask(t, a, "tcp", service, "by a Service"), b.seen(a, host4))
	})
	t.Run("a client on the LAN", func(t *testing.T) {
		answer, err := tryPort(client, "tcp", netip.MustParseAddr("192.0.2.1"), 30007, "by a NodePort")
		if err != nil {
			t.Fatal(err)
		}
		checkAnswer(t, answer, b.seen(a, host4))
	})
	w.checkStrange()
}

// Beside a firewall, and the network policy controller of K3s that restores the whole filter table at each round.
func TestBesideFirewalls(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	second := a.addPod(6)
	allow([]*pod{second}, []*pod{y})
	allowHost(a, b)
	a.set()
	b.set()
	sync := func() {
		a.firewalls(bed.PolicedPod{Addr: x.v4, From: []netip.Prefix{single(a.seen(b, y.v4))}}, bed.PolicedPod{Addr: second.v4})
		b.firewalls(bed.PolicedPod{Addr: y.v4, From: []netip.Prefix{single(b.seen(a, x.v4)), single(b.seen(a, host4))}})
	}
	sync()
	session, err := dial(x, "tcp", a.seen(b, y.v4), talk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	for round := range 2 {
		checkAnswer(t, ask(t, x, "udp", a.seen(b, y.v4), "admitted"), b.seen(a, x.v4))
		checkAnswer(t, ask(t, y, "tcp", b.seen(a, x.v4), "admitted"), a.seen(b, y.v4))
		checkAnswer(t, ask(t, a, "tcp", a.seen(b, y.v4), "admitted"), b.seen(a, host4))
		if answer, err := tryPort(second, "tcp", a.seen(b, y.v4), talk, "not admitted"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("who is not admitted by the policy: %q %v, want connection refused", answer, err)
		}
		if _, err := fmt.Fprintf(session, "round %d", round); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := session.Read(buffer)
		if err != nil {
			t.Fatalf("the session does not go on: %v", err)
		}
		checkAnswer(t, string(buffer[:n]), b.seen(a, x.v4))
		sync()
	}
	w.checkStrange()
}

func TestErrorsComeBack(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	second := a.addPod(6)
	allow([]*pod{second}, []*pod{y})
	a.set()
	b.set()
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("port unreachable, IPv6 %v", six), func(t *testing.T) {
			_, err := tryPort(x, "udp", a.seen(b, y.addr(six)), 9, "is anybody there?")
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a closed port: %v, want connection refused", err)
			}
		})
	}
	// The way gets narrower at the device, and behind it.
	for _, narrow := range []struct {
		name, before, after string
		box                 *box
		pod                 *pod
	}{
		{"at the device", "ip link set liqo0 mtu 1290", "ip link set liqo0 mtu 1500", a, x},
		{"at the peer", "ip link set cni0 mtu 1290", "true", b, second},
	} {
		t.Run("fragmentation needed "+narrow.name, func(t *testing.T) {
			narrow.box.run(narrow.before)
			for _, six := range []bool{false, true} {
				if got := pathMTU(t, narrow.pod, a.seen(b, y.addr(six))); got != 1290 {
					t.Errorf("IPv6 %v: the pod was told an MTU of %d, want 1290", six, got)
				}
			}
			narrow.box.run(narrow.after)
		})
	}
	w.checkStrange()
}

// pathMTU sends datagrams of 1400 bytes that must not be fragmented, until the kernel was told
// of a smaller MTU.
func pathMTU(t *testing.T, at place, to netip.Addr) int {
	t.Helper()
	c, err := dial(at, "udp", to, talk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	level, discover, always, mtu := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU
	if to.Is6() {
		level, discover, always, mtu = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU
	}
	control(t, c, func(fd int) error { return unix.SetsockoptInt(fd, level, discover, always) })
	got := 0
	waitFor(t, func() error {
		_, err := c.Write(make([]byte, 1400))
		control(t, c, func(fd int) (err error) { got, err = unix.GetsockoptInt(fd, level, mtu); return err })
		if got >= 1400 {
			return fmt.Errorf("the MTU is still %d after: %w", got, errors.Join(err, errors.New("sent")))
		}
		return nil
	})
	return got
}

func TestFragmentsPass(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	for _, six := range []bool{false, true} {
		what := strings.Repeat("0123456789", 500)
		answer := ask(t, x, "udp", a.seen(b, y.addr(six)), what)
		if !strings.HasSuffix(answer, " "+what) {
			t.Errorf("IPv6 %v: %d bytes came back, want %d", six, len(answer), len(what))
		}
	}
	w.checkStrange()
}

func TestLargeTransfers(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	a.run("ip link set liqo0 mtu 1380") // and the other one is as wide as a LAN
	var l net.Listener
	y.do(func() (err error) { l, err = net.Listen("tcp", ":99"); return err })
	defer func() { _ = l.Close() }()
	accepted := make(chan net.Conn, 1)
	for _, six := range []bool{false, true} {
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		out, err := dial(x, "tcp", a.seen(b, y.addr(six)), 99)
		if err != nil {
			t.Fatal(err)
		}
		in := <-accepted
		if in == nil {
			t.FailNow()
		}
		want := 1380 - 20 - 20
		if six {
			want -= 20
		}
		for name, c := range map[string]net.Conn{"opened": out, "accepted": in} {
			// Options of TCP take some of it.
			if segment := maxSegment(t, c); segment > want || segment < want-40 {
				t.Errorf("IPv6 %v: segments of %d bytes at the end that %s the connection, want up to %d", six, segment, name, want)
			}
		}
		transfer(t, out, in)
		transfer(t, in, out)
		_ = out.Close()
		_ = in.Close()
	}
	w.checkStrange()
}

func maxSegment(t *testing.T, c net.Conn) (bytes int) {
	t.Helper()
	control(t, c, func(fd int) (err error) {
		bytes, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		return err
	})
	return bytes
}

func transfer(t *testing.T, from, to net.Conn) {
	t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	written := make(chan error, 1)
	go func() {
		_, err := from.Write(sent)
		written <- err
	}()
	got := make([]byte, len(sent))
	if err := to.SetReadDeadline(late()); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrived of %d, or others: %v", n, len(sent), err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// Two peers chose the same block for our pods, which is also one that we chose for a third.
func TestBlocksOfPeersMayBeEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "d")
	a := w.boxes[0]
	same := prefixes("241.50.0.0/24", "fd50::/64")
	byA := [][]netip.Prefix{prefixes("241.1.0.0/24", "fd01::/64"), prefixes("241.1.2.0/24", "fd01:0:0:2::/64"), same}
	x := a.addPod(5)
	var others []*pod
	for i, other := range w.boxes[1:] {
		theirs := same
		if i == 2 {
			theirs = byA[0] // and d chose what a chose for b
		}
		w.join(a, other, byA[i], theirs)
		y := other.addPod(5)
		others = append(others, y)
		allow([]*pod{x}, []*pod{y})
		allow([]*pod{y}, []*pod{x})
		other.flannel("nft")
		other.set()
	}
	a.flannel("nft")
	a.set()
	for range 2 {
		for _, y := range others {
			for _, six := range []bool{false, true} {
				checkAnswer(t, ask(t, x, "udp", a.seen(y.box, y.addr(six)), "to "+y.box.name), y.box.seen(a, x.addr(six)))
				checkAnswer(t, ask(t, y, "tcp", y.box.seen(a, x.addr(six)), "from "+y.box.name), a.seen(y.box, y.addr(six)))
				if y.heard.source("to "+y.box.name).Is6() != six {
					t.Errorf("%s did not hear what was said to it", y.box.name)
				}
			}
		}
	}
	w.checkStrange()
}

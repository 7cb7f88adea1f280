package filter

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// barrier waits until something said from a pod to another one, by the device, was heard: what was
// sent before it was dropped or heard by then.
func barrier(t *testing.T, from, to *pod) {
	t.Helper()
	for _, six := range []bool{false, true} {
		ask(t, from, "udp", from.box.seen(to.box, to.addr(six)), "barrier")
	}
}

// checkSilence sends a datagram that must not be heard by anybody.
func checkSilence(t *testing.T, name string, send func(what string), pass func(), everybody ...*ears) {
	t.Helper()
	what := "forbidden: " + name
	send(what)
	pass()
	for _, e := range everybody {
		if from := e.source(what); from.IsValid() {
			t.Errorf("%s: was heard, from %v", name, from)
		}
	}
}

func TestOnlyWhatIsGranted(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	otherX, otherY := a.addPod(9), b.addPod(9)
	everybody := []*ears{a.heard, b.heard, x.heard, y.heard, otherX.heard, otherY.heard}
	pass := func() {
		barrier(t, x, y)
		barrier(t, y, x)
	}
	service := netip.MustParseAddr("10.43.0.9")
	a.run(fmt.Sprintf("iptables-nft -w -t nat -A PREROUTING -d %v -p udp -j DNAT --to %v", service, a.seen(b, y.v4)))
	// The receiving side allows much more here: the sending one decides for itself.
	strict := b.peer(a).In
	b.peer(a).In = append([]Grant{{From: b.peer(a).Theirs, To: b.desired.Pods}}, strict...)
	b.set()
	for _, six := range []bool{false, true} {
		host := host4
		if six {
			host = host6
		}
		for _, attempt := range []struct {
			name string
			from place
			to   netip.Addr
		}{
			{"to a pod without a grant", x, a.seen(b, otherY.addr(six))},
			{"from a pod without a grant", otherX, a.seen(b, y.addr(six))},
			{"from a pod without a grant, by a Service", otherX, service},
			{"to the peer's host", x, a.seen(b, host)},
			{"from the host to a pod without a grant", a, a.seen(b, otherY.addr(six))},
			{"from the host to the peer's host", a, a.seen(b, host)},
			{"to the last address of the block", x, last(ofFamily(a.peer(b).Theirs, six))},
			{"to the first address of the block", x, ofFamily(a.peer(b).Theirs, six).Addr()},
		} {
			name := fmt.Sprintf("%s, IPv6 %v", attempt.name, six)
			checkSilence(t, name, func(what string) { say(t, attempt.from, attempt.to, talk, what) }, pass, everybody...)
		}
	}

	b.peer(a).In = strict
	b.set()

	// The sending side may be anybody's.
	for _, six := range []bool{false, true} {
		host := host4
		if six {
			host = host6
		}
		for _, attempt := range []struct {
			name     string
			from, to netip.Addr
		}{
			{"to a pod without a grant", x.addr(six), otherY.addr(six)},
			{"from a pod without a grant", otherX.addr(six), y.addr(six)},
			{"from the host without a grant", host, y.addr(six)},
			{"to the host", x.addr(six), host},
		} {
			name := fmt.Sprintf("from the device, %s, IPv6 %v", attempt.name, six)
			checkSilence(t, name, func(what string) {
				inject(t, b, udp(b.seen(a, attempt.from), a.seen(b, attempt.to), talk, what))
			}, pass, everybody...)
		}
		// Addresses that no packet of this peer has.
		good, to := b.seen(a, x.addr(six)), a.seen(b, y.addr(six))
		outside := map[bool]string{false: "192.0.2.77", true: "fd77::1"}[six]
		local := map[bool]string{false: "192.0.2.2", true: "fd42::1"}[six]
		for _, attempt := range []struct {
			name     string
			from, to netip.Addr
		}{
			{"from an address that is no peer's", netip.MustParseAddr(outside), to},
			{"from a pod's own address", x.addr(six), to},
			{"to a pod's own address", good, y.addr(six)},
			{"to the host's own address", good, netip.MustParseAddr(local)},
			{"from loopback", map[bool]netip.Addr{false: netip.MustParseAddr("127.0.0.1"), true: netip.IPv6Loopback()}[six], to},
			{"to loopback", good, map[bool]netip.Addr{false: netip.MustParseAddr("127.0.0.1"), true: netip.IPv6Loopback()}[six]},
			{"back to the peer", good, good},
			{"to everybody", good, map[bool]netip.Addr{false: netip.MustParseAddr("255.255.255.255"), true: netip.MustParseAddr("ff02::1")}[six]},
			{"from the link", map[bool]netip.Addr{false: netip.MustParseAddr("169.254.0.1"), true: netip.MustParseAddr("fe80::1")}[six], to},
		} {
			name := fmt.Sprintf("from the device, %s, IPv6 %v", attempt.name, six)
			checkSilence(t, name, func(what string) { inject(t, b, udp(attempt.from, attempt.to, talk, what)) }, pass, everybody...)
		}
	}
	w.checkStrange()
}

// inject hands a packet to a box as if a peer had sent it.
func inject(t *testing.T, b *box, packet []byte) {
	t.Helper()
	if _, err := b.tun.Write(packet); err != nil {
		t.Fatal(err)
	}
}

const udpFrom = 4000

// udp makes a whole packet, from port udpFrom.
func udp(from, to netip.Addr, port uint16, what string) []byte {
	datagram := binary.BigEndian.AppendUint16(nil, udpFrom)
	datagram = binary.BigEndian.AppendUint16(datagram, port)
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(8+len(what)))
	datagram = append(binary.BigEndian.AppendUint16(datagram, 0), what...)
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, unix.IPPROTO_UDP)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(datagram)))
	binary.BigEndian.PutUint16(datagram[6:], checksum(append(pseudo, datagram...)))
	var header []byte
	if from.Is6() {
		header = []byte{0x60, 0, 0, 0, 0, 0, unix.IPPROTO_UDP, 64}
		binary.BigEndian.PutUint16(header[4:], uint16(len(datagram)))
		header = append(append(header, from.AsSlice()...), to.AsSlice()...)
	} else {
		header = []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
		binary.BigEndian.PutUint16(header[2:], uint16(20+len(datagram)))
		header = append(append(header, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(header[10:], checksum(header))
	}
	return append(header, datagram...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// converse opens a connection of UDP, from the port that udp has, and has it answered.
func converse(t *testing.T, from *pod, to netip.Addr) {
	t.Helper()
	var c *net.UDPConn
	from.do(func() (err error) {
		c, err = net.DialUDP("udp", &net.UDPAddr{Port: udpFrom}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, talk)))
		return err
	})
	defer func() { _ = c.Close() }()
	if _, err := insist(c, "conversation"); err != nil {
		t.Fatal(err)
	}
}

// A machine on the LAN pretends to be a peer or a pod, and asks this node to route to a peer, also in the middle of what
// these say to each other.
func TestStrangersOnTheLAN(t *testing.T) {
	for _, bridge := range []string{"cni0", ""} {
		t.Run("bridge "+bridge, func(t *testing.T) { testStrangers(t, bridge) })
	}
}

func testStrangers(t *testing.T, bridge string) {
	w, a, b, x, y := two(t, "nft")
	a.desired.Bridge = bridge
	a.set()
	allowHost(a, b)
	b.set()
	stranger := w.bed.AddHost("stranger", "192.0.2.66/24")
	if err := stranger.Do(func() error {
		return sysctl("ipv6/conf/eth0/dad_transmits", "0")
	}); err != nil {
		t.Fatal(err)
	}
	stranger.Link("eth0").AddAddress("fd66::66/64")
	a.do(func() error { // the most open that a node can be
		for _, name := range []string{"all", "eth0", "cni0", device} {
			if err := sysctl("ipv4/conf/"+name+"/rp_filter", "0"); err != nil {
				return err
			}
		}
		return nil
	})
	a.Link("eth0").AddAddress("fd66::1/64")
	a.run(fmt.Sprintf(`
		iptables-nft -w -P FORWARD ACCEPT
		ip6tables-nft -w -P FORWARD ACCEPT
		iptables-nft -w -t nat -A PREROUTING -p udp --dport 30007 -j DNAT --to %v:%d
	`, a.seen(b, y.v4), talk))
	everybody := []*ears{a.heard, b.heard, x.heard, y.heard}
	pass := func() {
		// What the stranger sent has arrived at the node when it hears this.
		for _, host := range []string{"192.0.2.1", "fd66::1"} {
			ask(t, stranger, "udp", netip.MustParseAddr(host), "barrier")
		}
		barrier(t, x, y)
	}
	for i := range 4 {
		six, established := i%2 == 1, i >= 2
		own := map[bool]netip.Addr{false: netip.MustParseAddr("192.0.2.66"), true: netip.MustParseAddr("fd66::66")}[six]
		box := map[bool]netip.Addr{false: netip.MustParseAddr("192.0.2.1"), true: netip.MustParseAddr("fd66::1")}[six]
		host := map[bool]netip.Addr{false: host4, true: host6}[six]
		far, near := a.seen(b, y.addr(six)), b.seen(a, x.addr(six))
		if established {
			converse(t, x, far)
			converse(t, y, near)
		}
		for _, attempt := range []struct {
			name     string
			from, to netip.Addr
			port     uint16
		}{
			{"pretends to be a peer's pod, to a pod", far, x.addr(six), talk},
			{"pretends to be a peer's pod, to the address that the peer knows", far, near, talk},
			{"pretends to be a peer's pod, to the host", far, box, talk},
			{"pretends to be a peer's host, to the host", a.seen(b, host), host, talk},
			{"routes to a peer", own, far, talk},
			{"pretends to be a pod, to a peer", x.addr(six), far, talk},
			{"pretends to be the host, to a peer", host, far, talk},
			{"pretends to have the address that the peer knows, to a peer", near, far, talk},
			{"pretends to be a pod, to a NodePort whose endpoint is at the peer", x.addr(six), box, 30007},
		} {
			name := fmt.Sprintf("%s, IPv6 %v, in a connection %v", attempt.name, six, established)
			checkSilence(t, name, func(what string) { sendVia(t, stranger, box, udp(attempt.from, attempt.to, attempt.port, what)) }, pass, everybody...)
		}
	}
	// Proof that these packets would have arrived otherwise.
	waitFor(t, func() error {
		sendVia(t, stranger, netip.MustParseAddr("192.0.2.1"), udp(netip.MustParseAddr("192.0.2.66"), x.v4, talk, "to a pod"))
		if !x.heard.source("to a pod").IsValid() {
			return fmt.Errorf("the pod did not hear the stranger")
		}
		return nil
	})
	// It was answered. A peer has no part in that connection.
	checkSilence(t, "from the device, in a connection with the LAN", func(what string) {
		inject(t, a, udp(netip.MustParseAddr("192.0.2.66"), x.v4, talk, what))
	}, pass, everybody...)
	w.checkStrange()
}

// sendVia sends a whole packet through a neighbour, as its router.
func sendVia(t *testing.T, from *bed.Host, router netip.Addr, packet []byte) {
	t.Helper()
	mac := neighbour(t, from, router)
	if err := from.Do(func() error {
		proto := uint16(unix.ETH_P_IP)
		if router.Is6() {
			proto = unix.ETH_P_IPV6
		}
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		to := &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: eth0.Index, Halen: 6}
		copy(to.Addr[:], mac)
		return unix.Sendto(fd, packet, 0, to)
	}); err != nil {
		t.Fatal(err)
	}
}

// neighbour returns the hardware address of another host.
func neighbour(t *testing.T, from *bed.Host, addr netip.Addr) (mac net.HardwareAddr) {
	t.Helper()
	ask(t, from, "udp", addr, "who are you?")
	if err := from.Do(func() error {
		all, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range all {
			if n.IP.Equal(addr.AsSlice()) {
				mac = n.HardwareAddr
			}
		}
		return err
	}); err != nil || mac == nil {
		t.Fatalf("no hardware address of %v: %v", addr, err)
	}
	return mac
}

// A family without pods passes nothing.
func TestNothingPassesWithoutPods(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	b.desired.Pods, b.desired.Host = b.desired.Pods[:1], b.desired.Host[:1]
	b.peer(a).Theirs, b.peer(a).Ours = b.peer(a).Theirs[:1], b.peer(a).Ours[:1]
	b.set()
	pass := func() { ask(t, x, "udp", a.seen(b, y.v4), "barrier") }
	checkSilence(t, "from a pod", func(what string) { say(t, x, a.seen(b, y.v6), talk, what) }, pass, y.heard, b.heard)
	checkSilence(t, "to the host", func(what string) {
		inject(t, b, udp(netip.MustParseAddr("fd99:b::5"), host6, talk, what))
	}, pass, y.heard, b.heard)
	w.checkStrange()
}

// Without a route by the device, what is for a block must not leave by another one.
func TestBlocksLeaveByTheDeviceOnly(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	a.run("ip route del 241.7.2.0/23; ip route add default via 192.0.2.2; ip -6 route del fd99:a::/63")
	b.run("ip addr add 241.7.2.5/32 dev lo") // whoever it is that would get it
	pass := func() { ask(t, a, "udp", netip.MustParseAddr("192.0.2.2"), "barrier") }
	for name, from := range map[string]place{"a pod": x, "the host": a} {
		checkSilence(t, "from "+name, func(what string) { say(t, from, a.seen(b, y.v4), talk, what) }, pass, b.heard, y.heard)
	}
	a.run("nft delete table ip liqo")
	waitFor(t, func() error {
		say(t, a, a.seen(b, y.v4), talk, "without our rules")
		if !b.heard.source("without our rules").IsValid() {
			return fmt.Errorf("it did not leave by the LAN")
		}
		return nil
	})
	w.checkStrange()
}

// Connections go on only while they are granted.
func TestGrantsComeAndGo(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, side := range []string{"at the one that opened it", "at the one that accepted it"} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", side, six), func(t *testing.T) {
				w, a, b, x, y := two(t, "nft")
				other := a.addPod(6) // keeps its grant
				allow([]*pod{other}, []*pod{y})
				a.set()
				b.set()
				c, err := dial(x, "tcp", a.seen(b, y.addr(six)), talk)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				exchange(t, c, "one")
				var grants *[]Grant
				box := a
				if side == "at the one that opened it" {
					grants = &a.peer(b).Out
				} else {
					box, grants = b, &b.peer(a).In
				}
				kept := *grants
				// The first is x to y; without the grant back, nothing else allows the connection's packets.
				*grants = kept[1:]
				box.set()
				checkSilence(t, "after the grant went", func(what string) {
					if _, err := c.Write([]byte(what)); err != nil {
						t.Fatal(err)
					}
				}, func() { barrier(t, other, y) }, y.heard)
				*grants = kept
				box.set()
				// Now it is sent again, and the connection goes on.
				buffer := make([]byte, 1000)
				if err := c.SetReadDeadline(late()); err != nil {
					t.Fatal(err)
				}
				if n, err := c.Read(buffer); err != nil || !strings.Contains(string(buffer[:n]), "after the grant went") {
					t.Errorf("after the grant came back: %q, %v", buffer[:n], err)
				}
				w.checkStrange()
			})
		}
	}
}

func exchange(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := c.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(late()); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1000)
	if n, err := c.Read(buffer); err != nil || !strings.HasSuffix(string(buffer[:n]), what) {
		t.Fatalf("%q, %v", buffer[:n], err)
	}
}

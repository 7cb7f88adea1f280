package filter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

const (
	// hang bounds a test that hangs, and measures nothing.
	hang   = 5 * time.Minute
	device = "liqo0"
	// talk is the port on which everybody answers.
	talk = 7
)

var (
	pods4, pods6 = netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42::/64")
	host4, host6 = netip.MustParseAddr("10.42.0.1"), netip.MustParseAddr("fd42::1")
)

// world is a few clusters of one node each, with the same ranges of pods, on one LAN, and
// what carries the packets between their devices.
type world struct {
	t     testing.TB
	bed   *bed.Bed
	boxes []*box
}

// box is a node.
type box struct {
	*bed.Host
	t      testing.TB
	name   string
	tun    *os.File
	table  *Table
	bridge int

	mu      sync.Mutex
	desired Desired
	routes  []route
	strange []string // packets that should not have left by the device
	heard   *ears
}

// route is where the packets to a block go.
type route struct {
	theirs, ours netip.Prefix
	to           *box
}

// pod is a network namespace behind the bridge of a box.
type pod struct {
	t     testing.TB
	box   *box
	ns    *os.File
	n     int
	v4    netip.Addr
	v6    netip.Addr
	heard *ears
}

// place is where a program can run.
type place interface {
	Do(fn func() error) error
}

func newWorld(t testing.TB, names ...string) *world {
	t.Helper()
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no network devices of our own here:", err)
	}
	_ = tun.Close()
	w := &world{t: t, bed: bed.New(t)}
	for i, name := range names {
		b := &box{t: t, name: name, Host: w.bed.AddHost(name, fmt.Sprintf("192.0.2.%d/24", i+1))}
		b.desired = Desired{Device: device, Bridge: "cni0", Pods: []netip.Prefix{pods4, pods6}, Host: []netip.Addr{host4, host6}}
		b.do(b.setUp)
		b.heard = listen(t, b, talk)
		w.boxes = append(w.boxes, b)
	}
	return w
}

func (b *box) do(fn func() error) {
	b.t.Helper()
	if err := b.Do(fn); err != nil {
		b.t.Fatal(err)
	}
}

// run runs a command on the box.
func (b *box) run(command string) string {
	b.t.Helper()
	var out []byte
	b.do(func() (err error) {
		out, err = exec.Command("sh", "-ec", command).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		return err
	})
	return string(out)
}

func sysctl(path, value string) error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) }

func (b *box) setUp() error {
	bridge, err := netlink.LinkByName("cni0")
	if err != nil {
		return err
	}
	b.bridge = bridge.Attrs().Index
	if err := errors.Join(
		sysctl("ipv4/ip_forward", "1"), sysctl("ipv6/conf/all/forwarding", "1"),
		// Errors are part of what is tested, and come in bursts.
		sysctl("ipv4/icmp_ratelimit", "0"), sysctl("ipv6/icmp/ratelimit", "0"),
		netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(host6, 64)), Flags: unix.IFA_F_NODAD}),
	); err != nil {
		return err
	}
	// Tracked connections last as long as a busy machine may need for a test.
	for _, of := range []string{
		"udp_timeout", "udp_timeout_stream", "icmp_timeout", "icmpv6_timeout", "tcp_timeout_close", "tcp_timeout_close_wait",
		"tcp_timeout_fin_wait", "tcp_timeout_last_ack", "tcp_timeout_time_wait",
	} {
		if err := sysctl("netfilter/nf_conntrack_"+of, "600"); err != nil {
			return err
		}
	}
	if b.tun, err = openTUN(device); err != nil {
		return err
	}
	b.t.Cleanup(func() { _ = b.tun.Close() })
	if b.table, err = Open(); err != nil {
		return err
	}
	b.t.Cleanup(func() {
		if err := b.table.Close(); err != nil {
			b.t.Errorf("close the table of %s: %v", b.name, err)
		}
	})
	go b.carry()
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	tun := os.NewFile(uintptr(fd), name)
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	// Longer than the packets in flight here, as nothing paces them.
	return tun, errors.Join(netlink.LinkSetTxQLen(link, 5000), netlink.LinkSetUp(link))
}

// carry hands the packets that leave by the device to the boxes they are for, until
// the device is closed.
func (b *box) carry() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := b.tun.Read(buffer)
		if err != nil {
			return
		}
		packet := buffer[:n]
		source, destination, ok := ends(packet)
		if !ok || destination.IsMulticast() {
			continue // neighbour discovery of the kernel, before there are rules
		}
		b.mu.Lock()
		i := slices.IndexFunc(b.routes, func(r route) bool { return r.theirs.Contains(destination) })
		if i < 0 || !b.routes[i].ours.Contains(source) {
			b.strange = append(b.strange, source.String()+" to "+destination.String())
			b.mu.Unlock()
			continue
		}
		to := b.routes[i].to
		b.mu.Unlock()
		_, _ = to.tun.Write(packet)
	}
}

// ends returns the addresses of a packet.
func ends(packet []byte) (source, destination netip.Addr, ok bool) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:])), true
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:])), true
	}
	return
}

// double returns the block of which a prefix is one half.
func double(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() }

// join connects two boxes: each chooses the blocks of which the lower halves stand for the other one's pods.
func (w *world) join(a, b *box, byA, byB []netip.Prefix) {
	w.t.Helper()
	for _, side := range []struct {
		box, peer    *box
		theirs, ours []netip.Prefix
	}{{a, b, byA, byB}, {b, a, byB, byA}} {
		peer := Peer{Name: side.peer.name, Ours: side.ours}
		for _, block := range side.theirs {
			peer.Theirs = append(peer.Theirs, double(block))
			host := host4
			own := pods4
			if block.Addr().Is6() {
				host, own = host6, pods6
			}
			peer.Gateways = append(peer.Gateways, corresponding(host, own, block))
			side.box.do(func() error {
				link, err := netlink.LinkByName(device)
				if err != nil {
					return err
				}
				return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(double(block))})
			})
			side.box.mu.Lock()
			side.box.routes = append(side.box.routes, route{double(block), double(ofFamily(side.ours, block.Addr().Is6())), side.peer})
			side.box.mu.Unlock()
		}
		side.box.desired.Peers = append(side.box.desired.Peers, peer)
	}
}

// peer returns what is desired about another box.
func (b *box) peer(other *box) *Peer {
	for i := range b.desired.Peers {
		if b.desired.Peers[i].Name == other.name {
			return &b.desired.Peers[i]
		}
	}
	b.t.Fatalf("%s is no peer of %s", other.name, b.name)
	return nil
}

// set applies what is desired.
func (b *box) set() {
	b.t.Helper()
	b.do(func() error { return b.table.Set(b.desired) })
}

// seen returns the address of a pod, or of the host, of another box, as seen here.
func (b *box) seen(other *box, addr netip.Addr) netip.Addr {
	own := pods4
	if addr.Is6() {
		own = pods6
	}
	return corresponding(addr, own, ofFamily(b.peer(other).Theirs, addr.Is6()))
}

// allow grants connections from each pod to each other one, at both of their boxes.
func allow(from, to []*pod) {
	a, b := from[0].box, to[0].box
	var seenHere, seenThere Grant
	for _, p := range from {
		for _, addr := range []netip.Addr{p.v4, p.v6} {
			seenHere.From = append(seenHere.From, single(addr))
			seenThere.From = append(seenThere.From, single(b.seen(a, addr)))
		}
	}
	for _, p := range to {
		for _, addr := range []netip.Addr{p.v4, p.v6} {
			seenHere.To = append(seenHere.To, single(a.seen(b, addr)))
			seenThere.To = append(seenThere.To, single(addr))
		}
	}
	a.peer(b).Out = append(a.peer(b).Out, seenHere)
	b.peer(a).In = append(b.peer(a).In, seenThere)
}

// allowHost grants connections from the host, as well as from pods, in what was allowed
// between two boxes.
func allowHost(from, to *box) {
	there := to.peer(from)
	for i := range there.In {
		there.In[i].From = append(there.In[i].From, single(to.seen(from, host4)), single(to.seen(from, host6)))
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// addPod adds a pod with the n-th address, which answers on the port talk.
func (b *box) addPod(n int) *pod {
	b.t.Helper()
	p := &pod{
		t: b.t, box: b, n: n,
		v4: netip.AddrFrom4([4]byte{10, 42, 0, byte(n)}), v6: netip.MustParseAddr("fd42::" + strconv.FormatInt(int64(n), 16)),
	}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		p.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.ns.Close() })
	b.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = fmt.Sprintf("pod%d", n), b.bridge
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(p.ns.Fd()))}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(attrs.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	p.do(func() error {
		for _, name := range []string{"lo", "eth0"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.v4, 24))}),
			netlink.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.v6, 64)), Flags: unix.IFA_F_NODAD}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: host4.AsSlice()}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: host6.AsSlice()}),
		)
	})
	p.heard = listen(b.t, p, talk)
	return p
}

// Do runs fn in the pod's network.
func (p *pod) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(p.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

func (p *pod) do(fn func() error) {
	p.t.Helper()
	if err := p.Do(fn); err != nil {
		p.t.Fatal(err)
	}
}

// onThread runs fn on a thread that ends with it.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// ears remember what a server was told.
type ears struct {
	mu   sync.Mutex
	from map[string]netip.Addr // by what was said
}

func (e *ears) hear(what string, from net.Addr) netip.Addr {
	addr := from.(interface{ AddrPort() netip.AddrPort }).AddrPort().Addr().Unmap()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.from[what] = addr
	return addr
}

// source returns where a message came from; it is not valid if none came.
func (e *ears) source(what string) netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.from[what]
}

// listen answers UDP and TCP on a port: each message with the address that it came from.
func listen(t testing.TB, at place, port int) *ears {
	t.Helper()
	return listenOn(t, at, fmt.Sprintf(":%d", port))
}

// listenOn is listen on an address.
func listenOn(t testing.TB, at place, address string) *ears {
	t.Helper()
	e := &ears{from: make(map[string]netip.Addr)}
	var packets net.PacketConn
	var streams net.Listener
	if err := at.Do(func() (err error) {
		if packets, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		streams, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packets.Close(); _ = streams.Close() })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			addr := e.hear(string(buffer[:min(n, 64)]), from)
			answer := append([]byte(addr.String()+" "), buffer[:n]...)
			_, _ = packets.WriteTo(answer, from)
		}
	}()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				buffer := make([]byte, 1<<16)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						_ = c.Close()
						return
					}
					addr := e.hear(string(buffer[:min(n, 64)]), c.RemoteAddr())
					if _, err := c.Write(append([]byte(addr.String()+" "), buffer[:n]...)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return e
}

// dial connects to a literal address.
func dial(at place, network string, to netip.Addr, port int) (net.Conn, error) {
	var c net.Conn
	err := at.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: hang}).Dial(network, netip.AddrPortFrom(to, uint16(port)).String())
		return err
	})
	return c, err
}

// ask says something and returns the answer.
func ask(t testing.TB, at place, network string, to netip.Addr, what string) string {
	t.Helper()
	answer, err := tryPort(at, network, to, talk, what)
	if err != nil {
		t.Fatalf("%s to %v: %v", network, to, err)
	}
	return answer
}

func tryPort(at place, network string, to netip.Addr, port int, what string) (string, error) {
	c, err := dial(at, network, to, port)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return insist(c, what)
}

// insist says something on a connection until it is answered.
func insist(c net.Conn, what string) (string, error) {
	buffer := make([]byte, 1<<16)
	for end := late(); ; {
		if _, err := io.WriteString(c, what); err != nil {
			return "", err
		}
		// A datagram may get lost, when the machine is busy.
		patience := end
		if c.LocalAddr().Network() == "udp" {
			patience = soon()
		}
		if err := c.SetReadDeadline(patience); err != nil {
			return "", err
		}
		n, err := c.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			continue
		}
		return string(buffer[:n]), err
	}
}

// say sends one datagram and does not wait.
func say(t testing.TB, at place, to netip.Addr, port int, what string) {
	t.Helper()
	_ = send(t, at, to, port, what).Close()
}

// startFlow is say as a new connection: its socket stays open until the test ends, so that no other one has its port.
func startFlow(t testing.TB, at place, to netip.Addr, port int, what string) {
	t.Helper()
	c := send(t, at, to, port, what)
	t.Cleanup(func() { _ = c.Close() })
}

func send(t testing.TB, at place, to netip.Addr, port int, what string) net.Conn {
	t.Helper()
	c, err := dial(at, "udp", to, port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, what); err != nil && !errors.Is(err, unix.EPERM) { // EPERM: by a rule for output
		t.Fatal(err)
	}
	return c
}

// checkAnswer fails unless an answer says that the message came from an address.
func checkAnswer(t testing.TB, answer string, from netip.Addr) {
	t.Helper()
	if got, _, _ := strings.Cut(answer, " "); got != from.String() {
		t.Errorf("the message came from %s, want %s", got, from)
	}
}

// flannel adds the rules that K3s has on every node: those of kube-proxy that every connection passes, and flannel's.
func (b *box) flannel(backend string) {
	b.t.Helper()
	for _, f := range []struct{ program, cluster, node string }{
		{"iptables", "10.42.0.0/16", "10.42.0.0/24"},
		{"ip6tables", "fd42::/56", "fd42::/64"},
	} {
		b.iptables(f.program+"-"+backend, `
			iptables -P FORWARD DROP
			iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP
			iptables -A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
			iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			iptables -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully
		`+bed.FlannelRules("iptables", netip.MustParsePrefix(f.cluster), netip.MustParsePrefix(f.node)))
	}
}

// iptables runs commands of iptables by one process, in place of one each.
func (b *box) iptables(program, commands string) {
	b.t.Helper()
	tables := make(map[string]string)
	for line := range strings.Lines(commands) {
		command, _ := strings.CutPrefix(strings.TrimSpace(line), "iptables ")
		table := "filter"
		if rest, ok := strings.CutPrefix(command, "-t "); ok {
			table, command, _ = strings.Cut(rest, " ")
		}
		tables[table] += command + "\n"
	}
	var rules strings.Builder
	for table, commands := range tables {
		fmt.Fprintf(&rules, "*%s\n%sCOMMIT\n", table, commands)
	}
	if _, err := b.RunInput(b.t.Context(), rules.String(), program+"-restore", "-w", "--noflush"); err != nil {
		b.t.Fatal(err)
	}
}

// firewalls adds a firewall's table, and those chains of the network policy controller of K3s that are about pods of this
// box.
func (b *box) firewalls(pods ...bed.PolicedPod) {
	b.t.Helper()
	b.do(func() error {
		out, err := exec.Command("nft", bed.FirewalldRules(bed.RangesOf("10.42.0.0/16,fd42::/56"))).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("nft: %w\n%s", err, out)
		}
		return err
	})
	if err := b.SyncKubeRouter(b.t.Context(), pods...); err != nil {
		b.t.Fatal(err)
	}
}

// checkStrange fails if packets left by the device that should not have.
func (w *world) checkStrange() {
	w.t.Helper()
	for _, b := range w.boxes {
		b.mu.Lock()
		if len(b.strange) > 0 {
			w.t.Errorf("packets left %s that are for no peer: %v", b.name, b.strange)
		}
		b.mu.Unlock()
	}
}

// lost is after which time what nobody answered is taken for lost.
const lost = 5 * time.Second

// soon is when an answer that got lost is asked for again.
func soon() time.Time { return time.Now().Add(lost) }

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// late is when a test has hung.
func late() time.Time { return time.Now().Add(hang) }

// waitFor polls a condition.
func waitFor(t testing.TB, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if err := bed.Poll(ctx, condition); err != nil {
		t.Fatal(err)
	}
}

// control changes the socket of a connection.
func control(t testing.TB, c net.Conn, fn func(fd int) error) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	if err := errors.Join(raw.Control(func(fd uintptr) { inner = fn(int(fd)) }), inner); err != nil {
		t.Fatal(err)
	}
}

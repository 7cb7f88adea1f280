//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/vm"
	"liqo.io/agent/network"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

const (
	device = "liqo0"
	tunnel = "liqo0-wg"
	// hang bounds a test that hangs, and measures nothing.
	hang = 4 * time.Minute
	talk = 7 // the port on which pods answer
)

// box is a cluster of one node with two pods, of which the peer may reach the first.
type box struct {
	*bed.Host
	t    *testing.T
	set  settings
	run  *bed.Process
	pods [2]*pod
	seen netip.Prefix // how the peer's pods are known here
}

// pod is a network namespace behind the bridge of a box, which answers all that it is told.
type pod struct {
	ns   *os.File
	addr netip.Addr
}

// Prefixes of the pods of each box, and of the LAN between them, of each family. Those of IPv4 are those of K3s.
var (
	pods4, lan4 = netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("192.0.2.0/24")
	pods6, lan6 = netip.MustParsePrefix("fd42::/64"), netip.MustParsePrefix("fd07::/64")
)

// numbered returns the address in a prefix with that last byte.
func numbered(p netip.Prefix, n byte) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = n
	out, _ := netip.AddrFromSlice(b)
	return out
}

// newBoxes returns two clusters that are about to be connected, with pods of one family only, and on a LAN of that.
func newBoxes(t *testing.T, pods, lan netip.Prefix) [2]*box {
	t.Helper()
	b := bed.New(t)
	var out [2]*box
	for i := range out {
		name := string(rune('a' + i))
		x := &box{t: t, Host: b.AddHost(name, netip.PrefixFrom(numbered(lan, byte(i+1)), lan.Bits()).String())}
		x.set = settings{ID: peer.ClusterID("cluster-" + name), Keys: t.TempDir()}
		x.set.Node = network.Node{Pods: []netip.Prefix{pods}, Host: []netip.Addr{numbered(pods, 1)}}
		x.do(func() error { return x.bridge(numbered(pods, 1), pods.Bits()) })
		for n := range x.pods {
			x.pods[n] = x.addPod(numbered(pods, byte(5+n)))
		}
		x.set.Pods = []netip.Prefix{netip.PrefixFrom(x.pods[0].addr, x.pods[0].addr.BitLen())}
		out[i] = x
	}
	for i, x := range out {
		other := out[1-i]
		key, err := trust.LoadOrCreateKey(other.set.Keys)
		if err != nil {
			t.Fatal(err)
		}
		x.set.Peer, x.set.Fingerprint = other.set.ID, key.Fingerprint()
		x.set.At = []netip.AddrPort{netip.AddrPortFrom(numbered(lan, byte(2-i)), 6447)}
	}
	for _, x := range out {
		x.start()
	}
	return out
}

func (b *box) do(fn func() error) {
	b.t.Helper()
	if err := b.Do(fn); err != nil {
		b.t.Fatal(err)
	}
}

// start starts the box's agent.
func (b *box) start() {
	b.t.Helper()
	text, err := json.Marshal(b.set)
	if err != nil {
		b.t.Fatal(err)
	}
	b.run = b.Start(bed.Cmd{Args: []string{"/proc/self/exe"}, Name: "end", Env: []string{endEnv + "=" + string(text), "LIQO_BED=1"}})
}

// says waits until the box's agent says how the peer is reached.
func (b *box) says(what string) {
	b.t.Helper()
	b.await(what, false)
}

// said is says for what may be over by now.
func (b *box) said(what string) {
	b.t.Helper()
	b.await(what, true)
}

// await waits until the last line about the path, or once any, begins with what.
func (b *box) await(what string, once bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), hang)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		last := ""
		for line := range strings.Lines(b.run.Log()) {
			if text, ok := strings.CutPrefix(line, "now: "); ok {
				if last = text; once && strings.HasPrefix(text, what) {
					break
				}
			}
		}
		if !strings.HasPrefix(last, what) {
			return fmt.Errorf("box %s says %q", b.Name, last)
		}
		if _, at, ok := strings.Cut(strings.TrimSpace(last), " at "); ok && at != "" {
			b.seen = netip.MustParsePrefix(at)
		}
		return nil
	}); err != nil {
		b.t.Fatalf("waiting for %q: %v; its kernel has %+v", what, err, b.peers())
	}
}

// bridge gives the bridge of the box's pods no other address than this one, and has the kernel pass packets of its family on.
func (b *box) bridge(host netip.Addr, bits int) error {
	link, err := netlink.LinkByName("cni0")
	if err != nil {
		return err
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range have {
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	forwarding := "ipv4/ip_forward"
	if host.Is6() {
		forwarding = "ipv6/conf/all/forwarding"
	}
	return errors.Join(
		netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(host, bits)), Flags: unix.IFA_F_NODAD}),
		os.WriteFile("/proc/sys/net/"+forwarding, []byte("1"), 0),
	)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (b *box) addPod(addr netip.Addr) *pod {
	b.t.Helper()
	p := &pod{addr: addr}
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
		bridge, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = fmt.Sprintf("pod%d", addr.AsSlice()[addr.BitLen()/8-1]), bridge.Attrs().Index
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(p.ns.Fd()))}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(attrs.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	err = p.Do(func() error {
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
		if err := errors.Join(
			netlink.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.addr, b.set.Node.Pods[0].Bits())), Flags: unix.IFA_F_NODAD}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: b.set.Node.Host[0].AsSlice()}),
		); err != nil {
			return err
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", talk))
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
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

// onThread runs fn on a thread that ends with it.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// dial connects a pod of the box to one of the other.
func (b *box) dial(from *pod, to *pod, patience time.Duration) (conn net.Conn, err error) {
	host := to.addr.AsSlice()
	at := numbered(b.seen, host[len(host)-1])
	err = from.Do(func() error {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(at, talk).String(), patience)
		return err
	})
	return conn, err
}

// pulse is a connection on which something is said and answered all the time.
type pulse struct {
	t    *testing.T
	conn net.Conn
	work sync.WaitGroup

	mu      sync.Mutex
	beats   int
	last    time.Time
	longest time.Duration
	err     error
}

// pulse begins a connection from a pod of the box to one of the other.
func (b *box) pulse(other *box) *pulse {
	b.t.Helper()
	conn, err := b.dial(b.pods[0], other.pods[0], hang)
	if err != nil {
		b.t.Fatal(err)
	}
	p := &pulse{t: b.t, conn: conn, last: time.Now()}
	p.work.Go(p.run)
	b.t.Cleanup(func() {
		_ = conn.Close()
		p.work.Wait()
	})
	return p
}

func (p *pulse) run() {
	message := make([]byte, 4000) // more than a packet
	for {
		_, err := p.conn.Write(message)
		if err == nil {
			_, err = io.ReadFull(p.conn, message)
		}
		p.mu.Lock()
		now := time.Now()
		p.longest = max(p.longest, now.Sub(p.last))
		p.last = now
		p.beats++
		p.err = err
		p.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// beats waits until something is answered that is said from now on, and returns the longest pause since it was called last.
func (p *pulse) beat() time.Duration {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	defer cancel()
	p.mu.Lock()
	from := p.beats
	p.mu.Unlock()
	if err := bed.Poll(ctx, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil && p.beats < from+3 {
			return errors.New("nothing is answered")
		}
		return nil
	}); err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.t.Fatalf("the connection has broken: %v", p.err)
	}
	out := p.longest
	p.longest = 0
	return out
}

// blocks has the box drop what comes for a UDP port, until the function is called that it returns.
func (b *box) blocks(port uint16) (open func()) {
	b.t.Helper()
	table := &nftables.Table{Name: "test", Family: nftables.TableFamilyIPv4}
	b.do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
		return c.Flush()
	})
	return func() {
		b.do(func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.DelTable(table)
			return c.Flush()
		})
	}
}

// exists reports whether the box has a network device.
func (b *box) exists(name string) bool {
	found := false
	b.do(func() error {
		_, err := netlink.LinkByName(name)
		found = err == nil
		return nil
	})
	return found
}

// peers returns what the box's kernel says about WireGuard.
func (b *box) peers() (out map[wireguard.Key]wireguard.Seen) {
	b.t.Helper()
	b.do(func() error {
		d, err := wireguard.Open(tunnel, 1420, wireguard.NewKey(), network.TunnelPort)
		if err != nil {
			return err
		}
		defer d.Close()
		out, err = d.Peers()
		return err
	})
	return out
}

// A running path goes by WireGuard when both kernels have it, and by TLS when that stops; connections go on.
func TestWireGuard(t *testing.T) {
	vm.Inside(t)
	boxes := newBoxes(t, pods4, lan4)
	a, b := boxes[0], boxes[1]
	begun := time.Now()
	step := func(format string, args ...any) {
		t.Logf("%4.0f s: %s", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	for _, x := range boxes {
		x.said("Connected tls 1500")
	}
	beat := a.pulse(b)
	step("tls; longest pause %v", beat.beat())
	for _, x := range boxes {
		x.says("Connected wireguard 1420")
	}
	step("wireguard; longest pause on the way %v", beat.beat())
	for _, x := range boxes {
		for _, seen := range x.peers() {
			if len(seen.Allowed) != 1 || seen.Allowed[0] != netip.PrefixFrom(x.seen.Addr(), x.seen.Bits()-1) || seen.Handshake.IsZero() || seen.Preshared == (wireguard.Key{}) {
				t.Errorf("box %s has the peer %+v", x.Name, seen)
			}
		}
	}
	if conn, err := a.dial(a.pods[0], b.pods[1], 3*time.Second); err == nil {
		t.Error("a pod is reached that is not granted")
		_ = conn.Close()
	}
	beat.beat()

	// Each end at one of the two: that the tunnel outlives the agent of either is in network.TestTunnelOutlivesTheAgent.
	for i, end := range []func(*bed.Process) error{(*bed.Process).Stop, (*bed.Process).Kill} {
		x := boxes[i]
		before := x.peers()
		if err := end(x.run); err != nil {
			t.Error(err)
		}
		step("box %s has no agent; longest pause %v", x.Name, beat.beat())
		x.start()
		x.says("Connected wireguard")
		step("it is back; longest pause %v", beat.beat())
		// What the kernel has was neither removed nor made anew.
		after := x.peers()
		for key, was := range before {
			if is := after[key]; is.Preshared != was.Preshared || is.Received < was.Received || is.Sent < was.Sent {
				t.Errorf("before a restart of the agent of %s, there was the peer %+v, and then %+v", x.Name, was, after)
			}
		}
	}

	open := b.blocks(network.TunnelPort)
	for _, x := range boxes {
		x.says("Connected tls")
	}
	step("UDP is blocked at b; longest pause %v", beat.beat())
	open()
	for _, x := range boxes {
		x.says("Connected wireguard")
	}
	step("and open again; longest pause %v", beat.beat())

	b.Link("eth0").SetAddress("192.0.2.77/24")
	step("b has another address; longest pause %v", beat.beat())
	for _, x := range boxes {
		x.says("Connected")
	}

	a.do(func() error {
		link, err := netlink.LinkByName(tunnel)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	step("the device of a is deleted; longest pause %v", beat.beat())
	for _, x := range boxes {
		x.says("Connected wireguard")
	}
	step("and made again; longest pause %v", beat.beat())

	for _, x := range boxes {
		if err := x.run.Signal(syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
	}
	for _, x := range boxes {
		x.says("away")
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		if err := bed.Poll(ctx, func() error {
			if x.exists(device) || x.exists(tunnel) {
				return errors.New("a device is left")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		cancel()
	}
	step("disconnected")
}

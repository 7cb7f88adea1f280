//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
)

func TestMain(m *testing.M) {
	Prepare(func(ctx context.Context, k *Kube) error {
		_, err := k.Kubectl(ctx, "create", "configmap", "prepared")
		return err
	})
	Main(m)
}

var mdnsGroup = netip.MustParseAddrPort("224.0.0.251:5353")

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// greet makes a host answer every TCP connection with its name.
func greet(t *testing.T, h *Host) (port uint16) {
	t.Helper()
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", ":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, h.Name)
			conn.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// briefly is for greetings that are not expected, or asked for again and again.
const briefly = 300 * time.Millisecond

// greeting returns what a host hears from an address.
func greeting(ctx context.Context, from *Host, addr string, port uint16) (string, error) {
	conn, err := from.DialContext(ctx, "tcp", net.JoinHostPort(addr, fmt.Sprint(port)))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	return string(b), err
}

// groupSocket opens a socket on port 5353 that has joined the mDNS group on a link.
func groupSocket(t *testing.T, l *Link) *ipv4.PacketConn {
	t.Helper()
	var conn net.PacketConn
	index := l.Index()
	if err := l.host.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", ":5353")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := ipv4.NewPacketConn(conn)
	group := &net.UDPAddr{IP: mdnsGroup.Addr().AsSlice()}
	if err := errors.Join(
		p.JoinGroup(&net.Interface{Index: index}, group),
		p.SetMulticastInterface(&net.Interface{Index: index}),
		p.SetMulticastTTL(255),
	); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHostsReachEachOther(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	ctx := within(t, 5*time.Minute)
	port := greet(t, c)

	linkLocal := ""
	for _, p := range c.Link("eth0").Addresses() {
		if p.Addr().Is6() {
			linkLocal = p.Addr().String() + "%eth0"
		}
	}
	for _, addr := range []string{"10.77.0.2", linkLocal} {
		if got, err := greeting(ctx, a, addr, port); got != "c" || err != nil {
			t.Errorf("at %s answers %q, %v, want c", addr, got, err)
		}
	}
	// Every box has the same address on cni0 and must reach itself under it.
	if _, err := greeting(within(t, briefly), a, "10.42.0.1", port); err == nil {
		t.Error("a reaches c at 10.42.0.1")
	}
	if got, err := greeting(ctx, c, "10.42.0.1", port); got != "c" || err != nil {
		t.Errorf("on c, at 10.42.0.1 answers %q, %v", got, err)
	}
}

func TestMulticastIsHeardAndCaptured(t *testing.T) {
	b := New(t)
	hosts := []*Host{b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24"), b.AddHost("d", "10.77.0.3/24")}
	capture := b.LAN().Capture()
	var sockets []*ipv4.PacketConn
	for _, h := range hosts {
		sockets = append(sockets, groupSocket(t, h.Link("eth0")))
	}
	before := time.Now()
	if _, err := sockets[0].WriteTo([]byte("hello"), nil, net.UDPAddrFromAddrPort(mdnsGroup)); err != nil {
		t.Fatal(err)
	}
	for i, s := range sockets {
		if err := s.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, _, from, err := s.ReadFrom(buf)
		if err != nil {
			t.Fatalf("%s hears nothing: %v", hosts[i].Name, err)
		}
		if got := string(buf[:n]); got != "hello" || from.String() != "10.77.0.1:5353" {
			t.Errorf("%s hears %q from %v", hosts[i].Name, got, from)
		}
	}

	p, err := capture.WaitFor(within(t, 5*time.Minute), func(p Packet) bool { return string(p.Payload) == "hello" })
	if err != nil {
		t.Fatal(err)
	}
	if p.Src.String() != "10.77.0.1:5353" || p.Dst != mdnsGroup || p.TTL != 255 {
		t.Errorf("captured %v -> %v, TTL %d", p.Src, p.Dst, p.TTL)
	}
	if p.Time.Before(before.Add(-time.Second)) || p.Time.After(time.Now()) {
		t.Errorf("captured at %v, sent at %v", p.Time, before)
	}
	if n := len(slices.DeleteFunc(capture.Packets(), func(p Packet) bool { return string(p.Payload) != "hello" })); n != 1 {
		t.Errorf("captured %d times", n)
	}
	if n, err := capture.Dropped(); n != 0 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
}

func TestCaptureSeesUnicastAndIPv6ButNothingElse(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	capture := b.LAN().Capture()
	send := func(target, text string) {
		t.Helper()
		if err := a.Do(func() error {
			conn, err := net.Dial("udp", target)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = io.WriteString(conn, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	groupSocket(t, c.Link("eth0")) // so that nobody answers with ICMP
	send("10.77.0.2:5354", "not for us")
	send("10.77.0.2:5353", "unicast")
	send("[ff02::fb%eth0]:5353", "six")
	for _, want := range []string{"unicast", "six"} {
		if _, err := capture.WaitFor(within(t, 5*time.Minute), func(p Packet) bool { return string(p.Payload) == want }); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, p := range capture.Packets() {
		if string(p.Payload) == "not for us" {
			t.Error("captured a packet of another port")
		}
	}
}

func TestLinksChange(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "")
	ctx := within(t, 60*time.Second)
	port := greet(t, c)
	eth0 := c.Link("eth0")
	reachable := func(addr string, want bool) {
		t.Helper()
		err := Poll(ctx, func() error {
			_, err := greeting(within(t, briefly), a, addr, port)
			if want || err == nil {
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatalf("reachable at %s: want %v: %v", addr, want, err)
		}
	}
	unreachable := func(addr string) {
		t.Helper()
		if got, err := greeting(within(t, briefly), a, addr, port); err == nil {
			t.Fatalf("still reaches %s at %s", got, addr)
		}
	}

	unreachable("10.77.0.2")
	eth0.SetAddress("10.77.0.2/24")
	reachable("10.77.0.2", true)
	eth0.AddAddress("10.77.0.3/24")
	reachable("10.77.0.3", true)
	eth0.SetAddress("10.77.0.4/24")
	reachable("10.77.0.4", true)
	unreachable("10.77.0.2")
	unreachable("10.77.0.3")
	eth0.SetLoss(100)
	unreachable("10.77.0.4")
	eth0.SetLoss(0)
	reachable("10.77.0.4", true)
	eth0.Unplug()
	unreachable("10.77.0.4")
	eth0.Plug()
	reachable("10.77.0.4", true)
	eth0.Down()
	unreachable("10.77.0.4")
	eth0.Up()
	reachable("10.77.0.4", true)

	other := b.AddLAN("other")
	a.AddLink(other, "eth1", "10.78.0.1/24")
	eth1 := c.AddLink(other, "eth1", "10.78.0.2/24")
	reachable("10.78.0.2", true)
	eth1.Remove()
	unreachable("10.78.0.2")
}

func TestLossLosesSomePackets(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	sender, receiver := groupSocket(t, a.Link("eth0")), groupSocket(t, c.Link("eth0"))
	const packets = 150 // they all fit into the receive buffer
	heard := func() int {
		t.Helper()
		for range packets {
			if _, err := sender.WriteTo([]byte("x"), nil, net.UDPAddrFromAddrPort(mdnsGroup)); err != nil {
				t.Fatal(err)
			}
		}
		// Without the loss the last one arrives for sure, and after all the others.
		c.Link("eth0").SetLoss(0)
		if _, err := sender.WriteTo([]byte("end"), nil, net.UDPAddrFromAddrPort(mdnsGroup)); err != nil {
			t.Fatal(err)
		}
		if err := receiver.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		for n := 0; ; n++ {
			size, _, _, err := receiver.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			if string(buf[:size]) == "end" {
				return n
			}
		}
	}
	if n := heard(); n != packets {
		t.Errorf("heard %d of %d without loss", n, packets)
	}
	c.Link("eth0").SetLoss(50)
	if n := heard(); n < packets/4 || n > packets*3/4 {
		t.Errorf("heard %d of %d with half of them lost", n, packets)
	}
}

func TestDisorderDoublesAndReorders(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	sender, receiver := groupSocket(t, a.Link("eth0")), groupSocket(t, c.Link("eth0"))
	buf := make([]byte, 10)
	hear := func() string {
		t.Helper()
		if err := receiver.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, _, _, err := receiver.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	// heard returns how often c hears each of so many packets, and how many of those that it hears were sent before the one that it heard
	// before them.
	const packets = 100 // they all fit into the receive buffer, with copies
	heard := func(percent int) (times [packets]int, back int) {
		t.Helper()
		a.Link("eth0").SetDisorder(percent)
		for i := range packets {
			if _, err := sender.WriteTo(fmt.Append(nil, i), nil, net.UDPAddrFromAddrPort(mdnsGroup)); err != nil {
				t.Fatal(err)
			}
		}
		for last, all := 0, 0; all < packets; {
			i, err := strconv.Atoi(hear())
			if err != nil {
				t.Fatal(err)
			}
			if times[i]++; times[i] == 1 {
				all++
			}
			if i < last {
				back++
			}
			last = i
		}
		a.Link("eth0").SetDisorder(0)
		// No copy is under way now.
		if _, err := sender.WriteTo([]byte("end"), nil, net.UDPAddrFromAddrPort(mdnsGroup)); err != nil {
			t.Fatal(err)
		}
		for text := hear(); text != "end"; text = hear() {
			i, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			times[i]++
		}
		return times, back
	}
	most := func(times [packets]int) (twice int) {
		for i, n := range times {
			if n > 2 {
				t.Errorf("packet %d was heard %d times", i, n)
			}
			if n == 2 {
				twice++
			}
		}
		return twice
	}
	times, back := heard(0)
	if twice := most(times); twice != 0 || back != 0 {
		t.Errorf("without disorder %d packets are heard twice, %d after others", twice, back)
	}
	times, back = heard(30)
	twice := most(times)
	if twice == 0 || twice == packets || back == 0 {
		t.Errorf("%d packets are heard twice, %d after others", twice, back)
	}
	t.Logf("%d of %d packets are heard twice, %d after others", twice, packets, back)

	// A large answer has packets that the kernel did not cut yet, and its checksums are not computed.
	var l net.Listener
	large := strings.Repeat("0123456789", 100_000)
	if err := a.Do(func() (err error) {
		l, err = net.Listen("tcp", "10.77.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			io.WriteString(conn, large)
			conn.Close()
		}
	}()
	a.Link("eth0").SetDisorder(30)
	if got, err := greeting(within(t, 5*time.Minute), c, "10.77.0.1", netip.MustParseAddrPort(l.Addr().String()).Port()); err != nil || got != large {
		t.Errorf("over TCP come %d bytes of %d, %v", len(got), len(large), err)
	}
}

func TestHostIsABoxOfItsOwn(t *testing.T) {
	b := New(t)
	a, c := b.AddHost("a", "10.77.0.1/24"), b.AddHost("c", "10.77.0.2/24")
	ctx := within(t, 5*time.Minute)
	for _, h := range []*Host{a, c} {
		if out, err := h.Run(ctx, "hostname"); strings.TrimSpace(out) != h.Name || err != nil {
			t.Errorf("hostname of %s: %q, %v", h.Name, out, err)
		}
		if out, err := h.Run(ctx, "ls", "/sys/class/net"); out != "cni0\neth0\nlo\nveth0\nveth1\n" || err != nil {
			t.Errorf("interfaces of %s: %q, %v", h.Name, out, err)
		}
		h.WriteFile("/etc/liqo-agent/liqo-agent.toml", h.Name)
		h.WriteFile("/var/lib/liqo-agent/x", h.Name)
		h.WriteFile("/run/liqo-agent/x", h.Name)
		h.WriteFile("/etc/resolv.conf", h.Name) // the machine has one, too
	}
	for _, h := range []*Host{a, c} {
		if out, err := h.Run(ctx, "cat", "/etc/resolv.conf"); out != h.Name || err != nil {
			t.Errorf("/etc/resolv.conf on %s: %q, %v", h.Name, out, err)
		}
		for _, path := range []string{"/etc/liqo-agent/liqo-agent.toml", "/var/lib/liqo-agent/x", "/run/liqo-agent/x"} {
			if out, err := h.Run(ctx, "cat", path); out != h.Name || err != nil {
				t.Errorf("%s on %s: %q, %v", path, h.Name, out, err)
			}
			if got, err := os.ReadFile(h.Path(path)); string(got) != h.Name || err != nil {
				t.Errorf("%s of %s from outside: %q, %v", path, h.Name, got, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s exists outside of the hosts: %v", path, err)
			}
		}
	}
}

func TestProcesses(t *testing.T) {
	b := New(t)
	a := b.AddHost("a", "10.77.0.1/24")
	ctx := within(t, 5*time.Minute)

	if out, err := a.RunInput(ctx, "in", "sh", "-c", "cat; echo $HOME >&2; exit 3"); out != "in" || err == nil || !strings.Contains(err.Error(), "/home") {
		t.Errorf("Run: %q, %v", out, err)
	}
	polite := a.Start(Cmd{Args: []string{"sh", "-c", `trap 'echo bye; exit 0' TERM; echo "up $X"; while :; do sleep 0.01; done`}, Env: []string{"X=y"}})
	if err := polite.WaitLog(ctx, "up y\n"); err != nil {
		t.Fatal(err)
	}
	if err := polite.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(polite.Log(), "bye\n") {
		t.Errorf("log: %q", polite.Log())
	}
	if err := a.Start(Cmd{Args: []string{"false"}}).Wait(ctx); err == nil {
		t.Error("false succeeds")
	}
	if err := a.Start(Cmd{Args: []string{"echo", "one"}}).WaitLog(ctx, "two"); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("waiting for what an ended process never wrote: %v", err)
	}
	// Killing takes the children along.
	family := a.Start(Cmd{Args: []string{"sh", "-c", "sleep 1000 & echo $!; wait"}})
	if err := family.WaitLog(ctx, "\n"); err != nil {
		t.Fatal(err)
	}
	child := strings.TrimSpace(family.Log())
	if err := family.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := Poll(ctx, func() error {
		status, err := os.ReadFile("/proc/" + child + "/status")
		if err != nil || strings.Contains(string(status), "State:\tZ") {
			return nil
		}
		return fmt.Errorf("process %s lives: %s", child, status)
	}); err != nil {
		t.Error(err)
	}
	if _, err := a.MachinePID(); err != nil {
		t.Error(err)
	}
}

// lockedBuffer collects the output of a process while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package filter

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// probe sends something from a port of one host to a port of another, and reports whether it is answered.
func probe(t *testing.T, from *box, port int, to netip.Addr, what string) bool {
	t.Helper()
	var c *net.UDPConn
	from.do(func() (err error) {
		c, err = net.DialUDP("udp", &net.UDPAddr{Port: port}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, ProbePort)))
		return err
	})
	defer func() { _ = c.Close() }()
	buffer := make([]byte, 1<<10)
	for range 3 { // a datagram may get lost
		if _, err := c.Write([]byte(what)); err != nil {
			return false // ours are not to be sent
		}
		if err := c.SetReadDeadline(soon()); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(buffer); err == nil {
			return strings.Contains(string(buffer[:n]), what)
		}
	}
	return false
}

// What goes by the tunnel is judged like what goes by the device, hosts probe it, and without a Set it is forgotten.
func TestTunnel(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	listen(t, b, ProbePort)
	there := a.seen(b, host4)
	if probe(t, a, ProbePort, there, "by the device") {
		t.Error("hosts reach each other by the device")
	}
	for _, side := range []*box{a, b} {
		side.desired.Device, side.desired.Tunnel = "liqo9", device
		side.set()
	}
	for _, to := range []netip.Addr{a.seen(b, y.v4), a.seen(b, y.v6)} {
		ask(t, x, "udp", to, "granted "+to.String())
		ask(t, x, "tcp", to, "granted "+to.String())
	}
	z := b.addPod(9)
	pass := func() { ask(t, x, "udp", a.seen(b, y.v4), "barrier") }
	checkSilence(t, "to a pod that is not granted", func(what string) { say(t, x, a.seen(b, z.v4), talk, what) }, pass, z.heard)
	if !probe(t, a, ProbePort, there, "by the tunnel") {
		t.Error("hosts cannot probe the tunnel")
	}
	if probe(t, a, ProbePort+1, there, "from another port") {
		t.Error("what is no probe reaches the host")
	}
	w.checkStrange()

	expires := func() time.Duration {
		listing := a.run(`nft list set ip liqo to_peers`)
		_, after, ok := strings.Cut(listing, `"liqo0" timeout 5m expires `)
		if !ok {
			t.Fatalf("the tunnel stays for good:\n%s", listing)
		}
		after, _, _ = strings.Cut(strings.Fields(after)[0], ",")
		left, err := time.ParseDuration(after)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	a.run(`nft 'delete element ip liqo to_peers { "liqo0" }; add element ip liqo to_peers { "liqo0" timeout 5m expires 1m }'`)
	if before := expires(); before > time.Minute {
		t.Errorf("it expires in %v", before)
	}
	a.set()
	if before := expires(); before > time.Minute {
		t.Error("each Set writes")
	}
	a.table.renewed = a.table.renewed.Add(-tunnelRenew)
	a.set()
	if after := expires(); after < tunnelLife-time.Minute {
		t.Errorf("it is not renewed: it expires in %v", after)
	}
	ask(t, x, "udp", a.seen(b, y.v4), "renewed")

	a.run(`nft 'delete element ip liqo to_peers { "liqo0" }; delete element ip6 liqo to_peers { "liqo0" }'`) // as the kernel does
	checkSilence(t, "by a tunnel that is forgotten", func(what string) { say(t, x, a.seen(b, y.v4), talk, what) }, func() {}, y.heard)
	a.table.renewed = a.table.renewed.Add(-tunnelLife)
	a.set()
	ask(t, x, "udp", a.seen(b, y.v4), "known again")

	a.desired.Tunnel = ""
	a.set()
	if listing := a.run(`nft list set ip liqo to_peers`); strings.Contains(listing, `"liqo0"`) {
		t.Errorf("it is still there:\n%s", listing)
	}
}

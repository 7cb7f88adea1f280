package filter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// refusals returns how many packets of a peer a box refused.
func (b *box) refusals(of string) uint64 {
	b.t.Helper()
	var all map[string]uint64
	b.do(func() (err error) { all, err = Refused(); return err })
	return all[of]
}

// awaitRefusals waits until so many packets of a peer were refused. again sends another one in place of one that was lost, as
// happens when the machine is busy.
func (b *box) awaitRefusals(of string, want uint64, again func()) {
	b.t.Helper()
	counted, at := uint64(0), time.Now()
	waitFor(b.t, func() error {
		n := b.refusals(of)
		if n != counted {
			counted, at = n, time.Now()
		} else if n < want && time.Since(at) > lost {
			again()
			at = time.Now()
		}
		if n != want {
			return fmt.Errorf("%d packets of %s were refused, want %d", n, of, want)
		}
		return nil
	})
}

// flows returns how many connections of a protocol, with blocks, a box tracks.
func flows(t *testing.T, b *box, protocol int) (n int) {
	t.Helper()
	for _, c := range tracked(t, b) {
		if strings.HasPrefix(c, fmt.Sprintf("%d ", protocol)) && strings.Contains(c, "241.") {
			n++
		}
	}
	return n
}

// warm has pods ask somebody until they are answered, with a connection each: what is said after that is not lost because
// nobody knows yet where they are.
func warm(t *testing.T, from []*pod, to netip.Addr) {
	t.Helper()
	for _, p := range from {
		ask(t, p, "udp", to, "are you there?")
	}
}

// needsLimit skips a test where the kernel does not count connections.
func needsLimit(t *testing.T, b *box) {
	t.Helper()
	if !b.table.Bounds() {
		t.Skip("the kernel has no connlimit")
	}
}

func TestConnectionsOfPeersAreBounded(t *testing.T) {
	const most, tried = 20, 30
	_, a, b, x, y := two(t, "nft")
	needsLimit(t, b)
	z := b.addPod(6)
	from := []*pod{x, a.addPod(6), a.addPod(7)} // of which each may have half
	allow([]*pod{x}, []*pod{z})
	allow(from[1:], []*pod{y, z})
	a.set()
	b.desired.Connections = 2 * most // of which half are for IPv6
	b.set()

	c, err := dial(x, "tcp", a.seen(b, y.v4), talk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	warm(t, from[1:], a.seen(b, y.v4))
	for i := range tried { // what the pod at the end does with them does not matter
		startFlow(t, from[i%3], a.seen(b, []*pod{y, z}[i%2].v4), 99, "one more")
	}
	more := 0
	waitFor(t, func() error {
		if n := b.refusals(a.name); n < tried+3-most {
			say(t, from[more%3], a.seen(b, y.v4), 99, "one more") // in place of one that was lost
			more++
			return fmt.Errorf("%d packets were refused, after %d more", n, more)
		}
		return nil
	})
	if n := flows(t, b, unix.IPPROTO_UDP); n != most-1 {
		t.Errorf("the peer has %d connections of UDP, want %d", n, most-1)
	}
	exchange(t, c, "what there is goes on")
	ask(t, x, "udp", a.seen(b, y.v6), "the other family has its own")
	ask(t, y, "udp", b.seen(a, x.v4), "what the peer has counts for nobody else")
	// Others' changes are none that has the kernel forget.
	b.peer(a).In = b.peer(a).In[:1]
	b.set()
	refused := b.refusals(a.name)
	waitFor(t, func() error {
		say(t, x, a.seen(b, y.v4), 99, "and one more")
		if b.refusals(a.name) == refused {
			return errors.New("nothing more was refused after a permission ended")
		}
		return nil
	})
	// Those that are gone make room.
	b.do(func() error { return vnetlink.ConntrackTableFlush(vnetlink.ConntrackTable) })
	ask(t, x, "udp", a.seen(b, y.v4), "again")
}

// Connections that are closed are not counted, and stay in the table all the same.
func TestClosedConnectionsAreBounded(t *testing.T) {
	_, a, b, x, y := two(t, "nft")
	needsLimit(t, b)
	const most = 64
	b.desired.Connections = 2 * most
	b.set()
	for range 2*most + 20 {
		c, err := dial(x, "tcp", a.seen(b, y.v4), talk)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()); err != nil {
			t.Fatal(err)
		}
		if b.refusals(a.name) > 0 {
			return
		}
	}
	t.Errorf("%d connections are tracked, and none was refused", flows(t, b, unix.IPPROTO_TCP))
}

// The peer's pods that run here, and echo requests to the host, count as well.
func TestGuestsAndEchosAreBounded(t *testing.T) {
	const most, tried = 20, 30
	_, a, b, x, y := two(t, "nft")
	needsLimit(t, b)
	from := []*pod{y, b.addPod(6), b.addPod(7)} // of which each may have half
	allow(from[1:], []*pod{x})
	a.desired.Connections, b.desired.Connections = 2*most, 2*most
	for i := range b.peer(a).Out {
		b.peer(a).Out[i].By = a.name
	}
	a.set()
	b.set()
	warm(t, from, b.seen(a, x.v4))
	for i := range tried {
		startFlow(t, from[i%3], b.seen(a, x.v4), 99, "from a guest")
	}
	b.awaitRefusals(a.name, tried+3-most, func() { startFlow(t, from[0], b.seen(a, x.v4), 99, "from a guest") })
	id := uint16(0)
	request := func() {
		inject(t, a, echo(a.seen(b, y.v4), b.seen(a, host4), id))
		id++
	}
	for range tried {
		request()
	}
	waitFor(t, func() error {
		if n := a.refusals(b.name); n < tried-most {
			request() // in place of one that was lost
			return fmt.Errorf("%d echo requests were refused", n)
		}
		return nil
	})
}

// One pod of a peer leaves connections to the others, whether it is a guest here or at home, and whatever a guest asks.
func TestOnePodLeavesConnectionsToOthers(t *testing.T) {
	const most, tried = 20, 50
	_, a, b, x, y := two(t, "nft")
	needsLimit(t, b)
	x2, y2, own := a.addPod(6), b.addPod(6), b.addPod(7)
	allow([]*pod{x2}, []*pod{y})
	a.set()
	b.desired.Connections = 2 * most
	b.desired.Guests = map[string][]netip.Prefix{a.name: append(both(y), both(y2)...)}
	b.set()

	warm(t, []*pod{x}, a.seen(b, y.v4))
	more := func() { startFlow(t, x, a.seen(b, y.v4), 99, "one more") }
	for range tried {
		more()
	}
	b.awaitRefusals(a.name, tried+1-most/2, more) // of a pod at home
	ask(t, x2, "udp", a.seen(b, y.v4), "there is room for another one")

	// A guest asks another machine, and the host, which have no network between clusters in between.
	const another = 2 // requests before
	places := [another]netip.Addr{netip.MustParseAddr("192.0.2.1"), host4}
	for _, at := range places {
		warm(t, []*pod{y}, at)
	}
	before := b.refusals(a.name)
	for i := range tried {
		startFlow(t, y, places[i%another], 99, "one more")
	}
	more = func() { startFlow(t, y, host4, 99, "one more") }
	b.awaitRefusals(a.name, before+tried+another-most, more)
	ask(t, y2, "udp", host4, "there is room for another guest")
	ask(t, y, "udp", host6, "the other family has its own")
	for range tried {
		startFlow(t, own, host4, 99, "who is nobody's guest has no bound")
	}
	if n := b.refusals(a.name) - before; n != tried+another-most {
		t.Errorf("%d packets were refused", n)
	}
	// Guests come and go without a change of what is counted.
	b.desired.Guests = map[string][]netip.Prefix{a.name: both(y)}
	b.set()
	more()
	b.awaitRefusals(a.name, before+tried+another-most+1, more)
}

// echo is an echo request.
func echo(from, to netip.Addr, id uint16) []byte {
	b := udp(from, to, 0, "")
	b[9] = unix.IPPROTO_ICMP
	b[10], b[11] = 0, 0
	sum := checksum(b[:20])
	b[10], b[11] = byte(sum>>8), byte(sum)
	copy(b[20:], []byte{8, 0, 0, 0, byte(id >> 8), byte(id), 0, 0})
	sum = checksum(b[20:28])
	b[22], b[23] = byte(sum>>8), byte(sum)
	return b
}

// A kernel that does not count connections has all other rules.
func TestKernelThatDoesNotCount(t *testing.T) {
	_, a, b, x, y := two(t, "nft")
	b.table.unbound = true
	b.desired.Connections = 2
	b.set()
	if rules := b.run("nft list table ip liqo"); strings.Contains(rules, "ct count") || b.table.Bounds() {
		t.Errorf("connections are counted:\n%s", rules)
	}
	ask(t, x, "udp", a.seen(b, y.v4), "one")
	ask(t, x, "udp", a.seen(b, y.v4), "another")
}

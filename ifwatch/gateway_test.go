package ifwatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// startOn runs a watcher on a host until the test ends, and keeps every snapshot
// it published.
func startOn(t *testing.T, h *bed.Host) *Watcher {
	t.Helper()
	w := New(Filter{Exclude: DefaultExclude()}, quiet())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Do(func() error { return w.Run(ctx) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// do runs netlink commands on a host.
func do(t *testing.T, h *bed.Host, f func(eth0 netlink.Link) error) {
	t.Helper()
	if err := h.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return f(l)
	}); err != nil {
		t.Fatal(err)
	}
}

// everywhere is the destination of a default route.
var everywhere = &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}

func defaultVia(t *testing.T, h *bed.Host, gateways ...string) *netlink.Route {
	t.Helper()
	route := &netlink.Route{}
	do(t, h, func(eth0 netlink.Link) error {
		route.LinkIndex = eth0.Attrs().Index
		if len(gateways) == 1 {
			route.Gw = net.ParseIP(gateways[0])
		} else {
			route.LinkIndex, route.Dst = 0, everywhere
			for _, g := range gateways {
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(g)})
			}
		}
		return netlink.RouteAdd(route)
	})
	return route
}

// linkLocal returns a host's IPv6 link-local address.
func linkLocal(h *bed.Host) string {
	for _, p := range h.Link("eth0").Addresses() {
		if p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr().String()
		}
	}
	return ""
}

// gateways returns a check that eth0 has these gateways, given as "address MAC"
// or "address" alone.
func gateways(want ...string) func(Snapshot) bool {
	return func(s Snapshot) bool {
		l, ok := s.ByName("eth0")
		return ok && l.GatewaysKnown && slices.Equal(want, told(l))
	}
}

func told(l Link) []string {
	var got []string
	for _, g := range l.Gateways {
		got = append(got, strings.TrimSpace(g.Addr.String()+" "+g.MAC.String()))
	}
	return got
}

// greet sends something from one host to another, which thereby learns the
// sender's hardware address anew.
func greet(t *testing.T, from *bed.Host, to string) {
	t.Helper()
	do(t, from, func(eth0 netlink.Link) error {
		list, err := netlink.NeighList(eth0.Attrs().Index, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, n := range list {
			if err := netlink.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return provoke(gatewayKey{eth0.Attrs().Index, netip.MustParseAddr(to)})
	})
}

func TestGatewaysAreFollowed(t *testing.T) {
	lan := bed.New(t)
	box, router := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("router", "192.0.2.1/24")
	second := lan.AddHost("second", "192.0.2.2/24")
	mac := func(h *bed.Host) string { return h.Link("eth0").HardwareAddr().String() }

	w := startOn(t, box)
	v4 := defaultVia(t, box, "192.0.2.1")
	s := await(t, w, "eth0", has("eth0"))
	if l, _ := s.ByName("eth0"); l.GatewaysKnown || l.Gateways != nil {
		t.Fatalf("gateways were read although nobody follows them: %+v", l)
	}
	do(t, box, func(eth0 netlink.Link) error {
		list, err := netlink.NeighList(eth0.Attrs().Index, netlink.FAMILY_V4)
		if len(list) > 0 {
			t.Errorf("neighbours were asked for although nobody follows gateways: %v", list)
		}
		return err
	})

	w.FollowGateways(true)
	await(t, w, "the router's hardware address", gateways("192.0.2.1 "+mac(router)))
	ll := linkLocal(router)
	v6 := defaultVia(t, box, ll)
	await(t, w, "the IPv6 router's too", gateways("192.0.2.1 "+mac(router), ll+" "+mac(router)))
	do(t, box, func(netlink.Link) error { return netlink.RouteDel(v4) })
	await(t, w, "the IPv6 router alone", gateways(ll+" "+mac(router)))
	do(t, box, func(netlink.Link) error { return netlink.RouteDel(v6) })
	await(t, w, "no gateway", gateways())

	// A route with two routers, of which one is in none of the box's networks and
	// one does not exist.
	both := defaultVia(t, box, "192.0.2.2", "192.0.2.1")
	await(t, w, "both routers", gateways("192.0.2.1 "+mac(router), "192.0.2.2 "+mac(second)))
	do(t, box, func(netlink.Link) error { return netlink.RouteDel(both) })
	defaultVia(t, box, "192.0.2.77")
	await(t, w, "a router that does not answer", gateways("192.0.2.77"))

	// A default route of another table, and one that is not through eth0, are not ours.
	do(t, box, func(eth0 netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP("192.0.2.2"), Table: 100})
	})
	do(t, box, func(eth0 netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP("192.0.2.1"), Priority: 500})
	})
	await(t, w, "both routers of the main table", gateways("192.0.2.1 "+mac(router), "192.0.2.77"))

	w.FollowGateways(false)
	await(t, w, "nothing about gateways", func(s Snapshot) bool {
		l, ok := s.ByName("eth0")
		return ok && !l.GatewaysKnown && l.Gateways == nil
	})
	w.FollowGateways(true)
	await(t, w, "both routers again", gateways("192.0.2.1 "+mac(router), "192.0.2.77"))
}

func TestGatewayOfAnotherFamily(t *testing.T) {
	lan := bed.New(t)
	box, router := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("router", "")
	w := startOn(t, box)
	w.FollowGateways(true)
	ll := linkLocal(router)
	do(t, box, func(eth0 netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: everywhere, Via: &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: net.ParseIP(ll)}})
	})
	await(t, w, "the IPv6 router of the IPv4 route", gateways(ll+" "+router.Link("eth0").HardwareAddr().String()))
}

func TestGatewayChangesItsHardwareAddress(t *testing.T) {
	lan := bed.New(t)
	box, router := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("router", "192.0.2.1/24")
	w := startOn(t, box)
	w.FollowGateways(true)
	defaultVia(t, box, "192.0.2.1")
	await(t, w, "the router", gateways("192.0.2.1 "+router.Link("eth0").HardwareAddr().String()))

	other := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	do(t, router, func(eth0 netlink.Link) error { return netlink.LinkSetHardwareAddr(eth0, other) })
	current, changed, cancel := w.Subscribe()
	defer cancel()
	ctx, done := context.WithTimeout(t.Context(), deadline)
	defer done()
	if err := bed.Poll(ctx, func() error {
		greet(t, router, "192.0.2.10") // the kernel does not believe a change every time
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
		if !gateways("192.0.2.1 " + other.String())(current()) {
			return fmt.Errorf("the new address is not told: %+v", current())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAnotherNetworkWithTheSameAddresses moves the box to a network that looks
// the same but for its router, with a kernel that forgets neighbours when the
// carrier goes and with one that does not.
func TestAnotherNetworkWithTheSameAddresses(t *testing.T) {
	for _, evict := range []string{"1", "0"} {
		t.Run("evict="+evict, func(t *testing.T) {
			lan := bed.New(t)
			box, home, away := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("home", "192.0.2.1/24"), lan.AddHost("away", "")
			do(t, box, func(netlink.Link) error {
				return os.WriteFile("/proc/sys/net/ipv4/conf/eth0/arp_evict_nocarrier", []byte(evict), 0)
			})
			w := startOn(t, box)
			w.FollowGateways(true)
			defaultVia(t, box, "192.0.2.1")
			old := home.Link("eth0").HardwareAddr().String()
			await(t, w, "the router at home", gateways("192.0.2.1 "+old))

			box.Link("eth0").Unplug()
			await(t, w, "no link", lacks("eth0"))
			home.Link("eth0").Down()
			away.Link("eth0").AddAddress("192.0.2.1/24")
			// The kernel may tell that there is no carrier before it has evicted.
			for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
				kept := false
				do(t, box, func(eth0 netlink.Link) error {
					list, err := netlink.NeighList(eth0.Attrs().Index, netlink.FAMILY_V4)
					kept = slices.ContainsFunc(list, func(n netlink.Neigh) bool { return n.HardwareAddr.String() == old })
					return err
				})
				if kept == (evict == "0") {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the kernel kept the neighbour: %v", kept)
				}
			}
			current, changed, cancel := w.Subscribe()
			defer cancel()
			box.Link("eth0").Plug()
			timeout := time.After(deadline)
			for want := gateways("192.0.2.1 " + away.Link("eth0").HardwareAddr().String()); !want(current()); {
				select {
				case <-changed:
				case <-timeout:
					t.Fatalf("the new router is not told: %+v", current())
				}
				if gateways("192.0.2.1 " + old)(current()) {
					t.Fatal("after the carrier came back the router of the network before is told")
				}
				if evict == "0" {
					// The kernel would take half a minute to doubt the entry by itself.
					greet(t, away, "192.0.2.10")
				}
			}
		})
	}
}

// TestLapseIsNoticed takes the link down and up so quickly that no look need see
// it down: what was known of the router is void all the same.
func TestLapseIsNoticed(t *testing.T) {
	lan := bed.New(t)
	box, home, away := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("home", "192.0.2.1/24"), lan.AddHost("away", "")
	w := startOn(t, box)
	w.FollowGateways(true)
	defaultVia(t, box, "192.0.2.1")
	await(t, w, "the router at home", gateways("192.0.2.1 "+home.Link("eth0").HardwareAddr().String()))
	home.Link("eth0").Down()
	do(t, box, func(eth0 netlink.Link) error {
		return errors.Join(netlink.LinkSetDown(eth0), netlink.LinkSetUp(eth0),
			netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
	})
	await(t, w, "a router that is not resolved", gateways("192.0.2.1"))
	away.Link("eth0").AddAddress("192.0.2.1/24")
	await(t, w, "the other router", gateways("192.0.2.1 "+away.Link("eth0").HardwareAddr().String()))
}

// TestGatewayIsAskedForAgain has a router that is not there when it is asked for
// first, and that stays silent by itself.
func TestGatewayIsAskedForAgain(t *testing.T) {
	lan := bed.New(t)
	box, router := lan.AddHost("box", "192.0.2.10/24"), lan.AddHost("router", "")
	do(t, box, func(netlink.Link) error { // so that the kernel gives up before we ask again
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/neigh/eth0/mcast_solicit", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/neigh/eth0/retrans_time_ms", []byte("50"), 0))
	})
	w := startOn(t, box)
	w.FollowGateways(true)
	defaultVia(t, box, "192.0.2.1")
	await(t, w, "a router that is not resolved", gateways("192.0.2.1"))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		return box.Do(func() error {
			list, err := netlink.NeighList(box.Link("eth0").Index(), netlink.FAMILY_V4)
			if err == nil && !slices.ContainsFunc(list, func(n netlink.Neigh) bool { return n.State == unix.NUD_FAILED }) {
				err = fmt.Errorf("the kernel has not given up: %v", list)
			}
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	router.Link("eth0").AddAddress("192.0.2.1/24")
	await(t, w, "the router", gateways("192.0.2.1 "+router.Link("eth0").HardwareAddr().String()))
}

// TestOnlyNewsIsLookedAt lets pods and neighbours come and go: nothing of that is
// a reason to look again.
func TestOnlyNewsIsLookedAt(t *testing.T) {
	lan := bed.New(t)
	box := lan.AddHost("box", "192.0.2.10/24")
	var kicks atomic.Int32
	var f *follower
	do(t, box, func(netlink.Link) (err error) {
		f, err = subscribe()
		return err
	})
	index := box.Link("eth0").Index()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	gateway := netip.MustParseAddr("192.0.2.1")
	// Before the first message: until something is expected, each is news, and the
	// kernel has some of its own to tell of a link that is new.
	f.expected.Store(&expected{{index, gateway}: mac})
	f.start(func() { kicks.Add(1) })
	defer f.close(false)

	neigh := func(addr string, mac net.HardwareAddr, state int) {
		t.Helper()
		do(t, box, func(netlink.Link) error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: index, IP: net.ParseIP(addr), HardwareAddr: mac, State: state})
		})
	}
	await := func(n int32) int32 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		if err := bed.Poll(ctx, func() error {
			if got := kicks.Load(); got < n {
				return fmt.Errorf("%d kicks, want %d", got, n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return kicks.Load()
	}
	do(t, box, func(eth0 netlink.Link) error {
		// Few enough for the socket's buffer, however late they are read: an
		// overflow is a kick of its own.
		for i := range 100 {
			// Permanent ones do not count against the table, which all hosts share.
			n := netlink.Neigh{LinkIndex: index, IP: net.IPv4(192, 0, 2, byte(i%20+20)), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}, State: unix.NUD_PERMANENT}
			if err := netlink.NeighSet(&n); err != nil {
				return err
			}
			if i%10 == 0 {
				_, pod, _ := net.ParseCIDR(fmt.Sprintf("10.43.%d.0/24", i/10))
				if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: pod}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	neigh("192.0.2.1", mac, unix.NUD_REACHABLE)
	neigh("192.0.2.1", mac, unix.NUD_STALE) // as known
	// Messages come in order, so these are the first that count.
	neigh("192.0.2.1", net.HardwareAddr{2, 0, 0, 0, 0, 2}, unix.NUD_REACHABLE)
	if got := await(1); got != 1 {
		t.Fatalf("%d kicks, want 1", got)
	}
	neigh("192.0.2.1", mac, unix.NUD_REACHABLE)
	do(t, box, func(netlink.Link) error {
		return netlink.NeighDel(&netlink.Neigh{LinkIndex: index, IP: net.ParseIP("192.0.2.1")})
	})
	defaultVia(t, box, "192.0.2.1")
	// The kernel may tell of a lost neighbour twice: once failed, once gone.
	if got := await(3); got > 4 {
		t.Errorf("%d kicks by a lost neighbour and a new route", got)
	}
	before := kicks.Load()
	f.expected.Store(nil) // while a look is taken, everything is news
	neigh("192.0.2.50", net.HardwareAddr{2, 0, 0, 0, 0, 3}, unix.NUD_PERMANENT)
	await(before + 1)
}

// flaky is a netlink socket whose reads fail.
type flaky struct{ errs []error }

func (s *flaky) Read([]byte) (int, error) {
	err := s.errs[0]
	s.errs = s.errs[1:]
	return 0, err
}

func (s *flaky) Close() error { return nil }

func TestLostMessagesAreAReasonToLook(t *testing.T) {
	kicks := 0
	broken := errors.New("broken")
	f := &follower{book: newBook(), socket: &flaky{[]error{unix.EINTR, &os.PathError{Err: unix.ENOBUFS}, broken}}}
	if err := f.notices(func() { kicks++ }); err != broken || kicks != 1 {
		t.Errorf("notices = %v after %d kicks, want %v after 1", err, kicks, broken)
	}
}

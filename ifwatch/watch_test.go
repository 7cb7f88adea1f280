package ifwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/leak"
)

// deadline bounds how long a test waits for something that must happen.
const deadline = bed.Hang

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// start runs a watcher for the length of the test.
func start(t *testing.T, filter Filter) *Watcher {
	t.Helper()
	w := New(filter, quiet())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		leak.Check(t)
	})
	return w
}

// await waits until the published snapshot satisfies want.
func await(t *testing.T, w *Watcher, what string, want func(Snapshot) bool) Snapshot {
	t.Helper()
	current, changed, cancel := w.Subscribe()
	defer cancel()
	timeout := time.After(deadline)
	for {
		select {
		case <-changed:
			if s := current(); want(s) {
				return s
			}
		case <-timeout:
			t.Fatalf("no snapshot with %s; the last one is %+v", what, current())
		}
	}
}

func hasAddr(name, prefix string) func(Snapshot) bool {
	return func(s Snapshot) bool {
		l, ok := s.ByName(name)
		return ok && slices.Contains(l.Addrs, netip.MustParsePrefix(prefix))
	}
}

func has(name string) func(Snapshot) bool {
	return func(s Snapshot) bool { _, ok := s.ByName(name); return ok }
}

func lacks(name string) func(Snapshot) bool {
	return func(s Snapshot) bool { _, ok := s.ByName(name); return !ok }
}

// must fails the test when a netlink command does.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair creates two joined links, removed when the test ends.
func pair(t *testing.T, a, b string) (la, lb netlink.Link) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a}, PeerName: b}))
	la, err := netlink.LinkByName(a)
	must(t, err)
	lb, err = netlink.LinkByName(b)
	must(t, err)
	t.Cleanup(func() { _ = netlink.LinkDel(la) }) // the test may have deleted it itself
	return la, lb
}

func addAddr(t *testing.T, l netlink.Link, cidr string) {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, netlink.AddrAdd(l, a))
}

func delAddr(t *testing.T, l netlink.Link, cidr string) {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, netlink.AddrDel(l, a))
}

func TestWatcherFollowsALink(t *testing.T) {
	w := start(t, Filter{Exclude: DefaultExclude()})
	current, changed, cancel := w.Subscribe()
	defer cancel()
	select {
	case <-changed:
	case <-time.After(deadline):
		t.Fatal("the first snapshot was not announced")
	}
	if s := current(); len(s.Links) != 0 {
		t.Fatalf("a new namespace has %+v", s)
	}

	eth, far := pair(t, "eth0", "far0")
	addAddr(t, eth, "192.0.2.1/24")
	must(t, netlink.LinkSetUp(eth))
	if s, err := Read(Filter{}); err != nil || len(s.Links) != 0 {
		t.Fatalf("a link without carrier is listed: %+v, %v", s, err)
	}
	must(t, netlink.LinkSetUp(far))
	s := await(t, w, "eth0 with its address", hasAddr("eth0", "192.0.2.1/24"))
	l, _ := s.ByName("eth0")
	if l.Index != eth.Attrs().Index || l.MTU != 1500 || !l.Up || !l.Multicast || l.Loopback || l.PointToPoint ||
		l.HardwareAddr.String() != eth.Attrs().HardwareAddr.String() {
		t.Errorf("link = %+v", l)
	}
	// Duplicate address detection ends with a message of its own.
	await(t, w, "an IPv6 link-local address", func(s Snapshot) bool {
		l, _ := s.ByName("eth0")
		return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() })
	})

	addAddr(t, eth, "192.0.2.9/24")
	delAddr(t, eth, "192.0.2.1/24")
	addAddr(t, eth, "192.0.2.9/32") // another prefix, same address
	s = await(t, w, "only the new address", func(s Snapshot) bool {
		return !hasAddr("eth0", "192.0.2.1/24")(s) && hasAddr("eth0", "192.0.2.9/32")(s)
	})
	for _, link := range s.Links {
		if !slices.IsSortedFunc(link.Addrs, netip.Prefix.Compare) {
			t.Errorf("addresses of %s are not sorted: %v", link.Name, link.Addrs)
		}
	}

	must(t, netlink.LinkSetMTU(eth, 9000))
	await(t, w, "the new MTU", func(s Snapshot) bool { l, _ := s.ByName("eth0"); return l.MTU == 9000 })

	must(t, netlink.LinkSetName(eth, "lan1"))
	s = await(t, w, "the new name", has("lan1"))
	if !lacks("eth0")(s) {
		t.Errorf("the old name is still there: %+v", s)
	}
	must(t, netlink.LinkSetName(eth, "cni0"))
	await(t, w, "no link that became container plumbing", lacks("cni0"))
	must(t, netlink.LinkSetName(eth, "lan1"))
	await(t, w, "the link again", has("lan1"))

	must(t, netlink.LinkSetDown(far)) // the cable is pulled
	await(t, w, "no link without carrier", lacks("lan1"))
	must(t, netlink.LinkSetUp(far))
	await(t, w, "the link with its carrier back", has("lan1"))
	must(t, netlink.LinkDel(eth))
	await(t, w, "nothing after the link was deleted", func(s Snapshot) bool { return len(s.Links) == 0 })
}

func TestWatcherSkipsTentativeAddresses(t *testing.T) {
	w := start(t, Filter{})
	a, b := pair(t, "eth0", "eth1")
	must(t, netlink.LinkSetUp(a))
	must(t, netlink.LinkSetUp(b))
	await(t, w, "both links", func(s Snapshot) bool { return has("eth0")(s) && has("eth1")(s) })
	// The same address at both ends: duplicate address detection refuses the second.
	addAddr(t, a, "2001:db8::1/64")
	await(t, w, "the first address", hasAddr("eth0", "2001:db8::1/64"))
	addAddr(t, b, "2001:db8::1/64")
	addAddr(t, b, "2001:db8::2/64")
	s := await(t, w, "the address after it", hasAddr("eth1", "2001:db8::2/64"))
	if hasAddr("eth1", "2001:db8::1/64")(s) {
		t.Errorf("an address that failed duplicate detection is listed: %+v", s)
	}
	// An address whose preferred lifetime has ended.
	ip, n, _ := net.ParseCIDR("192.0.2.3/24")
	n.IP = ip
	must(t, netlink.AddrAdd(a, &netlink.Addr{IPNet: n, ValidLft: 3600, PreferedLft: 0}))
	addAddr(t, a, "192.0.2.4/24")
	s = await(t, w, "the address after it", hasAddr("eth0", "192.0.2.4/24"))
	if hasAddr("eth0", "192.0.2.3/24")(s) {
		t.Errorf("a deprecated address is listed: %+v", s)
	}
}

func TestWatcherLeavesPlumbingOut(t *testing.T) {
	w := start(t, Filter{Exclude: DefaultExclude()})
	up := func(l netlink.Link, cidr string) {
		t.Helper()
		must(t, netlink.LinkAdd(l))
		t.Cleanup(func() { _ = netlink.LinkDel(l) })
		addAddr(t, l, cidr)
		must(t, netlink.LinkSetUp(l))
	}
	cni := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	up(cni, "10.42.0.1/24")
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	up(br, "192.0.2.1/24")
	pod, podEnd := pair(t, "veth1", "pod0")
	must(t, netlink.LinkSetMaster(pod, cni))
	port, portEnd := pair(t, "eth0", "lan0")
	must(t, netlink.LinkSetMaster(port, br))
	for _, l := range []netlink.Link{pod, podEnd, port, portEnd} {
		must(t, netlink.LinkSetUp(l))
	}
	named := []string{"cni0", "lo"}
	dummy := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "nodelocaldns"}}
	if err := netlink.LinkAdd(dummy); errors.Is(err, unix.EOPNOTSUPP) {
		t.Log("this kernel has no dummy links; TestOmit covers them")
	} else {
		must(t, err)
		must(t, netlink.LinkDel(dummy))
		up(dummy, "169.254.20.10/32")
		named = append(named, "nodelocaldns")
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	t.Cleanup(func() { must(t, netlink.LinkSetDown(lo)) })

	names := func(s Snapshot) []string {
		var list []string
		for _, l := range s.Links {
			list = append(list, l.Name)
		}
		slices.Sort(list)
		return list
	}
	await(t, w, "br0, lan0 and pod0 only", func(s Snapshot) bool {
		return hasAddr("br0", "192.0.2.1/24")(s) && slices.Equal(names(s), []string{"br0", "lan0", "pod0"})
	})
	w.SetFilter(Filter{Include: []string{"cni0", "lo", "nodelocal*", "eth0"}, Exclude: DefaultExclude()})
	await(t, w, "what the user named, without the bridge port", func(s Snapshot) bool {
		return slices.Equal(names(s), named)
	})
	got, err := Read(Filter{Include: []string{"lo"}})
	if err != nil || len(got.Links) != 1 || !got.Links[0].Loopback {
		t.Errorf("Read(lo) = %+v, %v", got, err)
	}
	if _, err := Read(Filter{Include: []string{"["}}); err == nil {
		t.Error("Read accepted a filter that is not valid")
	}
}

// TestWatcherSurvivesAStorm lets the netlink socket overflow: messages are
// lost, the final state is not.
func TestWatcherSurvivesAStorm(t *testing.T) {
	w := start(t, Filter{})
	a, b := pair(t, "eth0", "eth1")
	must(t, netlink.LinkSetUp(a))
	must(t, netlink.LinkSetUp(b))
	for i := range 2000 {
		cidr := fmt.Sprintf("198.18.%d.%d/32", i/250, i%250+1)
		addAddr(t, a, cidr)
		if i%2 == 0 {
			delAddr(t, a, cidr)
		}
	}
	await(t, w, "the 1000 addresses that stayed", func(s Snapshot) bool {
		l, _ := s.ByName("eth0")
		n := 0
		for _, p := range l.Addrs {
			if p.Addr().Is4() {
				n++
			}
		}
		return n == 1000
	})
}

func TestSubscribersAreIndependent(t *testing.T) {
	w := start(t, Filter{})
	a, b := pair(t, "eth0", "eth1")
	_, slow, cancelSlow := w.Subscribe() // never reads
	defer cancelSlow()
	_, gone, cancelGone := w.Subscribe()
	cancelGone()
	for len(gone) > 0 {
		<-gone
	}
	must(t, netlink.LinkSetUp(a))
	must(t, netlink.LinkSetUp(b))
	await(t, w, "eth0", has("eth0"))
	if len(slow) != 1 {
		t.Errorf("a subscriber that does not read holds %d notices, want 1", len(slow))
	}
	if len(gone) != 0 {
		t.Error("a cancelled subscriber was told")
	}
}

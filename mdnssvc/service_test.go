package mdnssvc

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

	"github.com/miekg/dns"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/wire"
)

// withoutIPv6 switches IPv6 off on a host's eth0.
func withoutIPv6(t *testing.T, h *bed.Host) {
	t.Helper()
	if err := h.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestFindEachOther(t *testing.T) {
	for _, tc := range []struct {
		name       string
		v4, v6     bool
		a, b, want string
	}{
		{name: "both families", a: "10.77.0.1/24", b: "10.77.0.2/24", v4: true, v6: true},
		{name: "IPv4 only", a: "10.77.0.1/24", b: "10.77.0.2/24", v4: true},
		{name: "IPv6 only", v6: true},
		{name: "one has both, the other IPv6 only", a: "10.77.0.1/24", v6: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lan := bed.New(t)
			ha, hb := lan.AddHost("a", tc.a), lan.AddHost("b", tc.b)
			if !tc.v6 {
				withoutIPv6(t, ha)
				withoutIPv6(t, hb)
			}
			a, b := startBox(t, ha, Config{}), startBox(t, hb, Config{})
			a.advertise(1000)
			b.advertise(2000)
			b.awaitInstance("eth0", "a", nil)
			e := a.awaitInstance("eth0", "b", func(e Event) bool {
				var v4, v6 bool
				for _, addr := range e.Instance.Addrs {
					v4 = v4 || addr.Is4()
					v6 = v6 || addr.Is6()
				}
				return v4 == (tc.b != "") && v6 == tc.v6
			})
			if e.Instance.Port != 2000 || e.Instance.Host != "b.local." {
				t.Errorf("instance = %+v", e.Instance)
			}
			for _, addr := range e.Instance.Addrs {
				ours := slices.ContainsFunc(hb.Link("eth0").Addresses(), func(p netip.Prefix) bool { return p.Addr() == addr.WithZone("") })
				if !ours || addr.Is6() && addr.IsLinkLocalUnicast() != (addr.Zone() == "eth0") {
					t.Errorf("address %v is not one of b's, or has the wrong zone", addr)
				}
			}
			s, err := Sighting(e)
			if err != nil || s.ClusterID != "b" || s.ClusterName != "B" || s.Fingerprint != fingerprint || len(s.Addrs) != len(e.Instance.Addrs) {
				t.Errorf("Sighting = %+v, %v", s, err)
			}
			b.awaitStats("name won everywhere", func(s Stats) bool { return s.Established && s.InstanceName == "b" && s.Instances == 1 })

			stopped := time.Now()
			b.stop()
			a.awaitLost("eth0", "b", browser.ReasonGoodbye)
			t.Logf("lost %v after the stop began", time.Since(stopped))
			if s := a.awaitStats("instance left", func(s Stats) bool { return s.Instances == 0 }); s.SocketDrops != 0 || s.Drops[DropQueueFull] != 0 {
				t.Errorf("packets were lost: %+v", s)
			}
		})
	}
}

func TestSwitches(t *testing.T) {
	lan := bed.New(t)
	a := startBox(t, lan.AddHost("a", "10.77.0.1/24"), Config{BrowseOnly: true})
	b := startBox(t, lan.AddHost("b", "10.77.0.2/24"), Config{})
	b.advertise(2000)
	a.awaitInstance("eth0", "b", nil)

	b.svc.Advertise(nil)
	a.awaitLost("eth0", "b", browser.ReasonGoodbye)
	b.advertise(2001)
	a.awaitInstance("eth0", "b", func(e Event) bool { return e.Instance.Port == 2001 })
	b.advertise(2002)
	a.awaitInstance("eth0", "b", func(e Event) bool { return e.Instance.Port == 2002 })

	a.svc.Browse(false)
	a.awaitLost("eth0", "b", browser.ReasonDiscoveryOff)
	a.svc.Browse(true)
	a.awaitInstance("eth0", "b", nil)

	// b's network dies without a word, and somebody who talks to b notices.
	b.host.Link("eth0").Unplug()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		// Again and again: a packet of b's that was still to be read counts as an answer.
		a.svc.Reconfirm("eth0", "b")
		if reason := a.lostBy("eth0", "b"); reason != browser.ReasonNoAnswer {
			return fmt.Errorf("b was not lost because it does not answer, but last by %q", reason)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.host.Link("eth0").Plug()
	a.awaitInstance("eth0", "b", nil)

	// The link stays, but its owner does not want it to be used any more.
	b.watcher.SetFilter(ifwatch.Filter{Exclude: []string{"eth*"}})
	a.awaitLost("eth0", "b", browser.ReasonGoodbye)
	b.watcher.SetFilter(ifwatch.Filter{Include: []string{"eth*"}})
	a.awaitInstance("eth0", "b", nil)
}

func TestLinksAndAddressesComeAndGo(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	a, b := startBox(t, ha, Config{}), startBox(t, hb, Config{})
	a.advertise(1000)
	b.advertise(2000)
	a.awaitInstance("eth0", "b", hasAddr("10.77.0.2"))
	b.awaitInstance("eth0", "a", hasAddr("10.77.0.1"))

	changed := time.Now()
	hb.Link("eth0").SetAddress("10.77.0.99/24")
	e := a.awaitInstance("eth0", "b", hasAddr("10.77.0.99"))
	t.Logf("new address known after %v", time.Since(changed))
	a.awaitInstance("eth0", "b", func(e Event) bool { return !hasAddr("10.77.0.2")(e) })
	if hasAddr("10.42.0.1")(e) {
		t.Errorf("the address of container plumbing was announced: %v", e.Instance.Addrs)
	}

	second := lan.AddLAN("second")
	ha.AddLink(second, "eth1", "10.78.0.1/24")
	hb.AddLink(second, "eth1", "10.78.0.2/24")
	e = a.awaitInstance("eth1", "b", hasAddr("10.78.0.2"))
	if hasAddr("10.77.0.99")(e) {
		t.Errorf("an address was announced on a link it does not belong to: %v", e.Instance.Addrs)
	}
	b.awaitInstance("eth1", "a", hasAddr("10.78.0.1"))

	// Both links of b lead to the LAN of eth0 now: neither an echo nor a conflict.
	hb.AddLink(lan.LAN(), "eth2", "10.77.0.3/24")
	a.awaitInstance("eth0", "b", func(e Event) bool { return hasAddr("10.77.0.99")(e) || hasAddr("10.77.0.3")(e) })

	ha.Link("eth1").Remove()
	a.awaitLost("eth1", "b", browser.ReasonLinkGone)
	hb.Link("eth0").Unplug()
	b.awaitLost("eth0", "a", browser.ReasonLinkGone)
	hb.Link("eth0").Plug()
	b.awaitInstance("eth0", "a", nil)
	if got := b.svc.Stats().InstanceName; got != "b" {
		t.Errorf("b renamed itself to %q", got)
	}
}

func TestSharesThePort(t *testing.T) {
	lan := bed.New(t)
	ha := lan.AddHost("a", "10.77.0.1/24")
	hb := lan.AddHost("b", "10.77.0.2/24")
	ctx := t.Context()
	// systemd-resolved only sets SO_REUSEADDR, and avahi runs as another user.
	resolved := stranger(t, ha, "eth0", "0.0.0.0:5353")
	first := startBox(t, ha, Config{})
	ha.StartAvahi(ctx)
	second := startBox(t, ha, Config{})
	far := startBox(t, hb, Config{})
	first.svc.Advertise(announcement("first", 1))
	second.svc.Advertise(announcement("second", 2))
	far.svc.Advertise(announcement("far", 3))
	if _, err := ha.AvahiPublish(ctx, "from-avahi", "_liqo._tcp", 4, "txtvers=1"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		box  *box
		name string
	}{
		{first, "second"}, {first, "from-avahi"}, {first, "far"},
		{second, "first"}, {second, "from-avahi"}, {second, "far"},
		{far, "first"}, {far, "second"}, {far, "from-avahi"},
	} {
		want.box.awaitInstance("eth0", want.name, nil)
	}
	if err := bed.Poll(ctx, func() error {
		found, err := ha.AvahiBrowse(ctx, "_liqo._tcp")
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, i := range found {
			seen[i.Name] = true
		}
		for _, name := range []string{"first", "second", "far"} {
			if !seen[name] {
				return errors.New("avahi does not see " + name)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// Everybody on the port hears every multicast.
	if err := resolved.JoinGroup(&net.Interface{Index: ha.Link("eth0").Index()}, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251)}); err != nil {
		t.Fatal(err)
	}
	if err := resolved.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	first.svc.Advertise(announcement("first", 10))
	for buf := make([]byte, wire.MaxPacket); ; {
		n, _, _, err := resolved.ReadFrom(buf)
		if err != nil {
			t.Fatalf("the announcement never reached another socket on the port: %v", err)
		}
		if m, _ := wire.Decode(buf[:n]); m != nil && m.Response && strings.Contains(m.String(), "first") {
			break
		}
	}
	for _, b := range []*box{first, second} {
		b.awaitStats("names won, a packet of our own recognised", func(s Stats) bool { return s.Established && s.Drops[DropOwnEcho] > 0 })
	}
}

func TestLoopbackWhenNamed(t *testing.T) {
	lan := bed.New(t)
	h := lan.AddHost("a", "10.77.0.1/24")
	one, two := startBox(t, h, Config{}), startBox(t, h, Config{})
	for _, b := range []*box{one, two} {
		b.watcher.SetFilter(ifwatch.Filter{Include: []string{"lo"}, Exclude: ifwatch.DefaultExclude()})
	}
	one.svc.Advertise(announcement("one", 1))
	two.svc.Advertise(announcement("two", 2))
	one.awaitInstance("lo", "two", hasAddr("127.0.0.1"))
	two.awaitInstance("lo", "one", hasAddr("127.0.0.1"))
}

func TestRunExplainsAPortThatIsHeld(t *testing.T) {
	lan := bed.New(t)
	h := lan.AddHost("a", "10.77.0.1/24")
	svc, err := New(Config{Service: "_liqo._tcp"})
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"udp4", "udp6"} {
		if err := h.Do(func() error {
			holder, err := net.ListenPacket(network, ":5353")
			if err != nil {
				return err
			}
			defer holder.Close()
			err = svc.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "ss -ulpn") {
				t.Errorf("Run with the %s port held: %v", network, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// It works as soon as the port is free.
	b := startBox(t, h, Config{})
	b.advertise(1)
	b.awaitStats("name won", func(s Stats) bool { return s.Established })
	if err := h.Do(func() error { return b.svc.Run(t.Context()) }); !errors.Is(err, errRunning) {
		t.Errorf("a second Run: %v", err)
	}
}

func TestNewChecksTheService(t *testing.T) {
	for service, ok := range map[string]bool{
		"_liqo._tcp": true, "_sleep-proxy._udp": true,
		"": false, "liqo": false, "_liqo": false, "_liqo._sctp": false, "liqo._tcp": false, "_._tcp": false,
		"_liqo._tcp.local": false, "_a b._tcp": false, "_" + strings.Repeat("x", 64) + "._tcp": false,
	} {
		if _, err := New(Config{Service: service}); (err == nil) != ok {
			t.Errorf("New with service %q: %v, want ok %v", service, err, ok)
		}
	}
	if _, err := New(Config{Service: "_liqo._tcp", Domain: strings.Repeat("x.", 200)}); err == nil {
		t.Error("New accepted a domain that is too long")
	}
}

// TestRunContinues breaks the sockets of a running Service: Run returns an
// error, and the next one takes over what was known.
func TestRunContinues(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	b := startBox(t, hb, Config{})
	b.advertise(2000)
	svc, err := New(Config{Service: "_liqo._tcp"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ha.Do(func() error {
		snapshot, err := ifwatch.Read(ifwatch.Filter{Exclude: ifwatch.DefaultExclude()})
		svc.SetLinks(snapshot)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context) (sockets [2]*socket, done chan error) {
		t.Helper()
		if err := ha.Do(func() (err error) {
			sockets, err = openSockets(ctx, DefaultReceiveBuffer, svc.log)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		done = make(chan error, 1)
		go func() { done <- svc.serve(ctx, sockets) }()
		return sockets, done
	}
	expect := func(kind browser.EventKind) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		events, err := svc.Events(ctx)
		if err != nil || len(events) != 1 || events[0].Kind != kind || events[0].Link != "eth0" || events[0].Instance.Name != "b" {
			t.Fatalf("Events = %+v, %v; want b %v", events, err, kind)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sockets, done := run(ctx)
	expect(browser.Found)
	sockets[wire.IPv4].close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("Run with a broken socket = %v", err)
	}
	_, done = run(ctx)
	b.advertise(2001) // announced twice, a second apart: one of them arrives
	expect(browser.Updated)
	b.svc.Advertise(nil)
	expect(browser.Lost)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run at the end = %v", err)
	}
}

// TestSleep: after the machine slept, its names are probed for and announced again,
// and neighbours are asked for.
func TestSleep(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	var slept atomic.Int64
	a := startBox(t, ha, Config{asleep: func() time.Duration { return time.Duration(slept.Load()) }})
	b := startBox(t, hb, Config{})
	capture := lan.LAN().Capture()
	a.advertise(1000)
	b.awaitInstance("eth0", "a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The second announcement comes a second after the first.
	announced := 0
	if _, err := capture.WaitFor(ctx, func(p bed.Packet) bool {
		m, drop := wire.Decode(p.Payload)
		if drop == "" && m.Response && p.Src.Addr() == netip.MustParseAddr("10.77.0.1") && p.Dst.Addr().IsMulticast() &&
			slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSRV }) {
			announced++
		}
		return announced == 2
	}); err != nil {
		t.Fatalf("announced %d times: %v", announced, err)
	}
	from := time.Now()
	slept.Store(int64(time.Hour))
	if err := a.svc.Answers(ctx); err != nil {
		t.Fatal(err)
	}
	probes, asked := 0, false
	if _, err := capture.WaitFor(ctx, func(p bed.Packet) bool {
		m, drop := wire.Decode(p.Payload)
		if drop != "" || p.Time.Before(from) || p.Src.Addr() != netip.MustParseAddr("10.77.0.1") {
			return false
		}
		asked = asked || !m.Response && len(m.Ns) == 0 && m.Question[0].Qtype == dns.TypePTR
		switch {
		case len(m.Ns) > 0:
			probes++
		case m.Response && probes < 3:
			t.Errorf("said something after %d probes: %v", probes, m)
		}
		return m.Response && probes == 3 && asked && slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSRV })
	}); err != nil {
		t.Fatalf("%d probes, asked %v, and then no announcement: %v", probes, asked, err)
	}
	a.awaitStats("name won again", func(s Stats) bool { return s.Established })
	if reason := b.lostBy("eth0", "a"); reason != "" {
		t.Errorf("its neighbour lost it: %s", reason)
	}
}

// TestGroupIsJoinedLater lets the kernel refuse a membership for a while.
func TestGroupIsJoinedLater(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	limit := func(n string) {
		t.Helper()
		if err := ha.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/igmp_max_memberships", []byte(n), 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	withoutIPv6(t, ha)
	limit("0")
	a, b := startBox(t, ha, Config{}), startBox(t, hb, Config{})
	b.advertise(2000)
	b.awaitStats("name won", func(s Stats) bool { return s.Established })
	a.advertise(1000)
	if s := a.svc.Stats(); s.Sent != 0 || s.Established {
		t.Errorf("a link whose group cannot be joined is used: %+v", s)
	}
	limit("20")
	a.awaitInstance("eth0", "b", nil)
	b.awaitInstance("eth0", "a", nil)
}

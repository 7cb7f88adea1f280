package mdnssvc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc/wire"
)

// testCore returns a core with eth0 (index 2) and eth1 (index 3) in use.
// everything is what a link is used for unless somebody says otherwise.
var everything = Use{Advertise: true, Browse: true}

func testCore(t testing.TB) *core {
	t.Helper()
	svc, err := New(Config{Service: "_liqo._tcp"})
	if err != nil {
		t.Fatal(err)
	}
	both := [2]bool{true, true}
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	svc.core.links = map[int]*link{
		2: {wantedLink: wantedLink{use: everything, Link: ifwatch.Link{Index: 2, Name: "eth0", MTU: 1500, Addrs: prefixes("10.77.0.1/24", "fe80::1/64", "2001:db8::1/64")}}, families: both},
		3: {wantedLink: wantedLink{use: everything, Link: ifwatch.Link{Index: 3, Name: "eth1", MTU: 1500, Addrs: prefixes("10.78.0.1/31")}}, families: [2]bool{true, false}},
	}
	return svc.core
}

func packed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	b, err := wire.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func query(t *testing.T) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: "_liqo._tcp.local.", Qtype: dns.TypePTR, Qclass: dns.ClassINET}}
	return packed(t, m)
}

func response(t *testing.T, instance string) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.Response = true
	m.Answer = []dns.RR{&dns.PTR{
		Hdr: dns.RR_Header{Name: "_liqo._tcp.local.", Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: 120},
		Ptr: wire.InstanceName(instance, "_liqo._tcp", "local"),
	}}
	return packed(t, m)
}

func TestAdmit(t *testing.T) {
	const group4, group6 = "224.0.0.251", "ff02::fb"
	q, r := query(t), response(t, "x")
	for _, tc := range []struct {
		name     string
		data     []byte
		from, to string
		link     int
		want     wire.DropReason
		wantLink int
		self     bool
	}{
		{"query to the group", q, "10.77.0.2:5353", group4, 2, "", 2, false},
		{"answer to the group", r, "10.77.0.2:5353", group4, 2, "", 2, false},
		{"answer to the IPv6 group", r, "[fe80::2]:5353", group6, 2, "", 2, false},
		{"several networks on one link", r, "172.16.0.9:5353", group4, 2, "", 2, false},
		{"legacy query", q, "10.77.0.2:40000", group4, 2, "", 2, false},
		{"direct query", q, "10.77.0.2:40000", "10.77.0.1", 2, "", 2, false},
		{"direct answer", r, "10.77.0.2:5353", "10.77.0.1", 2, "", 2, false},
		{"direct IPv6 link-local query", q, "[fe80::2]:5353", "fe80::1", 2, "", 2, false},
		{"direct IPv6 global query", q, "[2001:db8::2]:5353", "2001:db8::1", 2, "", 2, false},
		{"direct answer from elsewhere", r, "192.0.2.1:5353", "10.77.0.1", 2, DropOffLink, 0, false},
		{"direct query from elsewhere", q, "192.0.2.1:5353", "10.77.0.1", 2, DropOffLink, 0, false},
		{"direct IPv6 answer from elsewhere", r, "[2001:db8:1::2]:5353", "2001:db8::1", 2, DropOffLink, 0, false},
		{"direct answer from another link's network", r, "10.78.0.0:5353", "10.77.0.1", 2, DropOffLink, 0, false},
		{"answer from another port", r, "10.77.0.2:5354", group4, 2, DropBadPort, 0, false},
		{"link not in use", r, "10.42.0.1:5353", group4, 7, DropOtherLink, 0, false},
		{"family not in use", r, "[fe80::2]:5353", group6, 3, DropOtherLink, 0, false},
		{"to a broadcast address", r, "10.77.0.2:5353", "10.77.0.255", 2, DropBadDestination, 0, false},
		{"to everybody", r, "10.77.0.2:5353", "255.255.255.255", 2, DropBadDestination, 0, false},
		{"to another group", r, "10.77.0.2:5353", "224.0.0.1", 2, DropBadDestination, 0, false},
		{"to another IPv6 group", r, "[fe80::2]:5353", "ff02::1", 2, DropBadDestination, 0, false},
		{"from nowhere", q, "0.0.0.0:5353", group4, 2, DropBadSource, 0, false},
		{"from a group", q, "224.0.0.251:5353", group4, 2, DropBadSource, 0, false},
		{"from a broadcast address", q, "10.77.0.255:40000", group4, 2, DropBadSource, 0, false},
		{"from port 0", q, "10.77.0.2:0", group4, 2, DropBadSource, 0, false},
		{"no broadcast address in a /31", q, "10.78.0.0:5353", "10.78.0.1", 3, "", 3, false},
		{"another responder on this host", r, "10.77.0.1:5353", group4, 2, "", 2, true},
		{"a resolver on this host", q, "10.77.0.1:40000", group4, 2, "", 2, false},
		{"this host by way of another link", r, "10.78.0.1:5353", group4, 2, "", 2, true},
		{"this host to its own address", q, "10.77.0.1:40000", "10.77.0.1", 1, "", 2, false},
		{"somebody's packet on loopback", q, "127.0.0.1:40000", "127.0.0.1", 1, DropOtherLink, 0, false},
		{"too short for a header", []byte{0, 0}, "10.77.0.2:40000", group4, 2, "", 2, false},
	} {
		c := testCore(t)
		d := datagram{data: tc.data, from: netip.MustParseAddrPort(tc.from), to: netip.MustParseAddr(tc.to), link: tc.link}
		d.family = wire.FamilyOf(d.to)
		in, got := c.admit(time.Now(), d)
		if got != tc.want || in.Link != tc.wantLink || in.Self != tc.self {
			t.Errorf("%s: admit = %+v, %q; want link %d, self %v, %q", tc.name, in, got, tc.wantLink, tc.self, tc.want)
		}
		if got == "" && (in.From != d.from || in.Family != d.family || in.ToMulticast != (tc.to == group4 || tc.to == group6)) {
			t.Errorf("%s: admit = %+v", tc.name, in)
		}
	}
}

func TestOwnEchoes(t *testing.T) {
	c := testCore(t)
	now := time.Now()
	q := query(t)
	from := func(addr string, link int) datagram {
		return datagram{data: q, from: netip.MustParseAddrPort(addr), to: groups[wire.IPv4], link: link}
	}
	check := func(what string, at time.Time, d datagram, want wire.DropReason) {
		t.Helper()
		if _, got := c.admit(at, d); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("what we never sent", now, from("10.77.0.1:5353", 2), "")
	c.echoes.sent(now, q, 2)
	check("a neighbour's same words", now, from("10.77.0.2:5353", 2), "")
	check("our packet on another link of ours", now, from("10.77.0.1:5353", 3), DropOwnEcho)
	check("our packet, come back", now, from("10.77.0.1:5353", 2), DropOwnEcho)
	check("another responder here with the same words", now, from("10.77.0.1:5353", 2), "")
	check("our packet on another link again", now, from("10.77.0.1:5353", 3), DropOwnEcho)

	c.echoes.sent(now, q, 2)
	c.echoes.sent(now, q, 2)
	check("first of two", now, from("10.77.0.1:5353", 2), DropOwnEcho)
	check("second of two", now, from("10.77.0.1:5353", 2), DropOwnEcho)
	check("third of two", now, from("10.77.0.1:5353", 2), "")

	c.echoes.sent(now, q, 2)
	check("on a machine that was busy with something else", now.Add(10*time.Second), from("10.77.0.1:5353", 2), DropOwnEcho)
	check("another responder here, later", now.Add(10*time.Second), from("10.77.0.1:5353", 2), "")

	c.echoes.sent(now, q, 2)
	check("long after", now.Add(2*echoLife), from("10.77.0.1:5353", 2), "")
	for i := range 3 * maxEchoes {
		c.echoes.sent(now, []byte{byte(i), byte(i >> 8)}, 2)
	}
	if len(c.echoes.order) > maxEchoes || len(c.echoes.byHash) > maxEchoes {
		t.Errorf("%d echoes are remembered", len(c.echoes.order))
	}
	c.echoes.sent(now.Add(2*echoLife), q, 2)
	if len(c.echoes.order) != 1 || len(c.echoes.byHash) != 1 {
		t.Errorf("%d old echoes are remembered", len(c.echoes.order)-1)
	}
}

func TestPayload(t *testing.T) {
	for mtu, want := range map[int]int{1500: 1452, 1280: 1232, 9000: 1452, 65536: 1452, 68: 512, 0: 512} {
		if got := (&link{wantedLink: wantedLink{Link: ifwatch.Link{MTU: mtu}}}).payload(); got != want {
			t.Errorf("payload at MTU %d = %d, want %d", mtu, got, want)
		}
	}
}

func TestReachable(t *testing.T) {
	l := testCore(t).links[2]
	in := []netip.Addr{
		netip.MustParseAddr("fe80::9%2"), netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("::1"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("ff02::fb"), {}, netip.MustParseAddr("2001:db8::9"),
	}
	got := l.reachable(in)
	want := []netip.Addr{netip.MustParseAddr("fe80::9%eth0"), netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("2001:db8::9")}
	if len(got) != len(want) {
		t.Fatalf("reachable = %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("reachable = %v, want %v", got, want)
		}
	}
	if in[0].Zone() != "2" {
		t.Error("the browser's slice was changed")
	}
}

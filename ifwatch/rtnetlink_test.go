package ifwatch

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attr makes a netlink attribute.
func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func u32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// rtmsg makes a route message; change alters its header.
func rtmsg(family byte, change func(b []byte), attrs ...[]byte) []byte {
	b := []byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	if change != nil {
		change(b)
	}
	return append(b, slices.Concat(attrs...)...)
}

func ndmsg(family byte, link uint32, state uint16, flags byte, attrs ...[]byte) []byte {
	b := append([]byte{family, 0, 0, 0}, u32(link)...)
	b = binary.NativeEndian.AppendUint16(b, state)
	return append(append(b, flags, 1), slices.Concat(attrs...)...)
}

// wrap makes a netlink message.
func wrap(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint16(u32(uint32(16+len(body))), kind)
	return append(append(b, make([]byte, 10)...), body...)
}

func hop(link uint32, attrs ...[]byte) []byte {
	rest := slices.Concat(attrs...)
	b := binary.NativeEndian.AppendUint16(nil, uint16(8+len(rest)))
	return append(append(append(b, 0, 0), u32(link)...), rest...)
}

var (
	v4 = []byte{192, 0, 2, 1}
	v6 = netip.MustParseAddr("fe80::1").AsSlice()
)

func TestParseDefault(t *testing.T) {
	oif, via := attr(unix.RTA_OIF, u32(7)...), attr(unix.RTA_GATEWAY, v4...)
	k := gatewayKey{7, netip.MustParseAddr("192.0.2.1")}
	k6 := gatewayKey{7, netip.MustParseAddr("fe80::1")}
	via6 := attr(unix.RTA_VIA, append([]byte{unix.AF_INET6, 0}, v6...)...)
	for _, tc := range []struct {
		name string
		msg  []byte
		want []gatewayKey
	}{
		{"default route", rtmsg(unix.AF_INET, nil, oif, via), []gatewayKey{k}},
		{"in any order", rtmsg(unix.AF_INET, nil, via, attr(unix.RTA_PRIORITY, u32(100)...), oif), []gatewayKey{k}},
		{"IPv6", rtmsg(unix.AF_INET6, nil, oif, attr(unix.RTA_GATEWAY, v6...)), []gatewayKey{k6}},
		{"IPv4 by an IPv6 router", rtmsg(unix.AF_INET, nil, oif, via6), []gatewayKey{k6}},
		{"several routers", rtmsg(unix.AF_INET, nil, attr(unix.RTA_MULTIPATH|unix.NLA_F_NESTED, slices.Concat(hop(7, via), hop(7, via6), hop(9))...)), []gatewayKey{k, k6}},
		{"the main table by attribute", rtmsg(unix.AF_INET, func(b []byte) { b[4] = unix.RT_TABLE_UNSPEC }, oif, via, attr(unix.RTA_TABLE, u32(254)...)), []gatewayKey{k}},
		{"another table", rtmsg(unix.AF_INET, func(b []byte) { b[4] = 100 }, oif, via), nil},
		{"a table with a large number", rtmsg(unix.AF_INET, func(b []byte) { b[4] = 254 }, oif, via, attr(unix.RTA_TABLE, u32(1254)...)), nil},
		{"not a default route", rtmsg(unix.AF_INET, func(b []byte) { b[1] = 24 }, oif, via), nil},
		{"unreachable", rtmsg(unix.AF_INET, func(b []byte) { b[7] = unix.RTN_UNREACHABLE }, oif, via), nil},
		{"an exception the kernel made", rtmsg(unix.AF_INET6, func(b []byte) { binary.NativeEndian.PutUint32(b[8:], unix.RTM_F_CLONED) }, oif, attr(unix.RTA_GATEWAY, v6...)), nil},
		{"no router", rtmsg(unix.AF_INET, nil, oif), nil},
		{"no link", rtmsg(unix.AF_INET, nil, via), nil},
		{"the unspecified address", rtmsg(unix.AF_INET, nil, oif, attr(unix.RTA_GATEWAY, 0, 0, 0, 0)), nil},
		{"another family", rtmsg(unix.AF_MPLS, nil, oif, via), nil},
		{"cut off in the header", rtmsg(unix.AF_INET, nil)[:11], nil},
		{"cut off in an attribute", slices.Concat(rtmsg(unix.AF_INET, nil, oif), via[:6]), nil},
		{"an address of no length", rtmsg(unix.AF_INET, nil, oif, attr(unix.RTA_GATEWAY, 1, 2, 3)), nil},
		{"a hop that is cut off", rtmsg(unix.AF_INET, nil, attr(unix.RTA_MULTIPATH, slices.Concat(hop(7, via), hop(7, via)[:12])...)), []gatewayKey{k}},
	} {
		if got := parseDefault(tc.msg); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestParseNeighbour(t *testing.T) {
	dst, mac := attr(unix.NDA_DST, v4...), attr(unix.NDA_LLADDR, macA...)
	age := attr(unix.NDA_CACHEINFO, slices.Concat(u32(250), u32(1), u32(1), u32(1))...)
	for _, tc := range []struct {
		name string
		msg  []byte
		want string // MAC, or "unresolved", or "" for no neighbour
	}{
		{"reachable", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, 0, dst, mac, age), macA.String()},
		{"stale", ndmsg(unix.AF_INET, 7, unix.NUD_STALE, 0, dst, mac, age), macA.String()},
		{"delay", ndmsg(unix.AF_INET, 7, unix.NUD_DELAY, 0, dst, mac, age), macA.String()},
		{"probe", ndmsg(unix.AF_INET, 7, unix.NUD_PROBE, 0, dst, mac, age), macA.String()},
		{"permanent", ndmsg(unix.AF_INET, 7, unix.NUD_PERMANENT, 0, dst, mac, age), macA.String()},
		{"IPv6 router", ndmsg(unix.AF_INET6, 7, unix.NUD_STALE, unix.NTF_ROUTER, attr(unix.NDA_DST, v6...), mac, age), macA.String()},
		{"failed with its old address", ndmsg(unix.AF_INET, 7, unix.NUD_FAILED, 0, dst, mac, age), "unresolved"},
		{"incomplete", ndmsg(unix.AF_INET, 7, unix.NUD_INCOMPLETE, 0, dst, age), "unresolved"},
		{"without ARP", ndmsg(unix.AF_INET, 7, unix.NUD_NOARP, 0, dst, mac, age), "unresolved"},
		{"no hardware address", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, 0, dst, age), "unresolved"},
		{"only zeros", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, 0, dst, attr(unix.NDA_LLADDR, 0, 0, 0, 0, 0, 0), age), "unresolved"},
		{"proxy", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, unix.NTF_PROXY, dst, mac, age), ""},
		{"bridge port", ndmsg(unix.AF_BRIDGE, 7, unix.NUD_REACHABLE, 0, dst, mac, age), ""},
		{"no address", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, 0, mac, age), ""},
		{"cut off", ndmsg(unix.AF_INET, 7, unix.NUD_REACHABLE, 0)[:11], ""},
	} {
		n, ok := parseNeighbour(tc.msg)
		got := n.mac.String()
		switch {
		case !ok:
			got = ""
		case n.mac == nil:
			got = "unresolved"
		}
		if got != tc.want || ok && (n.link != 7 || n.confirmed != 2500*time.Millisecond || n.permanent != (tc.name == "permanent")) {
			t.Errorf("%s: %+v, %v, want %q", tc.name, n, ok, tc.want)
		}
	}
}

func TestParseLink(t *testing.T) {
	for flags, want := range map[uint32]bool{
		unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_MULTICAST: true,
		unix.IFF_UP:      false,
		unix.IFF_RUNNING: false,
		0:                false,
	} {
		msg := slices.Concat([]byte{0, 0, 1, 0}, u32(7), u32(flags), u32(0))
		if index, up := parseLink(msg); index != 7 || up != want {
			t.Errorf("flags %#x: link %d up %v, want 7 up %v", flags, index, up, want)
		}
	}
	if _, up := parseLink(nil); !up {
		t.Error("a message that is cut off took a link down")
	}
}

// FuzzMessages: whatever the kernel may send one day, nothing panics or hangs,
// and what is read can be used.
func FuzzMessages(f *testing.F) {
	oif, via := attr(unix.RTA_OIF, u32(7)...), attr(unix.RTA_GATEWAY, v4...)
	f.Add(wrap(unix.RTM_NEWROUTE, rtmsg(unix.AF_INET, nil, oif, via)))
	f.Add(wrap(unix.RTM_DELROUTE, rtmsg(unix.AF_INET6, nil, attr(unix.RTA_MULTIPATH, hop(7, via)...))))
	f.Add(slices.Concat(
		wrap(unix.RTM_NEWNEIGH, ndmsg(unix.AF_INET, 2, unix.NUD_STALE, 0, attr(unix.NDA_DST, v4...), attr(unix.NDA_LLADDR, macA...))),
		wrap(unix.RTM_DELNEIGH, ndmsg(unix.AF_INET6, 2, unix.NUD_FAILED, 0, attr(unix.NDA_DST, v6...)))))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		fo := &follower{book: newBook()}
		fo.expected.Store(&expected{gw: macA})
		fo.news(data)
		if len(data) < unix.SizeofNlMsghdr {
			return
		}
		body := data[unix.SizeofNlMsghdr:]
		for _, k := range parseDefault(body) {
			if k.link == 0 || !k.addr.IsValid() || k.addr.IsUnspecified() {
				t.Errorf("a gateway that cannot be used: %+v", k)
			}
		}
		if n, ok := parseNeighbour(body); ok && !n.addr.IsValid() {
			t.Errorf("a neighbour without address: %+v", n)
		}
		parseLink(body)
	})
}

func TestNewsOfMessages(t *testing.T) {
	f := &follower{book: newBook()}
	f.expected.Store(&expected{gw: macA})
	known := wrap(unix.RTM_NEWNEIGH, ndmsg(unix.AF_INET, 2, unix.NUD_STALE, 0, attr(unix.NDA_DST, v4...), attr(unix.NDA_LLADDR, macA...)))
	pod := wrap(unix.RTM_NEWROUTE, rtmsg(unix.AF_INET, func(b []byte) { b[1] = 24 }))
	for name, tc := range map[string]struct {
		msg  []byte
		want bool
	}{
		"what is known":       {known, false},
		"it goes":             {wrap(unix.RTM_DELNEIGH, known[16:]), true},
		"another link":        {wrap(unix.RTM_NEWNEIGH, ndmsg(unix.AF_INET, 3, unix.NUD_STALE, 0, attr(unix.NDA_DST, v4...), attr(unix.NDA_LLADDR, macB...))), false},
		"pod route":           {pod, false},
		"default route":       {wrap(unix.RTM_DELROUTE, rtmsg(unix.AF_INET, nil)), true},
		"link":                {wrap(unix.RTM_NEWLINK, make([]byte, 16)), false},
		"the second of three": {slices.Concat(pod, wrap(unix.RTM_NEWROUTE, rtmsg(unix.AF_INET6, nil)), known), true},
		"the last":            {slices.Concat(known, pod, wrap(unix.RTM_NEWNEIGH, ndmsg(unix.AF_INET, 2, unix.NUD_FAILED, 0, attr(unix.NDA_DST, v4...)))), true},
		"cut off":             {known[:20], false},
	} {
		if got := f.news(tc.msg); got != tc.want {
			t.Errorf("%s: news = %v, want %v", name, got, tc.want)
		}
	}
}

// TestNothingIsMissedDuringALook has a router answer after the neighbours were
// read and before anybody knows that it is waited for.
func TestNothingIsMissedDuringALook(t *testing.T) {
	f := &follower{book: newBook()}
	f.expected.Store(&expected{})
	answer := wrap(unix.RTM_NEWNEIGH, ndmsg(unix.AF_INET, 2, unix.NUD_REACHABLE, 0, attr(unix.NDA_DST, v4...), attr(unix.NDA_LLADDR, macA...)))
	f.read = func() ([]gatewayKey, []neighbour, error) {
		if !f.news(answer) {
			t.Error("missed")
		}
		return []gatewayKey{gw}, nil, nil
	}
	s := Snapshot{Links: []Link{{Index: 2}, {Index: 3}}}
	if err := f.look(epoch, &s, map[int]bool{2: true, 3: true}, func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if got := s.Links[0]; len(got.Gateways) != 1 || !got.GatewaysKnown || len(s.Links[1].Gateways) != 0 || !s.Links[1].GatewaysKnown {
		t.Errorf("snapshot = %+v", s)
	}
	if !f.news(answer) {
		t.Error("missed after the look")
	}
	f.read = func() ([]gatewayKey, []neighbour, error) { return nil, nil, unix.EBUSY }
	if err := f.look(epoch, &s, nil, nil); err != unix.EBUSY {
		t.Errorf("look = %v", err)
	}
}

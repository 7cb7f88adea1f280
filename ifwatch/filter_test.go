package ifwatch

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestFilterAllows(t *testing.T) {
	std := Filter{Exclude: DefaultExclude()}
	for _, tc := range []struct {
		filter Filter
		name   string
		want   bool
	}{
		{std, "eth0", true},
		{std, "wlan0", true},
		{std, "br0", true},
		{std, "loop0", true},
		{std, "lo", false},
		{std, "cni0", false},
		{std, "flannel.1", false},
		{std, "flannel-v6.1", false},
		{std, "veth12ab", false},
		{std, "docker0", false},
		{std, "br-0a1b2c", false},
		{std, "virbr0", false},
		{std, "kube-ipvs0", false},
		{std, "kube-bridge", false},
		{Filter{}, "cni0", true},
		{Filter{Include: []string{"eth*"}}, "eth1", true},
		{Filter{Include: []string{"eth*"}}, "wlan0", false},
		{Filter{Include: []string{"veth*", "lo"}, Exclude: DefaultExclude()}, "veth0", true},
		{Filter{Include: []string{"veth*", "lo"}, Exclude: DefaultExclude()}, "lo", true},
		{Filter{Include: []string{"eth*"}, Exclude: []string{"eth3"}}, "eth3", false},
		{Filter{Include: []string{"eth*"}, Exclude: []string{"eth3"}}, "eth2", true},
		{Filter{Include: []string{"en[ps]*"}}, "enp1s0", true},
		{Filter{Include: []string{"[", "eth0"}}, "eth0", true},
		{Filter{Include: []string{"["}}, "[", false},
	} {
		if got := tc.filter.Allows(tc.name); got != tc.want {
			t.Errorf("%+v.Allows(%q) = %v, want %v", tc.filter, tc.name, got, tc.want)
		}
	}
}

func TestFilterValidate(t *testing.T) {
	if err := (Filter{Include: []string{"eth*"}, Exclude: DefaultExclude()}).Validate(); err != nil {
		t.Errorf("a valid filter was refused: %v", err)
	}
	err := Filter{Include: []string{"eth[", "eth0"}, Exclude: []string{"", `wl\`}}.Validate()
	if err == nil {
		t.Fatal("an invalid filter was accepted")
	}
	for _, want := range []string{`"eth["`, `""`, `"wl\\"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name pattern %s", err, want)
		}
	}
}

func TestOmit(t *testing.T) {
	std := Filter{Exclude: DefaultExclude()}
	named := func(patterns ...string) Filter {
		return Filter{Include: patterns, Exclude: DefaultExclude()}
	}
	good := func(name, kind string) candidate {
		return candidate{Link: Link{Index: 2, Name: name, Up: true, Multicast: true}, kind: kind}
	}
	with := func(c candidate, change func(*candidate)) candidate {
		change(&c)
		return c
	}
	lo := candidate{Link: Link{Index: 1, Name: "lo", Up: true, Loopback: true}, kind: "device"}
	for _, tc := range []struct {
		name   string
		link   candidate
		filter Filter
		want   string
	}{
		{"hardware", good("eth0", "device"), std, ""},
		{"a container's eth0 is a veth", good("eth0", "veth"), std, ""},
		{"a bridge with the machine's address", good("br0", "bridge"), std, ""},
		{"vlan", good("eth0.7", "vlan"), std, ""},
		{"macvlan", good("eth0", "macvlan"), std, ""},
		{"wifi", good("wlan0", "device"), std, ""},
		{"container bridge", good("cni0", "bridge"), std, "left out by name"},
		{"pod veth", good("veth1234", "veth"), std, "left out by name"},
		{"bridge port", with(good("eth0", "device"), func(c *candidate) { c.masterKind = "bridge" }), std, "port of a bridge"},
		{"bond port", with(good("eth0", "device"), func(c *candidate) { c.masterKind = "bond" }), std, "port of a bond"},
		{"vrf member keeps its addresses", with(good("eth0", "device"), func(c *candidate) { c.masterKind = "vrf" }), std, ""},
		{"down", with(good("eth0", "device"), func(c *candidate) { c.Up = false }), std, "down or without carrier"},
		{"no multicast", with(good("eth0", "device"), func(c *candidate) { c.Multicast = false }), std, "cannot multicast"},
		{"point to point", with(good("wwan0", "device"), func(c *candidate) { c.PointToPoint = true }), std, "tunnel"},
		{"wireguard", good("wg0", "wireguard"), std, "tunnel"},
		{"tun", good("tailscale0", "tuntap"), std, "tunnel"},
		{"vxlan", good("vxlan.calico", "vxlan"), std, "tunnel"},
		{"node-local DNS", good("nodelocaldns", "dummy"), std, "dummy"},
		{"loopback not excluded by name", lo, Filter{}, "loopback"},
		{"named tunnel", good("wg0", "wireguard"), named("wg*"), ""},
		{"named loopback", lo, named("lo"), ""},
		{"named veth", good("veth0", "veth"), named("veth0"), ""},
		{"named dummy", good("dummy0", "dummy"), named("dummy0"), ""},
		{"named but down", with(good("eth0", "device"), func(c *candidate) { c.Up = false }), named("eth0"), "down or without carrier"},
		{"named but a port", with(good("eth0", "device"), func(c *candidate) { c.masterKind = "bridge" }), named("eth0"), "port of a bridge"},
	} {
		if got := omit(tc.link, tc.filter); got != tc.want {
			t.Errorf("%s: omit = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestUsableAddr(t *testing.T) {
	addr := func(cidr string, flags int) netlink.Addr {
		ip, n, err := net.ParseCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		return netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: n.Mask}, Flags: flags}
	}
	peered := func(local, peer string) netlink.Addr {
		a := addr(local, unix.IFA_F_PERMANENT)
		_, a.Peer, _ = net.ParseCIDR(peer)
		return a
	}
	for _, tc := range []struct {
		name string
		addr netlink.Addr
		want string // "" = left out
	}{
		{"IPv4", addr("192.168.1.7/24", unix.IFA_F_PERMANENT), "192.168.1.7/24"},
		{"second IPv4", addr("192.168.1.8/24", unix.IFA_F_SECONDARY), "192.168.1.8/24"},
		{"IPv4 link-local", addr("169.254.3.4/16", 0), "169.254.3.4/16"},
		{"IPv6", addr("2001:db8::7/64", 0), "2001:db8::7/64"},
		{"IPv6 link-local", addr("fe80::1/64", unix.IFA_F_PERMANENT), "fe80::1/64"},
		{"unique local", addr("fd00::1/64", 0), "fd00::1/64"},
		{"loopback", addr("127.0.0.1/8", 0), "127.0.0.1/8"},
		{"tentative", addr("fe80::1/64", unix.IFA_F_TENTATIVE), ""},
		{"duplicate", addr("fe80::1/64", unix.IFA_F_DADFAILED), ""},
		{"deprecated", addr("2001:db8::7/64", unix.IFA_F_DEPRECATED), ""},
		{"temporary", addr("2001:db8::7/64", unix.IFA_F_TEMPORARY), ""},
		{"unspecified", addr("0.0.0.0/0", 0), ""},
		{"multicast", addr("239.1.2.3/32", 0), ""},
		{"peer in one network", peered("10.0.0.1/32", "10.0.0.2/30"), "10.0.0.1/30"},
		{"peer elsewhere", peered("10.0.0.1/32", "172.16.0.1/32"), "10.0.0.1/32"},
		{"no address", netlink.Addr{}, ""},
	} {
		got, ok := usableAddr(tc.addr)
		if ok != (tc.want != "") || ok && got != netip.MustParsePrefix(tc.want) {
			t.Errorf("%s: usableAddr = %v, %v, want %q", tc.name, got, ok, tc.want)
		}
	}
}

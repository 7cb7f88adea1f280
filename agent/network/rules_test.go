package network

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/ifwatch"
)

const homeMAC, otherMAC = "52:54:00:12:34:56", "52:54:00:00:00:01"

// gate makes a gateway; mac may be "".
func gate(addr, mac string) ifwatch.Gateway {
	g := ifwatch.Gateway{Addr: netip.MustParseAddr(addr)}
	if mac != "" {
		g.MAC, _ = net.ParseMAC(mac)
	}
	return g
}

// on makes a link whose gateways are known.
func on(name, prefix string, gateways ...ifwatch.Gateway) ifwatch.Link {
	l := ifwatch.Link{Index: 1 + int(name[len(name)-1]-'0'), Name: name, Gateways: gateways, GatewaysKnown: true}
	for _, p := range strings.Fields(prefix) {
		l.Addrs = append(l.Addrs, netip.MustParsePrefix(p))
	}
	return l
}

func compiled(t *testing.T, networks ...config.Network) Rules {
	t.Helper()
	r, err := Compile(networks)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	home      = config.Network{Name: "home", GatewayMAC: homeMAC, Advertise: true, Discover: true, Autojoin: true}
	elsewhere = config.Network{Name: "elsewhere"}
)

func TestDecide(t *testing.T) {
	rules := compiled(t,
		config.Network{Name: "lab", Interface: "eth*", Subnet: "10.7.0.0/16", Advertise: true, Discover: true},
		config.Network{Name: "v6", Subnet: "2001:db8:7::/48", Discover: true},
		home,
		config.Network{Name: "office", Interface: "wlan*", GatewayMAC: strings.ToUpper(strings.ReplaceAll(otherMAC, ":", "-")), Advertise: true},
		config.Network{Name: "radio", Interface: "wlan[0-3]", Advertise: true, Autojoin: true},
		elsewhere)
	if !rules.NeedGateways() {
		t.Error("rules with a gateway do not need gateways")
	}
	unknown := on("eth0", "192.168.1.7/24")
	unknown.GatewaysKnown = false
	for _, tc := range []struct {
		name   string
		link   ifwatch.Link
		waited bool
		want   Use
	}{
		{name: "interface and subnet", link: on("eth0", "10.7.3.4/24"),
			want: Use{Name: "lab", Rule: 0, Advertise: true, Discover: true, Why: "interface eth*, subnet 10.7.0.0/16"}},
		{name: "of several addresses one is inside", link: on("eth0", "192.168.1.7/24 10.7.3.4/8"),
			want: Use{Name: "lab", Rule: 0, Advertise: true, Discover: true, Why: "interface eth*, subnet 10.7.0.0/16"}},
		{name: "subnet but another interface", link: on("enp1", "10.7.3.4/24"),
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "the prefix is wider, the address outside", link: on("eth0", "10.8.3.4/8"),
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "IPv6", link: on("eth0", "192.168.1.7/24 2001:db8:7:1::9/64"),
			want: Use{Name: "v6", Rule: 1, Discover: true, Why: "subnet 2001:db8:7::/48"}},
		{name: "gateway", link: on("eth0", "192.168.1.7/24", gate("192.168.1.1", homeMAC)),
			want: Use{Name: "home", Rule: 2, Advertise: true, Discover: true, Autojoin: true, Why: "gateway 52:54:00:12:34:56"}},
		{name: "gateway, while another one is not resolved", link: on("eth0", "", gate("192.168.1.1", ""), gate("fe80::1", homeMAC)),
			want: Use{Name: "home", Rule: 2, Advertise: true, Discover: true, Autojoin: true, Why: "gateway 52:54:00:12:34:56"}},
		{name: "another gateway", link: on("eth0", "192.168.1.7/24", gate("192.168.1.1", otherMAC)),
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "MAC in capitals with hyphens", link: on("wlan7", "", gate("192.168.1.1", otherMAC)),
			want: Use{Name: "office", Rule: 3, Advertise: true, Why: "interface wlan*, gateway 52:54:00:00:00:01"}},
		{name: "not resolved", link: on("eth0", "192.168.1.7/24", gate("192.168.1.1", ""), gate("fe80::1", otherMAC), gate("fe80::2", "")),
			want: Use{Name: "home", Rule: 2, Undecided: true, Why: "waiting for the hardware address of gateway 192.168.1.1, fe80::2"}},
		{name: "not resolved, waited", link: on("eth0", "192.168.1.7/24", gate("192.168.1.1", "")), waited: true,
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "not resolved, waited, a later rule", link: on("wlan1", "", gate("192.168.1.1", "")), waited: true,
			want: Use{Name: "radio", Rule: 4, Advertise: true, Autojoin: true, Why: "interface wlan[0-3]"}},
		{name: "an earlier rule holds, nothing to wait for", link: on("eth0", "10.7.0.1/16", gate("10.7.0.254", "")),
			want: Use{Name: "lab", Rule: 0, Advertise: true, Discover: true, Why: "interface eth*, subnet 10.7.0.0/16"}},
		{name: "no default route, nothing to wait for", link: on("eth0", "192.168.1.7/24"),
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "nobody looked at routes", link: unknown,
			want: Use{Name: "home", Rule: 2, Undecided: true, Why: "waiting for the default routes to be read"}},
		{name: "nobody looked at routes, waited", link: unknown, waited: true,
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
		{name: "no address, no gateway", link: on("eth0", ""),
			want: Use{Name: "elsewhere", Rule: 5, Why: "everywhere"}},
	} {
		if got := rules.Decide(tc.link, tc.waited); got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}

func TestDecideWithoutAMatch(t *testing.T) {
	free := Use{Rule: -1, Advertise: true, Discover: true, Autojoin: true, Why: "no rule matches"}
	for name, r := range map[string]Rules{
		"no rules":         {},
		"none compiled":    compiled(t),
		"none that holds":  compiled(t, config.Network{Subnet: "10.0.0.0/8"}),
		"another gateway":  compiled(t, config.Network{GatewayMAC: otherMAC}),
		"another link":     compiled(t, config.Network{Interface: "eth"}),
		"another IPv6 net": compiled(t, config.Network{Subnet: "::/0"}),
	} {
		l := on("eth0", "192.168.1.7/24", gate("192.168.1.1", homeMAC))
		if got := r.Decide(l, false); got != free {
			t.Errorf("%s: %+v", name, got)
		}
		if r.NeedGateways() != (name == "another gateway") {
			t.Errorf("%s: NeedGateways = %v", name, r.NeedGateways())
		}
	}
}

func TestCompile(t *testing.T) {
	r := compiled(t, config.Network{Interface: "nothing"}, config.Network{Subnet: "10.1.2.3/8", Discover: true})
	if got := r.Decide(on("eth0", "10.200.0.1/16"), false); got.Name != "network 2" || !got.Discover {
		t.Errorf("a rule without a name, and an address for a subnet: %+v", got)
	}
	for _, mac := range []string{homeMAC, "52-54-00-12-34-56", "5254.0012.3456"} {
		r := compiled(t, config.Network{GatewayMAC: mac, Discover: true})
		if got := r.Decide(on("eth0", "", gate("192.168.1.1", homeMAC)), false); !got.Discover || got.Rule != 0 {
			t.Errorf("gateway_mac %q: %+v", mac, got)
		}
	}

	_, err := Compile([]config.Network{
		{Name: "good"},
		{Name: "bad glob", Interface: "eth["},
		{Subnet: "10.0.0.1", GatewayMAC: "52:54:00:12:34"},
		{Name: "long", GatewayMAC: "00:00:5e:00:53:01:00:00"},
	})
	if err == nil {
		t.Fatal("rules that cannot be understood were accepted")
	}
	for _, want := range []string{
		`rule 2 ("bad glob")`, `"eth["`,
		`rule 3 ("network 3")`, `subnet "10.0.0.1"`, `gateway_mac "52:54:00:12:34"`,
		`rule 4 ("long")`, `gateway_mac "00:00:5e:00:53:01:00:00"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "good") {
		t.Errorf("error %q names a good rule", err)
	}
}

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/network/wireguard"
)

// TestMachine: everything that a machine may lack is found, with what to type.
func TestMachine(t *testing.T) {
	const blocks = "241.0.0.0/8"
	var whole machine
	dropping := []string{"table ip filter chain FORWARD type filter hook forward priority filter; policy drop;"}
	for _, tc := range []struct {
		name   string
		change func(*machine)
		fire   look.Firewall
		want   string // code and status of each finding
		do     string // part of what to type
	}{
		{"all is there", func(*machine) {}, look.Firewall{}, "", ""},
		{"no TUN", func(m *machine) { m.tun = fmt.Errorf("open: %w", os.ErrNotExist) }, look.Firewall{}, "tun-missing warning", "sudo modprobe tun"},
		{"no driver", func(m *machine) { m.tun = unix.ENODEV }, look.Firewall{}, "tun-missing warning", "sudo modprobe tun"},
		{"a closed TUN", func(m *machine) { m.tun = fmt.Errorf("open: %w", os.ErrPermission) }, look.Firewall{}, "tun-closed warning", "sudo chmod 0666 /dev/net/tun"},
		{"no nftables", func(m *machine) { m.tables = unix.EPROTONOSUPPORT }, look.Firewall{}, "nftables-missing warning", "sudo modprobe -a nf_tables"},
		{"no WireGuard", func(m *machine) { m.wireguard = wireguard.ErrUnavailable }, look.Firewall{Rules: dropping}, "wireguard-missing info, forward-dropped warning", "sudo modprobe wireguard"},
		{"the other device", func(*machine) {}, look.Firewall{Rules: dropping, Ufw: true}, "forward-dropped warning, forward-dropped warning", "sudo ufw route allow in on liqo0-wg"},
		{"not root", func(m *machine) { m.tables = fmt.Errorf("list: %w", unix.EPERM) }, look.Firewall{}, " skipped", ""},
		{"no forwarding", func(m *machine) { m.stuck = []string{"net.ipv4.ip_forward"} }, look.Firewall{}, "forwarding-off warning", "sudo sysctl -w net.ipv4.ip_forward=1"},
		{"the range is taken", func(m *machine) { m.taken = []netip.Prefix{netip.MustParsePrefix("240.0.0.0/4")} }, look.Firewall{}, "range-taken warning", "sudo ip route del 240.0.0.0/4"},
		{"a part of it is", func(m *machine) { m.taken = []netip.Prefix{netip.MustParsePrefix("241.9.0.0/16")} }, look.Firewall{}, "range-shared info", ""},
		{"none of it is", func(m *machine) { m.taken = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }, look.Firewall{}, "", ""},
		{"docker", func(*machine) {}, look.Firewall{Rules: dropping}, "forward-dropped warning, forward-dropped warning", "sudo iptables -I FORWARD -i liqo0 -j ACCEPT && sudo iptables -I FORWARD -o liqo0 -j ACCEPT"},
		{"docker with IPv6", func(*machine) {}, look.Firewall{Rules: []string{strings.Replace(dropping[0], "ip filter", "ip6 filter", 1)}}, "forward-dropped warning, forward-dropped warning", "sudo ip6tables -I FORWARD -i liqo0 -j ACCEPT && sudo ip6tables -I FORWARD -o liqo0 -j ACCEPT"},
		{"ufw", func(*machine) {}, look.Firewall{Rules: dropping, Ufw: true}, "forward-dropped warning, forward-dropped warning", "sudo ufw route allow in on liqo0 && sudo ufw route allow out on liqo0"},
		{"firewalld", func(*machine) {}, look.Firewall{Firewalld: true, Rules: []string{"table inet firewalld chain filter_FORWARD type filter hook forward priority filter + 10; policy accept;",
			"table inet firewalld chain filter_FORWARD reject with icmpx admin-prohibited"}}, "forward-dropped warning, forward-dropped warning", "sudo firewall-cmd --permanent --zone=trusted --add-interface=liqo0"},
		{"nftables", func(*machine) {}, look.Firewall{Rules: []string{"table inet f chain c type filter hook forward priority filter; policy drop;"}},
			"forward-dropped warning, forward-dropped warning", "sudo nft insert rule inet f c iifname liqo0 accept && sudo nft insert rule inet f c oifname liqo0 accept"},
		{"masquerade", func(*machine) {}, look.Firewall{Rules: []string{"table ip nat chain POSTROUTING counter packets 1 bytes 2 masquerade"}}, "masqueraded warning", "oifname"},
	} {
		m := whole
		tc.change(&m)
		checkFindings(t, tc.name, judgeMachine(m, tc.fire, blocks), tc.want, tc.do)
	}
}

func checkFindings(t *testing.T, name string, found []Finding, want, do string) {
	t.Helper()
	var got, typed []string
	for _, f := range found {
		got, typed = append(got, f.Code+" "+string(f.Status)), append(typed, f.Do...)
		if f.What == "" || f.Status == Warning && (f.Why == "" || len(f.Do) == 0) {
			t.Errorf("%s: %+v says too little", name, f)
		}
	}
	if strings.Join(got, ", ") != want || !strings.Contains(strings.Join(typed, "\n"), do) {
		t.Errorf("%s: %q, to do %q, want %q with %q", name, got, typed, want, do)
	}
}

func TestPaths(t *testing.T) {
	const id = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	peers := func(states ...string) (out []control.NetworkPeer) {
		for _, s := range states {
			out = append(out, control.NetworkPeer{ID: id, Name: "barn", State: s, Message: "no route to host"})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		known control.Network
		want  string
	}{
		{"nobody", control.Network{Reason: "SeveralNodes", Message: "Two."}, ""},
		{"connected", control.Network{Peers: peers("Connected", "Off")}, ""},
		{"one is not", control.Network{Peers: peers("Connected", "Connecting", "Silent")}, "pod-network-down warning, pod-network-down warning"},
		{"by TLS", control.Network{Peers: []control.NetworkPeer{{ID: id, Name: "barn", State: "Connected", NoWireGuard: "the peer has none"}}}, "network-by-tls info"},
		{"one is about to be", control.Network{Peers: []control.NetworkPeer{{ID: id, State: "Connecting"}}}, ""},
		{"several nodes", control.Network{Reason: "SeveralNodes", Message: "Two.", Peers: peers("Off")}, "pod-network-impossible warning"},
		{"not known yet", control.Network{Reason: "Unknown", Peers: peers("Off")}, ""},
	} {
		checkFindings(t, tc.name, judgePaths(tc.known), tc.want, "")
	}
}

// TestPodNetworkOff: nothing is looked at that is not wanted.
func TestPodNetworkOff(t *testing.T) {
	b := boxOf()
	loaded := config.Loaded{Config: config.Default()}
	loaded.Config.Sharing.Network = config.NetworkOff
	b.loaded = &loaded
	if got := checkPodNetwork(context.Background(), b); len(got) != 1 || got[0].Status != OK {
		t.Errorf("%+v", got)
	}
}

// TestUnshared: what is missing is no fault as long as nobody is to be connected.
func TestUnshared(t *testing.T) {
	checkFindings(t, "nobody", unshared(judgeMachine(machine{stuck: []string{"net.ipv4.ip_forward"}}, look.Firewall{}, "241.0.0.0/8")), "forwarding-off info", "sudo sysctl -w net.ipv4.ip_forward=1")
}

// TestForwarding: what is needed depends on the addresses of pods.
func TestForwarding(t *testing.T) {
	for pods, want := range map[string]string{
		"": forwarding4, "10.42.0.0/24 fe80::/64": forwarding4, "fd42::/64 fe80::/64": forwarding6, "10.42.0.0/24 fd42::/64": forwarding6 + " " + forwarding4,
	} {
		var all []netip.Prefix
		for _, text := range strings.Fields(pods) {
			all = append(all, netip.MustParsePrefix(text))
		}
		if got := strings.Join(forwardingFor(all), " "); got != want {
			t.Errorf("%q: %s, want %s", pods, got, want)
		}
	}
}

// TestThisMachine: this machine can be looked at, whatever it has.
func TestThisMachine(t *testing.T) {
	if _, err := findMachine(); err != nil {
		t.Error(err)
	}
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/network"
	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/sharing/connectivity"
)

// machine is what this machine has for the network between clusters.
type machine struct {
	tun, tables error    // why the device, or nftables, cannot be used; nil if they can
	wireguard   error    // the same about WireGuard
	stuck       []string // settings by which the kernel passes packets of pods on, and which are off
	taken       []netip.Prefix
	pods        []netip.Prefix // of the bridge of the pods
}

// tunDevice is what network devices are made by.
const tunDevice = "/dev/net/tun"

// The settings by which the kernel passes packets on, as files below /proc/sys.
const (
	forwarding4 = "net/ipv4/ip_forward"
	forwarding6 = "net/ipv6/conf/all/forwarding"
)

// findMachine looks at the machine. The error is about what is needed to look.
func findMachine() (machine, error) {
	var out machine
	tun, err := os.OpenFile(tunDevice, os.O_RDWR, 0) // makes no device yet
	if out.tun = err; err == nil {
		_ = tun.Close()
	}
	_, out.tables = filter.Leftovers()
	out.wireguard = wireguard.Available()
	if out.taken, err = network.Taken(connect.Device); err != nil {
		return out, err
	}
	links, err := look.Links()
	for _, l := range links {
		if l.Name == "cni0" {
			for _, p := range l.Addrs {
				out.pods = append(out.pods, p.Masked())
			}
		}
	}
	if err != nil {
		return out, err
	}
	for _, file := range forwardingFor(out.pods) {
		raw, err := os.ReadFile("/proc/sys/" + file)
		if err != nil {
			return out, err
		}
		if strings.TrimSpace(string(raw)) == "0" {
			out.stuck = append(out.stuck, strings.ReplaceAll(file, "/", "."))
		}
	}
	return out, nil
}

// forwardingFor returns the settings that pods with these addresses need: that of IPv4 while there are none.
func forwardingFor(pods []netip.Prefix) []string {
	var out []string
	if slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() }) {
		out = append(out, forwarding6)
	}
	if len(out) == 0 || slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Addr().Is4() }) {
		out = append(out, forwarding4)
	}
	return out
}

func checkPodNetwork(ctx context.Context, b *Box) []Finding {
	cfg := b.config()
	if cfg.Sharing.Network == config.NetworkOff {
		return []Finding{fine("the networks of clusters are not to be connected (sharing.network = %q)", config.NetworkOff)}
	}
	there, err := b.ask.machine()
	if err != nil {
		return []Finding{skipped("cannot look at this machine: %v", err)}
	}
	out := judgeMachine(there, b.firewall(ctx), cfg.Sharing.NetworkRange)
	var known control.Network
	if _, err := b.agentSays(ctx); err == nil {
		if known, err = b.agent.Network(ctx); err != nil {
			out = append(out, skipped("cannot ask the agent for the networks of peers: %v", err))
		}
	}
	if len(known.Peers) == 0 {
		out = unshared(out)
	}
	out = append(out, judgePaths(known)...)
	if len(out) == 0 {
		out = append(out, fine("this machine has what it takes"))
	}
	return out
}

// unshared returns what is missing on a machine that shares with nobody: worth knowing, before it does.
func unshared(found []Finding) []Finding {
	for i := range found {
		if found[i].Status == Warning {
			found[i].Status = Info
		}
	}
	return found
}

// judgeMachine says what is missing on a machine.
func judgeMachine(m machine, fire look.Firewall, blocks string) []Finding {
	var out []Finding
	const why = "pods of this cluster and of its peers do not reach each other"
	switch {
	case errors.Is(m.tun, os.ErrNotExist):
		out = append(out, Finding{Code: "tun-missing", Status: Warning, What: tunDevice + " does not exist", Why: why,
			Do: []string{"load the module: sudo modprobe tun && echo tun | sudo tee /etc/modules-load.d/tun.conf", "in a container, pass the device in: --device " + tunDevice}})
	case errors.Is(m.tun, os.ErrPermission):
		out = append(out, Finding{Code: "tun-closed", Status: Warning, What: "this user may not open " + tunDevice, Why: why,
			Do: []string{"run the doctor as root; if it says the same then, the container or service has no access to the device", "give the agent's user access: sudo chmod 0666 " + tunDevice}})
	case m.tun != nil:
		out = append(out, Finding{Code: "tun-missing", Status: Warning, What: fmt.Sprintf("%s cannot be opened: %v", tunDevice, m.tun), Why: why,
			Do: []string{"load the module: sudo modprobe tun"}})
	}
	switch {
	case errors.Is(m.tables, unix.EPERM), errors.Is(m.tables, unix.EACCES):
		out = append(out, skipped("this user may not use nftables: use sudo"))
	case m.tables != nil:
		out = append(out, Finding{Code: "nftables-missing", Status: Warning, What: fmt.Sprintf("nftables cannot be used: %v", m.tables), Why: why,
			Do: []string{"load the modules: sudo modprobe -a nf_tables nft_chain_nat nft_nat nft_ct", "if there are none, use a kernel with nf_tables, NAT and connection tracking"}})
	}
	for _, name := range m.stuck {
		out = append(out, Finding{Code: "forwarding-off", Status: Warning, What: "the kernel does not pass packets on (" + name + " is 0)", Why: why + ", and Kubernetes does not work either",
			Do: []string{"sudo sysctl -w " + name + "=1", "echo " + name + "=1 | sudo tee -a /etc/sysctl.d/90-forward.conf"}})
	}
	out = append(out, judgeRange(m.taken, blocks)...)
	devices := []string{connect.Device}
	if m.wireguard == nil {
		devices = append(devices, network.TunnelOf(connect.Device))
	} else {
		out = append(out, Finding{Code: "wireguard-missing", Status: Info, What: "packets to the pods of peers go by TLS, and not by WireGuard: " + m.wireguard.Error(),
			Why: "TLS takes more processor time, and is slow on links that lose packets; everything works with it",
			Do:  []string{"load the module, if there is one: sudo modprobe wireguard"}})
	}
	for _, device := range devices {
		for _, chain := range fire.Forwards(device, m.pods) {
			out = append(out, Finding{Code: "forward-dropped", Status: Warning, Why: why + ": a drop in any table is final",
				What: "a firewall drops what is passed on between pods and " + device + ": " + chain.Rule, Do: []string{allow(fire, chain, device)}})
		}
	}
	for _, rule := range fire.Masquerades() {
		out = append(out, Finding{Code: "masqueraded", Status: Warning, What: "a firewall rule gives every packet the address of this machine: " + rule,
			Why: "pods see connections from peers come from this machine, so that their network policies do not apply",
			Do:  []string{"restrict the rule to the interface that it is for, such as: oifname \"eth0\" masquerade"}})
	}
	return out
}

// allow returns the command that lets packets by a device pass a chain.
func allow(fire look.Firewall, chain look.Forward, device string) string {
	switch {
	case fire.Firewalld:
		return "sudo firewall-cmd --permanent --zone=trusted --add-interface=" + device + " && sudo firewall-cmd --reload"
	case fire.Ufw:
		return "sudo ufw route allow in on " + device + " && sudo ufw route allow out on " + device
	case chain.Chain == "FORWARD":
		program := "sudo iptables"
		if chain.Family == "ip6" {
			program = "sudo ip6tables"
		}
		return program + " -I FORWARD -i " + device + " -j ACCEPT && " + program + " -I FORWARD -o " + device + " -j ACCEPT"
	}
	insert := fmt.Sprintf("sudo nft insert rule %s %s %s", chain.Family, chain.Table, chain.Chain)
	return insert + " iifname " + device + " accept && " + insert + " oifname " + device + " accept"
}

// judgeRange says whether addresses for peers are left.
func judgeRange(taken []netip.Prefix, blocks string) []Finding {
	all, err := netip.ParsePrefix(blocks)
	if err != nil {
		return nil // check config says so
	}
	for _, p := range taken {
		switch {
		case !p.Overlaps(all):
		case p.Bits() <= all.Bits():
			return []Finding{{Code: "range-taken", Status: Warning, What: fmt.Sprintf("a route of this machine to %s takes all of sharing.network_range (%s)", p, all),
				Why: "there are no addresses for the pods of peers", Do: []string{"set sharing.network_range to a prefix in 240.0.0.0/4 that nothing else uses", "or remove the route: sudo ip route del " + p.String()}}}
		default:
			return []Finding{info("range-shared", "a route of this machine to %s is in sharing.network_range (%s): its addresses are not used for peers", p, all)}
		}
	}
	return nil
}

// judgePaths says which networks are not connected, by what the agent says.
func judgePaths(known control.Network) []Finding {
	if len(known.Peers) == 0 {
		return nil // there is nobody to be connected with, and nothing to say
	}
	if known.Reason != "" && known.Reason != connectivity.ReasonUnknown {
		return []Finding{{Code: "pod-network-impossible", Status: Warning, What: "this cluster cannot be connected with others: " + known.Message,
			Why: "pods at providers have no address here, and Services do not lead to them",
			Do:  []string{"see \"Requirements\" in docs/network.md", "if the networks are not to be connected, set sharing.network = \"off\" and reload the configuration"}}}
	}
	var out []Finding
	for _, p := range known.Peers {
		if p.State == control.NetworkConnected && p.NoWireGuard != "" {
			out = append(out, info("network-by-tls", "packets to the pods of %s go by TLS, and not by WireGuard: %s", p.Name, p.NoWireGuard))
		}
		if p.Message == "" || p.State == control.NetworkConnected || p.State == control.NetworkOff { // or about to be connected
			continue
		}
		what := "the network to " + p.Name + " is not connected: " + p.Message
		out = append(out, Finding{Code: "pod-network-down", Status: Warning, What: what,
			Why: "pods of the two clusters do not reach each other; one of the clusters has to be able to connect to the other by TCP",
			Do:  []string{"run the doctor there, too: \"Endpoint port\" says who cannot be connected to", "liqo-agent network list"}})
	}
	return out
}

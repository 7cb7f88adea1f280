//go:build linux

package bed

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
)

// FlannelRules is a shell script that adds the rules which the flannel of K3s keeps, by a program such as
// "iptables -w", for the pods of all nodes and those of this one.
func FlannelRules(iptables string, cluster, node netip.Prefix) string {
	multicast := "224.0.0.0/4"
	if cluster.Addr().Is6() {
		multicast = "ff00::/8"
	}
	return strings.NewReplacer("iptables", iptables, "CLUSTER", cluster.String(), "NODE", node.String(), "MULTICAST", multicast).Replace(`
iptables -N FLANNEL-FWD
iptables -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
iptables -A FLANNEL-FWD -s CLUSTER -m comment --comment "flanneld forward" -j ACCEPT
iptables -A FLANNEL-FWD -d CLUSTER -m comment --comment "flanneld forward" -j ACCEPT
iptables -t nat -N FLANNEL-POSTRTG
iptables -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
iptables -t nat -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
iptables -t nat -A FLANNEL-POSTRTG -s NODE -d CLUSTER -m comment --comment "flanneld masq" -j RETURN
iptables -t nat -A FLANNEL-POSTRTG -s CLUSTER -d NODE -m comment --comment "flanneld masq" -j RETURN
iptables -t nat -A FLANNEL-POSTRTG ! -s CLUSTER -d NODE -m comment --comment "flanneld masq" -j RETURN
iptables -t nat -A FLANNEL-POSTRTG -s CLUSTER ! -d MULTICAST -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
iptables -t nat -A FLANNEL-POSTRTG ! -s CLUSTER -d CLUSTER -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
`)
}

// FirewalldRules is a script for nft that makes a table as firewalld does, anew if it is there: what no zone trusts is rejected. Trusted are
// the ranges that K3s asks for, those of pods and Services, and the device that docs/network.md does.
func FirewalldRules(pods Ranges) string {
	var trusted strings.Builder
	for _, p := range append(pods[:len(pods):len(pods)], pods.Services()...) {
		family := "ip"
		if p.Addr().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&trusted, "%s saddr %s accept\n", family, p)
	}
	return strings.ReplaceAll(firewalldRules, "TRUSTED", trusted.String())
}

const firewalldRules = `table inet firewalld
delete table inet firewalld
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_FORWARD_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_INPUT_ZONES {
		TRUSTED
		iifname "liqo0" accept
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport { 22, 6443, 6447, 10250 } accept
		udp dport 5353 accept
	}
	chain filter_FORWARD_ZONES {
		TRUSTED
		iifname "liqo0" accept
	}
}
`

// PolicedPod is a pod as the network policy controller of K3s knows it.
type PolicedPod struct {
	// Addr is its address. It runs on this node.
	Addr netip.Addr
	// From are the sources that its policies admit, such as the addresses of pods on all nodes; nil if no policy is
	// about it.
	From []netip.Prefix
}

// SyncKubeRouter does what the network policy controller of K3s, kube-router, does at each of its rounds: it saves
// the whole filter table, replaces its chains in the text, and restores the whole of it. It does so for each family
// that pods have.
func (h *Host) SyncKubeRouter(ctx context.Context, pods ...PolicedPod) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	for _, f := range []struct {
		program, services, refused string
		six                        bool
	}{{"iptables", serviceRange, "icmp-port-unreachable", false}, {"ip6tables", serviceRange6, "icmp6-port-unreachable", true}} {
		var own []PolicedPod
		for _, p := range pods {
			if p.Addr.Is6() == f.six {
				own = append(own, p)
			}
		}
		if len(own) == 0 && f.six {
			continue
		}
		saved, err := h.Run(ctx, f.program+"-save", "-t", "filter")
		if err != nil {
			return err
		}
		if !strings.Contains(saved, "*filter") {
			saved = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
		}
		rules := strings.NewReplacer("SERVICES", f.services, "REFUSED", f.refused).Replace(kubeRouterRules(saved, own))
		if _, err := h.RunInput(ctx, rules, f.program+"-restore", "-w"); err != nil {
			return err
		}
	}
	return nil
}

// kubeRouterRules is a saved filter table with the chains of kube-router as they have to be now. SERVICES stands for the
// range of Services, and REFUSED for the error that tells who is denied.
func kubeRouterRules(saved string, pods []PolicedPod) string {
	var policies, rest, rules strings.Builder
	rule := func(format string, args ...any) { fmt.Fprintf(&rules, format+"\n", args...) }
	hooks := []string{"INPUT", "FORWARD", "OUTPUT"}
	for _, hook := range hooks {
		policies.WriteString(":KUBE-ROUTER-" + hook + " - [0:0]\n")
		rule("-A %s -m comment --comment \"kube-router netpol - BED\" -j KUBE-ROUTER-%s", hook, hook)
	}
	policies.WriteString(":KUBE-NWPLCY-DEFAULT - [0:0]\n")
	rule("-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000")
	rule("-A KUBE-ROUTER-INPUT -d SERVICES -j RETURN")
	for _, protocol := range []string{"tcp", "udp"} {
		rule("-A KUBE-ROUTER-INPUT -p %s -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN", protocol)
	}
	for _, pod := range pods {
		own := "KUBE-POD-FW-" + chainHash(pod.Addr.String())
		policy := "KUBE-NWPLCY-DEFAULT"
		policies.WriteString(":" + own + " - [0:0]\n")
		if pod.From != nil {
			policy = "KUBE-NWPLCY-" + chainHash("policy of "+pod.Addr.String())
			policies.WriteString(":" + policy + " - [0:0]\n")
			for _, from := range pod.From {
				if from.Addr().Is6() != pod.Addr.Is6() {
					continue
				}
				rule("-A %s -s %s -d %s -j MARK --set-xmark 0x10000/0x10000", policy, from, pod.Addr)
				rule("-A %s -s %s -d %s -m mark --mark 0x10000/0x10000 -j RETURN", policy, from, pod.Addr)
			}
		}
		for _, hook := range hooks {
			if hook != "INPUT" {
				rule("-A KUBE-ROUTER-%s -d %s -j %s", hook, pod.Addr, own)
			}
			rule("-A KUBE-ROUTER-%s -s %s -j %s", hook, pod.Addr, own)
		}
		for _, side := range []string{"-d", "-s"} {
			rule("-A KUBE-ROUTER-FORWARD -m physdev --physdev-is-bridged %s %s -j %s", side, pod.Addr, own)
		}
		rule("-A %s -m conntrack --ctstate INVALID -j DROP", own)
		rule("-A %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", own)
		rule("-A %s -d %s -m addrtype --src-type LOCAL -j ACCEPT", own, pod.Addr)
		rule("-A %s -d %s -j %s", own, pod.Addr, policy)
		rule("-A %s -s %s -j KUBE-NWPLCY-DEFAULT", own, pod.Addr)
		rule("-A %s -m mark ! --mark 0x10000/0x10000 -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100", own)
		rule("-A %s -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with REFUSED", own)
		rule("-A %s -j MARK --set-xmark 0x0/0x10000", own)
		rule("-A %s -j MARK --set-xmark 0x20000/0x20000", own)
	}
	for _, hook := range hooks {
		rule("-A KUBE-ROUTER-%s -m mark --mark 0x20000/0x20000 -j ACCEPT", hook)
	}
	var chains, others strings.Builder
	for line := range strings.Lines(saved) {
		switch {
		case strings.Contains(line, "KUBE-ROUTER-"), strings.Contains(line, "KUBE-POD-FW-"), strings.Contains(line, "KUBE-NWPLCY-"), line == "COMMIT\n":
		case strings.HasPrefix(line, "-"):
			others.WriteString(line)
		default:
			chains.WriteString(line)
		}
	}
	// Its jumps are the first rules of the chains that the kernel calls.
	rest.WriteString(chains.String() + policies.String() + rules.String() + others.String() + "COMMIT\n")
	return rest.String()
}

// chainHash tells chains apart within the 28 characters of their names.
func chainHash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

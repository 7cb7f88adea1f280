//go:build linux

package bed

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Pods is a network that stands for all pods of a host that nobody runs, as with kwok: each IPv4 address of the node's range is local
// there, but for that of the bridge, which is the gateway.
type Pods struct {
	host *Host
	ns   *namespaces
}

// AddPods gives the host's bridge of pods the network behind it, and has the host forward packets, with the rules of flannel.
func (h *Host) AddPods() *Pods {
	h.bed.t.Helper()
	ns, err := newNamespaces(unix.CLONE_NEWNET, nil, loopbackUp)
	if err != nil {
		h.bed.t.Fatalf("bed: host %s: pods: %v", h.Name, err)
	}
	h.bed.t.Cleanup(func() {
		if err := ns.close(); err != nil {
			h.bed.t.Errorf("bed: host %s: pods: %v", h.Name, err)
		}
	})
	p := &Pods{host: h, ns: ns}
	cable, err := h.nl.LinkByName(podCable)
	if err == nil {
		err = h.nl.LinkSetNsFd(cable, int(ns.net.Fd()))
	}
	node := h.Pods.Node()[0]
	if err == nil {
		// A route of the table of local addresses: where the gateway is would be looked up there.
		err = p.Run(fmt.Sprintf("ip link set %[1]s up\nip route add local %[2]s dev lo\nip route add %[3]s dev %[1]s table local\nip route add default via %[3]s dev %[1]s",
			podCable, node, node.Addr().Next()))
	}
	if err == nil {
		_, err = h.Run(h.bed.t.Context(), "sh", "-ec", "echo 1 > /proc/sys/net/ipv4/ip_forward\n"+FlannelRules("iptables -w", h.Pods[0], node))
	}
	if err != nil {
		h.bed.t.Fatalf("bed: host %s: pods: %v", h.Name, err)
	}
	return p
}

// Do runs fn in the network of the pods, as [Host.Do] does in the host's.
func (p *Pods) Do(fn func() error) error {
	if err := p.ns.do(fn); err != nil {
		return fmt.Errorf("in the pods of host %s: %w", p.host.Name, err)
	}
	return nil
}

// Run runs a shell script there.
func (p *Pods) Run(script string) error {
	return p.Do(func() error {
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

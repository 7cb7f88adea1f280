//go:build linux

package bed

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
)

// addresses returns the host's IPv4 addresses as Kubernetes on it knows them: those of its links, or
// that of the pod network's bridge if it has none.
func (h *Host) addresses() []string {
	addresses := h.addressesOf(netip.Addr.Is4)
	if len(addresses) == 0 {
		addresses = []string{h.Pods.Node().gateways()[0].Addr().String()}
	}
	return addresses
}

// nodeIPs returns the host's addresses as K3s tells the kubelet: one of each family that its pods have.
func (h *Host) nodeIPs() []string {
	out := h.addresses()[:1]
	if h.Pods.dualStack() {
		out = append(out, h.addresses6()...)
	}
	return out
}

// ips are the addresses at which the host's own programs are asked.
func (h *Host) ips() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, a := range append(h.addresses(), h.addresses6()...) {
		ips = append(ips, net.ParseIP(a))
	}
	return ips
}

// addresses6 returns the host's IPv6 addresses that count outside of a link.
func (h *Host) addresses6() []string {
	return h.addressesOf(func(a netip.Addr) bool { return a.Is6() && !a.IsLinkLocalUnicast() })
}

// addressesOf returns the addresses of the host's links that are of a kind, by the names of the links.
func (h *Host) addressesOf(kind func(netip.Addr) bool) []string {
	h.bed.mu.Lock()
	links := make([]*Link, 0, len(h.links))
	for _, l := range h.links {
		links = append(links, l)
	}
	h.bed.mu.Unlock()
	slices.SortFunc(links, func(a, b *Link) int { return strings.Compare(a.Name, b.Name) })
	var addresses []string
	for _, l := range links {
		s, err := l.state()
		if err != nil {
			continue // it vanished meanwhile
		}
		for _, p := range s.addrs {
			if kind(p.Addr()) {
				addresses = append(addresses, p.Addr().String())
			}
		}
	}
	return addresses
}

// createNode registers the host as the single node of its cluster, with what the kubelet of a K3s
// server would report.
func (k *Kube) createNode(ctx context.Context) error {
	type object = map[string]any
	name := k.Host.Name
	resources := object{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "64Gi", "pods": "110"}
	var ranges []string
	for _, p := range k.Host.Pods.Node() {
		ranges = append(ranges, p.String())
	}
	condition := func(kind, status, reason string) object {
		return object{"type": kind, "status": status, "reason": reason, "message": "the test bed says so"}
	}
	node := object{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": object{
			"name": name,
			"labels": object{
				"kubernetes.io/arch":                    runtime.GOARCH,
				"kubernetes.io/hostname":                name,
				"kubernetes.io/os":                      "linux",
				"node-role.kubernetes.io/control-plane": "true",
				"node-role.kubernetes.io/master":        "true",
				"node.kubernetes.io/instance-type":      "k3s",
			},
			"annotations": object{"k3s.io/hostname": name, "k3s.io/internal-ip": strings.Join(k.Host.nodeIPs(), ",")},
		},
		"spec": object{"podCIDR": ranges[0], "podCIDRs": ranges, "providerID": "k3s://" + name},
	}
	status := object{"status": object{
		"addresses":   k.nodeAddresses(),
		"capacity":    resources,
		"allocatable": resources,
		"conditions": []object{
			condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
			condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
			condition("PIDPressure", "False", "KubeletHasSufficientPID"),
			condition("Ready", "True", "KubeletReady"),
		},
		"nodeInfo": object{
			"architecture": runtime.GOARCH, "operatingSystem": "linux", "osImage": "Debian GNU/Linux 12 (bookworm)",
			"kernelVersion": "6.1.0", "containerRuntimeVersion": "containerd://2.1.4-k3s1", "kubeletVersion": "v1.36.3+k3s1",
			"kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
		},
	}}
	for _, step := range []struct {
		method, path, contentType string
		content                   object
	}{
		{http.MethodPost, "/api/v1/nodes", "application/json", node},
		{http.MethodPatch, "/api/v1/nodes/" + name + "/status", "application/strategic-merge-patch+json", status},
	} {
		body, err := json.Marshal(step.content)
		if err != nil {
			return err
		}
		if _, err := k.Request(ctx, step.method, step.path, step.contentType, body); err != nil {
			return err
		}
	}
	return nil
}

// nodeAddresses are those in the status of the host's node.
func (k *Kube) nodeAddresses() []map[string]any {
	addresses := []map[string]any{{"type": "Hostname", "address": k.Host.Name}}
	for _, a := range append(k.Host.addresses(), k.Host.nodeIPs()[1:]...) {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a})
	}
	return addresses
}

// Readdress has the control plane know the addresses that the host has now, as K3s does when it is started after a change: the
// Node has them, and the certificate of the API server is for them. It returns when that shows the new certificate. Control
// planes of the pool were started before their host had an address, so that only clients on the host can verify them until then.
func (k *Kube) Readdress(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": k.nodeAddresses()}})
	if err != nil {
		return err
	}
	if _, err := k.Request(ctx, http.MethodPatch, "/api/v1/nodes/"+k.Host.Name+"/status", "application/merge-patch+json", patch); err != nil {
		return err
	}
	if err := k.certifyServer(); err != nil {
		return err
	}
	return Poll(ctx, func() error {
		conn, err := k.Host.DialContext(ctx, "tcp", "127.0.0.1:"+kubePort)
		if err != nil {
			return err
		}
		defer conn.Close()
		// The next line verifies it, for the addresses that others connect to.
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		for _, a := range k.Host.addresses() {
			if err := secure.ConnectionState().PeerCertificates[0].VerifyHostname(a); err != nil {
				return fmt.Errorf("the API server on %s has its old certificate: %w", k.Host.Name, err)
			}
		}
		return nil
	})
}

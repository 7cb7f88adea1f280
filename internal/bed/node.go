//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
)

// addresses returns the host's IPv4 addresses as Kubernetes on it knows them: those of its links, or
// that of the pod network's bridge if it has none.
func (h *Host) addresses() []string {
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
			if p.Addr().Is4() {
				addresses = append(addresses, p.Addr().String())
			}
		}
	}
	if len(addresses) == 0 {
		gateway, _, _ := strings.Cut(clusterGateway, "/")
		addresses = []string{gateway}
	}
	return addresses
}

// ips are the addresses at which the host's own programs are asked.
func (h *Host) ips() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, a := range h.addresses() {
		ips = append(ips, net.ParseIP(a))
	}
	return ips
}

// createNode registers the host as the single node of its cluster, with what the kubelet of a K3s
// server would report.
func (k *Kube) createNode(ctx context.Context) error {
	type object = map[string]any
	name := k.Host.Name
	resources := object{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "64Gi", "pods": "110"}
	addresses := []object{{"type": "Hostname", "address": name}}
	for _, a := range k.Host.addresses() {
		addresses = append(addresses, object{"type": "InternalIP", "address": a})
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
			"annotations": object{"k3s.io/hostname": name},
		},
		"spec": object{"podCIDR": "10.42.0.0/24", "podCIDRs": []string{"10.42.0.0/24"}, "providerID": "k3s://" + name},
	}
	status := object{"status": object{
		"addresses":   addresses,
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

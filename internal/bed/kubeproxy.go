//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ProxyMode is how kube-proxy directs what is sent to Services to their pods.
type ProxyMode string

// The modes that K3s can be told.
const (
	ProxyIPTables ProxyMode = "iptables"
	ProxyNFTables ProxyMode = "nftables"
)

// StartKubeProxy starts kube-proxy on the host, which has a link eth0, as K3s does, and waits until its rules are there.
// Those of one that was killed before are.
// It needs the program that [Kube.StartKubelet] needs.
func (k *Kube) StartKubeProxy(ctx context.Context, mode ProxyMode) (*Process, error) {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	sysctls := []string{
		"net/ipv4/ip_forward", "1",
		// The way back of what one pod asks another one by a Service is over the bridge only.
		"net/bridge/bridge-nf-call-iptables", "1",
	}
	if h.Pods.dualStack() {
		sysctls = append(sysctls, "net/ipv6/conf/all/forwarding", "1", "net/bridge/bridge-nf-call-ip6tables", "1")
	}
	if err := h.Do(func() error { return writeSysctls(sysctls...) }); err != nil {
		return nil, err
	}
	// What a host without a default route sends to a Service would go nowhere before kube-proxy sees it.
	for _, services := range h.Pods.Services() {
		if _, err := h.Run(ctx, "ip", "route", "replace", services.String(), "dev", "eth0"); err != nil {
			return nil, err
		}
	}
	p, err := h.start(k.proxy(mode, "--cluster-cidr="+h.Pods.String(), "--kubeconfig="+Kubeconfig,
		"--healthz-bind-address=127.0.0.1", "--metrics-bind-address=127.0.0.1",
		// Those limits are the machine's.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"))
	if err != nil {
		return nil, err
	}
	// It says that it is healthy before it has any. One Service is always there.
	if err := p.poll(ctx, func() error {
		rules, err := h.Run(ctx, "nft", "list", "ruleset")
		if err == nil && !strings.Contains(rules, serviceIP+" ") {
			err = errors.New("no rule is about " + serviceIP)
		}
		return err
	}); err != nil {
		// Who tries again would have two of them.
		return nil, errors.Join(fmt.Errorf("kube-proxy on %s: %w", h.Name, err), p.Kill())
	}
	return p, nil
}

// EndKubeProxy ends what [Kube.StartKubeProxy] started, and removes its rules, as somebody does who changes the mode.
func (k *Kube) EndKubeProxy(ctx context.Context, p *Process, mode ProxyMode) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	if err := p.Kill(); err != nil {
		return err
	}
	_, err := k.Host.Run(ctx, k.proxy(mode, "--cleanup").Args...)
	return err
}

func (k *Kube) proxy(mode ProxyMode, args ...string) Cmd {
	binary := Binary(k.Host.bed.t, "kubelet")
	return Cmd{Name: "kube-proxy", Args: append([]string{binary, "kube-proxy",
		"--proxy-mode=" + string(mode), "--hostname-override=" + k.Host.Name}, args...)}
}

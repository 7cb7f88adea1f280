//go:build linux

package integration

import (
	"os"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/vm"
)

func TestMain(m *testing.M) {
	vm.Enter()
	if os.Getenv(endEnv) != "" {
		runEnd()
	}
	bed.Main(m)
}

// Tests with a kernel that has WireGuard.
func TestInVM(t *testing.T) {
	vm.Run(t, "^TestWireGuard", vm.Config{Memory: 768, Modules: []string{
		"wireguard", "udp_tunnel", "ip6_udp_tunnel", "tun", "veth", "bridge", "overlay", "dummy",
		"nf_tables", "nft_chain_nat", "nft_nat", "nft_ct", "nft_fib_ipv4", "nft_fib_ipv6", "nft_limit", "nft_connlimit", "nft_objref", "nft_counter",
		"nft_masq", "nft_redir", "nft_reject_ipv4", "nf_conntrack_netlink", "nf_nat",
	}})
}

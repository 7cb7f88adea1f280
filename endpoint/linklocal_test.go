package endpoint

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
)

const linkLocalVariable = "ENDPOINT_IN_NAMESPACE"

// TestLinkLocalAddress needs an interface, so it runs itself again in a network
// namespace that has one.
func TestLinkLocalAddress(t *testing.T) {
	if os.Getenv(linkLocalVariable) != "" {
		identifyLinkLocal(t)
		return
	}
	if out, err := exec.Command("unshare", "-rn", "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	cmd := exec.Command("unshare", "-rn", os.Args[0], "-test.run=^TestLinkLocalAddress$", "-test.v")
	cmd.Env = append(os.Environ(), linkLocalVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func identifyLinkLocal(t *testing.T) {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "lan0", "type", "veth", "peer", "name", "lan1"},
		{"link", "set", "lan1", "up"},
		{"link", "set", "lan0", "up"},
		{"addr", "add", "fe80::77/64", "dev", "lan0", "nodad"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v %s", args, err, out)
		}
	}
	b := newBox(t, idA)
	s := NewServer(ServerConfig{Listen: ":0", Issuer: b.issuer, Logger: b.logger(), Identity: b.identify})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, s)
	addr := netip.AddrPortFrom(netip.MustParseAddr("fe80::77%lan0"), s.Port())
	c := NewClient(ClientConfig{})
	got, err := c.Identify(t.Context(), Target{Addrs: addrs(addr)})
	if err != nil || got.Addr != addr {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := c.Identify(t.Context(), Target{URL: got.URL}); err != nil {
		t.Errorf("%s: %v", got.URL, err)
	}
	// The server tells sources on a link apart by their zone, not by a prefix.
	raw, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	eventually(t, "see the source", func() bool {
		s.guard.mu.Lock()
		defer s.guard.mu.Unlock()
		return s.guard.sources[addr.Addr()] == 1
	})
}

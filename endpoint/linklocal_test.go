package endpoint

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
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
	b := endpointtest.New(t, endpointtest.IDA)
	s := NewServer(ServerConfig{Listen: ":0", Issuer: b.Issuer, Logger: b.Logger(), Identity: b.Identify})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	endpointtest.Start(t, s)
	addr := netip.AddrPortFrom(netip.MustParseAddr("fe80::77%lan0"), s.Port())
	c := client.New(client.Config{})
	var got client.Result
	var err error
	// On a busy machine, the kernel is seconds late with a link that has just come up, and
	// one attempt is over.
	endpointtest.Eventually(t, "reach the address of a new link", func() bool {
		got, err = c.Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(addr)})
		var why *client.Error
		return !errors.As(err, &why) || why.Reason != client.ReasonUnreachable
	})
	if err != nil || got.Addr != addr {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := c.Identify(t.Context(), peer.Target{URL: got.URL}); err != nil {
		t.Errorf("%s: %v", got.URL, err)
	}
	// The server tells sources on a link apart by their zone, not by a prefix.
	raw, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	endpointtest.Eventually(t, "see the source", func() bool { return s.guard.Held(addr.Addr()) == 1 })
}

package endpoint

import (
	"context"
	"net/netip"
	"testing"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) {
	if serveForBenchmark() {
		return
	}
	leak.Main(m)
}

// serve runs a server for b until the test ends. change may alter it before it
// starts.
func serve(t testing.TB, b *endpointtest.Box, listen string, change func(*Server)) *Server {
	t.Helper()
	s := NewServer(ServerConfig{
		Listen: listen, Issuer: b.Issuer,
		Identity: b.Identify,
		Logger:   b.Logger(),
	})
	withoutRates(s) // everybody has one address here
	patient(s)
	if change != nil {
		change(s)
	}
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	endpointtest.Start(t, s)
	return s
}

// at returns the address of s on ip.
func at(s *Server, ip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), s.Port())
}

package client

import (
	"context"
	"net/netip"
	"testing"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serve runs a server for b until the test ends.
func serve(t testing.TB, b *endpointtest.Box, listen string) *endpoint.Server {
	t.Helper()
	s := endpoint.NewServer(endpoint.ServerConfig{Listen: listen, Issuer: b.Issuer, Identity: b.Identify, Logger: b.Logger()})
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	endpointtest.Start(t, s)
	return s
}

// at returns the address of s on ip.
func at(s *endpoint.Server, ip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), s.Port())
}

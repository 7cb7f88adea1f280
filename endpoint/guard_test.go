package endpoint

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// sourced is a connection from an address.
type sourced struct {
	net.Conn
	from netip.Addr
}

// RemoteAddr is net.Conn.RemoteAddr.
func (s sourced) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.from, 1))
}

// A full server takes a newcomer in at the expense of who holds most, however
// fresh those connections are.
func TestFullServerIsShared(t *testing.T) {
	g := newGuard(12, 8, 1)
	now := time.Now()
	g.now = func() time.Time { return now }
	admit := func(last byte) (*conn, RefusalReason) {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		return g.admit(sourced{here, netip.AddrFrom4([4]byte{192, 0, 2, last})})
	}
	for i := range 12 {
		if _, reason := admit(byte(1 + i/4)); reason != "" {
			t.Fatalf("connection %d refused: %s", i, reason)
		}
	}
	// Four from each of three sources. Whoever holds four gets no fifth; a
	// newcomer gets three, and then all hold the same.
	if _, reason := admit(1); reason != RefusedFull {
		t.Errorf("fifth connection of a source: %q", reason)
	}
	for i := range 3 {
		if _, reason := admit(9); reason != "" {
			t.Errorf("connection %d of a newcomer refused: %s", i+1, reason)
		}
	}
	if _, reason := admit(9); reason != RefusedFull {
		t.Errorf("more than its share: %q", reason)
	}
	for last, want := range map[byte]int{1: 3, 2: 3, 3: 3, 9: 3} {
		if got := g.sources[netip.AddrFrom4([4]byte{192, 0, 2, last})]; got != want {
			t.Errorf("192.0.2.%d holds %d connections, want %d", last, got, want)
		}
	}
	if st := g.stats(); st.Open != 12 || st.Refused[RefusedStale] != 3 || st.Refused[RefusedFull] != 2 {
		t.Errorf("stats = %+v", st)
	}
}

package guard

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/peer"
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
	g := New(12, 8, 1)
	now := time.Now()
	g.Now = func() time.Time { return now }
	admit := func(last byte) (*Conn, refusal.Reason) {
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
	if st := g.Stats(); st.Open != 12 || st.Refused[RefusedStale] != 3 || st.Refused[RefusedFull] != 2 {
		t.Errorf("stats = %+v", st)
	}
}

// idle says that c has sent a request and waits for its next.
func (g *Guard) idle(c *Conn, id peer.ClusterID) {
	g.mu.Lock()
	c.active = true
	g.stopWaiting(c)
	g.mu.Unlock()
	g.Rank(c, id)
	g.mu.Lock()
	g.startWaiting(c)
	g.mu.Unlock()
}

// Who is known keeps its idle connections, whatever strangers do; but they cannot
// have all places.
func TestKnownPeersGiveWayLast(t *testing.T) {
	g := New(16, 100, 1)
	g.Reserved = 4
	now := time.Now()
	g.Now = func() time.Time { return now }
	admit := func(last byte) (*Conn, refusal.Reason) {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		return g.admit(sourced{here, netip.AddrFrom4([4]byte{192, 0, 2, last})})
	}
	flood := func() {
		for i := range 1000 {
			now = now.Add(10 * time.Millisecond)
			admit(byte(100 + i%100))
		}
	}
	known := make(map[peer.ClusterID]*Conn)
	come := func(id peer.ClusterID) {
		t.Helper()
		now = now.Add(StaleAfter)
		c, reason := admit(id[0])
		if reason != "" {
			t.Fatalf("%s is not let in: %s", id, reason)
		}
		g.idle(c, id)
		known[id] = c
	}
	count := func() (here int) {
		for id, c := range known {
			if _, ok := g.conns[c]; ok {
				here++
			} else {
				delete(known, id)
			}
		}
		return here
	}
	flood()
	if st := g.Stats(); st.Open != 12 || st.Known != 0 {
		t.Errorf("strangers: %+v", st)
	}
	for i, id := range []peer.ClusterID{"a", "b", "c", "d", "e", "f"} {
		come(id)
		now = now.Add(time.Hour)
		flood()
		if n := count(); n != i+1 {
			t.Fatalf("%d of %d known peers are left", n, i+1)
		}
	}
	if st := g.Stats(); st.Open != 16 || st.Known != 6 {
		t.Errorf("%+v", st)
	}
	// They take all that strangers do not use; but when those use less than an
	// eighth, the one that was idle for longest goes.
	for id := byte('g'); id <= 'z'; id++ {
		come(peer.ClusterID(id))
	}
	if n := count(); n != 16 {
		t.Errorf("%d known peers", n)
	}
	flood()
	if n := count(); n != 14 {
		t.Errorf("%d known peers are left", n)
	}
	if _, ok := known["z"]; !ok {
		t.Error("the last one went first")
	}
	for _, c := range known {
		c.Close()
	}
	if g.known != 0 || len(g.peers) != 0 || g.waitingKnown.Len() != 0 || len(g.conns) != g.waiting.Len() {
		t.Errorf("%d known, %v, %d kept, %d conns", g.known, g.peers, g.waitingKnown.Len(), len(g.conns))
	}
}

// A known cluster gains nothing by opening many connections.
func TestOnePeerHasFewGoodPlaces(t *testing.T) {
	g := New(100, 100, 1)
	g.Reserved = 50
	var conns []*Conn
	for range 20 {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		c, reason := g.admit(sourced{here, netip.AddrFrom4([4]byte{192, 0, 2, 1})})
		if reason != "" {
			t.Fatal(reason)
		}
		g.idle(c, "a")
		conns = append(conns, c)
	}
	if g.known != connsPerPeer || g.waitingKnown.Len() != connsPerPeer || g.waiting.Len() != 20-connsPerPeer {
		t.Errorf("%d known, %d kept, %d waiting", g.known, g.waitingKnown.Len(), g.waiting.Len())
	}
	// A place that is free again goes to the next that asks.
	conns[0].Close()
	g.idle(conns[19], "a")
	if g.known != connsPerPeer || conns[19].peer != "a" {
		t.Errorf("%d known", g.known)
	}
	g.idle(conns[19], "")
	if g.known != connsPerPeer-1 || g.waitingKnown.Len() != connsPerPeer-1 {
		t.Errorf("%d known, %d kept", g.known, g.waitingKnown.Len())
	}
	for _, c := range conns {
		c.Close()
	}
	if g.known != 0 || len(g.peers) != 0 || len(g.sources) != 0 || len(g.conns) != 0 {
		t.Errorf("left: %d, %v, %v, %d", g.known, g.peers, g.sources, len(g.conns))
	}
	g.Rank(conns[1], "a") // too late
	if g.known != 0 {
		t.Error("a closed connection counts")
	}
}

// Before the first request, only so much is read.
func TestHandshakeBytes(t *testing.T) {
	g := New(1, 1, 1)
	here, there := net.Pipe()
	defer there.Close()
	c, reason := g.admit(sourced{here, netip.AddrFrom4([4]byte{192, 0, 2, 1})})
	if reason != "" {
		t.Fatal(reason)
	}
	go func() {
		for {
			if _, err := there.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	}()
	n, err := io.Copy(io.Discard, c)
	if !errors.Is(err, errEarly) || n > handshakeBytes || n < handshakeBytes/2 {
		t.Errorf("read %d bytes, then %v", n, err)
	}
	c.Close()
}

package endpoint

import (
	"container/list"
	"crypto/tls"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/peer"
)

// RefusalReason names why the server did not serve a connection.
type RefusalReason string

// The reasons that Stats counts.
const (
	// RefusedFull: MaxConns connections were open, none of them stale.
	RefusedFull RefusalReason = "too-many-connections"
	// RefusedSource: the source address had its share of connections open.
	RefusedSource RefusalReason = "too-many-from-source"
	// RefusedStale: the connection sat without a request for longest, or was one
	// of many from its source, while others wanted in.
	RefusedStale RefusalReason = "made-room"
	// RefusedHandshake: the TLS handshake failed or did not end in time.
	RefusedHandshake RefusalReason = "handshake-failed"
	// RefusedSilent: the connection ended after the handshake without a request.
	RefusedSilent RefusalReason = "no-request"
	// RefusedAccept: the kernel could not hand over a connection, for instance
	// because the process has too many files open.
	RefusedAccept RefusalReason = "accept-error"
)

// Stats counts what a Server did.
type Stats struct {
	Open     int    // connections now
	Known    int    // of these, those of known clusters
	Accepted uint64 // connections let in
	Requests uint64 // requests answered, whatever the answer
	Refused  map[RefusalReason]uint64
}

// staleAfter is how long a connection may be without a request before it has
// to make room when the server is full. A burst of honest clients is served in
// much less, so it does not push itself out.
const staleAfter = time.Second

// connsPerPeer is how many connections of one known cluster are better than
// those of a stranger. It needs one or two.
const connsPerPeer = 8

// guard decides which connections are let in and keeps track of them. Its
// methods may be called from any goroutine.
type guard struct {
	limit, perSource int
	reserved         int // of limit, the places that only known clusters can have
	now              func() time.Time
	handshakes       chan struct{} // one token per processor that handshakes may use
	requests         atomic.Uint64
	open             sync.WaitGroup

	mu       sync.Mutex
	conns    map[*conn]struct{}
	sources  map[netip.Addr]int     // connections of those who are not known
	peers    map[peer.ClusterID]int // connections of those who are
	known    int                    // the sum over peers
	waiting  list.List              // of *conn without a request, longest first
	kept     list.List              // the same, those of known clusters
	accepted uint64
	refused  map[RefusalReason]uint64
}

func newGuard(limit, perSource, processors int) *guard {
	return &guard{
		limit:      limit,
		perSource:  perSource,
		now:        time.Now,
		handshakes: make(chan struct{}, processors),
		conns:      make(map[*conn]struct{}),
		sources:    make(map[netip.Addr]int),
		peers:      make(map[peer.ClusterID]int),
		refused:    make(map[RefusalReason]uint64),
	}
}

// admit takes raw in, or returns the reason to close it. Sources are single
// addresses, of IPv6 too: on a LAN all neighbours share one /64.
func (g *guard) admit(raw net.Conn) (*conn, RefusalReason) {
	var source netip.Addr
	if tcp, ok := raw.RemoteAddr().(*net.TCPAddr); ok {
		source = tcp.AddrPort().Addr().Unmap()
	}
	g.mu.Lock()
	var stale *conn
	reason := RefusalReason("")
	if g.sources[source] >= g.perSource {
		reason = RefusedSource
	} else if g.full() {
		if stale = g.stalest(); stale == nil {
			stale = g.greediest(source)
		}
		if stale == nil {
			stale = g.leastMissed()
		}
		if stale == nil {
			reason = RefusedFull
		}
	}
	if reason != "" {
		g.refused[reason]++
		g.mu.Unlock()
		return nil, reason
	}
	c := &conn{gapless: gapless{Conn: raw, lenient: true}, guard: g, source: source}
	c.early.Store(handshakeBytes)
	g.open.Add(1)
	g.conns[c] = struct{}{}
	g.enter(c)
	g.accepted++
	g.startWaiting(c)
	if stale != nil {
		g.stopWaiting(stale)
		stale.active = true // it is accounted for: not silent, but pushed out
		g.refused[RefusedStale]++
	}
	g.mu.Unlock()
	if stale != nil {
		_ = stale.Close() // whoever serves it sees the error
	}
	return c, ""
}

// full reports whether somebody has to make room for a newcomer. Nobody is known
// before the first request, so a newcomer needs one of the places for all.
func (g *guard) full() bool {
	return len(g.conns) >= g.limit || len(g.conns)-g.known >= g.limit-g.reserved
}

// leastMissed returns the connection of a known cluster that was not used for
// longest, if such connections have left strangers, among them known clusters
// that come back, less than an eighth of all places.
func (g *guard) leastMissed() *conn {
	if len(g.conns)-g.known >= g.limit/8 {
		return nil
	}
	if front := g.kept.Front(); front != nil {
		return front.Value.(*conn)
	}
	return nil
}

// stalest returns the connection that has to make room, if there is one.
func (g *guard) stalest() *conn {
	if front := g.waiting.Front(); front != nil {
		if c := front.Value.(*conn); g.now().Sub(c.since) >= staleAfter {
			return c
		}
	}
	return nil
}

// greediest returns the connection that has been without a request for longest
// among those of sources that hold more than source would with one more; nil
// when there is none. Without it, whoever fills the server every second with
// connections from a few addresses would keep everybody else out.
func (g *guard) greediest(source netip.Addr) *conn {
	var found *conn
	most := g.sources[source] + 1
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); g.sources[c.source] > most {
			found, most = c, g.sources[c.source]
		}
	}
	return found
}

func (g *guard) startWaiting(c *conn) {
	c.since = g.now()
	if c.peer != "" {
		c.waiting = g.kept.PushBack(c)
	} else {
		c.waiting = g.waiting.PushBack(c)
	}
}

func (g *guard) stopWaiting(c *conn) {
	if c.waiting != nil {
		g.waiting.Remove(c.waiting) // one of the two has it
		g.kept.Remove(c.waiting)
		c.waiting = nil
	}
}

// rank says whose connection c is: that of a known cluster, or, with "", that of
// a stranger. The places of known clusters are safe from strangers, and so few
// of them have many that a known cluster gains nothing by opening more. It is
// called while c is served.
func (g *guard) rank(c *conn, id peer.ClusterID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, open := g.conns[c]; !open || c.peer == id {
		return
	}
	if g.peers[id] >= connsPerPeer {
		id = ""
	}
	g.leave(c)
	c.peer = id
	g.enter(c)
}

// isKnown reports whether c has the rank of a known cluster's.
func (g *guard) isKnown(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.peer != ""
}

// enter counts c in.
func (g *guard) enter(c *conn) {
	if c.peer != "" {
		g.peers[c.peer]++
		g.known++
	} else {
		g.sources[c.source]++
	}
}

// leave undoes enter.
func (g *guard) leave(c *conn) {
	if c.peer != "" {
		g.known--
		if g.peers[c.peer]--; g.peers[c.peer] == 0 {
			delete(g.peers, c.peer)
		}
	} else if g.sources[c.source]--; g.sources[c.source] == 0 {
		delete(g.sources, c.source)
	}
}

// reading says that c waits for the rest of a request, like one that sent
// nothing yet: it may have to make room. done is to be called afterwards.
func (g *guard) reading(c *conn) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, open := g.conns[c]; open {
		g.startWaiting(c)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stopWaiting(c)
	}
}

// observe follows a connection through its life. It is http.Server.ConnState.
func (g *guard) observe(nc net.Conn, state http.ConnState) {
	secure, ok := nc.(*tls.Conn)
	if !ok {
		return
	}
	c, ok := secure.NetConn().(*conn)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateActive, http.StateHijacked:
		c.active = true
		c.early.Store(math.MaxInt64)
		g.stopWaiting(c)
	case http.StateIdle:
		if _, open := g.conns[c]; open {
			g.startWaiting(c)
		}
	case http.StateClosed:
		if c.active {
			return
		}
		c.active = true
		if secure.ConnectionState().HandshakeComplete {
			g.refused[RefusedSilent]++
		} else {
			g.refused[RefusedHandshake]++
		}
	}
}

// beforeHandshake waits for a processor. It is tls.Config.GetConfigForClient:
// the ClientHello is there, and the expensive part, key exchange and signature,
// comes next without waiting for the network. The token goes back when the
// result is written, so a client that stalls holds none.
func (g *guard) beforeHandshake(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, ok := hello.Conn.(*conn)
	if !ok {
		return nil, nil
	}
	select {
	case g.handshakes <- struct{}{}:
		c.handshaking.Store(true)
		return nil, nil
	case <-hello.Context().Done():
		return nil, hello.Context().Err()
	}
}

// closeWaiting closes every connection without a request under way.
func (g *guard) closeWaiting() {
	g.mu.Lock()
	var all []*conn
	for _, waiting := range []*list.List{&g.waiting, &g.kept} {
		for e := waiting.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*conn))
		}
	}
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // whoever serves it sees the error
	}
}

// closeAll closes every connection and waits until all are. None may be
// admitted any more.
func (g *guard) closeAll() {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
	g.open.Wait()
}

func (g *guard) countRequest() { g.requests.Add(1) }

func (g *guard) count(reason RefusalReason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[reason]++
}

func (g *guard) stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{Open: len(g.conns), Known: g.known, Accepted: g.accepted, Requests: g.requests.Load(), Refused: maps.Clone(g.refused)}
}

package endpoint

import (
	"container/list"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
	Accepted uint64 // connections let in
	Requests uint64 // requests answered, whatever the answer
	Refused  map[RefusalReason]uint64
}

// staleAfter is how long a connection may be without a request before it has
// to make room when the server is full. A burst of honest clients is served in
// much less, so it does not push itself out.
const staleAfter = time.Second

// guard decides which connections are let in and keeps track of them. Its
// methods may be called from any goroutine.
type guard struct {
	limit, perSource int
	now              func() time.Time
	handshakes       chan struct{} // one token per processor that handshakes may use
	requests         atomic.Uint64
	open             sync.WaitGroup

	mu       sync.Mutex
	conns    map[*conn]struct{}
	sources  map[netip.Addr]int
	waiting  list.List // of *conn without a request, longest first
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
		refused:    make(map[RefusalReason]uint64),
	}
}

// conn is an accepted connection. Closing it gives its place back.
type conn struct {
	net.Conn
	guard  *guard
	source netip.Addr

	handshaking atomic.Bool // holds a token of guard.handshakes

	// Guarded by guard.mu.
	active  bool          // has sent a request
	waiting *list.Element // its place in guard.waiting, if it has one
	since   time.Time     // when it began to wait
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
	} else if len(g.conns) >= g.limit {
		if stale = g.stalest(); stale == nil {
			stale = g.greediest(source)
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
	c := &conn{Conn: raw, guard: g, source: source}
	g.open.Add(1)
	g.conns[c] = struct{}{}
	g.sources[source]++
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
	c.waiting = g.waiting.PushBack(c)
}

func (g *guard) stopWaiting(c *conn) {
	if c.waiting != nil {
		g.waiting.Remove(c.waiting)
		c.waiting = nil
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

func (c *conn) handshakeDone() {
	if c.handshaking.Load() && c.handshaking.CompareAndSwap(true, false) {
		<-c.guard.handshakes
	}
}

// Write is net.Conn.Write.
func (c *conn) Write(b []byte) (int, error) {
	c.handshakeDone()
	return c.Conn.Write(b)
}

// Close closes the connection and, the first time, gives its place back.
func (c *conn) Close() error {
	c.handshakeDone()
	g := c.guard
	g.mu.Lock()
	_, first := g.conns[c]
	if first {
		delete(g.conns, c)
		g.stopWaiting(c)
		if g.sources[c.source]--; g.sources[c.source] == 0 {
			delete(g.sources, c.source)
		}
	}
	g.mu.Unlock()
	err := c.Conn.Close()
	if first {
		g.open.Done()
	}
	return err
}

// closeWaiting closes every connection without a request under way.
func (g *guard) closeWaiting() {
	g.mu.Lock()
	var all []*conn
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*conn))
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
	return Stats{Open: len(g.conns), Accepted: g.accepted, Requests: g.requests.Load(), Refused: maps.Clone(g.refused)}
}

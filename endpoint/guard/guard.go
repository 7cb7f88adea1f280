package guard

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

	"liqo.io/agent/endpoint/gapless"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/peer"
)

// The reasons that Stats counts.
const (
	// RefusedFull: as many connections as may be were open, none of them stale.
	RefusedFull refusal.Reason = "too-many-connections"
	// RefusedSource: the source address had its share of connections open.
	RefusedSource refusal.Reason = "too-many-from-source"
	// RefusedStale: the connection sat without a request for longest, or was one
	// of many from its source, while others wanted in.
	RefusedStale refusal.Reason = "made-room"
	// RefusedHandshake: the TLS handshake failed or did not end in time.
	RefusedHandshake refusal.Reason = "handshake-failed"
	// RefusedSilent: the connection ended after the handshake without a request.
	RefusedSilent refusal.Reason = "no-request"
	// RefusedAccept: the kernel could not hand over a connection, for instance
	// because the process has too many files open.
	RefusedAccept refusal.Reason = "accept-error"
)

// Stats counts what the endpoint did.
type Stats struct {
	Open     int    // connections now
	Known    int    // of these, those of known clusters
	Waiting  int    // of these, those whose next request is not there, or not as a whole
	Accepted uint64 // connections let in
	Requests uint64 // requests answered, whatever the answer
	Refused  map[refusal.Reason]uint64
}

// StaleAfter is how long a connection may be without a request before it has
// to make room when the server is full. A burst of honest clients is served in
// much less, so it does not push itself out.
const StaleAfter = time.Second

// connsPerPeer is how many connections of one known cluster are better than
// those of a stranger. It needs one or two.
const connsPerPeer = 8

// Guard decides which connections are let in and keeps track of them. Its
// methods may be called from any goroutine.
type Guard struct {
	// These may be changed until the first connection comes.
	Limit, PerSource int // connections at a time, in all and from one address that is not of a known cluster
	Reserved         int // of Limit, the places that only known clusters can have
	Now              func() time.Time
	Handshakes       chan struct{} // one token per processor that handshakes may use

	requests atomic.Uint64
	open     sync.WaitGroup

	mu           sync.Mutex
	conns        map[*Conn]struct{}
	sources      map[netip.Addr]int     // connections of those who are not known
	peers        map[peer.ClusterID]int // connections of those who are
	known        int                    // the sum over peers
	waiting      list.List              // of *Conn without a request, longest first
	waitingKnown list.List              // the same, those of known clusters
	accepted     uint64
	refused      map[refusal.Reason]uint64
}

// New returns a Guard that lets in so many at a time, and has so many processors busy
// with handshakes.
func New(limit, perSource, processors int) *Guard {
	return &Guard{
		Limit:      limit,
		PerSource:  perSource,
		Now:        time.Now,
		Handshakes: make(chan struct{}, processors),
		conns:      make(map[*Conn]struct{}),
		sources:    make(map[netip.Addr]int),
		peers:      make(map[peer.ClusterID]int),
		refused:    make(map[refusal.Reason]uint64),
	}
}

// admit takes raw in, or returns the reason to close it. Sources are single
// addresses, of IPv6 too: on a LAN all neighbours share one /64.
func (g *Guard) admit(raw net.Conn) (*Conn, refusal.Reason) {
	var source netip.Addr
	if tcp, ok := raw.RemoteAddr().(*net.TCPAddr); ok {
		source = tcp.AddrPort().Addr().Unmap()
	}
	g.mu.Lock()
	var stale *Conn
	reason := refusal.Reason("")
	if g.sources[source] >= g.PerSource {
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
	c := &Conn{Conn: gapless.Conn{Conn: raw, Lenient: true}, guard: g, source: source}
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
func (g *Guard) full() bool {
	return len(g.conns) >= g.Limit || len(g.conns)-g.known >= g.Limit-g.Reserved
}

// leastMissed returns the connection of a known cluster that was not used for
// longest, if such connections have left strangers, among them known clusters
// that come back, less than an eighth of all places.
func (g *Guard) leastMissed() *Conn {
	if len(g.conns)-g.known >= g.Limit/8 {
		return nil
	}
	if front := g.waitingKnown.Front(); front != nil {
		return front.Value.(*Conn)
	}
	return nil
}

// stalest returns the connection that has to make room, if there is one.
func (g *Guard) stalest() *Conn {
	if front := g.waiting.Front(); front != nil {
		if c := front.Value.(*Conn); g.Now().Sub(c.since) >= StaleAfter {
			return c
		}
	}
	return nil
}

// greediest returns the connection that has been without a request for longest
// among those of sources that hold more than source would with one more; nil
// when there is none. Without it, whoever fills the server every second with
// connections from a few addresses would keep everybody else out.
func (g *Guard) greediest(source netip.Addr) *Conn {
	var found *Conn
	most := g.sources[source] + 1
	for e := g.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); g.sources[c.source] > most {
			found, most = c, g.sources[c.source]
		}
	}
	return found
}

func (g *Guard) startWaiting(c *Conn) {
	c.since = g.Now()
	if c.peer != "" {
		c.waiting = g.waitingKnown.PushBack(c)
	} else {
		c.waiting = g.waiting.PushBack(c)
	}
}

func (g *Guard) stopWaiting(c *Conn) {
	if c.waiting != nil {
		g.waiting.Remove(c.waiting) // one of the two has it
		g.waitingKnown.Remove(c.waiting)
		c.waiting = nil
	}
}

// Rank says whose connection c is: that of a known cluster, or, with "", that of
// a stranger. The places of known clusters are safe from strangers, and so few
// of them have many that a known cluster gains nothing by opening more. It is
// called while c is served.
func (g *Guard) Rank(c *Conn, id peer.ClusterID) {
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

// IsKnown reports whether c has the rank of a known cluster's.
func (g *Guard) IsKnown(c *Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.peer != ""
}

// enter counts c in.
func (g *Guard) enter(c *Conn) {
	if c.peer != "" {
		g.peers[c.peer]++
		g.known++
	} else {
		g.sources[c.source]++
	}
}

// leave undoes enter.
func (g *Guard) leave(c *Conn) {
	if c.peer != "" {
		g.known--
		if g.peers[c.peer]--; g.peers[c.peer] == 0 {
			delete(g.peers, c.peer)
		}
	} else if g.sources[c.source]--; g.sources[c.source] == 0 {
		delete(g.sources, c.source)
	}
}

// Reading says that c waits for the rest of a request, like one that sent
// nothing yet: it may have to make room. done is to be called afterwards.
func (g *Guard) Reading(c *Conn) (done func()) {
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

// Observe follows a connection through its life. It is http.Server.ConnState.
func (g *Guard) Observe(nc net.Conn, state http.ConnState) {
	secure, ok := nc.(*tls.Conn)
	if !ok {
		return
	}
	c, ok := secure.NetConn().(*Conn)
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

// BeforeHandshake waits for a processor. It is tls.Config.GetConfigForClient:
// the ClientHello is there, and the expensive part, key exchange and signature,
// comes next without waiting for the network. The token goes back when the
// result is written, so a client that stalls holds none.
func (g *Guard) BeforeHandshake(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, ok := hello.Conn.(*Conn)
	if !ok {
		return nil, nil
	}
	select {
	case g.Handshakes <- struct{}{}:
		c.handshaking.Store(true)
		return nil, nil
	case <-hello.Context().Done():
		return nil, hello.Context().Err()
	}
}

// CloseWaiting closes every connection without a request under way.
func (g *Guard) CloseWaiting() {
	g.mu.Lock()
	var all []*Conn
	for _, waiting := range []*list.List{&g.waiting, &g.waitingKnown} {
		for e := waiting.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*Conn))
		}
	}
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // whoever serves it sees the error
	}
}

// CloseAll closes every connection and waits until all are. None may be
// admitted any more.
func (g *Guard) CloseAll() {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
	g.open.Wait()
}

// CountRequest counts a request that is about to be answered.
func (g *Guard) CountRequest() { g.requests.Add(1) }

// Count counts something that was not served.
func (g *Guard) Count(reason refusal.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[reason]++
}

// Held returns how many connections a source has that are not those of known clusters.
func (g *Guard) Held(source netip.Addr) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[source]
}

// Stats returns counters since New. It may be called at any time.
func (g *Guard) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{
		Open: len(g.conns), Known: g.known, Waiting: g.waiting.Len() + g.waitingKnown.Len(),
		Accepted: g.accepted, Requests: g.requests.Load(), Refused: maps.Clone(g.refused),
	}
}

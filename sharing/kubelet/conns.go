package kubelet

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
)

// Connections, with maxHeader each what callers can use up before it is known who
// they are.
const (
	maxConns = 128
	// maxStrangers of them can be those of whom nobody knows yet who is there.
	maxStrangers = 64
	// connsPerCaller is how many of one proven caller are safe from others. An API
	// server has one for each stream, and a few that are idle.
	connsPerCaller = 96
	// spareConns are never safe, so that whoever comes has the time to prove who it is.
	spareConns = 8

	maxHeader = 128 << 10 // bytes; commands of exec are in the header
)

// conns is a listener with a limit to the connections that are open. Whoever comes
// is let in; when there are too many, a stranger's gives way: of the address that has
// most of these the one that came first. So who holds connections and says nothing
// loses them to who comes next, and those of proven callers stay. Its methods may be
// called from any goroutine.
type conns struct {
	net.Listener

	mu        sync.Mutex
	strangers list.List          // of *conn, the first come first
	sources   map[netip.Addr]int // where strangers come from
	callers   map[string]int     // connections of those who are proven
	proven    int                // the sum over callers
}

func newConns(l net.Listener) *conns {
	return &conns{Listener: l, sources: make(map[netip.Addr]int), callers: make(map[string]int)}
}

// conn is a connection that gives back its place when it is closed.
type conn struct {
	*net.TCPConn
	all    *conns
	source netip.Addr

	// Guarded by all.mu.
	caller string        // whose it is, "" for a stranger's
	place  *list.Element // in all.strangers; nil when it is a caller's
	left   bool          // it has no place any more
}

// Accept implements net.Listener.
func (a *conns) Accept() (net.Conn, error) {
	raw, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp := raw.(*net.TCPConn)
	c := &conn{TCPConn: tcp, all: a, source: tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
	if out := a.admit(c); out != nil {
		_ = out.Close() // whoever serves it sees the error
	}
	return c, nil
}

// admit gives c a place, and returns the connection that lost its own for that, if
// one had to.
func (a *conns) admit(c *conn) (out *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.strangers.Len() >= maxStrangers || a.strangers.Len()+a.proven >= maxConns {
		out = a.greediest(c.source)
		a.leave(out)
		out.left = true
	}
	a.enter(c)
	return out
}

// greediest returns the connection that came first among those of the address with
// most strangers, when one more comes from source. There is always one: spareConns
// are never a caller's.
func (a *conns) greediest(source netip.Addr) *conn {
	var found *conn
	most := 0
	for e := a.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*conn)
		n := a.sources[c.source]
		if c.source == source {
			n++
		}
		if n > most {
			found, most = c, n
		}
	}
	return found
}

// enter counts c in. a.mu is held.
func (a *conns) enter(c *conn) {
	if c.caller != "" {
		a.callers[c.caller]++
		a.proven++
		return
	}
	a.sources[c.source]++
	c.place = a.strangers.PushBack(c)
}

// leave undoes enter. a.mu is held.
func (a *conns) leave(c *conn) {
	if c.caller != "" {
		a.proven--
		if a.callers[c.caller]--; a.callers[c.caller] == 0 {
			delete(a.callers, c.caller)
		}
		return
	}
	if a.sources[c.source]--; a.sources[c.source] == 0 {
		delete(a.sources, c.source)
	}
	a.strangers.Remove(c.place)
	c.place = nil
}

// belongs says who proved to be at the other end, "" for nobody who may do anything.
// A caller with too many connections is a stranger on those beyond. c may be nil.
func (c *conn) belongs(caller string) {
	if c == nil {
		return
	}
	a := c.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.left || c.caller == caller {
		return
	}
	a.leave(c)
	if a.callers[caller] >= connsPerCaller || a.proven >= maxConns-spareConns {
		caller = ""
	}
	c.caller = caller
	a.enter(c)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.all.mu.Lock()
	if !c.left {
		c.all.leave(c)
		c.left = true
	}
	c.all.mu.Unlock()
	return c.TCPConn.Close()
}

type connKey struct{}

// withConn lets connOf find the connection of a request. It is
// http.Server.ConnContext.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	c, _ := nc.(*conn)
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of the request whose context ctx is, nil if it is
// not one of ours.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

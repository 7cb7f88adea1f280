package guard

import (
	"container/list"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"liqo.io/agent/endpoint/gapless"
	"liqo.io/agent/peer"
)

// handshakeBytes is what may come in before the first request is there: a
// handshake with as many certificates as anybody has, several times over, and
// no more of them than it is cheap to look at.
const handshakeBytes = 48 << 10

// Conn is an accepted connection. Closing it gives its place back.
type Conn struct {
	gapless.Conn
	guard  *Guard
	source netip.Addr

	handshaking atomic.Bool  // holds a token of guard.Handshakes
	early       atomic.Int64 // how many bytes may still come before the first request

	// Guarded by guard.mu.
	peer    peer.ClusterID // the known cluster it belongs to, "" when it is a stranger's
	active  bool           // has sent a request
	waiting *list.Element  // its place in guard.waiting or guard.waitingKnown, if it has one
	since   time.Time      // when it began to wait
}

// Source is the address that it comes from.
func (c *Conn) Source() netip.Addr { return c.source }

func (c *Conn) handshakeDone() {
	if c.handshaking.Load() && c.handshaking.CompareAndSwap(true, false) {
		<-c.guard.Handshakes
	}
}

// errEarly ends a handshake that is too large.
var errEarly = errors.New("more came in before the first request than a handshake takes")

// Read is net.Conn.Read.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.early.Add(-int64(n)) < 0 {
		return 0, errEarly
	}
	return n, err
}

// Write is net.Conn.Write.
func (c *Conn) Write(b []byte) (int, error) {
	c.handshakeDone()
	return c.Conn.Write(b)
}

// Close closes the connection and, the first time, gives its place back.
func (c *Conn) Close() error {
	c.handshakeDone()
	g := c.guard
	g.mu.Lock()
	_, first := g.conns[c]
	if first {
		delete(g.conns, c)
		g.stopWaiting(c)
		g.leave(c)
	}
	g.mu.Unlock()
	err := c.Conn.Close()
	if first {
		g.open.Done()
	}
	return err
}

package admission

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// conns is a listener with a limit on its open connections. When it is reached,
// those between two requests give way, and while there are none the next ones
// wait in the kernel: a burst of requests by the API server is served in turn.
// Those on which nothing is asked end by headerTimeout, so that others on this
// machine can slow the API server down, and not keep it out for long.
type conns struct {
	net.Listener
	limit int

	mu      sync.Mutex
	room    sync.Cond // of mu: a connection was closed, or all of it is
	open    int
	waiting bool             // Accept waits for room
	idle    map[*conn]uint64 // since when, in order
	turn    uint64           // of the last that became idle
	closed  bool
}

type conn struct {
	net.Conn
	owner *conns
	once  sync.Once
}

func newConns(l net.Listener, limit int) *conns {
	c := &conns{Listener: l, limit: limit, idle: make(map[*conn]uint64)}
	c.room.L = &c.mu
	return c
}

// Accept returns the next connection once there is room for it.
func (c *conns) Accept() (net.Conn, error) {
	raw, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for c.open >= c.limit && !c.closed {
		c.waiting = true
		if oldest := c.longestIdle(); oldest != nil {
			delete(c.idle, oldest)
			c.mu.Unlock()
			_ = oldest.Close() // nothing is under way on it
			c.mu.Lock()
			continue
		}
		c.room.Wait()
	}
	c.waiting = false
	closed := c.closed
	if !closed {
		c.open++
	}
	c.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	return &conn{Conn: raw, owner: c}, nil
}

// longestIdle must be called with mu held.
func (c *conns) longestIdle() *conn {
	var oldest *conn
	for candidate, since := range c.idle {
		if oldest == nil || since < c.idle[oldest] {
			oldest = candidate
		}
	}
	return oldest
}

// Close ends Accept for good. Connections stay open.
func (c *conns) Close() error {
	c.mu.Lock()
	c.closed = true
	c.room.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}

// observe follows what net/http does with connections. It fits
// http.Server.ConnState.
func (c *conns) observe(nc net.Conn, state http.ConnState) {
	secured, ok := nc.(*tls.Conn)
	if !ok {
		return
	}
	held, ok := secured.NetConn().(*conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if state != http.StateIdle {
		delete(c.idle, held)
		return
	}
	c.turn++
	c.idle[held] = c.turn
	if c.waiting {
		c.room.Broadcast()
	}
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.owner.mu.Lock()
		defer c.owner.mu.Unlock()
		c.owner.open--
		delete(c.owner.idle, c)
		c.owner.room.Broadcast()
	})
	return err
}

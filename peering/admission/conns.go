package admission

import (
	"net"
	"net/http"
	"sync"
)

// conns is a listener with a limit on its open connections. Those beyond it wait
// in the kernel, so that a burst of requests by the API server is answered in
// turn.
//
// A connection is never closed between two requests to make room: the next
// request may be on its way into it, and would fail. Instead, while more than
// half of the room is taken, each answer is the last one of its connection. What
// is kept open in between thus leaves half of the room, whoever does it; and
// those on which nothing is asked end after timeouts.header. Others on this machine
// can slow the API server down, but not keep it out for long.
type conns struct {
	net.Listener
	room chan struct{} // one element for each open connection
	done chan struct{} // closed with the listener
	once sync.Once
}

func newConns(l net.Listener, limit int) *conns {
	return &conns{Listener: l, room: make(chan struct{}, limit), done: make(chan struct{})}
}

// Accept returns the next connection once there is room for it.
func (c *conns) Accept() (net.Conn, error) {
	select {
	case c.room <- struct{}{}:
	case <-c.done:
		return nil, net.ErrClosed
	}
	raw, err := c.Listener.Accept()
	if err != nil {
		<-c.room
		return nil, err
	}
	return &conn{Conn: raw, leave: sync.OnceFunc(func() { <-c.room })}, nil
}

// Close ends Accept for good. Connections stay open.
func (c *conns) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Listener.Close()
}

// crowded reports whether more than half of the room is taken.
func (c *conns) crowded() bool { return len(c.room) > cap(c.room)/2 }

// yielding has every answer end its connection while it is crowded.
func (c *conns) yielding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.crowded() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

type conn struct {
	net.Conn
	leave func()
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

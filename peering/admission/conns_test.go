package admission

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// pair is both ends of a connection that conns let in.
type pair struct {
	near, far net.Conn
}

// state tells c that the connection is in that state now, as net/http does.
func (p pair) state(c *conns, state http.ConnState) { c.observe(tls.Server(p.near, nil), state) }

// closed reports whether the other side has hung up.
func (p pair) closed(t *testing.T) bool {
	t.Helper()
	if err := p.far.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := p.far.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestConns(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newConns(listener, 3)
	dialed := func() net.Conn {
		t.Helper()
		far, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
		return far
	}
	accepted := make(chan net.Conn)
	accept := func() {
		go func() {
			near, err := c.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- near
		}()
	}
	connect := func() pair {
		t.Helper()
		far := dialed()
		accept()
		near := <-accepted
		t.Cleanup(func() { near.Close() })
		return pair{near, far}
	}
	waiting := func() {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for {
			c.mu.Lock()
			waits := c.waiting
			c.mu.Unlock()
			if waits {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("Accept does not wait")
			}
			time.Sleep(time.Millisecond)
		}
	}

	a, b, d := connect(), connect(), connect()
	a.state(c, http.StateIdle)
	b.state(c, http.StateIdle)
	a.state(c, http.StateActive)
	a.state(c, http.StateIdle)

	// b has been idle for longest.
	e := connect()
	if a.closed(t) || !b.closed(t) || d.closed(t) {
		t.Error("another than the one idle for longest gave way")
	}
	// One that becomes idle while somebody waits gives way too.
	a.state(c, http.StateActive)
	dialed()
	accept()
	waiting()
	select {
	case <-accepted:
		t.Fatal("more connections than allowed")
	default:
	}
	d.state(c, http.StateIdle)
	f := <-accepted
	defer f.Close()
	if !d.closed(t) || a.closed(t) || e.closed(t) {
		t.Error("another than the idle one gave way")
	}
	// And so does one that ends, once.
	dialed()
	accept()
	waiting()
	a.near.Close()
	a.near.Close()
	g := <-accepted
	defer g.Close()
	if c.open != 3 || len(c.idle) != 0 {
		t.Errorf("%d open, %d idle", c.open, len(c.idle))
	}
	// Closing ends the waiting.
	dialed()
	accept()
	waiting()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if near, ok := <-accepted; ok {
		near.Close()
		t.Error("accepted after closing")
	}
}

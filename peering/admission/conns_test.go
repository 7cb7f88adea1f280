package admission

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestConns(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newConns(listener, 4)
	type result struct {
		conn net.Conn
		err  error
	}
	accepted := make(chan result)
	accept := func() {
		go func() {
			conn, err := c.Accept()
			accepted <- result{conn, err}
		}()
	}
	dial := func() {
		t.Helper()
		far, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
	}
	last := func() bool {
		w := httptest.NewRecorder()
		c.yielding(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Header().Get("Connection") == "close"
	}

	var open []net.Conn
	for i := range 4 {
		if got, want := last(), i > 2; got != want {
			t.Errorf("with %d connections of 4, answers end them: %v", i, got)
		}
		dial()
		accept()
		r := <-accepted
		if r.err != nil {
			t.Fatal(r.err)
		}
		defer r.conn.Close()
		open = append(open, r.conn)
	}
	// The next waits until one ends, and one that ends twice makes room for one.
	dial()
	dial()
	accept()
	select {
	case <-accepted:
		t.Fatal("more connections than allowed")
	default:
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := open[0].Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	r := <-accepted
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.conn.Close()
	if n := len(c.room); n != 4 {
		t.Errorf("%d connections", n)
	}
	// Closing ends the waiting, and may be repeated.
	accept()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-accepted; !errors.Is(r.err, net.ErrClosed) {
		t.Errorf("accepted after closing: %v", r.err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	// A listener that fails takes no room for good.
	if err := open[1].Close(); err != nil {
		t.Fatal(err)
	}
	broken := newConns(listener, 1)
	for range 2 {
		if _, err := broken.Accept(); !errors.Is(err, net.ErrClosed) || len(broken.room) != 0 {
			t.Errorf("%v, %d connections", err, len(broken.room))
		}
	}
}

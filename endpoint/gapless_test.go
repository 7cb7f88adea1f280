package endpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
)

// trouble is what befalls the writes of a server.
type trouble struct {
	net.Listener
	late atomic.Int64 // a time.Duration: they begin that much later, as with too much to do
	lost atomic.Bool  // the next one fails
}

// troubled binds s and returns its trouble, of which there is none yet.
func troubled(t *testing.T, s *Server) *trouble {
	t.Helper()
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	l := &trouble{Listener: s.listener}
	s.listener = l
	return l
}

// Accept is net.Listener.Accept.
func (l *trouble) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &troubledConn{c.(*net.TCPConn), l}, nil
}

type troubledConn struct {
	*net.TCPConn
	trouble *trouble
}

// Write is net.Conn.Write.
func (c *troubledConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(c.trouble.late.Load()))
	if c.trouble.lost.Swap(false) {
		return 0, syscall.ENOBUFS
	}
	return c.TCPConn.Write(b)
}

// An agent that is late to write ends no tunnel for it: that is not the peer's doing.
func TestLateWrites(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	var its *trouble
	s, _ := a.hosting(t, home, pin(other), func(s *Server) {
		s.times.stall = 50 * time.Millisecond
		its = troubled(t, s)
	})
	l := newLink(t, other, s, home)
	endpointtest.MustGet(t, l)
	its.late.Store(int64(2 * s.times.stall))
	for range 3 {
		// A GET would be tried again on another tunnel.
		if _, err := l.Namespace(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Accepted; n != 1 {
		t.Errorf("%d connections, not one", n)
	}
}

// A write that did not come to its end ends the connection, and nothing is sent
// behind it that the other end cannot decrypt.
func TestNothingFollowsAGap(t *testing.T) {
	home := endpointtest.New(t, endpointtest.IDA)
	var its *trouble
	s := servePeers(t, home, pin(), nil, func(s *Server) { its = troubled(t, s) })
	v := visit(t, s, nil)
	if got := v.send(get(wire.PathIDs)); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	its.lost.Store(true)
	if got := v.send(get(wire.PathIDs)); !errors.Is(got.err, syscall.ECONNRESET) {
		t.Errorf("%+v, %v", got, got.err)
	}
}

// A peer that goes on sending and reads nothing, not even below HTTP/2, loses its
// tunnel.
func TestTunnelOfWhoDoesNotRead(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := make([]byte, 1<<20)
		for range 32 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.stall = 2 * time.Second })
	secure, f := rawTunnel(t, s, other)
	// What the kernels hold has to be full before the answers are given up, which are late
	// as well on a machine with too much to do.
	_ = secure.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = f.WriteWindowUpdate(0, 1<<30)
	// On a machine with too much to do, answers may be given up for being late before that is
	// full. Whoever does not read asks again then.
	id, asked := uint32(1), time.Time{}
	endpointtest.Eventually(t, "end the tunnel", func() bool {
		if time.Since(asked) > 10*time.Second {
			asked = time.Now()
			for range wire.RequestsPerPeer {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock("/kube" + endpointtest.PodsOfB), EndStream: true, EndHeaders: true})
				id += 2
			}
		}
		_ = f.WriteWindowUpdate(0, 1)
		return s.Stats().Open == 0
	})
}

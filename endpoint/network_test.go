package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

// echoes is a Network that sends back what it gets.
type echoes struct {
	mu     sync.Mutex
	refuse error
	from   []peer.ClusterID
	ended  []error
}

func (e *echoes) Wanted(peer.ClusterID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refuse
}

func (e *echoes) Accept(ctx context.Context, id peer.ClusterID, conn net.Conn) error {
	e.mu.Lock()
	e.from = append(e.from, id)
	e.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := io.Copy(conn, conn)
	if !stop() {
		err = context.Cause(ctx)
	}
	_ = conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = append(e.ended, err)
	return err
}

func (e *echoes) endings() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

const openNetwork = "GET " + wire.PathNetwork + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: liqo-network\r\n\r\n"

// connectNetwork opens a connection for packets, and checks that it carries something.
func connectNetwork(t *testing.T, s *Server, b *endpointtest.Box) *visitor {
	t.Helper()
	v, err := dialNetwork(t, s, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// dialNetwork is connectNetwork, for a server that may have too little time for it.
func dialNetwork(t *testing.T, s *Server, b *endpointtest.Box) (*visitor, error) {
	t.Helper()
	v, err := tryVisit(t, s, showing(b))
	if err != nil {
		return nil, err
	}
	_, _ = io.WriteString(v, openNetwork)
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != wire.NetworkProtocol {
		t.Fatalf("%v", resp)
	}
	mustEcho(t, v, v.r)
	return v, nil
}

func mustEcho(t *testing.T, w io.Writer, r io.Reader) {
	t.Helper()
	sent := strings.Repeat("packet", 20_000)
	go func() { _, _ = io.WriteString(w, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != sent {
		t.Fatalf("something else comes back: %v", err)
	}
}

// A connection for packets is for those who are known and wanted, and begins in one way.
func TestNetworkBegins(t *testing.T) {
	home, other, stranger := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	n := &echoes{}
	s := servePeers(t, home, pin(other), nil, func(s *Server) { s.cfg.Network = n })
	for _, tc := range []struct {
		from    *endpointtest.Box
		request string
		status  int
	}{
		{nil, openNetwork, 401},
		{stranger, openNetwork, 403},
		{other, strings.Replace(openNetwork, "GET", "POST", 1), 405},
		{other, strings.Replace(openNetwork, "liqo-network", "liqo-tunnel", 1), 400},
		{other, strings.Replace(openNetwork, "Upgrade: liqo-network\r\n", "", 1), 400},
		{other, strings.Replace(openNetwork, "Upgrade: liqo-network", "Upgrade: liqo-network\r\nUpgrade: liqo-network", 1), 400},
		{other, strings.Replace(openNetwork, "\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n{}", 1), 400},
		{other, strings.Replace(openNetwork, "\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1), 400},
		{other, strings.Replace(openNetwork, wire.PathNetwork, wire.PathNetwork+"?x", 1), 404},
	} {
		if got := visit(t, s, tc.from).send(tc.request); got.status != tc.status {
			t.Errorf("%q: %+v", tc.request, got)
		}
	}
	// Who does not wait for the answer speaks something else.
	if got := visit(t, s, other).send(openNetwork + "packets"); got.status == http.StatusSwitchingProtocols {
		t.Errorf("%+v", got)
	}
	n.refuse = errors.New("no network here")
	if got := visit(t, s, other).send(openNetwork); got.status != http.StatusForbidden || got.Reason != wire.ReasonNoNetwork || got.Refusal.Error != "no network here" {
		t.Errorf("%+v", got)
	}
	if got := s.Stats().Refused[refusal.Network]; got != 1 {
		t.Errorf("%d are counted", got)
	}
	if len(n.from) != 0 {
		t.Errorf("%v are taken", n.from)
	}
	without := servePeers(t, home, pin(other), nil, nil)
	if got := visit(t, without, other).send(openNetwork); got.status != http.StatusNotFound {
		t.Errorf("without a network: %+v", got)
	}
}

// In a tunnel there is no connection to take over.
func TestNetworkInTunnel(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a, n := newAPIServer(t), &echoes{}
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.cfg.Network = n })
	_, f := rawTunnel(t, s, other)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock(wire.PathNetwork), EndStream: true, EndHeaders: true})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			if h.PseudoValue("status") != "400" {
				t.Errorf("%v", h.Fields)
			}
			return
		}
	}
}

// Bytes go both ways, for longer than a request may take, until the peer is not known
// any more, the server ends, or the other end does.
func TestNetworkCarries(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	n, l := &echoes{}, pin(other)
	var s *Server
	var v *visitor
	short := untilQuick(t, func(short time.Duration) (err error) {
		s = servePeers(t, home, l, nil, func(s *Server) {
			s.cfg.Network = n
			s.times.read, s.times.write, s.times.idle = short, short, short
		})
		v, err = dialNetwork(t, s, other)
		return err
	})
	time.Sleep(short + short/2)
	s.Recheck(endpointtest.IDB) // still known
	mustEcho(t, v, v.r)
	_ = v.Close()
	endpointtest.Eventually(t, "end with the peer", func() bool { return len(n.endings()) == 1 })

	s = servePeers(t, home, l, nil, func(s *Server) { s.cfg.Network = n })
	v = connectNetwork(t, s, other)
	l.block(endpointtest.IDB, true)
	s.Recheck(endpointtest.IDB)
	if _, err := v.r.ReadByte(); err == nil {
		t.Error("a blocked peer gets something")
	}
	endpointtest.Eventually(t, "end with the permission", func() bool { return len(n.endings()) == 2 })
	if err := n.endings()[1]; !errors.Is(err, errNotAnyMore) {
		t.Error(err)
	}
	l.block(endpointtest.IDB, false)
	endpointtest.Eventually(t, "have places again", func() bool { return s.limits.network.Taken() == 0 })
	connectNetwork(t, s, other) // ends with the server: TestMain looks for that
	if n.from[0] != endpointtest.IDB {
		t.Errorf("from %v", n.from)
	}
}

// One peer has few of them, and they are no tunnels.
func TestNetworkFloods(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a, n := newAPIServer(t), &echoes{}
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.cfg.Network = n })
	l := newLink(t, other, s, home)
	endpointtest.MustGet(t, l)
	open := []*visitor{connectNetwork(t, s, other)}
	for range networkPerPeer - 1 {
		open = append(open, connectNetwork(t, s, other))
	}
	if got := visit(t, s, other).send(openNetwork); got.status != http.StatusTooManyRequests {
		t.Errorf("%+v", got)
	}
	// Tunnels make room for each other, and for nobody else.
	for range tunnelsPerPeer + 1 {
		rawTunnel(t, s, other)
	}
	for _, v := range open {
		mustEcho(t, v, v.r)
	}
	_ = open[0].Close()
	endpointtest.Eventually(t, "have a place again", func() bool { return s.limits.network.Taken() == networkPerPeer-1 })
	connectNetwork(t, s, other)
	if n := s.Stats().Refused[refusal.Failed]; n != 0 {
		t.Errorf("%d failures", n)
	}
}

// The client of the agent gets what is there.
func TestNetworkOfClient(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	n := &echoes{}
	s := servePeers(t, home, pin(other), nil, func(s *Server) { s.cfg.Network = n })
	c := client.New(client.Config{Issuer: other.Issuer, Timeout: endpointtest.Hang})
	t.Cleanup(c.Close)
	target := peer.Target{ID: home.Identity.ClusterID, Fingerprint: home.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := c.Network(ctx, target)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounds the connecting only
	mustEcho(t, conn, conn)
	_ = conn.Close()
	endpointtest.Eventually(t, "end with the client", func() bool { return len(n.endings()) == 1 })
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("it is open")
	}

	n.mu.Lock()
	n.refuse = errors.New("no network here")
	n.mu.Unlock()
	var refused *wire.Refused
	if _, err := c.Network(t.Context(), target); !errors.As(err, &refused) || refused.Reason != wire.ReasonNoNetwork || refused.Message != "no network here" {
		t.Error(err)
	}
	if _, err := c.Network(t.Context(), peer.Target{Addrs: target.Addrs}); err == nil {
		t.Error("without a key")
	}

	old := servePeers(t, home, pin(other), nil, nil) // of before there were networks
	target.Addrs = endpointtest.Addrs(at(old, "127.0.0.1"))
	if _, err := c.Network(t.Context(), target); !errors.As(err, &refused) || refused.Reason != wire.ReasonNoSuchPath {
		t.Error(err)
	}

	// Nobody answers.
	silent := endpointtest.ListenTLS(t, "127.0.0.1", home, func(c *tls.Conn) { endpointtest.Silent(c) })
	target.Addrs = endpointtest.Addrs(silent)
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Network(ctx, target); err == nil {
		t.Error("connected to nobody")
	}
}

// limited counts the connections of this process of which the kernel keeps little that is not sent.
func limited(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		if bytes, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); err == nil && bytes == wire.NetworkUnsent {
			n++
		}
	}
	return n
}

// What is sent too fast waits where it can be overtaken or dropped, at both ends, and not in the kernel.
func TestNetworkWaitsHere(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := servePeers(t, home, pin(other), nil, func(s *Server) { s.cfg.Network = &echoes{} })
	c := client.New(client.Config{Issuer: other.Issuer, Timeout: endpointtest.Hang})
	t.Cleanup(c.Close)
	endpointtest.Eventually(t, "end what was before", func() bool { return limited(t) == 0 })
	conn, err := c.Network(t.Context(), peer.Target{ID: home.Identity.ClusterID, Fingerprint: home.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))})
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, conn)
	if n := limited(t); n != 2 {
		t.Errorf("%d ends are limited", n)
	}
	_ = conn.Close()
}

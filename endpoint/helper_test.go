package endpoint

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

func TestMain(m *testing.M) {
	if serveForBenchmark() {
		return
	}
	goleak.VerifyTestMain(m)
}

// box is a cluster as far as this package sees one.
type box struct {
	key      *trust.Key
	issuer   *trust.Issuer
	identity peer.Identity
}

func newBox(t testing.TB, id peer.ClusterID) *box {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &box{
		key:      key,
		issuer:   trust.NewIssuer(key, func() peer.ClusterID { return id }),
		identity: peer.Identity{ClusterID: id, ClusterName: "box <" + string(id) + ">", GuestNamespace: "liqo"},
	}
}

func (b *box) identify() peer.Identity { return b.identity }

func (b *box) logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve runs a server for b until the test ends. change may alter it before it
// starts.
func (b *box) serve(t testing.TB, listen string, change func(*Server)) *Server {
	t.Helper()
	s := NewServer(ServerConfig{
		Listen: listen, Issuer: b.issuer,
		Identity: b.identify,
		Logger:   b.logger(),
	})
	withoutRates(s) // everybody has one address here
	if change != nil {
		change(s)
	}
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	start(t, s)
	return s
}

// start runs s until the test ends and fails the test if that is not orderly.
func start(t testing.TB, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// at returns the address of s on ip.
func at(s *Server, ip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), s.Port())
}

// listenRaw accepts connections on ip until the test ends and hands each to
// handle, which owns it.
func listenRaw(t testing.TB, ip string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// listenTLS is listenRaw after a handshake with b's certificate.
func listenTLS(t testing.TB, ip string, b *box, handle func(*tls.Conn)) netip.AddrPort {
	t.Helper()
	cfg := &tls.Config{GetCertificate: b.issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	return listenRaw(t, ip, func(raw net.Conn) {
		c := tls.Server(raw, cfg)
		if c.Handshake() == nil {
			handle(c)
		}
	})
}

// answering returns a handler that reads a request's header and sends back
// text.
func answering(text string) func(*tls.Conn) {
	return func(c *tls.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, text)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // until the client has read it
	}
}

func readRequest(c net.Conn) {
	buf := make([]byte, 4096)
	_, _ = c.Read(buf)
}

// silent holds the connection until the other end closes it.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// hang bounds whatever a test waits for. It measures nothing: these machines are shared.
const hang = 2 * time.Minute

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(hang)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// same reports whether two results say the same, apart from what was shown.
func same(a, b Result) bool {
	return a.Identity == b.Identity && a.Fingerprint == b.Fingerprint && a.Addr == b.Addr && a.URL == b.URL
}

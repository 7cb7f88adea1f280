package endpointtest

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
)

// Addrs returns its arguments.
func Addrs(a ...netip.AddrPort) []netip.AddrPort { return a }

// DeadPort is an address where nobody listens.
func DeadPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// ListenRaw accepts connections on ip until the test ends and hands each to
// handle, which owns it.
func ListenRaw(t testing.TB, ip string, handle func(net.Conn)) netip.AddrPort {
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

// ListenTLS is ListenRaw after a handshake with b's certificate.
func ListenTLS(t testing.TB, ip string, b *Box, handle func(*tls.Conn)) netip.AddrPort {
	t.Helper()
	cfg := &tls.Config{GetCertificate: b.Issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	return ListenRaw(t, ip, func(raw net.Conn) {
		c := tls.Server(raw, cfg)
		if c.Handshake() == nil {
			handle(c)
		}
	})
}

// Answering returns a handler that reads a request's header and sends back
// text.
func Answering(text string) func(*tls.Conn) {
	return func(c *tls.Conn) {
		ReadRequest(c)
		_, _ = io.WriteString(c, text)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // until the client has read it
	}
}

// ReadRequest reads what comes first.
func ReadRequest(c net.Conn) {
	buf := make([]byte, 4096)
	_, _ = c.Read(buf)
}

// Silent holds the connection until the other end closes it.
func Silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

package endpointtest

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Addrs returns its arguments.
func Addrs(a ...netip.AddrPort) []netip.AddrPort { return a }

// DeadPort is an address where nobody listens until the test ends: a socket has it that does not.
func DeadPort(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was sent
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: local.As4()}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(local, uint16(at.(*unix.SockaddrInet4).Port))
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

package gapless

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// gapless is a connection below TLS on which nothing follows a write that failed.
// TLS numbers its records, and crypto/tls still writes its farewell when one of them
// was lost. The other end cannot decrypt that: it would see a bad record MAC, as if
// somebody had tampered with the connection, and not a connection that broke. Such a
// connection is reset when it is closed, because without the farewell its end could
// pass for that of what was sent.
type Conn struct {
	net.Conn
	// lenient lets a write be late that need not wait for the other end. The deadlines
	// of a server bound how long others may take; with too much to do, it can let one
	// pass before it has even tried to write.
	Lenient bool
	broken  atomic.Bool
}

// NetConn returns the connection below.
func (g *Conn) NetConn() net.Conn { return g.Conn }

var errGap = errors.New("nothing can be written after a write that failed")

// Write is net.Conn.Write.
func (g *Conn) Write(b []byte) (int, error) {
	if g.broken.Load() {
		return 0, errGap
	}
	n, err := g.Conn.Write(b)
	if g.Lenient && errors.Is(err, os.ErrDeadlineExceeded) {
		if n += writeNow(g.Conn, b[n:]); n == len(b) {
			return n, nil
		}
	}
	if err != nil {
		g.broken.Store(true)
		if tcp, ok := g.Conn.(interface{ SetLinger(int) error }); ok {
			_ = tcp.SetLinger(0) // fails when it is closed already
		}
	}
	return n, err
}

// writeNow writes as much of b as there is room for, and returns how much that was.
func writeNow(c net.Conn, b []byte) (n int) {
	tcp, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	// Control does not look at the deadline; it fails when the connection is closed.
	_ = raw.Control(func(fd uintptr) {
		if m, err := unix.Write(int(fd), b); err == nil {
			n = m
		}
	})
	return n
}

// LimitUnsent bounds how many bytes that were written to a connection of TCP the kernel keeps beyond what is on its way: Write
// waits before there are more. So what is written first waits here, where it can be overtaken or dropped, and not there.
func LimitUnsent(tcp syscall.Conn, bytes int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	// Without it, packets only wait for longer.
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes) })
}

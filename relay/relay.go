package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is how many bytes are copied at a time.
const chunk = 32 << 10

// Options say how long a Join may take.
type Options struct {
	// Linger is how long nothing may move after one way has ended or the caller has
	// gone: nothing comes the other way, and nobody takes what was sent. It takes up to
	// twice as long to notice.
	Linger time.Duration
	// Moved is called, by both ways, whenever something comes for an end that listens, and
	// whenever it was sent.
	Moved func()
}

// Conn is a connection of which some bytes were read already.
type Conn struct {
	net.Conn
	Ahead []byte // comes before what is read from Conn
}

// Read is net.Conn.Read.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.Ahead) > 0 {
		n := copy(p, c.Ahead)
		c.Ahead = c.Ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite ends what is sent, so that the other end can still answer.
func (c *Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Join copies bytes both ways between caller and provider until both ways have ended,
// or nothing moved for too long after one had or the caller was gone, or ctx ends; all
// but the first are abrupt. Then it closes both. NetConn of a connection, as *tls.Conn
// has it, is the one below it.
//
// Keepalives should be on for the caller's connection: they show whether it has only
// ended what it sends.
func Join(ctx context.Context, caller, provider io.ReadWriteCloser, o Options) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		end(caller)
		end(provider)
	})()
	last := &lingering{
		life: o.Linger, end: cancel,
		gone:  func() bool { return gone(caller) },
		acked: func() uint64 { return acked(caller) + acked(provider) },
	}
	last.start()
	defer last.stop()
	moved := func() {
		last.touch()
		o.Moved()
	}
	var both sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{caller, provider}, {provider, caller}} {
		both.Go(func() {
			from, to := way[0], way[1]
			err := forward(to, from, moved)
			last.begin()
			if err != nil {
				breakOff(ctx, to)
			}
		})
	}
	both.Wait()
	_ = caller.Close() // all of it was said and heard
	_ = provider.Close()
}

// forward copies until from ends, and passes a good end on. When to does not take any
// more, the rest is read all the same: what is unread when from is closed would cost
// what was sent to it and is still under way.
func forward(to io.WriteCloser, from io.Reader, moved func()) error {
	buffer := make([]byte, chunk)
	listens := true
	for {
		n, err := from.Read(buffer)
		if n > 0 && listens { // what is thrown away is no movement: it may come without end
			moved()
			_, failed := to.Write(buffer[:n])
			listens = failed == nil
			moved()
		}
		switch {
		case err == nil:
		case !listens:
			return nil // there is nobody to tell
		case err == io.EOF:
			_ = CloseWrite(to) // one that failed does not listen
			return nil
		default:
			return err
		}
	}
}

// CloseWrite ends what is sent on a connection; one that cannot do that in one
// direction alone it closes.
func CloseWrite(c io.WriteCloser) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return c.Close()
}

// breakOff resets a connection once its other end has what was sent before, which a
// reset throws away. The kernel does not say when that is, so it is asked, less and
// less often: the other end may take its time. One that was reset takes nothing any
// more, whatever waits for it.
func breakOff(ctx context.Context, c io.WriteCloser) {
	for pause := 5 * time.Millisecond; unsent(c) > 0 && !gone(c); pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return // that ends it
		}
	}
	end(c)
}

// end resets a connection: an end without the farewell of TLS is a good one to many
// who read, and one of TCP alone anyway.
func end(c io.WriteCloser) {
	under := base(c)
	if tcp, ok := under.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0) // fails on one that is closed
	}
	_ = under.Close() // first: TLS would say farewell
}

// base returns the lowest connection.
func base(c io.WriteCloser) io.WriteCloser {
	for {
		upper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = upper.NetConn()
	}
}

// Socket returns the socket of a connection, that of the lowest one by NetConn; nil if there is none that is open.
func Socket(c io.WriteCloser) syscall.RawConn {
	socket, ok := base(c).(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// control calls f with the socket of a connection, if there is one that is open.
func control(c io.WriteCloser, f func(fd int)) {
	if raw := Socket(c); raw != nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // fails on one that is closed
	}
}

// unsent is how many bytes were sent that the other end has not acknowledged; 0
// where that is not known.
func unsent(c io.WriteCloser) (n int) {
	control(c, func(fd int) {
		if queued, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil {
			n = queued
		}
	})
	return n
}

// acked is how many bytes the other end has acknowledged so far; 0 where that is not
// known.
func acked(c io.WriteCloser) (n uint64) {
	control(c, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}

// gone reports whether the other end is there no more: it was reset, or answers
// nothing. An end of what it sends alone is not that. When it has closed both ways, its
// kernel forgets the connection after a while and answers the next keepalive with a
// reset.
func gone(c io.WriteCloser) (is bool) {
	control(c, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd)}} // these two need not be asked for
		_, err := unix.Poll(poll, 0)
		is = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return is
}

// lingering ends what does not move any more once one way has ended, or the caller is
// gone. That is looked at here, because who waits for a provider to take something
// does not read what happens to the caller. A provider that is gone is another matter:
// it may have said all it had to, which the caller may take at leisure.
type lingering struct {
	life  time.Duration // between two looks
	end   func()
	gone  func() bool
	acked func() uint64

	mu    sync.Mutex
	timer *time.Timer // nil when stopped
	begun bool
	moved bool   // since the last look
	taken uint64 // acked at the last look
}

func (l *lingering) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.life, l.look)
}

func (l *lingering) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.moved = true, true
}

func (l *lingering) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = true
}

// look ends it unless something moved since the last look: came, was sent, or was
// taken by the other end while one write waits for the rest of it.
func (l *lingering) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return
	}
	taken := l.acked()
	switch {
	case !l.begun:
		l.begun = l.gone()
	case !l.moved && taken == l.taken:
		l.end()
		return
	}
	l.moved, l.taken = false, taken
	l.timer.Reset(l.life)
}

func (l *lingering) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	l.timer = nil
}

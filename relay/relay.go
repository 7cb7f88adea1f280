package relay

import (
	"context"
	"errors"
	"io"
	"math"
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
	// Linger is how long nothing may move after one way has ended: nothing comes the
	// other way, and nobody takes what was sent.
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

// Join copies bytes both ways between a and b until both ways have ended, or nothing
// moved for too long after one had, or ctx ends; the last two are abrupt. Then it
// closes both. NetConn of a connection, as *tls.Conn has it, is the one below it.
func Join(ctx context.Context, a, b io.ReadWriteCloser, o Options) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		end(a)
		end(b)
	})()
	last := &lingering{life: o.Linger, end: cancel, unsent: func() int { return unsent(a) + unsent(b) }}
	defer last.stop()
	moved := func() {
		last.touch()
		o.Moved()
	}
	var both sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{a, b}, {b, a}} {
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
	_ = a.Close() // all of it was said and heard
	_ = b.Close()
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
// reset throws away. The kernel does not say when that is, so it is asked.
func breakOff(ctx context.Context, c io.WriteCloser) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for unsent(c) > 0 {
		select {
		case <-look.C:
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

// unsent is how many bytes were sent that the other end has not acknowledged; 0
// where that is not known.
func unsent(c io.WriteCloser) int {
	socket, ok := base(c).(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := raw.Control(func(fd uintptr) {
		if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = queued
		}
	}); err != nil {
		return 0
	}
	return n
}

// lingering ends what does not move any more once one way has ended.
type lingering struct {
	life   time.Duration
	end    func()
	unsent func() int

	mu    sync.Mutex
	timer *time.Timer // nil before one way has ended
	left  int         // what was unsent when it was last looked at, if nothing moved since
}

func (l *lingering) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		l.left = math.MaxInt
		l.timer = time.AfterFunc(l.life, l.look)
	}
}

func (l *lingering) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.left = math.MaxInt
		l.timer.Reset(l.life)
	}
}

// look ends it unless the other end has taken something meanwhile.
func (l *lingering) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.unsent()
	if left == 0 || left >= l.left {
		l.end()
		return
	}
	l.left = left
	l.timer.Reset(l.life)
}

func (l *lingering) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

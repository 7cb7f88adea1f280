package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A caller that leaves while its input waits for the provider is noticed, although
// nobody reads from it.
func TestCallerThatLeavesInTheMiddle(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, caller *net.TCPConn){
		"reset": func(t *testing.T, caller *net.TCPConn) {
			send(t, caller, 64<<10)
			_ = caller.SetLinger(0)
		},
		"closed": func(t *testing.T, caller *net.TCPConn) {
			send(t, caller, 64<<10)
			option(t, caller, unix.TCP_LINGER2, 1) // its kernel is to forget it soon
		},
		"closed before all was taken": func(t *testing.T, caller *net.TCPConn) {
			fill(t, caller)
			option(t, caller, unix.TCP_USER_TIMEOUT, 500) // as above
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller, _, ended := stuck(t, 500*time.Millisecond)
			leave(t, caller)
			_ = caller.Close()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("it does not end")
			}
		})
	}
}

// A caller whose input has ended is there as before: the provider may take any time.
func TestCallerThatHasSaidAll(t *testing.T) {
	untilQuick(t, saysAll)
}

// saysAll returns false if it took too long itself.
func saysAll(t *testing.T) bool {
	t.Helper()
	const linger = time.Second // that it may take to answer once all was read
	caller, provider, ended := stuck(t, linger)
	want := send(t, caller, 64<<10)
	_ = caller.CloseWrite()
	select {
	case <-ended:
		t.Fatal("it ended although the caller is there")
	case <-time.After(3 * time.Second): // several keepalives
	}
	begun := time.Now()
	got, err := io.ReadAll(provider)
	_, _ = provider.Write([]byte("done"))
	_ = provider.Close()
	back, errBack := io.ReadAll(caller)
	_ = caller.Close()
	<-ended
	if time.Since(begun) > linger {
		return false
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if errBack != nil || string(back) != "done" {
		t.Errorf("back: %q, %v", back, errBack)
	}
	return true
}

// stuck joins a caller and a provider that takes next to nothing.
func stuck(t *testing.T, linger time.Duration) (caller, provider *net.TCPConn, ended chan struct{}) {
	t.Helper()
	caller, a := pair(t)
	_ = a.SetDeadline(time.Time{})
	if err := a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 9}); err != nil {
		t.Fatal(err)
	}
	b, provider := pair(t)
	_ = b.SetDeadline(time.Time{})
	_ = b.SetWriteBuffer(small)
	_ = provider.SetReadBuffer(small)
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		Join(ctx, a, b, Options{Linger: linger, Moved: func() {}})
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return caller, provider, ended
}

// send sends n bytes that Join's end has, and the provider has not.
func send(t *testing.T, caller *net.TCPConn, n int) []byte {
	t.Helper()
	out := random(n)
	if _, err := caller.Write(out); err != nil {
		t.Fatal(err)
	}
	taken(t, caller)
	return out
}

// fill sends until nothing more is taken, and something is left.
func fill(t *testing.T, c *net.TCPConn) {
	t.Helper()
	for much := make([]byte, 32<<20); ; {
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := c.Write(much)
		if much = much[n:]; err == nil {
			t.Fatal("all of it was taken")
		}
		if n == 0 && unsent(c) > 0 {
			return
		}
	}
}

func option(t *testing.T, c *net.TCPConn, name, value int) {
	t.Helper()
	control(c, func(fd int) {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, name, value); err != nil {
			t.Error(err)
		}
	})
}

// A little that is taken while one write waits for the rest is movement, however much
// waits at the time.
func TestSlowWithinOneWrite(t *testing.T) {
	waiting, n := 0, uint64(0)
	l := &lingering{
		life: time.Hour, end: func() { waiting++ },
		gone: func() bool { return false }, acked: func() uint64 { return n },
	}
	l.start()
	defer l.stop()
	l.begin()
	for range 5 {
		l.look()
		n++
	}
	if waiting != 0 {
		t.Error("it ended although something was taken between any two looks")
	}
	l.look()
	if l.look(); waiting != 1 {
		t.Error("it did not end when nothing was taken")
	}
}

// polled counts how often its socket is asked for.
type polled struct {
	*net.TCPConn
	n int
}

func (p *polled) SyscallConn() (syscall.RawConn, error) {
	p.n++
	return p.TCPConn.SyscallConn()
}

// Who waits long for a slow end does not ask all the time.
func TestBreakOffOfSlowEnd(t *testing.T) {
	near, far := pair(t)
	_ = near.SetReadBuffer(small)
	fill(t, far)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	c := &polled{TCPConn: far}
	if breakOff(ctx, c); c.n > 40 {
		t.Errorf("it asked %d times within a second", c.n)
	}
}

// Nor for an end that was reset: what waits for it stays where it is for ever.
func TestBreakOffOfResetEnd(t *testing.T) {
	near, far := pair(t)
	_ = near.SetReadBuffer(small)
	fill(t, far)
	_ = near.SetLinger(0)
	_ = near.Close()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if breakOff(ctx, far); ctx.Err() != nil {
		t.Error("it waits until it is stopped")
	}
}

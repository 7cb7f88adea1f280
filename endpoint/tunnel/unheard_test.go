package tunnel

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/relay"
)

// upgradingPeer answers an upgrade with 101 and then leaves the connection to handle.
// early is told of it before anything comes.
func upgradingPeer(t *testing.T, b *endpointtest.Box, early func(*net.TCPConn), handle func(*net.TCPConn, io.ReadWriter)) netip.AddrPort {
	t.Helper()
	cfg := &tls.Config{GetCertificate: b.Issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	return endpointtest.ListenRaw(t, "127.0.0.1", func(raw net.Conn) {
		early(raw.(*net.TCPConn))
		c := tls.Server(raw, cfg)
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		handle(raw.(*net.TCPConn), struct {
			io.Reader
			io.Writer
		}{r, c})
	})
}

// infoOf is what the kernel knows about conn.
func infoOf(t *testing.T, conn net.Conn) *unix.TCPInfo {
	t.Helper()
	raw, err := endpointtest.TCPOf(t, conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	info, err := tcpInfo(raw)
	if err != nil {
		t.Fatalf("the connection is closed: %v", err)
	}
	return info
}

// shut reports whether the other end's window is closed, and something waits for it.
func shut(info *unix.TCPInfo) bool { return info.Snd_wnd == 0 && info.Notsent_bytes > 0 }

// pattern is a reader of n bytes, and a writer that checks that they come. A piece that
// is lost shows: they repeat after a prime number.
type pattern struct{ at, n int }

var patternBytes = func() []byte {
	b := make([]byte, 65521)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}()

// next returns some of the bytes that come now, at most max.
func (p *pattern) next(max int) []byte {
	b := patternBytes[p.at%len(patternBytes):]
	return b[:min(len(b), max, p.n-p.at)]
}

func (p *pattern) Read(b []byte) (int, error) {
	n := copy(b, p.next(len(b)))
	if n == 0 {
		return 0, io.EOF
	}
	p.at += n
	return n, nil
}

func (p *pattern) Write(b []byte) (n int, err error) {
	for n < len(b) {
		want := p.next(len(b) - n)
		if len(want) == 0 || !bytes.Equal(b[n:n+len(want)], want) {
			return n, fmt.Errorf("what comes at byte %d of %d is not what was sent", p.at, p.n)
		}
		n += len(want)
		p.at += len(want)
	}
	return n, nil
}

// pausedUnheard is short for a test, but long for the kernel: of two probes within
// half a second it answers one (tcp_invalid_ratelimit), so that the first ones can be
// unanswered for a second.
const pausedUnheard = 4 * time.Second

// A peer that does not read for longer than one may be silent, with its window
// closed, gets all of it when it reads on.
func TestPausedPeerIsNotDead(t *testing.T) {
	const size = 1 << 20
	small := func(c *net.TCPConn) { _ = c.SetReadBuffer(16 << 10) }
	large := func(*net.TCPConn) {}
	for name, tc := range map[string]struct{ early, late func(*net.TCPConn) }{
		"probes":          {small, large},
		"retransmissions": {large, small}, // it promised more than it has room for
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
			resume, received := make(chan struct{}), make(chan error, 1)
			addr := upgradingPeer(t, home, tc.early, func(under *net.TCPConn, c io.ReadWriter) {
				tc.late(under)
				<-resume
				_ = under.SetReadBuffer(size) // else it takes long
				want := &pattern{n: size}
				_, err := io.Copy(want, c)
				if err == nil && want.at != size {
					err = fmt.Errorf("%d of %d bytes", want.at, size)
				}
				received <- err
			})
			readOn := sync.OnceFunc(func() { close(resume) })
			defer readOn()
			l, _ := newMovableLink(t, other, home.Key.Fingerprint(), addr)
			l.unheard = pausedUnheard
			conn := endpointtest.MustUpgrade(t, l)
			sent := make(chan error, 1)
			go func() {
				_, err := io.Copy(conn, struct{ io.Reader }{&pattern{n: size}})
				if err == nil {
					err = relay.CloseWrite(conn)
				}
				sent <- err
			}()
			endpointtest.Eventually(t, "close the window", func() bool { return shut(infoOf(t, conn)) })
			for begun := time.Now(); time.Since(begun) < 2*l.unheard; time.Sleep(50 * time.Millisecond) {
				if info := infoOf(t, conn); !shut(info) {
					t.Fatalf("the window opens: %+v", info)
				}
			}
			readOn()
			if err := <-sent; err != nil {
				t.Errorf("send: %v", err)
			}
			if err := <-received; err != nil {
				t.Errorf("receive: %v", err)
			}
		})
	}
}

// Neither a caller nor a pod that does not read for long loses anything.
func TestUpgradeIsPaused(t *testing.T) {
	t.Parallel()
	const size = 48 << 20 // more than all buffers on the way
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := a.hosting(t, home)
	resume, done := make(chan struct{}), make(chan error, 1)
	var written atomic.Int64
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		c, rw := endpointtest.SwitchTo101(w)
		defer c.Close()
		sent := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.MultiWriter(c, counter{&written}), struct{ io.Reader }{&pattern{n: size}})
			sent <- err
		}()
		<-resume
		if _, err := io.CopyN(&pattern{n: size}, rw, size); err != nil {
			done <- fmt.Errorf("pod receives: %w", err)
			return
		}
		done <- <-sent
	})
	l := newLink(t, other, s, home)
	l.unheard = pausedUnheard
	conn := endpointtest.MustUpgrade(t, l)
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(conn, counter{&written}), struct{ io.Reader }{&pattern{n: size}})
		sent <- err
	}()
	endpointtest.Eventually(t, "close the window", func() bool { return shut(infoOf(t, conn)) })
	// Nobody reads anything until nothing moves for several times what is allowed.
	before, since := written.Load(), time.Now()
	endpointtest.Eventually(t, "pause", func() bool {
		if now := written.Load(); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 2*l.unheard
	})
	close(resume)
	if _, err := io.CopyN(&pattern{n: size}, conn, size); err != nil {
		t.Errorf("caller receives: %v", err)
	}
	if err := <-sent; err != nil {
		t.Errorf("caller sends: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// counter counts what is written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// A long answer in a tunnel waits for its reader, and keeps the tunnel.
func TestAnswerIsPaused(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := a.hosting(t, home)
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, &pattern{n: size})
	})
	l := newLink(t, other, s, home)
	l.http2.WriteByteTimeout = 500 * time.Millisecond
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	time.Sleep(6 * l.http2.WriteByteTimeout)
	want := &pattern{n: size}
	if _, err := io.Copy(want, resp.Body); err != nil || want.at != size {
		t.Errorf("%d of %d bytes, %v", want.at, size, err)
	}
}

// What the kernel says tells a peer that is silent from one that has nothing to
// answer, or answers that it has no room.
func TestUnheard(t *testing.T) {
	begin := time.Now()
	for name, tc := range map[string]struct {
		info []unix.TCPInfo // one each second
		want time.Duration  // after the last
	}{
		"idle":                     {[]unix.TCPInfo{{Last_data_sent: 1000, Last_ack_recv: 1000}, {Last_data_sent: 2000, Last_ack_recv: 2000}}, 0},
		"sent after a long pause":  {[]unix.TCPInfo{{Last_ack_recv: 9000}, {Unacked: 1, Last_data_sent: 1, Last_ack_recv: 10_000}}, time.Second},
		"silent":                   {[]unix.TCPInfo{{}, {Unacked: 1, Last_data_sent: 500, Last_ack_recv: 2000}, {Unacked: 1, Last_data_sent: 200, Last_ack_recv: 3000}}, 2 * time.Second},
		"answered between":         {[]unix.TCPInfo{{}, {Unacked: 1, Last_data_sent: 500, Last_ack_recv: 2000}, {Unacked: 1, Last_data_sent: 200, Last_ack_recv: 300}}, 300 * time.Millisecond},
		"turned down":              {[]unix.TCPInfo{{}, {Unacked: 1, Last_data_sent: 800, Last_ack_recv: 800}, {Unacked: 1, Last_data_sent: 1800, Last_ack_recv: 1800}}, 0},
		"window closed":            {[]unix.TCPInfo{{}, {Notsent_bytes: 9, Last_ack_recv: 800}, {Notsent_bytes: 9, Last_ack_recv: 1800}}, 0},
		"window closed and silent": {[]unix.TCPInfo{{}, {Notsent_bytes: 9, Probes: 1, Last_ack_recv: 1800}, {Notsent_bytes: 9, Probes: 1, Last_ack_recv: 2800}}, 2 * time.Second},
	} {
		u := unheard{since: begin}
		var got time.Duration
		for i, info := range tc.info {
			got = u.look(begin.Add(time.Duration(i+1)*time.Second), &info)
		}
		if got != tc.want {
			t.Errorf("%s: unheard for %v, not %v", name, got, tc.want)
		}
	}
}

// cut has nothing arrive at the connection any more, not even at its kernel.
func cut(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := endpointtest.TCPOf(t, conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	if closed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); closed != nil || err != nil {
		t.Fatalf("%v, %v", closed, err)
	}
}

// A peer that is gone is noticed, whether or not it was reading.
func TestVanishedPeerIsNoticed(t *testing.T) {
	for name, paused := range map[string]bool{"data under way": false, "closed window": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
			over := make(chan struct{})
			addr := upgradingPeer(t, home, func(c *net.TCPConn) { _ = c.SetReadBuffer(16 << 10) }, func(_ *net.TCPConn, c io.ReadWriter) {
				if !paused {
					_, _ = io.Copy(io.Discard, c)
				}
				<-over
			})
			defer close(over)
			l, _ := newMovableLink(t, other, home.Key.Fingerprint(), addr)
			l.unheard = 2 * time.Second
			conn := endpointtest.MustUpgrade(t, l)
			sent := make(chan error, 1)
			size := 1
			if paused {
				size = 8 << 20
			} else {
				cut(t, conn)
			}
			begun := time.Now()
			go func() {
				_, err := io.Copy(conn, struct{ io.Reader }{&pattern{n: size}})
				sent <- err
			}()
			if paused {
				endpointtest.Eventually(t, "close the window", func() bool { return shut(infoOf(t, conn)) })
				// Long enough for the probes to become rare.
				for begun := time.Now(); time.Since(begun) < 3*l.unheard; time.Sleep(50 * time.Millisecond) {
					infoOf(t, conn)
				}
				cut(t, conn)
				begun = time.Now()
			}
			_ = conn.SetReadDeadline(begun.Add(endpointtest.Hang))
			_, err := conn.Read(make([]byte, 1))
			if !errors.Is(err, net.ErrClosed) {
				t.Fatalf("it ends with %v", err)
			}
			t.Logf("noticed after %v", time.Since(begun).Round(time.Millisecond))
			if err := <-sent; (err != nil) != paused {
				t.Errorf("send: %v", err)
			}
		})
	}
}

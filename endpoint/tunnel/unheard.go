package tunnel

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/endpoint/client"
)

// upgradeUnheard is how long a peer may leave what it was sent on an upgraded
// connection without any answer.
const upgradeUnheard = 30 * time.Second

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15.
const tcpRTOMaxMS = 44

// watchUnheard ends the connection when the other end has answered nothing for d. It
// returns after that, or when the connection was closed or ctx has ended.
//
// It takes the place of LimitSilence, because TCP_USER_TIMEOUT also ends a connection
// whose other end is there but does not read for d: a person looks at a page of the
// output, a disk is slow. The receive window of such a peer is closed, but it
// acknowledges every probe of that. The kernel's keepalives are no help: there are
// none while anything waits to be sent.
func watchUnheard(ctx context.Context, conn *client.Conn, d time.Duration) {
	conn.LimitSilence(0)
	raw, err := conn.TCP().SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		// The kernel doubles the time between two probes, up to two minutes. Where it
		// cannot be told otherwise, a peer that vanishes while its window is closed is
		// noticed that much later. It gives up by itself after two such times without
		// an answer, which must not come first: only one of Read and Write would fail
		// then, and to the other the connection would seem to end well.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(max(2*d, time.Second).Milliseconds()))
	})
	ticker := time.NewTicker(d / 6)
	defer ticker.Stop()
	for u := (unheard{since: time.Now()}); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		info, err := tcpInfo(raw)
		if err != nil {
			return // it is closed
		}
		if u.look(time.Now(), info) >= d {
			_ = conn.TCP().SetLinger(0) // nobody takes what is left
			conn.Abort()
			return
		}
	}
}

// tcpInfo is what the kernel knows about a connection.
func tcpInfo(raw syscall.RawConn) (info *unix.TCPInfo, err error) {
	if closed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); closed != nil {
		return nil, closed
	}
	return info, err
}

// unheard measures for how long the other end of a connection has answered nothing.
type unheard struct {
	since time.Time // when it last answered, or there was nothing to answer
}

// look returns for how long nothing was answered, by what the kernel says now.
func (u *unheard) look(now time.Time, info *unix.TCPInfo) time.Duration {
	// What was sent before the last acknowledgement and is not covered by it was
	// answered too: the other end has no room for it, and it is sent again later.
	sent := info.Unacked > 0 && info.Last_data_sent < info.Last_ack_recv
	heard := now.Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
	switch {
	case !sent && info.Probes == 0:
		u.since = now
	case heard.After(u.since):
		u.since = heard
	}
	return now.Sub(u.since)
}

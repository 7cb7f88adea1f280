package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// listen opens the sockets of an address, which this machine need not have yet.
func listen(ctx context.Context, at netip.AddrPort) (*net.UDPConn, *net.TCPListener, error) {
	free := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
		if at.Addr().Is6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
		}
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) })
		return errors.Join(err, failed)
	}}
	udp, err := free.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return nil, nil, fmt.Errorf("listen for DNS queries: %w", err)
	}
	tcp, err := free.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen for DNS queries: %w", err), udp.Close())
	}
	return udp.(*net.UDPConn), tcp.(*net.TCPListener), nil
}

// accept answers queries by TCP.
func (s *Server) accept(ctx context.Context, working *sync.WaitGroup, listener *net.TCPListener) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			if conn != nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		src := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		state, _ := s.current()
		consumer := state.Guests[src].Consumer
		if !s.conns.Take(consumer) {
			s.refuse(refusedRate)
			_ = conn.Close()
			continue
		}
		working.Go(func() {
			defer s.conns.Release(consumer)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			s.converse(ctx, src, conn)
		})
	}
}

// converse answers the queries of a connection, one after the other (RFC 7766), until it is
// idle or somebody closes it.
func (s *Server) converse(ctx context.Context, src netip.Addr, conn net.Conn) {
	var length [2]byte
	for {
		if err := conn.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, min(binary.BigEndian.Uint16(length[:]), maxQuery+1)) // what is longer is not answered
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		release, ok := s.admit(src)
		if !ok {
			return
		}
		answer := s.handle(ctx, src, query, true)
		release()
		if len(answer) == 0 || len(answer) > dns.MaxMsgSize {
			return
		}
		if err := conn.SetWriteDeadline(time.Now().Add(idleTimeout)); err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// First bytes of packets.
const (
	echoed  = 'e' // comes back as it is
	counted = 'c' // is counted
	asked   = 'a' // is counted, and answered with how many were counted of this sender
)

// countLen is the length of the shortest packet: a kind, and the number that an answer has.
const countLen = 1 + 8

// maxPacket is the length of the longest packet of UDP.
const maxPacket = 1 << 16

// Serve answers at an address, TCP and UDP, until ctx ends. listening is called once it does.
func Serve(ctx context.Context, address string, listening func(netip.AddrPort)) error {
	streams, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	at := streams.Addr().(*net.TCPAddr).AddrPort()
	packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer context.AfterFunc(ctx, func() { _, _ = streams.Close(), packets.Close() })()
	work.Go(func() { answer(packets) })
	listening(at)
	for {
		c, err := streams.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Join(err, packets.Close())
		}
		work.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			swallow(c)
			_ = c.Close()
		})
	}
}

// swallow reads a stream to its end. Without a buffer of its own, ReadFrom of io.Discard would use small ones.
func swallow(c net.Conn) {
	buffer := make([]byte, 256<<10)
	for {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}

// answer answers packets until the socket is closed.
func answer(packets *net.UDPConn) {
	buffer := make([]byte, maxPacket)
	counts := make(map[netip.AddrPort]uint64) // by sender
	for {
		n, from, err := packets.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		if n < countLen {
			continue
		}
		switch buffer[0] {
		case echoed:
			_, _ = packets.WriteToUDPAddrPort(buffer[:n], from)
		case counted, asked:
			counts[from]++
			if buffer[0] == asked {
				answer := binary.BigEndian.AppendUint64([]byte{asked}, counts[from])
				_, _ = packets.WriteToUDPAddrPort(answer, from)
			}
		}
	}
}

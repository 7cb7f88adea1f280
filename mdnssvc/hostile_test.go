package mdnssvc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
	"liqo.io/agent/mdnssvc/wire"
)

// stranger opens a socket of a host, bound to an address, that sends whatever
// it is told to, multicasts over the link. It shares port 5353.
func stranger(t *testing.T, h *bed.Host, link, address string) *ipv4.PacketConn {
	t.Helper()
	var p *ipv4.PacketConn
	if err := h.Do(func() error {
		lc := net.ListenConfig{Control: shared}
		conn, err := lc.ListenPacket(t.Context(), "udp4", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		p = ipv4.NewPacketConn(conn)
		out, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		return p.SetMulticastInterface(out)
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func shared(_, _ string, raw syscall.RawConn) error {
	var err error
	cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	if cerr != nil {
		return cerr
	}
	return err
}

func udp(s string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

func TestStrangersAreDroppedByName(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	hb.Link("eth0").AddAddress("203.0.113.9/32")
	a := startBox(t, ha, Config{})
	a.advertise(1000)
	a.awaitStats("name won", func(s Stats) bool { return s.Established })

	const group = "224.0.0.251:5353"
	near, far := stranger(t, hb, "eth0", "10.77.0.2:5353"), stranger(t, hb, "eth0", "203.0.113.9:5353")
	ephemeral, plumbing := stranger(t, hb, "eth0", "10.77.0.2:0"), stranger(t, ha, "cni0", "10.42.0.1:5353")
	r, q := response(t, "x"), query(t)
	loop := append(append([]byte{}, q[:12]...), 0xc0, 12, 0, 12, 0, 1)
	opcode := append([]byte{}, q...)
	opcode[2] |= 2 << 3
	for _, tc := range []struct {
		reason wire.DropReason
		from   *ipv4.PacketConn
		to     string
		data   []byte
	}{
		{DropOffLink, far, "10.77.0.1:5353", r},
		{DropOffLink, far, "10.77.0.1:5353", q},
		{DropBadPort, ephemeral, group, r},
		{DropBadDestination, near, "10.77.0.255:5353", q},
		{wire.DropShort, near, group, []byte{1, 2, 3}},
		{wire.DropMalformed, near, group, q[:len(q)-1]},
		{wire.DropLoop, near, group, loop},
		{wire.DropOpcode, near, group, opcode},
		{wire.DropTooLarge, near, group, make([]byte, wire.MaxPacket+1)},
	} {
		before := a.svc.Stats().Drops[tc.reason]
		if _, err := tc.from.WriteTo(tc.data, nil, udp(tc.to)); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		a.awaitStats("drop for reason "+string(tc.reason), func(s Stats) bool { return s.Drops[tc.reason] == before+1 })
	}

	// What goes on between pods never even reaches us.
	before := a.svc.Stats()
	if _, err := plumbing.WriteTo(r, nil, udp(group)); err != nil {
		t.Fatal(err)
	}
	// A packet to the group is local by definition, from whatever address.
	if _, err := far.WriteTo(response(t, "neighbour"), nil, udp(group)); err != nil {
		t.Fatal(err)
	}
	after := a.awaitStats("packet from another network on this link", func(s Stats) bool { return s.Received > before.Received })
	for _, reason := range []wire.DropReason{DropOffLink, DropOtherLink} {
		if after.Drops[reason] != before.Drops[reason] {
			t.Errorf("%s was counted for a packet that is none", reason)
		}
	}
}

// TestFlood sends rubbish as fast as it goes; then an ordinary neighbour is
// found as usual.
func TestFlood(t *testing.T) {
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/24"), lan.AddHost("b", "10.77.0.2/24")
	a := startBox(t, ha, Config{MaxInstances: 100})
	a.awaitStats("first query", func(s Stats) bool { return s.Sent > 0 })
	out := stranger(t, hb, "eth0", "10.77.0.2:5353")
	random := rand.New(rand.NewPCG(1, 2))
	big := make([]byte, wire.MaxPacket)
	sent := uint64(0)
	for i := range 20000 {
		data := big
		switch i % 4 {
		case 0:
			data = response(t, fmt.Sprintf("bogus-%d", i))
		case 1:
			for j := range data {
				data[j] = byte(random.Uint32())
			}
		case 2:
			data = query(t)
			data[random.IntN(len(data))] ^= 1 << random.IntN(8)
		}
		if _, err := out.WriteTo(data, nil, udp("224.0.0.251:5353")); err != nil {
			continue // the sender's own buffer is full
		}
		sent++
	}
	s := a.awaitStats("end of the flood", func(s Stats) bool { return s.Received+s.SocketDrops >= sent })
	t.Logf("after %d packets: %+v", sent, s)
	b := startBox(t, hb, Config{})
	b.advertise(2000)
	a.awaitInstance("eth0", "b", nil)
}

// TestCrowd answers one question with a thousand packets within a tenth of a
// second: none may be lost.
func TestCrowd(t *testing.T) {
	const size = 1000
	lan := bed.New(t)
	ha, hb := lan.AddHost("a", "10.77.0.1/16"), lan.AddHost("crowd", "10.77.0.2/16")
	c, err := crowd.New(hb, crowd.Options{Size: size, First: netip.MustParseAddr("10.77.1.1"), Service: "_liqo._tcp.local.", Port: 6447})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	start := time.Now()
	a := startBox(t, ha, Config{BrowseOnly: true})
	s := a.awaitStats("thousand instances", func(s Stats) bool { return s.Instances == size })
	t.Logf("all found %v after the start: %+v; %d answers", time.Since(start), s, c.Answers())
	if s.SocketDrops != 0 || s.Drops[DropQueueFull] != 0 || s.Received < size {
		t.Errorf("packets were lost: %+v", s)
	}
	// One message whose known answers fill many packets.
	a.await("events for all of them", func(live map[instanceKey]Event, _ map[instanceKey]string) bool { return len(live) == size })
	a.awaitStats("second query with known answers", func(Stats) bool {
		_, withKnown := c.Queries()
		return withKnown > 1
	})
	if s = a.svc.Stats(); s.Drops[DropSendFull] != 0 || s.Drops[DropSendFailed] != 0 {
		t.Errorf("queries were not sent: %+v", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	names4 = netip.MustParseAddr("169.254.241.53")
	names6 = netip.MustParseAddr("fd6c:6971:6f::53")
)

// TestNames: pods ask the host for names at addresses for nothing else, and nobody else does.
func TestNames(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	other := a.addPod(9)
	const ask, port = 53, 6453
	a.desired.Names = Names{Addresses: []netip.Addr{names4, names6}, AskPort: ask, Port: port, From: []netip.Prefix{pods4, pods6}, Except: []netip.Prefix{single(other.v4), single(other.v6)}}
	a.run(fmt.Sprintf("ip addr add %v/32 dev liqo0; ip addr add %v/128 dev liqo0 nodad", names4, names6))
	b.run(fmt.Sprintf("ip route add %v/32 via 192.0.2.1; ip addr add fd99::2/64 dev eth0 nodad; ip route add %v/128 via fd99::1", names4, names6))
	a.run("ip addr add fd99::1/64 dev eth0 nodad")
	a.set()

	// While nobody listens, who asks does not learn that.
	c, err := dial(x, "udp", names4, ask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("nobody")); err != nil {
		t.Fatal(err)
	}
	barrier(t, x, y)
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who asks nobody is told %v", err)
	}

	server, server6 := listenOn(t, a, netip.AddrPortFrom(names4, port).String()), listenOn(t, a, netip.AddrPortFrom(names6, port).String())
	for _, network := range []string{"udp", "tcp"} {
		for _, to := range []netip.Addr{names4, names6} {
			for _, number := range []int{ask, port} {
				answer, err := tryPort(x, network, to, number, network)
				if err != nil {
					t.Fatal(err)
				}
				checkAnswer(t, answer, x.addr(to.Is6()))
			}
		}
	}
	if answer, err := tryPort(a, "udp", names4, port, "the host"); err != nil {
		t.Errorf("the host itself: %q %v", answer, err)
	}

	everybody := []*ears{a.heard, b.heard, server, server6}
	pass := func() { barrier(t, x, y); barrier(t, y, x) }
	for _, to := range []netip.Addr{names4, names6} {
		for _, attempt := range []struct {
			name string
			from place
			port int
		}{
			{"from a pod that may not", other, ask}, {"from a pod that may not, to the port itself", other, port},
			{"to another port", x, talk},
			{"from another machine", b, ask}, {"from another machine, to the port itself", b, port},
		} {
			checkSilence(t, fmt.Sprintf("%s: %v", attempt.name, to), func(what string) { say(t, attempt.from, to, attempt.port, what) }, pass, everybody...)
		}
	}
	// Another machine with the address of a pod.
	pretended := netip.MustParseAddr("10.42.0.77")
	b.run(fmt.Sprintf("ip addr add %v/32 dev eth0", pretended))
	checkSilence(t, "from another machine, as a pod", func(what string) {
		b.do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: pretended.As4()}), unix.Sendto(fd, []byte(what), 0, &unix.SockaddrInet4{Addr: names4.As4(), Port: ask}))
		})
	}, pass, everybody...)

	// Without peers and pods to connect, they stay.
	before := a.desired
	a.desired = Desired{Device: device, Names: before.Names}
	a.set()
	if _, err := tryPort(x, "udp", names4, ask, "alone"); err != nil {
		t.Error(err)
	}
	a.desired = before
	a.desired.Names = Names{}
	a.set()
	checkSilence(t, "after it has ended", func(what string) { say(t, x, names4, ask, what) }, pass, server)
	w.checkStrange()

	for _, wrong := range []Names{
		{Addresses: []netip.Addr{names4}, Port: port}, {Addresses: []netip.Addr{names4}, AskPort: ask}, {Addresses: []netip.Addr{names4, names4}, AskPort: ask, Port: port},
		{From: []netip.Prefix{pods4, pods4}},
	} {
		a.desired.Names = wrong
		if err := a.table.Set(a.desired); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

package filter

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// begin begins a TCP connection, and returns whether it was answered so far.
func begin(t *testing.T, from place, to netip.Addr, port int) (answered func() bool) {
	t.Helper()
	fd := -1
	if err := from.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.As4(), Port: port}); errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EPERM) {
			err = nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() bool {
		_, err := unix.Getpeername(fd)
		return err == nil
	}
}

// TestAPIServer: pods of a peer reach the API server at one port of one address, those that may and nobody else, and nothing
// besides on this host.
func TestAPIServer(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	other := b.addPod(9)
	const secure, kubelet = 6443, 10250
	lan := netip.MustParseAddr("192.0.2.1")
	server, nodes := listenOn(t, a, fmt.Sprintf("%v:%d", lan, secure)), listenOn(t, a, fmt.Sprintf(":%d", kubelet))
	web := listenOn(t, a, fmt.Sprintf("%v:%d", host4, APIPort)) // another program of the host's
	at := b.seen(a, host4)
	pass := func() { barrier(t, x, y); barrier(t, y, x) }
	denied := func(when string, from place, to netip.Addr, port int) {
		t.Helper()
		answered := begin(t, from, to, port)
		checkSilence(t, fmt.Sprintf("%s, to %v:%d by UDP", when, to, port), func(what string) { say(t, from, to, port, what) }, pass, a.heard, server, nodes, web)
		if answered() {
			t.Errorf("%s, to %v:%d by TCP: it is answered", when, to, port)
		}
	}
	// The side of the pods allows everything: the receiving one decides.
	b.peer(a).Out = append(b.peer(a).Out, Grant{From: b.desired.Pods, To: b.peer(a).Theirs})
	b.set()
	denied("before anybody may", y, at, APIPort)

	a.peer(b).API = API{From: []netip.Prefix{single(a.seen(b, y.v4)), single(a.seen(b, y.v6))}, At: netip.AddrPortFrom(lan, secure)}
	a.set()
	c, err := dial(y, "tcp", at, APIPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	buffer := make([]byte, 100)
	said := func(what string) {
		t.Helper()
		if _, err := io.WriteString(c, what); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(late()); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		checkAnswer(t, string(buffer[:n]), a.seen(b, y.v4))
	}
	said("hello")
	denied("a pod that may not", other, at, APIPort)
	denied("the peer's host", b, at, APIPort)
	for _, port := range []int{secure, kubelet, talk} {
		denied("a pod that may, at another port", y, at, port)
	}
	denied("a pod that may, at another address", y, b.seen(a, netip.MustParseAddr("10.42.0.2")), APIPort)
	// The pod itself is reached as before, and reaches others as before.
	checkAnswer(t, ask(t, x, "tcp", a.seen(b, y.v4), "to it"), b.seen(a, x.v4))
	said("again")
	// The API server listens at the address by which the pods here know the host.
	secured := listenOn(t, a, fmt.Sprintf("%v:%d", host4, secure))
	a.peer(b).API.At = netip.AddrPortFrom(host4, secure)
	a.set()
	if answer, err := tryPort(y, "tcp", at, APIPort, "inside"); err != nil || !secured.source("inside").IsValid() {
		t.Errorf("%q %v", answer, err)
	}
	denied("a pod that may, at its own port", y, at, secure)
	a.peer(b).API.At = netip.AddrPortFrom(lan, secure)
	a.set()
	c, err = dial(y, "tcp", at, APIPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	said("again at the other")

	// Another pod may, too: connections go on.
	a.peer(b).API.From = append(a.peer(b).API.From, single(a.seen(b, other.v4)))
	a.set()
	said("still")
	if answer, err := tryPort(other, "tcp", at, APIPort, "other"); err != nil {
		t.Error(err)
	} else {
		checkAnswer(t, answer, a.seen(b, other.v4))
	}

	// Who may not any more is cut off.
	a.peer(b).API.From = []netip.Prefix{single(a.seen(b, other.v4))}
	a.set()
	if _, err := io.WriteString(c, "after"); err != nil {
		t.Fatal(err)
	}
	pass()
	if server.source("after").IsValid() {
		t.Error("a connection goes on that may not")
	}
	a.peer(b).API = API{}
	a.set()
	denied("after nobody may any more", other, at, APIPort)
	w.checkStrange()

	for _, wrong := range []string{"127.0.0.1:6443", "0.0.0.0:6443", "192.0.2.1:0", "[::ffff:192.0.2.1]:6443"} {
		a.peer(b).API = API{At: netip.MustParseAddrPort(wrong)}
		if err := a.table.Set(a.desired); err == nil || !strings.Contains(err.Error(), "API server") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

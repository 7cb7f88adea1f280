package kubelet

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"k8s.io/client-go/rest"
)

func TestChoose(t *testing.T) {
	loopback, lan, link := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fe80::1%eth0")
	for _, test := range []struct {
		configured string
		from       netip.Addr
		port       uint16
		listen     string // "": an error
		told       string
	}{
		{"", loopback, 0, "127.0.0.1:0", "127.0.0.1"},
		{"", loopback, 4711, "127.0.0.1:4711", "127.0.0.1"},
		{"", lan, 0, "192.0.2.7:0", "192.0.2.7"},
		{"", netip.MustParseAddr("2001:db8::1"), 9, "[2001:db8::1]:9", "2001:db8::1"},
		{"", netip.Addr{}, 0, "", ""},
		{"", link, 0, "", ""},
		{":10260", loopback, 4711, ":10260", "127.0.0.1"},
		{"0.0.0.0:10260", lan, 0, "0.0.0.0:10260", "192.0.2.7"},
		{"[::]:10260", lan, 0, "[::]:10260", "192.0.2.7"},
		{"192.0.2.9:10260", loopback, 0, "192.0.2.9:10260", "192.0.2.9"},
		{"192.0.2.9:0", loopback, 4711, "192.0.2.9:4711", "192.0.2.9"},
		{"192.0.2.9:10260", netip.Addr{}, 0, "192.0.2.9:10260", "192.0.2.9"},
		{":10260", link, 0, "", ""},
		{"box:10260", lan, 0, "", ""},
		{"192.0.2.9", lan, 0, "", ""},
		{"192.0.2.9:http", lan, 0, "", ""},
	} {
		got, err := choose(test.configured, test.from, test.port)
		if (err == nil) != (test.listen != "") || got.listen != test.listen || err == nil && got.addr.String() != test.told {
			t.Errorf("%q from %v, last %d: %+v, %v", test.configured, test.from, test.port, got, err)
		}
	}
}

func TestRouteHearsConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	original := &rest.Config{Host: "https://127.0.0.1"}
	config, route := observe(original)
	if original.Dial != nil || route.last().IsValid() {
		t.Error("the configuration of others was changed, or something is known already")
	}
	for range 2 {
		conn, err := config.Dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if route.last() != netip.MustParseAddr("127.0.0.1") || len(route.news) != 1 {
		t.Errorf("%v, %d", route.last(), len(route.news))
	}
	<-route.news
	route.note(&net.TCPAddr{IP: net.ParseIP("127.0.0.1")})
	route.note(&net.UnixAddr{Name: "/run/x"})
	if len(route.news) != 0 {
		t.Error("the same address is news")
	}
	route.note(&net.TCPAddr{IP: net.ParseIP("192.0.2.7")})
	if len(route.news) != 1 || route.last() != netip.MustParseAddr("192.0.2.7") {
		t.Error("another address is no news")
	}
	if gone(netip.MustParseAddr("127.0.0.1")) || !gone(netip.MustParseAddr("192.0.2.7")) {
		t.Error("what is this box's is not known")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := config.Dial(ctx, "tcp", l.Addr().String()); err == nil {
		t.Error("a dialer that ignores its context")
	}
}

func TestState(t *testing.T) {
	changes := 0
	s := New(Config{Logger: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Changed: func() { changes++ }})
	if s.State() != (State{}) {
		t.Errorf("at first: %+v", s.State())
	}
	where := netip.MustParseAddrPort("127.0.0.1:4711")
	s.tell(where, nil)
	if s.State().Problem == "" || changes != 1 {
		t.Errorf("without a client CA: %+v, %d changes", s.State(), changes)
	}
	s.pool = newAuthority(t).pool()
	complain := complaints{s}
	for _, text := range []string{
		"http: TLS handshake error from 127.0.0.1:9999: EOF\n",
		"http: TLS handshake error from 127.0.0.1:9999: tls: client offered only unsupported versions: certificate\n",
		"http: Accept error: too many open files; retrying in 5ms\n",
	} {
		_, _ = complain.Write([]byte(text))
	}
	if s.State().Problem != "" || changes != 1 {
		t.Errorf("after what is none of its business: %+v, %d changes", s.State(), changes)
	}
	_, _ = complain.Write([]byte("http: TLS handshake error from 127.0.0.1:9999: remote error: tls: bad certificate\n"))
	if s.State().Problem == "" || s.State().Remedy == "" || changes != 2 {
		t.Errorf("after a caller refused: %+v, %d changes", s.State(), changes)
	}
	s.reject("")
	s.tell(where, nil)
	if s.State().Problem != "" || changes != 3 {
		t.Errorf("after one did not: %+v, %d changes", s.State(), changes)
	}
	s.tell(netip.AddrPort{}, context.Canceled)
	if _, _, ok := s.Where(); ok || s.State().Problem != "" || changes != 4 {
		t.Errorf("at the end: %+v, %d changes", s.State(), changes)
	}
	s.tell(netip.AddrPort{}, errNoAddress)
	if s.State().Problem == "" {
		t.Error("no address is no problem")
	}
}

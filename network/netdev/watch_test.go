package netdev

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// What concerns other links is not told.
func TestWatchPassesOverOthers(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	var d *Device
	var socket *os.File
	if err := h.Do(func() (err error) {
		if d, err = New("liqo0", 1500); err != nil {
			return err
		}
		t.Cleanup(d.Close)
		if err = d.Add("bridge"); err != nil {
			return err
		}
		if err = d.Attach(); err != nil {
			return err
		}
		if err = d.Configure(Config{Routes: []Route{{Prefix: netip.MustParsePrefix("241.0.1.0/24"), MTU: 1400}}}); err != nil {
			return err
		}
		socket, err = listen()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, change := range []string{
		"route add 192.0.2.0/24 dev eth0",
		"addr add 192.0.2.1/32 dev eth0",
		"link set eth0 mtu 1400",
		"link add marker type bridge",
	} {
		if err := h.Do(func() error { return exec.Command("ip", strings.Fields(change)...).Run() }); err != nil {
			t.Fatalf("ip %s: %v", change, err)
		}
	}
	for b := make([]byte, 64<<10); ; {
		n, err := socket.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if d.concerns(b[:n]) {
			t.Fatalf("a change of others is told: % x", b[:n])
		}
		if strings.Contains(string(b[:n]), "marker") {
			return
		}
	}
}

// The MTU of a route is one of the things that are compared, changed and read.
func TestRouteMTU(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	if err := h.Do(func() error {
		d, err := New("liqo0", 1420)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.Add("bridge"); err != nil {
			return err
		}
		if err := d.Attach(); err != nil {
			return err
		}
		for _, mtu := range []int{0, 1400, 1400, 1280, 0} {
			want := []Route{
				{Prefix: netip.MustParsePrefix("241.0.1.0/24"), Source: netip.MustParseAddr("10.77.0.1"), MTU: mtu},
				{Prefix: netip.MustParsePrefix("fd41::/65"), MTU: mtu},
			}
			if err := d.Configure(Config{Routes: want}); err != nil {
				return err
			}
			got, err := d.Routes()
			if err != nil {
				return err
			}
			if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
				t.Errorf("with MTU %d: %+v, want %+v", mtu, got, want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

package tun

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/network/netdev"
)

// addresses and routes of the device, as the ip command shows them.
func shown(t *testing.T, h *bed.Host) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(ip(t, h, "-o", "addr", "show", "dev", device)) {
		f := strings.Fields(line)
		all = append(all, f[2]+" "+f[3])
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(ip(t, h, "-N", family, "route", "show", "dev", device)) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return strings.Join(all, "\n")
}

func TestConfigure(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	d := open(t, h, 1500)
	ip(t, h, "route", "add", "203.0.113.0/24", "dev", device)
	const foreign = "203.0.113.0/24 scope 253"
	p := netip.MustParsePrefix
	steps := []struct {
		name string
		want netdev.Config
		show []string
	}{
		{"nothing", netdev.Config{}, []string{foreign}},
		{"both families", configA, []string{
			"inet 241.0.0.1/32", "inet6 fd41::1/128", foreign,
			"241.0.1.0/24 proto 241 scope 253 src 241.0.0.1", "fd41:1::/64 proto 241 src fd41::1 metric 1024",
		}},
		{"another address and source", netdev.Config{
			Addresses: []netip.Addr{netip.MustParseAddr("241.0.0.2"), netip.MustParseAddr("fd41::2")},
			Routes:    []netdev.Route{{Prefix: p("241.0.1.0/24"), Source: netip.MustParseAddr("241.0.0.2")}, {Prefix: p("fd41:1::/64"), Source: netip.MustParseAddr("fd41::2")}},
		}, []string{
			"inet 241.0.0.2/32", "inet6 fd41::2/128", foreign,
			"241.0.1.0/24 proto 241 scope 253 src 241.0.0.2", "fd41:1::/64 proto 241 src fd41::2 metric 1024",
		}},
		{"sources on other links, and none", netdev.Config{
			Routes: []netdev.Route{{Prefix: p("241.0.1.0/24"), Source: netip.MustParseAddr("10.42.0.1")}, {Prefix: p("241.0.2.0/24"), Source: netip.Addr{}}, {Prefix: p("241.0.3.1/32"), Source: netip.MustParseAddr("10.77.0.1")}},
		}, []string{
			// The other one went with the last address.
			"241.0.1.0/24 proto 241 scope 253 src 10.42.0.1", "241.0.2.0/24 proto 241 scope 253",
			"241.0.3.1 proto 241 scope 253 src 10.77.0.1",
		}},
		{"nothing again", netdev.Config{}, nil},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			configure(t, d, s.want)
			got := shown(t, h)
			for _, line := range s.show {
				if !strings.Contains(got+"\n", line) {
					t.Errorf("no %q", line)
				}
			}
			if n := len(strings.Split(got, "\n")); n != max(1, len(s.show)) || s.show == nil && got != "" {
				t.Errorf("%d entries, want %d", n, len(s.show))
			}
			if t.Failed() {
				t.Log(got)
			}
			changesNothing(t, h, d, s.want)
		})
	}
}

func TestConfigureConflict(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	d := open(t, h, 1500)
	ip(t, h, "route", "add", "241.0.1.0/24", "dev", "eth0")
	want := configA
	want.Routes = append([]netdev.Route{{Prefix: netip.MustParsePrefix("241.0.9.0/24"), Source: addrA}}, want.Routes...)
	err := d.Configure(want)
	if !errors.Is(err, netdev.ErrConflict) || !strings.Contains(err.Error(), "241.0.1.0/24") {
		t.Errorf("Configure = %v", err)
	}
	if got := shown(t, h); !strings.Contains(got, "241.0.9.0/24") || !strings.Contains(got, "fd41:1::/64") || strings.Contains(got, "241.0.1.0/24") {
		t.Errorf("shown:\n%s", got)
	}
	if out := ip(t, h, "route", "show", "241.0.1.0/24"); !strings.Contains(out, "eth0") {
		t.Errorf("the route of others: %q", out)
	}
	ip(t, h, "route", "del", "241.0.1.0/24")
	configure(t, d, want)
}

func TestConfigureRefuses(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	d := open(t, h, 1500)
	p := netip.MustParsePrefix
	for name, c := range map[string]netdev.Config{
		"no address":      {Addresses: []netip.Addr{{}}},
		"a zone":          {Addresses: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}},
		"no prefix":       {Routes: []netdev.Route{{}}},
		"host bits":       {Routes: []netdev.Route{{Prefix: p("241.0.0.1/24")}}},
		"another family":  {Routes: []netdev.Route{{Prefix: p("241.0.0.0/24"), Source: addrA6}}},
		"twice":           {Routes: []netdev.Route{{Prefix: p("241.0.0.0/24")}, {Prefix: p("241.0.0.0/24")}}},
		"not our address": {Routes: []netdev.Route{{Prefix: p("241.0.0.0/24"), Source: netip.MustParseAddr("192.0.2.1")}}},
	} {
		if err := d.Configure(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// watch watches the device until stop is called. The channel has an element
// after each change; that Watch has begun was received.
func watch(t *testing.T, h *bed.Host, d *Device) (told <-chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- h.Do(func() error {
			return d.Watch(ctx, func() {
				select {
				case c <- struct{}{}:
				default:
				}
			})
		})
	}()
	<-c
	return c, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch = %v", err)
		}
	}
}

// Whatever others do to the device is told, and Configure puts it right.
func TestWatchAndRepair(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	d := open(t, h, 1500)
	configure(t, d, configA)
	want := shown(t, h)
	sysctl := "/proc/sys/net/ipv4/conf/" + device + "/rp_filter"
	for _, damage := range []string{
		"link set liqo0 down",
		"link set liqo0 mtu 1300",
		"route del 241.0.1.0/24",
		"route del fd41:1::/64",
		"route flush proto 241",
		"addr del 241.0.0.1/32 dev liqo0",
		"addr del fd41::1/128 dev liqo0",
		"addr add 192.0.2.7/24 dev liqo0",
		"route change 241.0.1.0/24 dev liqo0 proto 241",
		"rp_filter",
	} {
		t.Run(damage, func(t *testing.T) {
			told, stop := watch(t, h, d)
			defer stop()
			if damage == "rp_filter" {
				write(t, h, sysctl, "1")
			} else {
				ip(t, h, strings.Fields(damage)...)
			}
			<-told
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for {
				configure(t, d, configA)
				got := shown(t, h)
				if link := ip(t, h, "-d", "link", "show", device); got == want && read(t, h, sysctl) == "2" &&
					strings.Contains(link, "mtu 1500") && strings.Contains(link, "UP") && strings.Contains(link, "addrgenmode none") {
					return
				}
				select { // the kernel may still be at it
				case <-told:
				case <-ctx.Done():
					t.Fatalf("not repaired:\n%s\nwant:\n%s", got, want)
				}
			}
		})
	}
	t.Run("removed", func(t *testing.T) {
		told, stop := watch(t, h, d)
		defer stop()
		on(t, h, func() error { return Remove(device) })
		<-told
	})
}

// A route of others that takes addresses of ours is told at once.
func TestWatchTellsOfCollisions(t *testing.T) {
	h := bed.New(t).AddHost("a", "10.77.0.1/24")
	d := open(t, h, 1500)
	configure(t, d, configA)
	for _, change := range []string{
		"route add 241.0.1.128/25 dev eth0",
		"route add 241.0.0.0/16 via 10.77.0.9",
		"route add 241.0.1.0/24 dev eth0 table 77",
		"route add fd41:1::/65 dev eth0",
		"addr add 241.0.1.9/32 dev eth0",
		"route add unreachable 241.0.1.7/32",
	} {
		told, stop := watch(t, h, d)
		ip(t, h, strings.Fields(change)...)
		select {
		case <-told:
		case <-time.After(patience):
			t.Errorf("%s: is not told", change)
		}
		stop()
	}
}

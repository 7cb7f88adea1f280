package tun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
)

// holdEnv makes the test program only open the device that it names.
const holdEnv = "LIQO_TUN_HOLD"

func TestMain(m *testing.M) {
	if name := os.Getenv(holdEnv); name != "" {
		d, err := Open(name, 1500)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("holding", d.Name())
		for { // until it is killed; nothing else runs, so an empty select would be a deadlock
			time.Sleep(time.Hour)
		}
	}
	bed.Main(m)
}

// patience bounds whatever a test waits for.
const patience = 5 * time.Minute

const device = "liqo0"

// on runs f on a host.
func on(t *testing.T, h *bed.Host, f func() error) {
	t.Helper()
	if err := h.Do(f); err != nil {
		t.Fatal(err)
	}
}

// open opens the device of a host until the test ends.
func open(t *testing.T, h *bed.Host, mtu int) (d *Device) {
	t.Helper()
	var nl *netlink.Handle
	on(t, h, func() (err error) {
		if d, err = Open(device, mtu); err == nil {
			nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		}
		return err
	})
	handles.Store(d, nl)
	t.Cleanup(func() {
		handles.Delete(d)
		nl.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// handles are netlink sockets of the hosts of open devices.
var handles sync.Map

// refused opens a device that is not to be opened.
func refused(t *testing.T, h *bed.Host, want error, words ...string) {
	t.Helper()
	err := h.Do(func() error {
		d, err := Open(device, 1500)
		if err == nil {
			return errors.Join(errors.New("opened"), d.Close())
		}
		return err
	})
	if !errors.Is(err, want) {
		t.Fatalf("Open = %v, want %v", err, want)
	}
	for _, w := range append(words, device) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Open = %q, which does not say %q", err, w)
		}
	}
}

// link reads the device of a host by name.
func link(t *testing.T, h *bed.Host) (l netlink.Link) {
	t.Helper()
	on(t, h, func() (err error) { l, err = netlink.LinkByName(device); return err })
	return l
}

// ip runs the ip command on a host.
func ip(t *testing.T, h *bed.Host, args ...string) string {
	t.Helper()
	p := h.Start(bed.Cmd{Args: append([]string{"ip"}, args...)})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, p.Log())
	}
	return p.Log()
}

func write(t *testing.T, h *bed.Host, path, content string) {
	t.Helper()
	on(t, h, func() error { return os.WriteFile(path, []byte(content), 0) })
}

func read(t *testing.T, h *bed.Host, path string) string {
	t.Helper()
	var b []byte
	on(t, h, func() (err error) { b, err = os.ReadFile(path); return err })
	return strings.TrimSpace(string(b))
}

// join carries frames between two devices until they are closed. Every frame is
// checked on its way, and seen is called with it.
func join(t *testing.T, a, b *Device, mtu int, seen func([]byte)) {
	t.Helper()
	var running sync.WaitGroup
	pump := func(from, to *Device) {
		buf := make([]byte, packet.MaxLen)
		for {
			n, err := from.Read(buf)
			if err != nil {
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("reading: %v", err)
				}
				return
			}
			if seen != nil {
				seen(buf[:n])
			}
			if _, err := packet.Check(buf[:n], mtu); err != nil {
				t.Errorf("the kernel's own frame: %v\n% x", err, buf[:min(n, 120)])
				continue
			}
			if m, err := to.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
				return
			} else if err != nil || m != n {
				t.Errorf("writing: %d of %d, %v", m, n, err)
			}
		}
	}
	running.Go(func() { pump(a, b) })
	running.Go(func() { pump(b, a) })
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

var (
	addrA, addrB   = netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("241.0.1.1")
	addrA6, addrB6 = netip.MustParseAddr("fd41::1"), netip.MustParseAddr("fd41:1::1")
	configA        = netdev.Config{
		Addresses: []netip.Addr{addrA, addrA6},
		Routes:    []netdev.Route{{Prefix: netip.MustParsePrefix("241.0.1.0/24"), Source: addrA}, {Prefix: netip.MustParsePrefix("fd41:1::/64"), Source: addrA6}},
	}
	configB = netdev.Config{
		Addresses: []netip.Addr{addrB, addrB6},
		Routes:    []netdev.Route{{Prefix: netip.MustParsePrefix("241.0.0.0/24"), Source: addrB}, {Prefix: netip.MustParsePrefix("fd41::/64"), Source: addrB6}},
	}
)

// pair returns two hosts whose devices lead to each other.
func pair(t *testing.T, bd *bed.Bed, mtu int, seen func([]byte)) (a, b *bed.Host, da, db *Device) {
	t.Helper()
	a, b = bd.AddHost("a", "10.77.0.1/24"), bd.AddHost("b", "10.77.0.2/24")
	da, db = open(t, a, mtu), open(t, b, mtu)
	join(t, da, db, mtu, seen)
	configure(t, da, configA)
	configure(t, db, configB)
	return a, b, da, db
}

// configure also waits until the kernel delivers to the IPv6 addresses, which it
// sees to on a queue of its own, and tells when it is done.
func configure(t *testing.T, d *Device, want netdev.Config) {
	t.Helper()
	if err := d.Configure(want); err != nil {
		t.Fatal(err)
	}
	nl, _ := handles.Load(d)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		local, err := nl.(*netlink.Handle).RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL, LinkIndex: d.Index(), Type: unix.RTN_LOCAL},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF|netlink.RT_FILTER_TYPE)
		if err != nil {
			return err
		}
		for _, a := range want.Addresses {
			if a.Is6() && !slices.ContainsFunc(local, func(r netlink.Route) bool { return r.Dst.IP.Equal(a.AsSlice()) }) {
				return fmt.Errorf("%s is not delivered to", a)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// send moves bytes over TCP from one host to an address of another.
func send(t *testing.T, from, to *bed.Host, addr netip.Addr, size int64) {
	t.Helper()
	received := make(chan error, 1)
	ready := make(chan string, 1)
	go func() {
		received <- to.Do(func() error {
			l, err := listenTCP(addr)
			if err != nil {
				close(ready)
				return err
			}
			defer l.Close()
			ready <- l.Addr().String()
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if n, err := io.Copy(io.Discard, c); err != nil || n != size {
				return fmt.Errorf("received %d of %d: %w", n, size, err)
			}
			_, err = c.Write([]byte("all"))
			return err
		})
	}()
	if address, ok := <-ready; ok {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := from.DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.CopyN(c, zeros{}, size); err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

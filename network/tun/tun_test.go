package tun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
)

func TestOpenMakesADevice(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	defer leak.Check(t, goleak.IgnoreCurrent())
	before := sysctls(t, h)
	var d *Device
	on(t, h, func() (err error) { d, err = Open(device, 1420); return err })
	l := link(t, h)
	if l.Attrs().MTU != 1420 || l.Attrs().Flags&1 == 0 || l.Attrs().Index != d.Index() || d.Name() != device {
		t.Errorf("%+v", l.Attrs())
	}
	if tt := l.(*netlink.Tuntap); tt.NonPersist || tt.Mode != netlink.TUNTAP_MODE_TUN || tt.Flags != netlink.TUNTAP_NO_PI|netlink.TUNTAP_VNET_HDR {
		t.Errorf("%+v", tt)
	}
	if got := read(t, h, "/proc/sys/net/ipv4/conf/"+device+"/rp_filter"); got != "2" {
		t.Errorf("rp_filter %s", got)
	}
	if out := ip(t, h, "addr", "show", "dev", device); strings.Contains(out, "inet") {
		t.Errorf("it has addresses:\n%s", out)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if link(t, h).Attrs().Index != d.Index() {
		t.Error("the device did not stay")
	}
	if after := sysctls(t, h); after != before {
		t.Errorf("settings of the host changed:\n%s\n%s", before, after)
	}
	on(t, h, func() error { return errors.Join(Remove(device), Remove(device)) })
	if out := ip(t, h, "link"); strings.Contains(out, device) {
		t.Errorf("the device is still there:\n%s", out)
	}
}

// sysctls reads settings that are not the device's.
func sysctls(t *testing.T, h *bed.Host) string {
	var all []string
	for _, which := range []string{"all", "default", "eth0"} {
		for _, s := range []string{"ipv4/conf/%s/rp_filter", "ipv4/conf/%s/forwarding", "ipv6/conf/%s/addr_gen_mode", "ipv6/conf/%s/disable_ipv6"} {
			s = fmt.Sprintf(s, which)
			all = append(all, s+"="+read(t, h, "/proc/sys/net/"+s))
		}
	}
	return strings.Join(all, " ")
}

func TestOpenRefuses(t *testing.T) {
	for name, make := range map[string]string{
		"it is a bridge device": "link add liqo0 type bridge",
		"it is a TAP device":    "tuntap add mode tap name liqo0 vnet_hdr",
		"flags":                 "tuntap add mode tun name liqo0",
		"other flags":           "tuntap add mode tun name liqo0 vnet_hdr multi_queue",
	} {
		t.Run(name, func(t *testing.T) {
			h := bed.New(t).AddHost("a", "")
			ip(t, h, strings.Fields(make)...)
			before := link(t, h).Attrs().MTU
			refused(t, h, netdev.ErrForeign, name, "ip link delete")
			if after := link(t, h).Attrs().MTU; after != before {
				t.Errorf("it has the MTU %d now", after)
			}
		})
	}
	t.Run("names and MTUs", func(t *testing.T) {
		for _, name := range []string{"", "a/b", "liqo%d", "sixteen-letters!", ".", "..", "a b"} {
			if _, err := Open(name, 1500); err == nil {
				t.Errorf("opened %q", name)
			}
			if err := Remove(name); err == nil {
				t.Errorf("removed %q", name)
			}
		}
		for _, mtu := range []int{0, -1, 1279, 65536} {
			if _, err := Open(device, mtu); err == nil {
				t.Errorf("opened with MTU %d", mtu)
			}
		}
	})
	t.Run("a second opener", func(t *testing.T) {
		h := bed.New(t).AddHost("a", "")
		d := open(t, h, 1500)
		refused(t, h, ErrBusy)
		if _, err := d.Write(nil); errors.Is(err, netdev.ErrRemoved) || errors.Is(err, os.ErrClosed) {
			t.Errorf("the first cannot use it any more: %v", err)
		}
	})
	t.Run("no device file", func(t *testing.T) {
		h := bed.New(t).AddHost("a", "")
		on(t, h, func() error { return unix.Mount("tmpfs", "/dev/net", "tmpfs", 0, "") })
		refused(t, h, ErrUnavailable, "modprobe tun")
		on(t, h, func() error { return os.WriteFile(clonePath, nil, 0o600) })
		if err := h.Do(func() error { _, err := Open(device, 1500); return err }); err == nil {
			t.Error("opened an ordinary file")
		}
	})
}

func TestRemoveRefusesOtherDevices(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	err := h.Do(func() error { return Remove("eth0") })
	if !errors.Is(err, netdev.ErrForeign) {
		t.Errorf("Remove = %v", err)
	}
	ip(t, h, "tuntap", "add", "mode", "tap", "name", device)
	if err := h.Do(func() error { return Remove(device) }); !errors.Is(err, netdev.ErrForeign) {
		t.Errorf("Remove = %v", err)
	}
	link(t, h)
}

// A process that is killed leaves the device, and the next one goes on with it.
func TestAdoptAfterKill(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := h.Start(bed.Cmd{Args: []string{self}, Env: []string{holdEnv + "=" + device}})
	if err := p.WaitLog(ctx, "holding"); err != nil {
		t.Fatal(err)
	}
	index := link(t, h).Attrs().Index
	refused(t, h, ErrBusy)
	ip(t, h, "addr", "add", "241.0.0.1/32", "dev", device)
	ip(t, h, "-6", "addr", "add", "fd41::1/128", "dev", device, "nodad", "noprefixroute")
	ip(t, h, "route", "add", "241.0.1.0/24", "dev", device, "src", "241.0.0.1", "proto", fmt.Sprint(netdev.Protocol))
	ip(t, h, "route", "add", "fd41:1::/64", "dev", device, "src", "fd41::1", "proto", fmt.Sprint(netdev.Protocol))
	routes := func() string {
		return strings.ReplaceAll(ip(t, h, "route", "show", "dev", device)+ip(t, h, "-6", "route", "show", "dev", device), "linkdown ", "")
	}
	before := routes()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := routes(); got != before {
		t.Errorf("after the kill:\n%s\nbefore:\n%s", got, before)
	}
	d := open(t, h, 1400)
	if d.Index() != index || link(t, h).Attrs().MTU != 1400 {
		t.Errorf("index %d was %d, MTU %d", d.Index(), index, link(t, h).Attrs().MTU)
	}
	if got := routes(); got != before {
		t.Errorf("adopted:\n%s\nbefore:\n%s", got, before)
	}
	// Exactly what Configure would have made.
	changesNothing(t, h, d, configA)
}

// changesNothing fails the test when Configure writes though all is as it should
// be. What the kernel still tells of earlier changes ends after a while.
func changesNothing(t *testing.T, h *bed.Host, d *Device, want netdev.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		if told := messages(t, h, func() { configure(t, d, want) }); told != "" {
			return errors.New("a second time changes something:\n" + told)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// messages runs f and returns what the kernel told of changes meanwhile.
func messages(t *testing.T, h *bed.Host, f func()) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := h.Start(bed.Cmd{Args: []string{"ip", "monitor", "link", "address", "route", "netconf"}, Name: "monitor"})
	// It says nothing when it has begun, so things are changed until it tells.
	mark := func(name string) {
		if err := bed.Poll(ctx, func() error {
			ip(t, h, "link", "add", name, "type", "bridge")
			ip(t, h, "link", "delete", name)
			if !strings.Contains(p.Log(), name) {
				return errors.New("the monitor is silent")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	mark("before")
	f()
	mark("after")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(p.Log()) {
		if !strings.Contains(line, "before") && !strings.Contains(line, "after") && strings.Contains(line, device) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "")
}

func TestRemovedWhileOpen(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	d := open(t, h, 1500)
	ended := make(chan error, 1)
	go func() {
		for b := make([]byte, packet.MaxLen); ; {
			if _, err := d.Read(b); err != nil {
				ended <- err
				return
			}
		}
	}()
	on(t, h, func() error { return Remove(device) })
	if err := <-ended; !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("Read = %v", err)
	}
	if _, err := d.Read(make([]byte, packet.MaxLen)); !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("Read again = %v", err)
	}
	if _, err := d.Write(make([]byte, 100)); !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("Write = %v", err)
	}
	if err := d.Configure(configA); !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("Configure = %v", err)
	}
	if err := d.SetMTU(1400); !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("SetMTU = %v", err)
	}
	again := open(t, h, 1500)
	configure(t, again, configA)
	// The first is another device, though it has the same name.
	if err := d.Configure(netdev.Config{}); !errors.Is(err, netdev.ErrRemoved) {
		t.Errorf("Configure = %v", err)
	}
	if out := ip(t, h, "route", "show", "dev", device); out == "" {
		t.Error("the new device lost its routes")
	}
}

func TestCloseEndsRead(t *testing.T) {
	h := bed.New(t).AddHost("a", "")
	d := open(t, h, 1500)
	if _, err := d.Read(make([]byte, packet.MaxLen-1)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("Read into a short buffer = %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		for b := make([]byte, packet.MaxLen); ; {
			if _, err := d.Read(b); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read = %v", err)
	}
	if _, err := d.Write(make([]byte, 100)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write = %v", err)
	}
	on(t, h, func() error {
		if err := d.Configure(configA); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Configure = %v", err)
		}
		if err := d.SetMTU(1400); !errors.Is(err, os.ErrClosed) {
			t.Errorf("SetMTU = %v", err)
		}
		return nil
	})
	if out := ip(t, h, "addr", "show", "dev", device); strings.Contains(out, "inet") || !strings.Contains(out, "mtu 1500") {
		t.Errorf("the closed device was changed:\n%s", out)
	}
}

func TestSetMTU(t *testing.T) {
	a, b, da, db := pair(t, bed.New(t), 1500, nil)
	send(t, a, b, addrB, 1<<20)
	for _, mtu := range []int{1280, 1420, 1500} {
		for _, d := range []*Device{da, db} {
			if err := d.SetMTU(mtu); err != nil {
				t.Fatal(err)
			}
			configure(t, d, map[*Device]netdev.Config{da: configA, db: configB}[d])
		}
		if got := link(t, a).Attrs().MTU; got != mtu {
			t.Errorf("MTU %d, want %d", got, mtu)
		}
		send(t, a, b, addrB, 1<<20)
		send(t, a, b, addrB6, 1<<20)
	}
	if err := da.SetMTU(100); err == nil {
		t.Error("an MTU without IPv6")
	}
}

// A host that checks sources strictly everywhere still takes what the device
// brings.
func TestStrictHost(t *testing.T) {
	a, b, _, _ := pair(t, bed.New(t), 1500, nil)
	write(t, b, "/proc/sys/net/ipv4/conf/all/rp_filter", "1")
	ip(t, b, "route", "add", "198.51.100.0/24", "dev", "eth0")
	ip(t, a, "addr", "add", "198.51.100.1/32", "dev", "lo")
	var listener, received = make(chan error, 1), make(chan error, 1)
	go func() {
		received <- b.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			tv := unix.NsecToTimeval(int64(patience))
			err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
				unix.Bind(fd, &unix.SockaddrInet4{Port: 9000, Addr: addrB.As4()}))
			listener <- err
			if err == nil {
				_, _, err = unix.Recvfrom(fd, make([]byte, 10), 0)
			}
			return err
		})
	}()
	if err := <-listener; err != nil {
		t.Fatal(err)
	}
	on(t, a, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr("198.51.100.1").As4()}),
			unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 9000, Addr: addrB.As4()}))
	})
	if err := <-received; err != nil {
		t.Fatal(err)
	}
}

package tun

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/packet"
)

// Reasons for which Open or a Device fails, for errors.Is. The error around them
// says what to do.
var (
	// ErrUnavailable means that this machine gives us no TUN devices.
	ErrUnavailable = errors.New("no TUN devices here")
	// ErrBusy means that another process holds the device.
	ErrBusy = errors.New("in use by another process")
)

const (
	clonePath = "/dev/net/tun"
	// mode is the kind of device; with it, one read or write is one packet with
	// its virtio-net header and nothing before that.
	mode = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	// offloads are what the kernel may leave undone in packets for us. It cuts
	// UDP itself: not every kernel takes UDP superpackets back (6.2 does).
	offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
)

// Device is an open TUN device. Open returns it.
type Device struct {
	*netdev.Device
	file *os.File
}

// Open creates the persistent device of that name, or adopts the one that an
// earlier Open made, sets its MTU, and brings it up. Its addresses and routes
// stay as they are until Configure. Only one process can have it open.
//
// Errors wrap ErrUnavailable, netdev.ErrForeign or ErrBusy where these are the reason. A
// device that was created is gone again when Open fails.
func Open(name string, mtu int) (_ *Device, err error) {
	base, err := netdev.New(name, mtu)
	if err != nil {
		return nil, fmt.Errorf("opening the network device %s: %w", name, err)
	}
	d := &Device{Device: base}
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening the network device %s: %w", name, errors.Join(err, d.Close()))
		}
	}()
	exists, err := adoptable(base)
	if err != nil {
		return nil, err
	}
	fd, err := attach(name, exists)
	if err != nil {
		return nil, err
	}
	d.file = os.NewFile(uintptr(fd), clonePath)
	if err := base.Attach(); err != nil {
		return nil, err
	}
	if err := d.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1) }); err != nil {
		return nil, fmt.Errorf("making it persistent: %w", err)
	}
	return d, nil
}

// attach opens the device of that name and returns a descriptor that does not
// block. It must be attached before the runtime's poller sees it.
func attach(name string, exists bool) (_ int, err error) {
	fd, err := unix.Open(clonePath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return 0, fmt.Errorf("%w: %s: %w: load the kernel's module with `modprobe tun`; in a container, pass the device in", ErrUnavailable, clonePath, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return 0, fmt.Errorf("%w: %s: %w: allow the device in the unit (DeviceAllow=%s rw)", ErrUnavailable, clonePath, err, clonePath)
	case err != nil:
		return 0, fmt.Errorf("%s: %w", clonePath, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	flags := uint16(mode)
	if !exists {
		flags |= unix.IFF_TUN_EXCL
	}
	ifr.SetUint16(flags)
	switch err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); {
	case errors.Is(err, unix.EBUSY):
		return 0, busy(name)
	case errors.Is(err, unix.EPERM):
		return 0, fmt.Errorf("%w: %w: the process needs CAP_NET_ADMIN", ErrUnavailable, err)
	case errors.Is(err, unix.EINVAL):
		return 0, netdev.Foreign(name, "it is of another kind")
	case err != nil:
		return 0, err
	}
	// An earlier owner may have set the first two otherwise.
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, packet.HeaderLen); err != nil {
		return 0, fmt.Errorf("setting the length of the virtio-net header: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETLE, 1); err != nil {
		return 0, fmt.Errorf("setting the byte order of the virtio-net header: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		return 0, fmt.Errorf("setting offloads: %w", err)
	}
	return fd, nil
}

// adoptable reports whether a device of that name exists. The error is not nil
// when there is one that is not made as ours.
func adoptable(d *netdev.Device) (bool, error) {
	link, err := d.Find()
	if link == nil || err != nil {
		return false, err
	}
	t, ok := link.(*netlink.Tuntap)
	const flags, know = netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR, netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_MULTI_QUEUE
	switch {
	case !ok:
		return false, netdev.Foreign(d.Name(), "it is a "+link.Type()+" device")
	case t.Mode != netlink.TUNTAP_MODE_TUN:
		return false, netdev.Foreign(d.Name(), "it is a TAP device")
	case t.NonPersist:
		return false, busy(d.Name()) // or it would be gone
	case t.Flags&know != flags:
		return false, netdev.Foreign(d.Name(), "it has other flags than a TUN device of ours")
	}
	return true, nil
}

func busy(name string) error {
	return fmt.Errorf("%w: stop it, if it is another agent; `grep -l 'iff:.*%s' /proc/[0-9]*/fdinfo/*` shows which one it is", ErrBusy, name)
}

// Remove deletes the device of that name, with its addresses and routes, even
// while a process has it open. It returns nil when there is none, and an error
// that wraps netdev.ErrForeign when it is not a TUN device.
func Remove(name string) error {
	return netdev.Remove(name, func(link netlink.Link) string {
		if t, ok := link.(*netlink.Tuntap); !ok || t.Mode != netlink.TUNTAP_MODE_TUN {
			return "it is a " + link.Type() + " device and no TUN device"
		}
		return ""
	})
}

// Read waits for a frame, puts it into b, and returns its length. b must have
// room for packet.MaxLen bytes, because the kernel would cut a longer frame
// without a word; else the error is io.ErrShortBuffer. After Close it is
// os.ErrClosed, and it wraps netdev.ErrRemoved when the device is gone.
func (d *Device) Read(b []byte) (int, error) {
	if len(b) < packet.MaxLen {
		return 0, io.ErrShortBuffer
	}
	for {
		n, err := d.file.Read(b)
		// A packet that the header cannot describe, which was dropped.
		if errors.Is(err, unix.EINVAL) {
			continue
		}
		return n, d.fileError("reading from", err)
	}
}

// Write gives one frame to the kernel. The frame must be trusted or have passed
// packet.Check. After Close the error is os.ErrClosed, and it wraps netdev.ErrRemoved
// when the device is gone. Any other error concerns this frame only: the kernel
// refused it, had no memory for it, or the device is down.
func (d *Device) Write(frame []byte) (int, error) {
	n, err := d.file.Write(frame)
	return n, d.fileError("writing to", err)
}

// fileError adds to an error of the file what it means. The common ones come for
// single packets, so they cost no formatting.
func (d *Device) fileError(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrClosed):
		return os.ErrClosed
	case errors.Is(err, unix.EBADFD), errors.Is(err, unix.EFAULT), !errors.As(err, new(unix.Errno)):
		// The device has let go of the descriptor, or is about to, or the poller
		// says that there is nothing to wait for any more.
		return fmt.Errorf("%s the network device %s: %w", doing, d.Name(), netdev.ErrRemoved)
	}
	return err
}

// Close ends reads and writes, and leaves the device with its addresses and
// routes. Packets that are sent to it meanwhile are dropped. Closing again is
// harmless.
func (d *Device) Close() error {
	var err error
	if d.file != nil {
		err = d.file.Close()
	}
	d.Device.Close()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("closing the network device %s: %w", d.Name(), err)
	}
	return nil
}

// control runs f with the descriptor.
func (d *Device) control(f func(fd int) error) error {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

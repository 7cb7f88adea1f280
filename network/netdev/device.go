package netdev

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reasons for which something fails, for errors.Is. The error around them says
// what to do.
var (
	// ErrForeign means that a device of the name exists that is not made as ours.
	ErrForeign = errors.New("not a device of ours")
	// ErrRemoved means that the device was deleted while it was open.
	ErrRemoved = errors.New("deleted by somebody else")
)

// Lengths of packets that a device may have, in bytes.
const (
	minMTU = 1280  // below, the kernel takes IPv6 off the device
	maxMTU = 65535 // of an IP packet
)

// Device is a network device of ours.
type Device struct {
	name  string
	index int // written by Attach

	mu  sync.Mutex // one Configure at a time
	nl  *conn      // guarded by mu
	mtu int        // guarded by mu

	wanted atomic.Pointer[[]Route] // of the last Configure
}

// New returns the device of that name and MTU, which need not exist before Attach. It must be closed.
func New(name string, mtu int) (*Device, error) {
	if err := errors.Join(checkName(name), checkMTU(mtu)); err != nil {
		return nil, err
	}
	c, err := newConn()
	if err != nil {
		return nil, err
	}
	return &Device{name: name, nl: c, mtu: mtu}, nil
}

// Find returns what the kernel has by that name, nil for nothing.
func (d *Device) Find() (netlink.Link, error) {
	link, err := d.nl.LinkByName(d.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	return link, err
}

// Add creates the device as a link of that kind. It must not exist.
func (d *Device) Add(kind string) error {
	return d.nl.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: d.name}, LinkType: kind})
}

// Attach finds the device, which exists now, gives it the settings that it should have, and brings it up.
func (d *Device) Attach() error {
	// A device that is deleted meanwhile is not found, or is another one, to which
	// nothing has been done yet.
	link, err := d.nl.LinkByName(d.name)
	if err != nil {
		return err
	}
	d.index = link.Attrs().Index
	return d.repair()
}

// Close leaves the device as it is. Closing again is harmless.
func (d *Device) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nl.close()
}

// Name returns the name that was given to New.
func (d *Device) Name() string { return d.name }

// Index returns the interface index, which stays the same for as long as the
// device exists.
func (d *Device) Index() int { return d.index }

// Remove deletes the device of that name with its addresses and routes, even while a process has it open. It returns nil
// when there is none. Foreign returns why it is to stay, "" if it is ours; the error then wraps ErrForeign.
func Remove(name string, foreign func(netlink.Link) string) error {
	if err := checkName(name); err != nil {
		return err
	}
	c, err := newConn()
	if err != nil {
		return fmt.Errorf("deleting the network device %s: %w", name, err)
	}
	defer c.close()
	link, err := c.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		if why := foreign(link); why != "" {
			err = Foreign(name, why)
		} else if err = c.LinkDel(link); errors.Is(err, unix.ENODEV) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("deleting the network device %s: %w", name, err)
	}
	return nil
}

// Foreign is the error about a device that has our name and is not ours.
func Foreign(name, what string) error {
	return fmt.Errorf("%w: %s: if nothing needs it, delete it with `ip link delete %s`; else give one of them another name", ErrForeign, what, name)
}

// checkName refuses what the kernel would refuse, or would take as a pattern.
func checkName(name string) error {
	if name == "" || len(name) >= unix.IFNAMSIZ || name == "." || name == ".." || strings.ContainsAny(name, "/:% \t\n\v\f\r\x00") {
		return fmt.Errorf("%q cannot be the name of a network device: use at most %d letters and digits", name, unix.IFNAMSIZ-1)
	}
	return nil
}

func checkMTU(mtu int) error {
	if mtu < minMTU || mtu > maxMTU {
		return fmt.Errorf("a network device cannot have the MTU %d: use %d to %d", mtu, minMTU, maxMTU)
	}
	return nil
}

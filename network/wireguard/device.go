package wireguard

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	rtnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/network/netdev"
)

// Overhead is how many bytes a packet gets longer on its way at most, between addresses of IPv6.
const Overhead = 80

// kind is what the kernel calls such devices.
const kind = "wireguard"

// ErrUnavailable means that this machine gives us no WireGuard.
var ErrUnavailable = errors.New("the kernel of this machine has no WireGuard")

// Config is what a device should have.
type Config struct {
	// Port is the UDP port on which it listens, on all addresses.
	Port  uint16
	Peers []Peer
	// Addresses and Routes are as for any device of ours.
	Addresses []netip.Addr
	Routes    []netdev.Route
}

// Peer is somebody to whom packets go through the device, and from whom they come.
type Peer struct {
	Key       Key // public
	Preshared Key
	// Endpoint is where the peer was last told to be; the zero AddrPort is not known. The kernel follows the peer from there,
	// so it is only set when the device has not got the peer, or this is another one than the last Configure had.
	Endpoint netip.AddrPort
	// Keepalive has the kernel send something at least that often, in whole seconds; 0 is never.
	Keepalive time.Duration
	// Allowed are the addresses from which the peer's packets may come, and of which packets go to it.
	Allowed []netip.Prefix
}

// Seen is what the kernel says about a peer.
type Seen struct {
	Peer
	Handshake time.Time // the last one; zero for none
	// Received and Sent count bytes since the kernel has got the peer.
	Received, Sent uint64
}

// Device is a WireGuard device of ours. Open returns it.
type Device struct {
	base    *netdev.Device
	kernel  *kernel
	private Key
	told    map[Key]netip.AddrPort // the endpoints of the last Configure
}

// Open creates the device of that name, with that private key, MTU and port, or adopts the one that an earlier process made,
// which keeps its own key and peers. Its routes stay as they are until Configure.
//
// Errors wrap ErrUnavailable or netdev.ErrForeign where these are the reason. A device that was created is gone again when
// Open fails.
func Open(name string, mtu int, private Key, port uint16) (_ *Device, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening the network device %s: %w", name, err)
		}
	}()
	base, err := netdev.New(name, mtu)
	if err != nil {
		return nil, err
	}
	d := &Device{base: base, told: make(map[Key]netip.AddrPort)}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.kernel, err = dial(); err != nil {
		return nil, err
	}
	link, err := base.Find()
	if err != nil {
		return nil, err
	}
	if link == nil {
		if err := base.Add(kind); errors.Is(err, unix.EOPNOTSUPP) {
			return nil, errNoModule
		} else if err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, Remove(name))
			}
		}()
	} else if why := foreign(link); why != "" {
		return nil, netdev.Foreign(name, why)
	}
	there, err := d.kernel.get(name)
	if err != nil {
		return nil, err
	}
	d.private = there.private
	change := device{port: port}
	if d.private == (Key{}) {
		d.private, change.private = private, private
	}
	if there.port != port || change.private != (Key{}) {
		if err := d.kernel.set(name, change); err != nil {
			return nil, portError(port, err)
		}
	}
	if err := base.Attach(); err != nil { // the port is opened by this
		return nil, portError(port, err)
	}
	return d, nil
}

// portError says what it means that a port cannot be opened.
func portError(port uint16, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is in use by another program: %w", port, err)
	}
	return err
}

// errNoModule is why devices cannot be made.
var errNoModule = fmt.Errorf("%w; try `modprobe wireguard`", ErrUnavailable)

// Available returns nil if the kernel has WireGuard; it loads the module if it has to. Else the error wraps ErrUnavailable.
func Available() error {
	k, err := dial()
	if err != nil {
		return err
	}
	return k.close()
}

// Remove deletes the device of that name, and returns nil when there is none. The error wraps netdev.ErrForeign if it is no
// WireGuard device.
func Remove(name string) error { return netdev.Remove(name, foreign) }

// foreign says why a device is none of ours, "" if it is.
func foreign(link rtnetlink.Link) string {
	if link.Type() != kind {
		return "it is a " + link.Type() + " device and no WireGuard device"
	}
	return ""
}

// Private returns the private key of the device, with which it can be made again.
func (d *Device) Private() Key { return d.private }

// Configure compares the device with what is wanted, and changes the difference: peers first, then routes. The kernel gives
// addresses to one peer only, so those of peers must not overlap. The error wraps netdev.ErrRemoved when the device is gone.
func (d *Device) Configure(want Config) error {
	if err := d.configure(want); err != nil {
		return fmt.Errorf("network device %s: %w", d.base.Name(), err)
	}
	return d.base.Configure(netdev.Config{Addresses: want.Addresses, Routes: want.Routes})
}

func (d *Device) configure(want Config) error {
	have, err := d.get()
	if err != nil {
		return err
	}
	told := make(map[Key]netip.AddrPort, len(want.Peers))
	for _, p := range want.Peers {
		told[p.Key] = p.Endpoint
	}
	for key := range have.peers {
		if _, wanted := told[key]; !wanted {
			if err := d.kernel.set(d.base.Name(), device{peers: map[Key]Seen{key: {Peer: Peer{Key: key}}}, remove: true}); err != nil {
				return fmt.Errorf("remove a peer: %w", err)
			}
		}
	}
	for _, p := range want.Peers {
		there, known := have.peers[p.Key]
		change := p
		if last, said := d.told[p.Key]; known && (!said || last == p.Endpoint) {
			change.Endpoint = netip.AddrPort{} // it has moved on from there, maybe
		}
		if known && !change.Endpoint.IsValid() && there.Preshared == p.Preshared && there.Keepalive == p.Keepalive && sameSet(there.Allowed, p.Allowed) {
			continue
		}
		if err := d.kernel.set(d.base.Name(), device{peers: map[Key]Seen{p.Key: {Peer: change}}}); err != nil {
			return fmt.Errorf("set a peer: %w", err)
		}
	}
	if have.port != want.Port {
		if err := d.kernel.set(d.base.Name(), device{port: want.Port}); err != nil {
			return portError(want.Port, err)
		}
	}
	d.told = told
	return nil
}

// Peers returns what the kernel says about the peers, by their keys. The error wraps netdev.ErrRemoved when the device is gone.
func (d *Device) Peers() (map[Key]Seen, error) {
	there, err := d.get()
	if err != nil {
		return nil, fmt.Errorf("network device %s: %w", d.base.Name(), err)
	}
	return there.peers, nil
}

func (d *Device) get() (device, error) {
	there, err := d.kernel.get(d.base.Name())
	if errors.Is(err, unix.ENODEV) || err == nil && there.index != d.base.Index() {
		return device{}, netdev.ErrRemoved
	}
	return there, err
}

// Routes returns the routes of ours through the device.
func (d *Device) Routes() ([]netdev.Route, error) { return d.base.Routes() }

// Close releases the sockets. The device stays.
func (d *Device) Close() {
	d.base.Close()
	if d.kernel != nil {
		_ = d.kernel.close()
	}
}

func sameSet(a, b []netip.Prefix) bool {
	set := func(all []netip.Prefix) map[netip.Prefix]bool {
		out := make(map[netip.Prefix]bool, len(all))
		for _, p := range all {
			out[p] = true
		}
		return out
	}
	return maps.Equal(set(a), set(b))
}

// device is what the kernel says about one, or is told; fields that are zero are not told.
type device struct {
	index   int
	private Key
	port    uint16
	peers   map[Key]Seen
	remove  bool // the peers are removed
}

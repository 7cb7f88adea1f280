package wireguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Versions of the families that are spoken.
const (
	controlVersion = 2
	version        = 1
)

// patience limits how long the kernel may take to answer.
const patience = 30 * time.Second

// kernel is the generic netlink family of WireGuard. It is safe for concurrent use.
type kernel struct {
	conn   *netlink.Conn
	family netlink.HeaderType
}

// dial finds the family. The kernel loads the module for that.
func dial() (_ *kernel, err error) {
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	k := &kernel{conn: conn}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	attributes := netlink.NewAttributeEncoder()
	attributes.String(unix.CTRL_ATTR_FAMILY_NAME, unix.WG_GENL_NAME)
	answers, err := k.ask(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, controlVersion, 0, attributes)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoModule
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for WireGuard: %w", err)
	}
	for _, a := range answers {
		err := decode(a.Data, func(d *netlink.AttributeDecoder) error {
			if d.Type() == unix.CTRL_ATTR_FAMILY_ID {
				k.family = netlink.HeaderType(d.Uint16())
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("asking the kernel for WireGuard: %w", err)
		}
	}
	if k.family == 0 {
		return nil, errNoModule
	}
	return k, nil
}

func (k *kernel) close() error { return k.conn.Close() }

// headerLen is the length of a struct genlmsghdr: command, version, and two bytes for nothing.
const headerLen = 4

// ask sends a request and returns the answers.
func (k *kernel) ask(family netlink.HeaderType, command, version uint8, flags netlink.HeaderFlags, attributes *netlink.AttributeEncoder) ([]netlink.Message, error) {
	b, err := attributes.Encode()
	if err != nil {
		return nil, err
	}
	if err := k.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return k.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: family, Flags: netlink.Request | flags},
		Data:   append([]byte{command, version, 0, 0}, b...),
	})
}

// decode calls each for the attributes of an answer.
func decode(b []byte, each func(*netlink.AttributeDecoder) error) error {
	if len(b) < headerLen {
		return errors.New("the kernel's answer is incomplete")
	}
	d, err := netlink.NewAttributeDecoder(b[headerLen:])
	if err != nil {
		return err
	}
	return attributesOf(d, each)
}

func attributesOf(d *netlink.AttributeDecoder, each func(*netlink.AttributeDecoder) error) error {
	for d.Next() {
		if err := each(d); err != nil {
			return err
		}
	}
	return d.Err()
}

// get returns what the kernel says about a device. The error is unix.ENODEV if there is none.
func (k *kernel) get(name string) (device, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.String(unix.WGDEVICE_A_IFNAME, name)
	answers, err := k.ask(k.family, unix.WG_CMD_GET_DEVICE, version, netlink.Dump, attributes)
	if err != nil {
		return device{}, fmt.Errorf("reading its peers: %w", err)
	}
	out := device{peers: make(map[Key]Seen)}
	for _, a := range answers {
		if err := decode(a.Data, out.attribute); err != nil {
			return device{}, fmt.Errorf("reading its peers: %w", err)
		}
	}
	return out, nil
}

func (v *device) attribute(d *netlink.AttributeDecoder) error {
	switch d.Type() {
	case unix.WGDEVICE_A_IFINDEX:
		v.index = int(d.Uint32())
	case unix.WGDEVICE_A_LISTEN_PORT:
		v.port = d.Uint16()
	case unix.WGDEVICE_A_PRIVATE_KEY:
		copy(v.private[:], d.Bytes())
	case unix.WGDEVICE_A_PEERS:
		d.Nested(func(list *netlink.AttributeDecoder) error {
			return attributesOf(list, func(d *netlink.AttributeDecoder) error {
				d.Nested(v.peer)
				return nil
			})
		})
	}
	return nil
}

// peer reads one peer. What does not fit into one message goes on in the next one, under the same key.
func (v *device) peer(list *netlink.AttributeDecoder) error {
	var seen Seen
	err := attributesOf(list, func(d *netlink.AttributeDecoder) error {
		switch d.Type() {
		case unix.WGPEER_A_PUBLIC_KEY:
			copy(seen.Key[:], d.Bytes())
			if before, ok := v.peers[seen.Key]; ok {
				seen = before
			}
		case unix.WGPEER_A_PRESHARED_KEY:
			copy(seen.Preshared[:], d.Bytes())
		case unix.WGPEER_A_ENDPOINT:
			seen.Endpoint = parseEndpoint(d.Bytes())
		case unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL:
			seen.Keepalive = time.Duration(d.Uint16()) * time.Second
		case unix.WGPEER_A_LAST_HANDSHAKE_TIME:
			if b := d.Bytes(); len(b) >= 16 {
				if seconds := int64(binary.NativeEndian.Uint64(b)); seconds > 0 {
					seen.Handshake = time.Unix(seconds, int64(binary.NativeEndian.Uint64(b[8:])))
				}
			}
		case unix.WGPEER_A_RX_BYTES:
			seen.Received = d.Uint64()
		case unix.WGPEER_A_TX_BYTES:
			seen.Sent = d.Uint64()
		case unix.WGPEER_A_ALLOWEDIPS:
			d.Nested(func(list *netlink.AttributeDecoder) error {
				return attributesOf(list, func(d *netlink.AttributeDecoder) error {
					d.Nested(seen.allowed)
					return nil
				})
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.peers[seen.Key] = seen
	return nil
}

// allowed reads one range of addresses.
func (s *Seen) allowed(list *netlink.AttributeDecoder) error {
	var addr netip.Addr
	bits := 0
	err := attributesOf(list, func(d *netlink.AttributeDecoder) error {
		switch d.Type() {
		case unix.WGALLOWEDIP_A_IPADDR:
			addr, _ = netip.AddrFromSlice(d.Bytes())
		case unix.WGALLOWEDIP_A_CIDR_MASK:
			bits = int(d.Uint8())
		}
		return nil
	})
	if p := netip.PrefixFrom(addr, bits); err == nil && p.IsValid() {
		s.Allowed = append(s.Allowed, p)
	}
	return err
}

// set tells the kernel what of a device changes.
func (k *kernel) set(name string, v device) error {
	a := netlink.NewAttributeEncoder()
	a.String(unix.WGDEVICE_A_IFNAME, name)
	if v.private != (Key{}) {
		a.Bytes(unix.WGDEVICE_A_PRIVATE_KEY, v.private[:])
	}
	if v.port != 0 {
		a.Uint16(unix.WGDEVICE_A_LISTEN_PORT, v.port)
	}
	if len(v.peers) > 0 {
		a.Nested(unix.WGDEVICE_A_PEERS, func(list *netlink.AttributeEncoder) error {
			for _, p := range v.peers {
				list.Nested(0, func(a *netlink.AttributeEncoder) error { return p.encode(a, v.remove) })
			}
			return nil
		})
	}
	_, err := k.ask(k.family, unix.WG_CMD_SET_DEVICE, version, netlink.Acknowledge, a)
	return err
}

// encode says what a peer is to be.
func (p Peer) encode(a *netlink.AttributeEncoder, remove bool) error {
	a.Bytes(unix.WGPEER_A_PUBLIC_KEY, p.Key[:])
	if remove {
		a.Uint32(unix.WGPEER_A_FLAGS, unix.WGPEER_F_REMOVE_ME)
		return nil
	}
	a.Uint32(unix.WGPEER_A_FLAGS, unix.WGPEER_F_REPLACE_ALLOWEDIPS)
	a.Bytes(unix.WGPEER_A_PRESHARED_KEY, p.Preshared[:])
	a.Uint16(unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, uint16(min(p.Keepalive/time.Second, math.MaxUint16)))
	if p.Endpoint.IsValid() {
		endpoint, err := encodeEndpoint(p.Endpoint)
		if err != nil {
			return err
		}
		a.Bytes(unix.WGPEER_A_ENDPOINT, endpoint)
	}
	a.Nested(unix.WGPEER_A_ALLOWEDIPS, func(list *netlink.AttributeEncoder) error {
		for _, prefix := range p.Allowed {
			list.Nested(0, func(a *netlink.AttributeEncoder) error {
				family := uint16(unix.AF_INET)
				if prefix.Addr().Is6() {
					family = unix.AF_INET6
				}
				a.Uint16(unix.WGALLOWEDIP_A_FAMILY, family)
				a.Bytes(unix.WGALLOWEDIP_A_IPADDR, prefix.Addr().AsSlice())
				a.Uint8(unix.WGALLOWEDIP_A_CIDR_MASK, uint8(prefix.Bits()))
				return nil
			})
		}
		return nil
	})
	return nil
}

// encodeEndpoint returns a struct sockaddr_in or sockaddr_in6.
func encodeEndpoint(at netip.AddrPort) ([]byte, error) {
	addr := at.Addr().Unmap()
	family := uint16(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	out := binary.BigEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, family), at.Port())
	if addr.Is4() {
		return append(append(out, addr.AsSlice()...), make([]byte, 8)...), nil
	}
	var scope uint32
	if zone := addr.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("the link of %s: %w", at, err)
		}
		scope = uint32(link.Index)
	}
	out = append(append(out, 0, 0, 0, 0), addr.AsSlice()...)
	return binary.NativeEndian.AppendUint32(out, scope), nil
}

// parseEndpoint reads a struct sockaddr_in or sockaddr_in6; the zone is the number of the link.
func parseEndpoint(b []byte) netip.AddrPort {
	if len(b) < 8 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		addr := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(addr, port)
	}
	return netip.AddrPort{}
}

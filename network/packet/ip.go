package packet

import (
	"encoding/binary"
	"net/netip"
)

// Options of IPv4 and of the options headers of IPv6.
const (
	ipv4End         = 0
	ipv4NOP         = 1
	ipv4LooseRoute  = 131
	ipv4StrictRoute = 137

	ipv6Pad1        = 0
	ipv6Jumbo       = 0xc2
	ipv6HomeAddress = 0xc9 // Mobile IPv6: stands for the source address
)

// checkIPv4 checks the header and finds the transport header.
func checkIPv4(b []byte, info *Info, t *transport) Reason {
	if len(b) < ipv4Len {
		return Truncated
	}
	n := int(b[0]&0x0f) * 4
	if n < ipv4Len || n > len(b) || int(binary.BigEndian.Uint16(b[2:])) != len(b) {
		return BadLength
	}
	if headerSum(b[:n]) != 0xffff {
		return BadChecksum
	}
	info.Src, info.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	if !mayTravel(info.Src) || !mayTravel(info.Dst) {
		return BadAddress
	}
	if !checkIPv4Options(b[ipv4Len:n]) {
		return BadOption
	}
	info.Protocol = b[9]
	t.start = n
	const more, offsetMask = 0x2000, 0x1fff
	field := binary.BigEndian.Uint16(b[6:])
	if field&(more|offsetMask) == 0 {
		return 0
	}
	info.Fragment = true
	return t.checkFragment(len(b)-n, int(field&offsetMask)*8, field&more != 0, info.Protocol)
}

// checkFragment checks a fragment with that many bytes at that offset. Only the
// first keeps its transport header.
func (t *transport) checkFragment(length, offset int, more bool, protocol uint8) Reason {
	switch {
	case length == 0, more && length%8 != 0, offset+length > 65535:
		return BadFragment
	case offset > 0 && offset < tcpLen && protocol == protoTCP:
		return BadFragment // it would overwrite the header (RFC 3128)
	case offset > 0:
		t.start = -1
	}
	return 0
}

// headerSum is the ones' complement sum of an IPv4 header, whose length is a
// multiple of 4: 0xffff when its checksum is right.
func headerSum(b []byte) uint16 {
	var sum uint64
	for ; len(b) >= 4; b = b[4:] {
		sum += uint64(binary.BigEndian.Uint32(b))
	}
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}

// checkIPv4Options reports whether options are well formed and none of them is a
// source route.
func checkIPv4Options(b []byte) bool {
	for len(b) > 0 {
		switch b[0] {
		case ipv4End:
			return true
		case ipv4NOP:
			b = b[1:]
			continue
		case ipv4LooseRoute, ipv4StrictRoute:
			return false
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		b = b[b[1]:]
	}
	return true
}

// checkIPv6 checks the header and walks the extension headers to the transport
// header.
func checkIPv6(b []byte, info *Info, t *transport) Reason {
	if len(b) < ipv6Len {
		return Truncated
	}
	if ipv6Len+int(binary.BigEndian.Uint16(b[4:])) != len(b) {
		return BadLength
	}
	info.Src, info.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	if !mayTravel(info.Src) || !mayTravel(info.Dst) {
		return BadAddress
	}
	info.Protocol = b[6]
	t.start = ipv6Len
	for walked := 0; ; walked++ {
		x := b[t.start:]
		switch info.Protocol {
		case protoHopByHop, protoDestOpts:
			// Hop-by-hop options are the first extension, or do not count as such.
			if info.Protocol == protoHopByHop && walked > 0 || walked == maxExtensions {
				return BadOption
			}
			if len(x) < 8 {
				return Truncated
			}
			n := (int(x[1]) + 1) * 8
			if n > len(x) {
				return Truncated
			}
			if !checkIPv6Options(x[2:n]) {
				return BadOption
			}
			info.Protocol = x[0]
			t.start += n
		case protoFragment:
			if info.Fragment || walked == maxExtensions {
				return BadOption
			}
			if len(x) < 8 {
				return Truncated
			}
			info.Fragment = true
			info.Protocol = x[0]
			t.start += 8
			field := binary.BigEndian.Uint16(x[2:])
			if reason := t.checkFragment(len(x)-8, int(field&^7), field&1 != 0, info.Protocol); reason != 0 {
				return reason
			}
			if t.start < 0 {
				return 0 // the rest belongs to headers of another packet
			}
		case protoRouting:
			// The packet would go on to where no filter has looked: no type of it
			// has a use between pods.
			return BadOption
		default:
			return 0
		}
	}
}

// checkIPv6Options reports whether the options of an options header are well
// formed, and neither lengthen the packet nor replace its source.
func checkIPv6Options(b []byte) bool {
	for len(b) > 0 {
		switch b[0] {
		case ipv6Pad1:
			b = b[1:]
			continue
		case ipv6Jumbo, ipv6HomeAddress:
			return false
		}
		if len(b) < 2 || 2+int(b[1]) > len(b) {
			return false
		}
		b = b[2+int(b[1]):]
	}
	return true
}

// mayTravel reports whether packets from and to an address may come from another
// host: it is unicast, and not one that means this host or this link only.
// Leaving out link-local addresses leaves out what IPv6 takes from neighbours
// only, such as router advertisements and redirects.
func mayTravel(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		// 0.0.0.0/8 is "this network"; 240.0.0.0/4 is unicast to the kernel, and
		// our own pool is there.
		return b[0] != 0 && b[0] != 127 && b[0]&0xf0 != 224 && b != [4]byte{255, 255, 255, 255} && !a.IsLinkLocalUnicast()
	}
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && !a.Is4In6()
}

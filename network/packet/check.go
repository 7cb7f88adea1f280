package packet

import (
	"encoding/binary"
	"net/netip"
)

// Lengths of frames in bytes.
const (
	// HeaderLen is the length of the virtio-net header in front of the packet.
	HeaderLen = 10
	// MaxLen is the length of the longest frame: a TUN device hands out no
	// packet longer than 65535 bytes, of either IP version.
	MaxLen = HeaderLen + 65535
)

// Fields of struct virtio_net_hdr: flags and gso_type are bytes, the others 16 bits.
const (
	offFlags      = 0
	offGSOType    = 1
	offHdrLen     = 2
	offGSOSize    = 4
	offCsumStart  = 6
	offCsumOffset = 8
)

// Values of flags and gso_type.
const (
	flagNeedsCsum = 1
	flagDataValid = 2

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoECN   = 0x80
)

// IP protocols, which are also the next headers of IPv6.
const (
	protoHopByHop = 0
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoICMPv6   = 58
	protoDestOpts = 60
)

// Shortest headers, and where TCP and UDP have their checksum.
const (
	ipv4Len = 20
	ipv6Len = 40
	tcpLen  = 20
	udpLen  = 8
	icmpLen = 8 // the shortest message of ICMP and ICMPv6

	tcpChecksum = 16
	udpChecksum = 6
)

// minSegment is the least gso_size. Linux sends no smaller one: its smallest
// MSS is 48 (net.ipv4.tcp_min_snd_mss), of which timestamps take 12. With it, a
// superpacket makes no more packets in our kernel than the same bytes could
// bring as frames of their own, so that sending one gains an attacker nothing.
const minSegment = 48 - 12

// maxExtensions is how many IPv6 extension headers are walked. RFC 8200 names
// six places; nothing that is sent between pods has more than two or three.
const maxExtensions = 8

// Info is what a frame's packet says about itself.
type Info struct {
	Src, Dst netip.Addr
	// Protocol is the IP protocol number. In IPv6 it is that of the first header
	// that is not hop-by-hop options, destination options or a fragment header;
	// of a fragment other than the first, what its fragment header names.
	Protocol uint8
	// Fragment says that the packet is a fragment of a larger one, or carries
	// the fragment header of IPv6. Then it may have no transport header.
	Fragment bool
}

// Check reports whether a frame that a peer sent may be written to a TUN device
// with that MTU (of the packet, without the virtio-net header), and what it
// carries. The error is always a Reason.
//
// The frame is not changed, with one exception: the flag DATA_VALID, by which
// the sender's kernel says that it has verified the checksums, is cleared. The
// device sets it for every packet that came through a network card, so refusing
// it would refuse honest frames; but nobody else's word is taken for a
// checksum. Checksums of TCP and UDP are not verified, as no router does.
//
// The header length (hdr_len) of a superpacket may be anything from its headers
// to all of it: kernels differ, and use it only to place the data in memory.
// Fields that the kernel does not read, such as csum_start without NEEDS_CSUM,
// may hold anything.
func Check(frame []byte, mtu int) (Info, error) {
	var info Info
	if len(frame) <= HeaderLen {
		return info, Truncated
	}
	if len(frame) > MaxLen {
		return info, BadLength
	}
	h, b := frame[:HeaderLen:HeaderLen], frame[HeaderLen:]
	var t transport
	var reason Reason
	switch b[0] >> 4 {
	case 4:
		reason = checkIPv4(b, &info, &t)
	case 6:
		reason = checkIPv6(b, &info, &t)
	default:
		reason = BadVersion
	}
	if reason == 0 && t.start >= 0 {
		reason = t.check(b, &info)
	}
	if reason == 0 {
		reason = checkHeader(h, b, mtu, &info, &t)
	}
	if reason != 0 {
		return Info{}, reason
	}
	h[offFlags] &^= flagDataValid
	return info, nil
}

// Addresses returns source and destination of the packet in a frame that our own
// device handed out. Nothing else in the frame is looked at. ok is false when it
// is too short for them, or neither IPv4 nor IPv6.
func Addresses(frame []byte) (src, dst netip.Addr, ok bool) {
	if len(frame) < HeaderLen+ipv4Len {
		return src, dst, false
	}
	switch b := frame[HeaderLen:]; {
	case b[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), true
	case b[0]>>4 == 6 && len(b) >= ipv6Len:
		return netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), true
	}
	return src, dst, false
}

// transport is where the transport header of a packet is.
type transport struct {
	start int // offset in the packet; -1: a fragment other than the first, which has none
	len   int // of a TCP or UDP header with its options
}

// check looks at the transport header itself, and sets its length.
func (t *transport) check(b []byte, info *Info) Reason {
	payload := b[t.start:]
	switch info.Protocol {
	case protoTCP:
		if len(payload) < tcpLen {
			return Truncated
		}
		t.len = int(payload[12]>>4) * 4
		if t.len < tcpLen || t.len > len(payload) {
			return BadTransport
		}
	case protoUDP:
		if len(payload) < udpLen {
			return Truncated
		}
		t.len = udpLen
		// A fragment has the length of the whole.
		if n := int(binary.BigEndian.Uint16(payload[4:])); n < udpLen || n > len(payload) && !info.Fragment {
			return BadTransport
		}
	case protoICMP, protoICMPv6:
		if len(payload) < icmpLen {
			return Truncated
		}
	}
	return 0
}

// checkHeader compares the virtio-net header with the packet.
func checkHeader(h, b []byte, mtu int, info *Info, t *transport) Reason {
	flags, gso := h[offFlags], h[offGSOType]
	if flags&^(flagNeedsCsum|flagDataValid) != 0 {
		return BadFlags
	}
	partial := flags&flagNeedsCsum != 0
	if partial {
		if info.Fragment {
			return BadFragment
		}
		start := int(binary.LittleEndian.Uint16(h[offCsumStart:]))
		offset := int(binary.LittleEndian.Uint16(h[offCsumOffset:]))
		switch {
		case start != t.start,
			info.Protocol != protoTCP && info.Protocol != protoUDP,
			info.Protocol == protoTCP && offset != tcpChecksum,
			info.Protocol == protoUDP && offset != udpChecksum:
			return BadPartial
		}
	}
	hdrLen := int(binary.LittleEndian.Uint16(h[offHdrLen:]))
	size := int(binary.LittleEndian.Uint16(h[offGSOSize:]))
	if gso == gsoNone {
		if hdrLen > len(b) { // the kernel reads it even so
			return BadSegments
		}
		if len(b) > mtu {
			return TooBig
		}
		return 0
	}
	want := uint8(gsoTCPv4)
	if b[0]>>4 == 6 {
		want = gsoTCPv6
	}
	switch headers := t.start + t.len; {
	case gso&^gsoECN != want, info.Protocol != protoTCP:
		return BadSegments
	case info.Fragment:
		return BadFragment
	case !partial:
		// The segments get checksums only from this.
		return BadPartial
	case hdrLen < headers, hdrLen > len(b), size < minSegment:
		return BadSegments
	case headers+size > mtu:
		return TooBig
	case b[t.start+13]&(tcpSYN|tcpRST) != 0:
		// Each segment would be one.
		return BadSegments
	}
	return 0
}

// Flags in byte 13 of a TCP header that a segment of a stream does not have.
const (
	tcpSYN = 0x02
	tcpRST = 0x04
)

package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// frames returns what TestFrames of network/tun has captured from the devices of
// two hosts, by kind. The MTU was 1500.
func frames(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/frames/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d captured frames: %v", len(files), err)
	}
	all := make(map[string][]byte, len(files))
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var length int
		var digits string
		if _, err := fmt.Sscan(string(b), &length, &digits); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		data, err := hex.DecodeString(digits)
		if err != nil || len(data) > length {
			t.Fatalf("%s: %d of %d bytes, %v", path, len(data), length, err)
		}
		all[filepath.Base(path)] = append(data, make([]byte, length-len(data))...)
	}
	return all
}

func TestRealFramesPass(t *testing.T) {
	big := 0
	for name, f := range frames(t) {
		before := bytes.Clone(f)
		info, err := Check(f, 1500)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(f, before) {
			t.Errorf("%s: changed", name)
		}
		src, dst, ok := Addresses(f)
		if !ok || info.Src != src || info.Dst != dst || src.Is6() != strings.HasPrefix(name, "ipv6") {
			t.Errorf("%s: %v, but %v to %v", name, info, src, dst)
		}
		protocol := map[string]uint8{"tcp": protoTCP, "udp": protoUDP, "icmp": protoICMP}[strings.Split(name, "-")[1]]
		if protocol == protoICMP && src.Is6() {
			protocol = protoICMPv6
		}
		if info.Protocol != protocol || info.Fragment != strings.Contains(name, "fragment") {
			t.Errorf("%s: %+v", name, info)
		}
		if len(f) > 10000 {
			big++
		}
	}
	if big < 2 {
		t.Errorf("%d superpackets", big)
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	all := frames(t)
	for _, name := range []string{"ipv4-tcp-partial-gso-1", "ipv6-udp-middle-fragment", "ipv4-icmp-8"} {
		f := all[name]
		bad := bytes.Clone(f)
		bad[HeaderLen] = 0xf0
		if n := testing.AllocsPerRun(100, func() {
			if _, err := Check(f, 1500); err != nil {
				t.Fatal(err)
			}
			if _, err := Check(bad, 1500); err != BadVersion {
				t.Fatal(err)
			}
			Addresses(f)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons + 1 {
		name := Reason(r).String()
		if name == "" || seen[name] || strings.ToLower(name) != name || strings.Contains(name, " ") {
			t.Errorf("reason %d is %q", r, name)
		}
		seen[name] = true
	}
	if got := TooBig.Error(); got != "frame refused: too_big" {
		t.Error(got)
	}
}

// sum makes the checksum of an IPv4 header right again.
func sum(f []byte) {
	b := f[HeaderLen:]
	if b[0]>>4 != 4 {
		return
	}
	n := min(int(b[0]&15)*4, len(b))
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^onesComplement(b[:n]))
}

// onesComplement adds up 16 bits at a time, as RFC 1071 has it.
func onesComplement(b []byte) uint16 {
	var n uint32
	for i := 0; i+1 < len(b); i += 2 {
		n += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}

// set16 writes a field of the virtio-net header.
func set16(off int, v uint16) func([]byte) []byte {
	return func(f []byte) []byte { binary.LittleEndian.PutUint16(f[off:], v); return f }
}

// set8 writes bytes at an offset into the virtio-net header or the packet.
func set8(off int, v ...byte) func([]byte) []byte {
	return func(f []byte) []byte { copy(f[off:], v); return f }
}

// ip4 changes bytes of an IPv4 packet and makes its header checksum right.
func ip4(off int, v ...byte) func([]byte) []byte {
	return func(f []byte) []byte { copy(f[HeaderLen+off:], v); sum(f); return f }
}

func ip6(off int, v ...byte) func([]byte) []byte { return set8(HeaderLen+off, v...) }

// resize cuts the packet or makes it longer, and has it say so.
func resize(n int) func([]byte) []byte {
	return func(f []byte) []byte {
		f = append(f, make([]byte, max(0, HeaderLen+n-len(f)))...)[:HeaderLen+n]
		relength(f)
		return f
	}
}

func relength(f []byte) {
	if b := f[HeaderLen:]; b[0]>>4 == 4 {
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		sum(f)
	} else {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Len))
	}
}

// options puts options into an IPv4 header; their length is a multiple of 4.
func options(o ...byte) func([]byte) []byte {
	return func(f []byte) []byte {
		at := HeaderLen + ipv4Len
		f = append(f[:at:at], append(bytes.Clone(o), f[at:]...)...)
		f[HeaderLen] += byte(len(o) / 4)
		shift(f, len(o))
		return f
	}
}

// extension puts an extension header in front of everything that follows the
// IPv6 header. Its first byte becomes what the packet had there.
func extension(kind byte, x ...byte) func([]byte) []byte {
	return func(f []byte) []byte {
		x, at := bytes.Clone(x), HeaderLen+ipv6Len
		x[0], f[HeaderLen+6] = f[HeaderLen+6], kind
		f = append(f[:at:at], append(x, f[at:]...)...)
		shift(f, len(x))
		return f
	}
}

// shift makes the lengths right after n bytes were put in front of the transport
// header.
func shift(f []byte, n int) {
	relength(f)
	if f[offFlags]&flagNeedsCsum != 0 {
		set16(offCsumStart, binary.LittleEndian.Uint16(f[offCsumStart:])+uint16(n))(f)
	}
	if f[offGSOType] != gsoNone {
		set16(offHdrLen, binary.LittleEndian.Uint16(f[offHdrLen:])+uint16(n))(f)
	}
}

func chain(all ...func([]byte) []byte) func([]byte) []byte {
	return func(f []byte) []byte {
		for _, do := range all {
			f = do(f)
		}
		return f
	}
}

func same(f []byte) []byte { return f }

var padN = []byte{0, 0, 1, 4, 0, 0, 0, 0} // an options header with padding only

func TestMutations(t *testing.T) {
	const (
		gso4, gso6 = "ipv4-tcp-partial-gso-1", "ipv6-tcp-partial-gso-4"
		tcp4, tcp6 = "ipv4-tcp-partial", "ipv6-tcp-partial"
		udp4, udp6 = "ipv4-udp-partial", "ipv6-udp-partial"
		icmp4      = "ipv4-icmp-8"
		icmp6      = "ipv6-icmp-128"
		first4     = "ipv4-udp-first-fragment"
		middle4    = "ipv4-udp-middle-fragment"
		last4      = "ipv4-udp-last-fragment"
		first6     = "ipv6-udp-first-fragment"
		middle6    = "ipv6-udp-middle-fragment"
		last6      = "ipv6-udp-last-fragment"
	)
	for _, m := range []struct {
		frame string
		what  string
		do    func([]byte) []byte
		want  Reason // 0: passes
	}{
		// Lengths of the frame.
		{icmp4, "empty", func([]byte) []byte { return nil }, Truncated},
		{icmp4, "only a header", func(f []byte) []byte { return f[:HeaderLen] }, Truncated},
		{icmp4, "one byte of a packet", func(f []byte) []byte { return f[:HeaderLen+1] }, Truncated},
		{icmp4, "cut in the IPv4 header", func(f []byte) []byte { return f[:HeaderLen+19] }, Truncated},
		{icmp6, "cut in the IPv6 header", func(f []byte) []byte { return f[:HeaderLen+39] }, Truncated},
		{icmp4, "longer than a device has it", func(f []byte) []byte { return append(f, make([]byte, 65536)...) }, BadLength},
		{icmp4, "one byte more than it says", func(f []byte) []byte { return append(f, 0) }, BadLength},
		{icmp4, "one byte less than it says", func(f []byte) []byte { return f[:len(f)-1] }, BadLength},
		{icmp6, "one byte more than it says", func(f []byte) []byte { return append(f, 0) }, BadLength},
		{icmp6, "one byte less than it says", func(f []byte) []byte { return f[:len(f)-1] }, BadLength},
		{gso6, "a jumbogram", ip6(4, 0, 0), BadLength},

		// The IPv4 header.
		{icmp4, "version 0", set8(HeaderLen, 0x05), BadVersion},
		{icmp4, "version 5", set8(HeaderLen, 0x55), BadVersion},
		{icmp4, "an IHL of 4", ip4(0, 0x44), BadLength},
		{tcp4, "an IHL beyond the packet", chain(resize(ipv4Len), ip4(0, 0x4f)), BadLength},
		{icmp4, "a wrong checksum", set8(HeaderLen+10, 0, 0), BadChecksum},
		{icmp4, "another TTL without a new checksum", func(f []byte) []byte { f[HeaderLen+8]--; return f }, BadChecksum},

		// Addresses.
		{icmp4, "from nowhere", ip4(12, 0, 0, 0, 0), BadAddress},
		{icmp4, "from this network", ip4(12, 0, 1, 2, 3), BadAddress},
		{icmp4, "from loopback", ip4(12, 127, 0, 0, 1), BadAddress},
		{icmp4, "to loopback", ip4(16, 127, 8, 9, 1), BadAddress},
		{icmp4, "from multicast", ip4(12, 224, 0, 0, 1), BadAddress},
		{icmp4, "to multicast", ip4(16, 239, 255, 255, 250), BadAddress},
		{icmp4, "to everybody", ip4(16, 255, 255, 255, 255), BadAddress},
		{icmp4, "from a link-local address", ip4(12, 169, 254, 0, 1), BadAddress},
		{icmp4, "from class E", ip4(12, 255, 255, 255, 254), 0},
		{icmp6, "from nowhere", ip6(8, make([]byte, 16)...), BadAddress},
		{icmp6, "to loopback", ip6(24, netip.IPv6Loopback().AsSlice()...), BadAddress},
		{icmp6, "to multicast", ip6(24, netip.MustParseAddr("ff0e::1").AsSlice()...), BadAddress},
		{icmp6, "from a link-local address", ip6(8, netip.MustParseAddr("fe80::1").AsSlice()...), BadAddress},
		{icmp6, "from a mapped address", ip6(8, netip.MustParseAddr("::ffff:10.0.0.1").AsSlice()...), BadAddress},

		// IPv4 options.
		{icmp4, "padding", options(1, 1, 1, 0), 0},
		{icmp4, "record route", options(7, 7, 4, 0, 0, 0, 0, 0), 0},
		{gso4, "router alert", chain(options(148, 4, 0, 0), set16(offGSOSize, 1444)), 0},
		{icmp4, "a loose source route", options(131, 7, 4, 10, 0, 0, 1, 0), BadOption},
		{icmp4, "a strict source route", options(1, 137, 7, 4, 10, 0, 0, 1), BadOption},
		{icmp4, "something behind the end", options(0, 131, 3, 4), 0}, // nobody reads it
		{icmp4, "an option of no length", options(7, 0, 0, 0), BadOption},
		{icmp4, "an option of length 1", options(7, 1, 0, 0), BadOption},
		{icmp4, "an option beyond the header", options(7, 5, 0, 0), BadOption},
		{icmp4, "an option without a length", options(1, 1, 1, 7), BadOption},

		// IPv6 extension headers.
		{udp6, "hop-by-hop options", extension(protoHopByHop, padN...), 0},
		{gso6, "destination options", chain(extension(protoDestOpts, padN...), set16(offGSOSize, 1420)), 0},
		{udp6, "both", chain(extension(protoDestOpts, padN...), extension(protoHopByHop, padN...)), 0},
		{udp6, "hop-by-hop options second", chain(extension(protoHopByHop, padN...), extension(protoDestOpts, padN...)), BadOption},
		{udp6, "the same many times", chain(repeat(maxExtensions, extension(protoDestOpts, padN...))...), 0},
		{udp6, "too many", chain(repeat(maxExtensions+1, extension(protoDestOpts, padN...))...), BadOption},
		{udp6, "a routing header of type 0", extension(protoRouting, 0, 0, 0, 0, 0, 0, 0, 0), BadOption},
		{udp6, "a segment routing header", extension(protoRouting, 0, 0, 4, 1, 0, 0, 0, 0), BadOption},
		{udp6, "a routing header behind options", chain(extension(protoRouting, 0, 0, 2, 0, 0, 0, 0, 0), extension(protoDestOpts, padN...)), BadOption},
		{udp6, "a jumbo option", extension(protoHopByHop, 0, 0, 0xc2, 4, 0, 1, 0, 0), BadOption},
		{udp6, "a home address", extension(protoDestOpts, append([]byte{0, 2, 0xc9, 16}, make([]byte, 20)...)...), BadOption},
		{udp6, "an option beyond its header", extension(protoDestOpts, 0, 0, 1, 5, 0, 0, 0, 0), BadOption},
		{udp6, "an option without a length", extension(protoDestOpts, 0, 0, 0, 0, 0, 0, 0, 5), BadOption},
		{icmp6, "options beyond the packet", extension(protoDestOpts, 0, 255, 1, 4, 0, 0, 0, 0), Truncated},
		{icmp6, "options cut off", chain(ip6(6, protoDestOpts), resize(ipv6Len+7)), Truncated},
		{icmp6, "a fragment header cut off", chain(ip6(6, protoFragment), resize(ipv6Len+7)), Truncated},
		{icmp6, "no next header", chain(ip6(6, 59), resize(ipv6Len)), 0},

		// Transport headers.
		{tcp4, "a TCP header cut off", chain(set8(offFlags, 0), resize(ipv4Len+19)), Truncated},
		{udp4, "a UDP header cut off", chain(set8(offFlags, 0), resize(ipv4Len+7)), Truncated},
		{icmp4, "an ICMP header cut off", resize(ipv4Len + 7), Truncated},
		{icmp6, "an ICMPv6 header cut off", resize(ipv6Len + 7), Truncated},
		{tcp4, "a TCP header of 16 bytes", ip4(ipv4Len+12, 0x40), BadTransport},
		{tcp4, "a TCP header beyond the packet", chain(resize(ipv4Len+56), ip4(ipv4Len+12, 0xf0)), BadTransport},
		{udp4, "a datagram of 7 bytes", ip4(ipv4Len+4, 0, 7), BadTransport},
		{udp6, "a jumbo datagram", ip6(ipv6Len+4, 0, 0), BadTransport},
		{udp4, "a datagram beyond the packet", ip4(ipv4Len+4, 0, 109), BadTransport},
		{udp4, "a datagram with something behind it", ip4(ipv4Len+4, 0, 100), 0},
		{icmp4, "another protocol", ip4(9, 132), 0},
		{icmp4, "another protocol without a byte", chain(ip4(9, 132), resize(ipv4Len)), 0},

		// Flags and checksums.
		{icmp4, "RSC_INFO", set8(offFlags, 4), BadFlags},
		{icmp4, "a tunnel's checksum", set8(offFlags, 8), BadFlags},
		{icmp4, "an unknown flag", set8(offFlags, 0x80), BadFlags},
		{tcp4, "csum_start one less", set16(offCsumStart, ipv4Len-1), BadPartial},
		{tcp4, "csum_start in the IP header", set16(offCsumStart, 0), BadPartial},
		{tcp4, "csum_start beyond the packet", set16(offCsumStart, 0xffff), BadPartial},
		{tcp6, "csum_start in the IP header", set16(offCsumStart, 8), BadPartial},
		{tcp4, "the offset of UDP", set16(offCsumOffset, udpChecksum), BadPartial},
		{udp6, "the offset of TCP", set16(offCsumOffset, tcpChecksum), BadPartial},
		{udp4, "an offset beyond the packet", set16(offCsumOffset, 0xffff), BadPartial},
		{icmp4, "a missing checksum of ICMP", chain(set8(offFlags, flagNeedsCsum), set16(offCsumStart, ipv4Len), set16(offCsumOffset, 2)), BadPartial},
		{icmp4, "fields that the flag would make count", chain(set16(offCsumStart, 0xffff), set16(offCsumOffset, 0xffff)), 0},
		{udp4, "a whole checksum", set8(offFlags, 0), 0},

		// Segmentation.
		{gso4, "as it is", same, 0},
		{gso4, "with ECN", set8(offGSOType, gsoTCPv4|gsoECN), 0},
		{gso6, "with ECN", set8(offGSOType, gsoTCPv6|gsoECN), 0},
		{gso4, "as IPv6", set8(offGSOType, gsoTCPv6), BadSegments},
		{gso6, "as IPv4", set8(offGSOType, gsoTCPv4), BadSegments},
		{gso4, "as UDP fragments", set8(offGSOType, 3), BadSegments},
		{gso4, "as UDP segments", set8(offGSOType, 5), BadSegments},
		{gso4, "as a tunnel", set8(offGSOType, gsoTCPv4|0x20), BadSegments},
		{gso4, "ECN and nothing", set8(offGSOType, gsoECN), BadSegments},
		{udp4, "of UDP", chain(set8(offGSOType, gsoTCPv4), set16(offGSOSize, 500)), BadSegments},
		{gso4, "without a checksum to fill in", set8(offFlags, 0), BadPartial},
		{gso4, "of no size", set16(offGSOSize, 0), BadSegments},
		{gso4, "of one byte", set16(offGSOSize, 1), BadSegments},
		{gso4, "of the smallest size", set16(offGSOSize, minSegment), 0},
		{gso4, "of less", set16(offGSOSize, minSegment-1), BadSegments},
		{gso4, "of one byte more than the MTU", set16(offGSOSize, 1449), TooBig},
		{gso6, "of one byte more than the MTU", set16(offGSOSize, 1429), TooBig},
		{gso4, "by fragments", set16(offGSOSize, 0xffff), TooBig},
		{gso4, "headers of no length", set16(offHdrLen, 0), BadSegments},
		{gso4, "headers one byte too short", set16(offHdrLen, 51), BadSegments},
		{gso4, "headers beyond the packet", func(f []byte) []byte { return set16(offHdrLen, uint16(len(f)-HeaderLen+1))(f) }, BadSegments},
		{gso4, "headers up to the end", func(f []byte) []byte { return set16(offHdrLen, uint16(len(f)-HeaderLen))(f) }, 0},
		{gso4, "of a SYN", ip4(ipv4Len+13, tcpSYN), BadSegments},
		{gso6, "of a RST", ip6(ipv6Len+13, tcpRST), BadSegments},
		{gso4, "nothing to cut", set8(offGSOType, gsoNone), TooBig},
		{gso4, "with options that make segments too long", options(148, 4, 0, 0), TooBig},
		{gso6, "with options that make segments too long", extension(protoDestOpts, padN...), TooBig},
		{tcp4, "one segment", chain(resize(600), set8(offGSOType, gsoTCPv4), set16(offGSOSize, 1448), set16(offHdrLen, 52)), 0},

		// Not to be cut.
		{icmp4, "of the MTU", resize(1500), 0},
		{icmp4, "one byte more than the MTU", resize(1501), TooBig},
		{icmp6, "of the MTU", resize(1500), 0},
		{icmp6, "one byte more than the MTU", resize(1501), TooBig},
		{icmp4, "headers beyond the packet", set16(offHdrLen, 1500), BadSegments},

		// Fragments.
		{first4, "as it is", same, 0},
		{first4, "with a missing checksum", chain(set8(offFlags, flagNeedsCsum), set16(offCsumStart, ipv4Len), set16(offCsumOffset, udpChecksum)), BadFragment},
		{middle4, "with a missing checksum", chain(set8(offFlags, flagNeedsCsum), set16(offCsumStart, ipv4Len), set16(offCsumOffset, udpChecksum)), BadFragment},
		{first6, "with a missing checksum", chain(set8(offFlags, flagNeedsCsum), set16(offCsumStart, ipv6Len+8), set16(offCsumOffset, udpChecksum)), BadFragment},
		{gso4, "to be cut", ip4(6, 0x20, 0), BadFragment},
		{first4, "without a byte", resize(ipv4Len), BadFragment},
		{last4, "without a byte", resize(ipv4Len), BadFragment},
		{last6, "without a byte", resize(ipv6Len + 8), BadFragment},
		{middle4, "not a multiple of 8", resize(1499), BadFragment},
		{middle6, "not a multiple of 8", resize(1495), BadFragment},
		{last4, "beyond the largest packet", ip4(6, 0x1f, 0xff), BadFragment},
		{last6, "beyond the largest packet", ip6(ipv6Len+2, 0xff, 0xf8), BadFragment},
		{first4, "without its UDP header", resize(ipv4Len + 8), 0},
		{first4, "without its TCP header", chain(ip4(9, protoTCP), resize(ipv4Len+16)), Truncated},
		{middle4, "over the TCP header", ip4(6, 0x20, 1, 64, protoTCP), BadFragment},
		{middle4, "over the end of the TCP header", ip4(6, 0x20, 2, 64, protoTCP), BadFragment},
		{middle4, "behind the TCP header", ip4(6, 0x20, 3, 64, protoTCP), 0},
		{udp6, "one fragment that is all", chain(set8(offFlags, 0), extension(protoFragment, 0, 0, 0, 0, 0, 0, 0, 1)), 0},
		{udp6, "one fragment that is all, with a missing checksum", extension(protoFragment, 0, 0, 0, 0, 0, 0, 0, 1), BadFragment},
		{first6, "two fragment headers", extension(protoFragment, 0, 0, 0, 0, 0, 0, 0, 1), BadOption},
		{middle6, "of a packet with options", ip6(ipv6Len, protoDestOpts), 0},
		{first6, "of a packet with a routing header", ip6(ipv6Len, protoRouting), BadOption},
	} {
		t.Run(m.frame+" "+m.what, func(t *testing.T) {
			f := frames(t)[m.frame]
			if f == nil {
				t.Fatal("no such frame")
			}
			f = m.do(f)
			before := bytes.Clone(f)
			info, err := Check(f, 1500)
			if m.want == 0 && err != nil || m.want != 0 && err != m.want {
				t.Errorf("Check = %v, want %v", err, m.want)
			}
			if err != nil && info != (Info{}) {
				t.Errorf("refused, but %+v", info)
			}
			if !bytes.Equal(f, before) {
				t.Error("the frame was changed")
			}
			if err == nil {
				consistent(t, f, 1500, info)
			}
		})
	}
}

func repeat(n int, do func([]byte) []byte) []func([]byte) []byte {
	var all []func([]byte) []byte
	for range n {
		all = append(all, do)
	}
	return all
}

// The kernel of the peer may say what it has verified; we do not believe it.
func TestDataValidIsCleared(t *testing.T) {
	for name, f := range frames(t) {
		for _, bad := range []bool{false, true} {
			f := bytes.Clone(f)
			f[offFlags] |= flagDataValid
			if bad {
				f[offFlags] |= 0x40
			}
			before := bytes.Clone(f)
			_, err := Check(f, 1500)
			if bad != (err == BadFlags) {
				t.Errorf("%s: %v", name, err)
			}
			if !bad {
				before[offFlags] &^= flagDataValid
			}
			if !bytes.Equal(f, before) {
				t.Errorf("%s: flags %x", name, f[0])
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	for name, f := range frames(t) {
		for n := range min(len(f), 200) {
			if _, err := Check(f[:n:n], 1500); err == nil && n < len(f) {
				t.Errorf("%s: %d of %d bytes pass", name, n, len(f))
			}
			if _, _, ok := Addresses(f[:n:n]); ok && n < HeaderLen+ipv4Len {
				t.Errorf("%s: addresses in %d bytes", name, n)
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	all := frames(b)
	for _, name := range []string{"ipv4-udp-partial", "ipv4-tcp-partial-gso-1", "ipv6-tcp-partial-gso-4"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Check(all[name], 1500); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

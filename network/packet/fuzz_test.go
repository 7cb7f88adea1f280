package packet

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// consistent parses a frame that has passed once more, with other code, and
// fails the test when the kernel could be told something that is not so.
func consistent(t *testing.T, f []byte, mtu int, info Info) {
	t.Helper()
	if len(f) > MaxLen || len(f) <= HeaderLen {
		t.Fatalf("a frame of %d bytes", len(f))
	}
	flags, gso := f[0], f[1]
	field := func(i int) int { return int(binary.LittleEndian.Uint16(f[i:])) }
	hdrLen, gsoSize, csumStart, csumOffset := field(2), field(4), field(6), field(8)
	b := f[HeaderLen:]
	var src, dst net.IP
	protocol, fragment, l4 := 0, false, 0
	switch b[0] >> 4 {
	case 4:
		h, err := ipv4.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if h.TotalLen != len(b) || h.Len > len(b) || onesComplement(b[:h.Len]) != 0xffff {
			t.Fatalf("%v of %d bytes, sum %x", h, len(b), onesComplement(b[:h.Len]))
		}
		for o := h.Options; len(o) > 0 && o[0] != 0; {
			if o[0] == 131 || o[0] == 137 {
				t.Fatalf("source route: % x", h.Options)
			}
			n := 1
			if o[0] != 1 {
				n = int(o[1])
			}
			o = o[n:]
		}
		src, dst, protocol, l4 = h.Src.To4(), h.Dst.To4(), h.Protocol, h.Len
		fragment = h.FragOff != 0 || h.Flags&ipv4.MoreFragments != 0
		if fragment && h.FragOff*8+len(b)-h.Len > 65535 {
			t.Fatal("a fragment beyond the end")
		}
		if h.FragOff != 0 {
			l4 = -1
		}
	case 6:
		h, err := ipv6.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if h.PayloadLen+ipv6.HeaderLen != len(b) {
			t.Fatalf("%v of %d bytes", h, len(b))
		}
		src, dst, protocol, l4 = h.Src, h.Dst, h.NextHeader, ipv6.HeaderLen
	walk:
		for {
			switch protocol {
			case 0, 60:
				protocol, l4 = int(b[l4]), l4+8*(1+int(b[l4+1]))
			case 43:
				t.Fatal("a routing header")
			case 44:
				fragment = true
				offset := int(binary.BigEndian.Uint16(b[l4+2:])) &^ 7
				if offset+len(b)-l4-8 > 65535 {
					t.Fatal("a fragment beyond the end")
				}
				protocol, l4 = int(b[l4]), l4+8
				if offset != 0 {
					l4 = -1
					break walk
				}
			default:
				break walk
			}
		}
	default:
		t.Fatalf("version %d", b[0]>>4)
	}
	if !bytes.Equal(src, info.Src.AsSlice()) || !bytes.Equal(dst, info.Dst.AsSlice()) || protocol != int(info.Protocol) || fragment != info.Fragment {
		t.Fatalf("%v to %v, protocol %d, fragment %v: %+v", src, dst, protocol, fragment, info)
	}
	for _, a := range []net.IP{src, dst} {
		if !a.IsGlobalUnicast() || len(a) == 16 && a.To4() != nil {
			t.Fatalf("address %v", a)
		}
	}
	if l4 > len(b) {
		t.Fatalf("a transport header at %d of %d", l4, len(b))
	}
	if s, d, ok := Addresses(f); !ok || s != info.Src || d != info.Dst {
		t.Fatalf("addresses %v and %v", s, d)
	}
	if flags&^1 != 0 {
		t.Fatalf("flags %x", flags)
	}
	if flags == 1 {
		want := map[int]int{6: 16, 17: 6}[protocol]
		if want == 0 || csumOffset != want || csumStart != l4 || csumStart+csumOffset+2 > len(b) || fragment {
			t.Fatalf("a checksum at %d+%d, protocol %d at %d", csumStart, csumOffset, protocol, l4)
		}
	}
	if hdrLen > len(b) {
		t.Fatalf("headers of %d bytes in %d", hdrLen, len(b))
	}
	if gso == 0 {
		if len(b) > mtu {
			t.Fatalf("%d bytes, MTU %d", len(b), mtu)
		}
		return
	}
	headers := l4 + int(b[l4+12]>>4)*4
	if protocol != 6 || fragment || flags != 1 || gso&^0x80 != map[byte]byte{4: 1, 6: 4}[b[0]>>4] {
		t.Fatalf("gso %x, flags %x of protocol %d", gso, flags, protocol)
	}
	if gsoSize == 0 || headers+gsoSize > mtu || hdrLen < headers || headers > len(b) {
		t.Fatalf("segments of %d+%d, header length %d, MTU %d", headers, gsoSize, hdrLen, mtu)
	}
	if segments := (len(b) - headers + gsoSize - 1) / gsoSize; segments > 65535/minSegment {
		t.Fatalf("%d segments", segments)
	}
}

func FuzzCheck(f *testing.F) {
	for _, frame := range frames(f) {
		// What the kernel looks at is in front, and a short seed is changed there.
		if len(frame) > 200 {
			frame = resize(190)(frame)
		}
		f.Add(frame, uint16(1500), false)
		f.Add(frame, uint16(1500), true)
	}
	f.Fuzz(func(t *testing.T, frame []byte, mtu uint16, repair bool) {
		if repair && len(frame) > HeaderLen+ipv6Len && len(frame) <= MaxLen {
			relength(frame)
		}
		Addresses(frame)
		before := bytes.Clone(frame)
		info, err := Check(frame, int(mtu))
		if err != nil {
			if r, ok := err.(Reason); !ok || r == 0 || int(r) >= Reasons || info != (Info{}) || !bytes.Equal(before, frame) {
				t.Fatalf("%v, %+v", err, info)
			}
			return
		}
		consistent(t, frame, int(mtu), info)
		before[0] &^= flagDataValid
		if !bytes.Equal(before, frame) {
			t.Fatal("the frame was changed")
		}
		// What has passed passes again.
		if again, err := Check(frame, int(mtu)); err != nil || again != info {
			t.Fatalf("again: %v, %+v", err, again)
		}
	})
}

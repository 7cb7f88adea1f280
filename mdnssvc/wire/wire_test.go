package wire

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// header returns 12 bytes of a DNS header.
func header(bits uint16, counts ...int) []byte {
	b := make([]byte, headerLen)
	binary.BigEndian.PutUint16(b[2:], bits)
	for i, n := range counts {
		binary.BigEndian.PutUint16(b[4+2*i:], uint16(n))
	}
	return b
}

func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// rawName is "_liqo._tcp.local." on the wire: 18 bytes.
var rawName = []byte("\x05_liqo\x04_tcp\x05local\x00")

func rawRecord(name []byte, rrtype uint16, rdata []byte) []byte {
	b := append([]byte(nil), name...)
	b = binary.BigEndian.AppendUint16(b, rrtype)
	b = binary.BigEndian.AppendUint16(b, dns.ClassINET)
	b = binary.BigEndian.AppendUint32(b, 120)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rdata)))
	return append(b, rdata...)
}

func TestDecodeDropReasons(t *testing.T) {
	question := cat(rawName, []byte{0, 12, 0, 1})
	pointer := []byte{0xc0, 12}
	aRecord := rawRecord(rawName, dns.TypeA, []byte{10, 0, 0, 1})
	// Many PTR records, each of 16 bytes that unfold to twice 250.
	long := []byte("\x3f" + strings.Repeat("a", 63) + "\x3f" + strings.Repeat("b", 63) + "\x3f" + strings.Repeat("\xff", 63) + "\x30" + strings.Repeat("d", 48) + "\x00")
	bomb := cat(header(bitResponse, 0, 501), rawRecord(long, dns.TypePTR, pointer))
	for range 500 {
		bomb = append(bomb, rawRecord(pointer, dns.TypePTR, pointer)...)
	}

	tests := []struct {
		name string
		in   []byte
		want DropReason
	}{
		{"nothing", nil, DropShort},
		{"cut header", make([]byte, 11), DropShort},
		{"over 9000 bytes", make([]byte, MaxPacket+1), DropTooLarge},
		{"18.3 opcode", cat(header(1<<11, 1), question), DropOpcode},
		{"18.3 opcode of a response", cat(header(bitResponse|4<<11, 1), question), DropOpcode},
		{"18.11 rcode", cat(header(3, 1), question), DropRcode},
		{"no section", header(0), DropEmpty},
		{"query", cat(header(0, 1), question), ""},
		{"18 other bits ignored", cat(header(0x07f0, 1), question), ""},
		{"trailing bytes", cat(header(0, 1), question, []byte{1, 2, 3}), ""},
		{"count beyond packet", cat(header(0, 65535, 65535, 65535, 65535), question), DropMalformed},
		{"one question too few", cat(header(0, 2), question), DropMalformed},
		{"cut question", cat(header(0, 1), question[:len(question)-1]), DropMalformed},
		{"cut record", cat(header(bitResponse, 0, 1), aRecord[:len(aRecord)-1]), DropMalformed},
		{"bad second record", cat(header(bitResponse, 0, 2), aRecord, rawRecord(pointer, dns.TypeA, []byte{1})), DropMalformed},
		{"bad additional", cat(header(bitResponse, 0, 1, 0, 1), aRecord, rawRecord(pointer, dns.TypeSRV, []byte{0, 0, 0, 0})), DropMalformed},
		{"A without data", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeA, nil)), DropMalformed},
		{"A of five bytes", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeA, make([]byte, 5))), DropMalformed},
		{"AAAA of four bytes", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeAAAA, make([]byte, 4))), DropMalformed},
		{"PTR with a tail", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypePTR, []byte{0xc0, 12, 0})), DropMalformed},
		{"PTR whose name leaves the record", cat(header(bitResponse, 0, 2), rawRecord(rawName, dns.TypePTR, []byte{1}), aRecord), DropMalformed},
		{"TXT without data", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeTXT, nil)), ""},
		{"TXT string beyond record", cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeTXT, []byte{5, 'a'})), DropMalformed},
		{"unknown type", cat(header(bitResponse, 0, 1), rawRecord(rawName, 65280, []byte{1, 2})), ""},
		{"pointer to itself", cat(header(0, 1), []byte{0xc0, 12, 0, 12, 0, 1}), DropLoop},
		{"pointer forwards", cat(header(0, 1), []byte{0xc0, 16, 0, 12, 0, 1, 0}), DropLoop},
		{"pointer into the header", cat(header(0, 1), []byte{0xc0, 4, 0, 12, 0, 1}), DropLoop},
		{"two pointers in a ring", cat(header(bitResponse, 0, 2), rawRecord([]byte{1, 'a', 0xc0, 12}, dns.TypeA, make([]byte, 4)), aRecord), DropLoop},
		{"reserved label type", cat(header(0, 1), []byte{0x40, 'a', 0, 0, 12, 0, 1}), DropMalformed},
		{"name of 256 bytes", cat(header(0, 1), []byte(strings.Repeat("\x3f"+strings.Repeat("a", 63), 4)+"\x00"), []byte{0, 12, 0, 1}), DropMalformed},
		{"name of 255 bytes", cat(header(0, 1), []byte(strings.Repeat("\x3f"+strings.Repeat("a", 63), 3)+"\x3d"+strings.Repeat("a", 61)+"\x00"), []byte{0, 12, 0, 1}), ""},
		{"compression bomb", bomb, DropExpansion},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, got := Decode(tt.in)
			if got != tt.want {
				t.Fatalf("reason %q, want %q", got, tt.want)
			}
			if (m == nil) != (tt.want != "") {
				t.Fatalf("message %v beside reason %q", m, got)
			}
		})
	}
}

func TestDecodeHeader(t *testing.T) {
	question := cat(rawName, []byte{0, 12, 0x80, 1})
	b := cat(header(bitTruncated|0x01f0, 1), question)
	binary.BigEndian.PutUint16(b, 77)
	m, drop := Decode(b)
	if drop != "" {
		t.Fatal(drop)
	}
	if m.Id != 77 || !m.Truncated || m.Response || m.RecursionDesired || m.Zero || m.CheckingDisabled {
		t.Errorf("query header %+v", m.MsgHdr)
	}
	if q := m.Question[0]; q.Qclass != dns.ClassINET|TopBit || Class(q.Qclass) != dns.ClassINET {
		t.Errorf("class %#x", q.Qclass)
	}
	m, drop = Decode(cat(header(bitResponse|bitTruncated, 1), question))
	if drop != "" || m.Truncated {
		t.Errorf("TC of a response must be ignored (18.5): %v %q", m, drop)
	}
}

func TestDecodeLeavesOutEDNS(t *testing.T) {
	opt := rawRecord([]byte{0}, dns.TypeOPT, nil)
	m, drop := Decode(cat(header(0, 1, 0, 0, 2), rawName, []byte{0, 12, 0, 1}, opt, rawRecord(rawName, dns.TypeA, []byte{10, 0, 0, 1})))
	if drop != "" || len(m.Extra) != 1 {
		t.Fatalf("got %v, %q", m, drop)
	}
	if _, err := Encode(m); err != nil {
		t.Fatal(err)
	}
}

// RFC 6762 section 6.1: a message is not ignored for an NSEC record that does not parse.
func TestDecodeLeavesOutABrokenNSEC(t *testing.T) {
	for name, data := range map[string][]byte{
		"an empty window":       {0xc0, 12, 0, 0},
		"a window too long":     {0xc0, 12, 0, 33, 1},
		"no data":               {},
		"a name without an end": {5, 'a'},
		"a pointer to itself":   {0xc0, 56},
	} {
		t.Run(name, func(t *testing.T) {
			first := rawRecord(rawName, dns.TypeA, []byte{10, 0, 0, 1})
			m, drop := Decode(cat(header(bitResponse, 0, 1, 0, 2), first, rawRecord([]byte{0xc0, 12}, dns.TypeNSEC, data), first))
			if drop != "" {
				t.Fatal(drop)
			}
			if len(m.Answer) != 1 || len(m.Extra) != 1 || m.Extra[0].Header().Rrtype != dns.TypeA {
				t.Errorf("what is left is %v", m)
			}
		})
	}
	// A next name that is another one, and types above 255, are as good as any.
	m, drop := Decode(cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeNSEC, []byte("\x01x\x00\x00\x01\x40\x01\x01\x40"))))
	if drop != "" || len(m.Answer) != 1 {
		t.Fatalf("%v %q", m, drop)
	}
	if nsec := m.Answer[0].(*dns.NSEC); nsec.NextDomain != "x." || !slices.Equal(nsec.TypeBitMap, []uint16{dns.TypeA, dns.TypeCAA}) {
		t.Errorf("%v", nsec)
	}
}

// What a hostile packet may cost: the densest packets that are still accepted.
func TestDecodeMemoryIsBounded(t *testing.T) {
	pointer := []byte{0xc0, 12}
	fill := func(first, next []byte) []byte {
		b := cat(header(bitResponse), first)
		n := 1
		for len(b)+len(next) <= MaxPacket {
			b = append(b, next...)
			n++
		}
		binary.BigEndian.PutUint16(b[6:], uint16(n))
		return b
	}
	root := []byte{0}
	var windows []byte
	for w := range 256 {
		windows = append(windows, byte(w), 32)
		windows = append(windows, []byte(strings.Repeat("\xff", 32))...)
	}
	packets := map[string][]byte{
		"root A":       fill(rawRecord(root, dns.TypeA, make([]byte, 4)), rawRecord(root, dns.TypeA, make([]byte, 4))),
		"unknown":      fill(rawRecord(root, 4711, nil), rawRecord(root, 4711, nil)),
		"PTR":          fill(rawRecord(rawName, dns.TypePTR, pointer), rawRecord(pointer, dns.TypePTR, pointer)),
		"empty TXT":    fill(rawRecord(rawName, dns.TypeTXT, nil), rawRecord(pointer, dns.TypeTXT, nil)),
		"TXT of empty": fill(rawRecord(rawName, dns.TypeTXT, make([]byte, 8000)), rawRecord(pointer, dns.TypeTXT, nil)),
		"NSEC":         cat(header(bitResponse, 0, 1), rawRecord(rawName, dns.TypeNSEC, append([]byte{0}, windows...))),
	}
	for name, b := range packets {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			const rounds = 20
			drops := 0
			runtime.ReadMemStats(&before)
			for range rounds {
				if _, drop := Decode(b); drop != "" {
					drops++
				}
			}
			runtime.ReadMemStats(&after)
			per := int(after.TotalAlloc-before.TotalAlloc) / rounds
			if limit := 80 * len(b); per > limit {
				t.Errorf("%d bytes allocated for a packet of %d, want at most %d (%d of %d dropped)", per, len(b), limit, drops, rounds)
			}
		})
	}
}

func rr(t testing.TB, s string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return rr
}

func TestEncodeHeader(t *testing.T) {
	answer := rr(t, "h.local. 120 IN A 10.0.0.1")
	q := dns.Question{Name: "h.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	tests := []struct {
		name string
		in   *dns.Msg
		id   uint16
		bits uint16
	}{
		{"18.1 18.4 response", &dns.Msg{MsgHdr: dns.MsgHdr{Id: 5, Response: true, Truncated: true, RecursionDesired: true, Rcode: 3}, Answer: []dns.RR{answer}}, 0, bitResponse | bitAuthoritative},
		{"6.7 legacy response", &dns.Msg{MsgHdr: dns.MsgHdr{Id: 5, Response: true}, Question: []dns.Question{q}, Answer: []dns.RR{answer}}, 5, bitResponse | bitAuthoritative},
		{"query", &dns.Msg{MsgHdr: dns.MsgHdr{Authoritative: true, RecursionDesired: true}, Question: []dns.Question{q}}, 0, 0},
		{"truncated query", &dns.Msg{MsgHdr: dns.MsgHdr{Truncated: true}, Question: []dns.Question{q}}, 0, bitTruncated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := Encode(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if id, bits := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]); id != tt.id || bits != tt.bits {
				t.Errorf("id %d bits %#x, want %d %#x", id, bits, tt.id, tt.bits)
			}
		})
	}
}

// RFC 6762 section 18.14: SRV and NSEC data are compressed, except for legacy
// queriers.
func TestEncodeCompressesData(t *testing.T) {
	records := []dns.RR{
		rr(t, "x._liqo._tcp.local. 120 IN SRV 0 0 6447 host.local."),
		rr(t, "host.local. 120 IN NSEC host.local. A AAAA"),
	}
	full := string("\x04host\x05local\x00")
	b, err := Encode(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: records})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), full) || strings.Count(string(b), "local") != 1 || strings.Count(string(b), "host") != 1 {
		t.Errorf("names are not compressed: %q", b)
	}
	legacy, err := Encode(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: records,
		Question: []dns.Question{{Name: "x._liqo._tcp.local.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET}}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(legacy), full) != 2 {
		t.Errorf("names in data of a legacy response are compressed: %q", legacy)
	}
	for _, p := range [][]byte{b, legacy} {
		m, drop := Decode(p)
		if drop != "" {
			t.Fatal(drop)
		}
		for i := range records {
			if got, want := m.Answer[i].String(), records[i].String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

// RFC 6762 section 18.14: questions are compressed, and what a probe proposes.
func TestEncodeCompressesQuestions(t *testing.T) {
	b, err := Encode(&dns.Msg{
		Question: []dns.Question{{Name: "x._liqo._tcp.local.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET},
			{Name: "x._liqo._tcp.local.", Qtype: dns.TypeTXT, Qclass: dns.ClassINET}, {Name: "host.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}},
		Ns: []dns.RR{rr(t, "x._liqo._tcp.local. 120 IN SRV 0 0 6447 host.local."), rr(t, "host.local. 120 IN A 10.0.0.1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"local", "_liqo", "host"} {
		if n := strings.Count(string(b), label); n != 1 {
			t.Errorf("%s is there %d times in %q", label, n, b)
		}
	}
}

func knownAnswers(t testing.TB, n int) *dns.Msg {
	m := &dns.Msg{Question: []dns.Question{{Name: "_liqo._tcp.local.", Qtype: dns.TypePTR, Qclass: dns.ClassINET}}}
	for i := range n {
		m.Answer = append(m.Answer, rr(t, fmt.Sprintf("_liqo._tcp.local. 4000 IN PTR %08x-6d1c-4b5e-9f00-0123456789ab._liqo._tcp.local.", i)))
	}
	return m
}

// RFC 6762 section 7.2.
func TestEncodeAllKnownAnswers(t *testing.T) {
	const n = 1000
	m := knownAnswers(t, n)
	packets, err := EncodeAll(m, 1452)
	if err != nil {
		t.Fatal(err)
	}
	if len(packets) < 30 || len(packets) > 40 {
		t.Errorf("%d packets, want about 36", len(packets))
	}
	next := 0
	for i, b := range packets {
		if len(b) > 1452 {
			t.Errorf("packet %d is %d bytes", i, len(b))
		}
		got, drop := Decode(b)
		if drop != "" {
			t.Fatalf("packet %d: %s", i, drop)
		}
		if got.Truncated != (i < len(packets)-1) {
			t.Errorf("packet %d of %d: TC %v", i, len(packets), got.Truncated)
		}
		if (len(got.Question) == 1) != (i == 0) {
			t.Errorf("packet %d has %d questions", i, len(got.Question))
		}
		for _, rr := range got.Answer {
			if want := m.Answer[next].(*dns.PTR).Ptr; rr.(*dns.PTR).Ptr != want {
				t.Fatalf("known answer %d is %s, want %s", next, rr, want)
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d known answers arrived, want %d", next, n)
	}
}

func TestEncodeAllOthers(t *testing.T) {
	big := &dns.TXT{Hdr: dns.RR_Header{Name: "x._liqo._tcp.local.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 4500}}
	for range 10 {
		big.Txt = append(big.Txt, strings.Repeat("v", 250))
	}
	huge := &dns.TXT{Hdr: big.Hdr}
	for range 40 {
		huge.Txt = append(huge.Txt, strings.Repeat("v", 250))
	}
	small := rr(t, "h.local. 120 IN A 10.0.0.1")
	response := func(rrs ...dns.RR) *dns.Msg {
		return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: rrs}
	}
	tests := []struct {
		name    string
		in      *dns.Msg
		answers []int // per packet; nil: an error
	}{
		{"one", response(small), []int{1}},
		{"large alone", response(small, big, small), []int{1, 1, 1}},
		{"large first", response(big, small), []int{1, 1}},
		{"too large", response(small, huge), nil},
		{"too large alone", response(huge), nil},
		{"label too long", response(rr(t, "h.local. 120 IN A 10.0.0.1"), &dns.PTR{Hdr: dns.RR_Header{Name: strings.Repeat("a", 64) + ".", Rrtype: dns.TypePTR, Class: 1}, Ptr: "a."}), nil},
		{"not fully qualified", response(&dns.PTR{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypePTR, Class: 1}, Ptr: "a"}), nil},
		{"endless name", response(&dns.PTR{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypePTR, Class: 1}, Ptr: strings.Repeat("a.", 5000)}), nil},
		{"endless owner", response(&dns.A{Hdr: dns.RR_Header{Name: strings.Repeat("a.", 5000), Rrtype: dns.TypeA, Class: 1}}), nil},
		{"probe for two names", &dns.Msg{Question: []dns.Question{{Name: "x._liqo._tcp.local.", Qtype: 255, Qclass: 1}, {Name: "h.local.", Qtype: 255, Qclass: 1}},
			Ns: []dns.RR{big, small}}, []int{0, 0}},
		{"probe stays whole", &dns.Msg{Question: []dns.Question{{Name: "x.", Qtype: 255, Qclass: 1}}, Ns: []dns.RR{big, small}}, []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			packets, err := EncodeAll(tt.in, 1452)
			if (err != nil) != (tt.answers == nil) {
				t.Fatalf("error %v", err)
			}
			var got []int
			for _, b := range packets {
				m, drop := Decode(b)
				if drop != "" {
					t.Fatal(drop)
				}
				if m.Truncated {
					t.Error("TC set")
				}
				got = append(got, len(m.Answer))
			}
			if !reflect.DeepEqual(got, tt.answers) {
				t.Errorf("answers per packet %v, want %v", got, tt.answers)
			}
		})
	}
}

func TestEncodeAllDropsAdditionalsThatDoNotFit(t *testing.T) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{rr(t, "h.local. 120 IN A 10.0.0.1")}}
	for i := range 100 {
		m.Extra = append(m.Extra, rr(t, fmt.Sprintf("h%d.local. 120 IN A 10.0.0.1", i)))
	}
	packets, err := EncodeAll(m, 500)
	if err != nil || len(packets) != 1 || len(packets[0]) > 500 {
		t.Fatalf("%d packets, %v", len(packets), err)
	}
	got, drop := Decode(packets[0])
	if drop != "" || len(got.Extra) < 15 || len(got.Answer) != 1 {
		t.Errorf("got %v %q", got, drop)
	}
}

// RFC 6762 section 10.2: some of a set would flush the others, so none of it goes.
func TestEncodeAllPartsNoSet(t *testing.T) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{rr(t, "h.local. 120 IN A 10.0.0.1")}}
	for i := range 10 {
		m.Extra = append(m.Extra, rr(t, fmt.Sprintf("k.local. 120 IN A 10.0.0.%d", i)))
	}
	for i := range 10 {
		m.Extra = append(m.Extra, rr(t, fmt.Sprintf("k.local. 120 IN AAAA fe80::%d", i)))
	}
	packets, err := EncodeAll(m, 300)
	if err != nil || len(packets) != 1 {
		t.Fatalf("%d packets, %v", len(packets), err)
	}
	if got, drop := Decode(packets[0]); drop != "" || len(got.Extra) != 10 {
		t.Errorf("%d additional records, want the ten addresses of IPv4: %v %q", len(got.Extra), got, drop)
	}
}

// RFC 6762 section 17: what does not fit one packet of the link is not sent in
// fragments as long as it is more than one record.
func TestEncodeAllPartsAProbeByName(t *testing.T) {
	m := &dns.Msg{
		Question: []dns.Question{{Name: "h.local.", Qtype: dns.TypeANY, Qclass: dns.ClassINET}, {Name: "X.local.", Qtype: dns.TypeANY, Qclass: dns.ClassINET}},
		Ns:       []dns.RR{rr(t, "h.local. 120 IN A 10.0.0.1"), rr(t, "x.local. 4500 IN TXT "+strings.Repeat("v", 250)), rr(t, "x.local. 120 IN SRV 0 0 1 h.local.")},
	}
	for max, want := range map[int][]int{1452: {3}, 320: {1, 2}} {
		packets, err := EncodeAll(m, max)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, b := range packets {
			part, drop := Decode(b)
			if drop != "" || len(b) > max || part.Truncated {
				t.Fatalf("%d bytes, %v %q", len(b), part, drop)
			}
			got = append(got, len(part.Ns))
			for _, rr := range part.Ns {
				if !slices.ContainsFunc(part.Question, func(q dns.Question) bool { return Key(q.Name) == Key(rr.Header().Name) }) {
					t.Errorf("%v without its question", rr)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in packets of %d: %v records, want %v", max, got, want)
		}
	}
}

// Work and memory grow with the number of records, not with its square.
func BenchmarkEncodeAllKnownAnswers(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := knownAnswers(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeAll(m, 1452); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true},
		Answer: []dns.RR{rr(b, "_liqo._tcp.local. 4500 IN PTR 00000000-6d1c-4b5e-9f00-0123456789ab._liqo._tcp.local.")},
		Extra: []dns.RR{
			rr(b, "00000000-6d1c-4b5e-9f00-0123456789ab._liqo._tcp.local. 120 IN SRV 0 0 6447 box.local."),
			rr(b, "00000000-6d1c-4b5e-9f00-0123456789ab._liqo._tcp.local. 4500 IN TXT txtvers=1 id=00000000-6d1c-4b5e-9f00-0123456789ab"),
			rr(b, "box.local. 120 IN A 10.0.0.1"),
			rr(b, "box.local. 120 IN AAAA fe80::1"),
		}}
	p, err := Encode(m)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, drop := Decode(p); drop != "" {
			b.Fatal(drop)
		}
	}
}

// seedPackets adds every packet captured from other implementations.
func seedPackets(f *testing.F) {
	files, err := filepath.Glob("testdata/packets/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

func FuzzDecode(f *testing.F) {
	seedPackets(f)
	m := knownAnswers(f, 3)
	m.Ns = []dns.RR{rr(f, `x\.y\ z\195\164._liqo._tcp.local. 120 IN SRV 0 0 6447 host.local.`), rr(f, "host.local. 1 IN NSEC host.local. A AAAA")}
	m.Extra = []dns.RR{rr(f, "host.local. 1 IN HINFO a b"), rr(f, `x. 1 IN TXT "a=\"\\\001"`)}
	seed, err := Encode(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(cat(header(bitResponse, 0, 1), rawRecord(rawName, 4711, []byte{1, 2})))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, drop := Decode(b)
		if (m == nil) == (drop == "") {
			t.Fatalf("message %v beside reason %q", m, drop)
		}
		if m == nil {
			return
		}
		m.Authoritative = m.Response
		if m.Response && len(m.Question) == 0 {
			m.Id = 0
		}
		out, err := Encode(m)
		if err != nil {
			// Only size may keep what was decoded from being encoded: the input
			// may share text in ways Encode does not.
			if err != errFull {
				t.Fatalf("encode: %v\n%v", err, m)
			}
			return
		}
		again, drop := Decode(out)
		if drop == DropExpansion || drop == DropEmpty {
			return
		}
		if drop != "" {
			t.Fatalf("own encoding refused: %s\n%v", drop, m)
		}
		if got, want := plain(again), plain(m); got != want {
			t.Fatalf("round trip changed the message\n%s\n%s", want, got)
		}
		for _, rr := range m.Answer {
			if _, err := RData(rr); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// plain prints a message without what encoding may change: data lengths.
func plain(m *dns.Msg) string {
	for _, s := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range s {
			rr.Header().Rdlength = 0
		}
	}
	return fmt.Sprintf("%+v %v", m.MsgHdr, m)
}

// Packets of other implementations decode, and survive our own encoding.
func TestCapturedPackets(t *testing.T) {
	files, err := filepath.Glob("testdata/packets/*.bin")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured packets: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, drop := Decode(b)
			if drop != "" {
				t.Fatal(drop)
			}
			m.Authoritative = m.Response
			out, err := Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			if len(out) > len(b) {
				t.Errorf("encoded in %d bytes, the original has %d", len(out), len(b))
			}
			again, drop := Decode(out)
			if drop != "" {
				t.Fatal(drop)
			}
			if got, want := plain(again), plain(m); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

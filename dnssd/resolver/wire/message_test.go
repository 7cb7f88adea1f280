package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// answer is an answer to q with one record, changed.
func answer(t *testing.T, q Question, change func(*dns.Msg)) []byte {
	t.Helper()
	m := &dns.Msg{
		MsgHdr:   dns.MsgHdr{Response: true, RecursionAvailable: true},
		Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: dns.ClassINET}},
		Answer: []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A: []byte{192, 0, 2, 1}}},
	}
	change(m)
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeNamesTheReason(t *testing.T) {
	q := Question{"example.com.", dns.TypeA}
	whole := answer(t, q, func(*dns.Msg) {})
	lie := func(change func(*dns.Msg)) []byte { return answer(t, q, change) }
	more := func(i int) []byte { b := append([]byte(nil), whole...); b[i]++; return b }
	for _, c := range []struct {
		b    []byte
		kind error
		want string
	}{
		{whole, nil, ""},
		{lie(func(m *dns.Msg) { m.Question[0].Name = "EXAMPLE.Com." }), nil, ""},
		{nil, ErrForeign, "0 bytes"},
		{whole[:11], ErrForeign, "11 bytes"},
		{whole[:14], ErrForeign, "its question is cut off"},
		{lie(func(m *dns.Msg) { m.Id++ }), ErrForeign, "another ID"},
		{lie(func(m *dns.Msg) { m.Response = false }), ErrForeign, "it is a question"},
		{lie(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), ErrForeign, "another opcode"},
		{lie(func(m *dns.Msg) { m.Question = nil }), ErrForeign, "0 questions"},
		{lie(func(m *dns.Msg) { m.Question, m.Rcode = nil, dns.RcodeNameError }), ErrForeign, "0 questions"},
		{lie(func(m *dns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, dns.RcodeFormatError }), nil, ""},
		{lie(func(m *dns.Msg) { m.Question = append(m.Question, m.Question...) }), ErrForeign, "2 questions"},
		{lie(func(m *dns.Msg) { m.Question[0].Name = "example.org." }), ErrForeign, "another question"},
		{lie(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }), ErrForeign, "another question"},
		{lie(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), ErrForeign, "another question"},
		{whole[:len(whole)-1], ErrMalformed, "record 1 of 1"},
		{more(7), ErrMalformed, "it ends after 1 of 2 records"},  // answers
		{more(9), ErrMalformed, "it ends after 0 of 1 records"},  // authority
		{more(11), ErrMalformed, "it ends after 0 of 1 records"}, // additional
	} {
		m, err := Decode(c.b, 0, q)
		if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: %v, want %v %q", c.b, err, c.kind, c.want)
		}
		if err == nil && m.Rcode == 0 && len(m.Answer) != 1 {
			t.Errorf("%x: %+v", c.b, m)
		}
	}
	ask, err := q.encode(true, false)
	if err != nil || binary.BigEndian.Uint16(ask) != 0 {
		t.Errorf("asks with ID %x, %v", ask[:2], err)
	}
}

func TestTypesThatAreNoData(t *testing.T) {
	for qtype, ok := range map[uint16]bool{
		dns.TypeNone: false, dns.TypeA: true, dns.TypeOPT: false, 127: true, 128: false, dns.TypeAXFR: false, dns.TypeANY: false, dns.TypeURI: true,
	} {
		if _, err := NewQuestion("example.com", qtype); (err == nil) != ok {
			t.Errorf("%s: %v", TypeName(qtype), err)
		}
	}
}

// FuzzName asks for any name: what can be asked is asked as it is answered.
func FuzzName(f *testing.F) {
	for _, s := range []string{"example.com", "Example.COM.", `a\.b.example`, `\097.example`, `box\ 7._liqo._tcp.example.com`, "ü.example", ".", "", "a..b", `a\`, `\300`} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, name string, padded bool) {
		q, err := NewQuestion(name, dns.TypeSRV)
		if err != nil {
			return
		}
		if again, err := NewQuestion(q.Name, dns.TypeSRV); err != nil || again != q {
			t.Fatalf("%q is written as %q, and that as %q (%v)", name, q.Name, again.Name, err)
		}
		b, err := q.encode(true, padded)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if padded && len(b)%padTo != 0 {
			t.Fatalf("%q: %d bytes", name, len(b))
		}
		b[2] |= 1 << 7
		if m, err := Decode(b, 0, q); err != nil || !m.EDNS {
			t.Fatalf("%q: the echo of the question is no answer: %v", name, err)
		}
	})
}

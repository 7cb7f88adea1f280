package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/miekg/dns"
)

// Encode returns m as one packet of at most MaxPacket bytes, with names
// compressed wherever RFC 6762 section 18.14 allows it, SRV and NSEC data
// included.
//
// A response is sent with ID 0, AA set and no other flag (section 18). A
// response that carries a question is a legacy unicast one (section 6.7): it
// keeps its ID, and its SRV and NSEC data stay uncompressed because ordinary
// DNS resolvers read it. A query keeps its ID and its TC bit.
func Encode(m *dns.Msg) ([]byte, error) {
	e := newEncoder(m)
	for _, q := range m.Question {
		if err := e.question(q); err != nil {
			return nil, err
		}
	}
	for i, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if err := e.record(rr, i+1); err != nil {
				return nil, err
			}
		}
	}
	if e.off > MaxPacket {
		return nil, errFull
	}
	return e.packet(m.Truncated && !m.Response), nil
}

// EncodeAll returns m as packets of at most max bytes each, in work linear in
// the size of m.
//
// The records of a query's answer section are known answers: they follow the
// questions and spill into packets of their own, all but the last with the TC
// bit set (RFC 6762 section 7.2). A query's authority section (the records a
// probe proposes) is never parted from its questions: a probe that is too large
// becomes one for each name. The answers of a response
// spill into further responses; additional records only travel as far as they
// fit beside the last answers, whole sets of them, because no receiver may count
// on them. Legacy unicast responses are not split.
//
// A single record, or probe, larger than max goes alone in a packet of at most
// MaxPacket bytes; one that is larger still is an error.
func EncodeAll(m *dns.Msg, max int) ([][]byte, error) {
	if max > MaxPacket {
		max = MaxPacket
	}
	if len(m.Ns) > 0 || m.Response && len(m.Question) > 0 {
		one, err := Encode(m)
		switch {
		case err != nil:
			return nil, err
		case len(one) > max && !m.Response && len(m.Question) > 1:
			return encodeProbes(m)
		}
		return [][]byte{one}, nil
	}
	e := newEncoder(m)
	var out [][]byte
	// alone judges the first item of a packet, which cannot move to another one.
	alone := func(err error) error {
		if err == nil && e.off > MaxPacket {
			err = errFull
		}
		return err
	}
	// add appends one item, in a packet of its own when it does not fit any more.
	add := func(pack func() error) error {
		before, counts := e.off, e.counts
		err := pack()
		if err == nil && e.off <= max {
			return nil
		}
		if before == headerLen {
			return alone(err)
		}
		e.off, e.counts = before, counts
		out = append(out, e.packet(!m.Response))
		e.reset()
		return alone(pack())
	}
	for _, q := range m.Question {
		if err := add(func() error { return e.question(q) }); err != nil {
			return nil, err
		}
	}
	for _, rr := range m.Answer {
		if err := add(func() error { return e.record(rr, 1) }); err != nil {
			return nil, err
		}
	}
	before, counts := e.off, e.counts // where the set begins
	for i, rr := range m.Extra {
		if i > 0 && !sameSet(rr, m.Extra[i-1]) {
			before, counts = e.off, e.counts
		}
		if err := e.record(rr, 3); err != nil || e.off > max {
			// The names the record left in the compression table point behind
			// the end now, so nothing may follow.
			e.off, e.counts = before, counts
			break
		}
	}
	return append(out, e.packet(m.Truncated && !m.Response)), nil
}

// encodeProbes returns a probe as one for each name, with what is proposed for it.
func encodeProbes(m *dns.Msg) ([][]byte, error) {
	var out [][]byte
	for _, q := range m.Question {
		one := &dns.Msg{MsgHdr: m.MsgHdr, Question: []dns.Question{q}}
		for _, rr := range m.Ns {
			if Key(rr.Header().Name) == Key(q.Name) {
				one.Ns = append(one.Ns, rr)
			}
		}
		b, err := Encode(one)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// sameSet reports whether two records are of one name and type.
func sameSet(a, b dns.RR) bool {
	return a.Header().Rrtype == b.Header().Rrtype && Key(a.Header().Name) == Key(b.Header().Name)
}

// The library's packer of names does not check every bound, so the end of the
// buffer stays out of its reach: an item begins within MaxPacket, holds at most
// two names, and a name in presentation form is at most maxPresentation long.
const (
	maxPresentation = 4*maxName + 1
	slack           = 3 * maxPresentation
)

var (
	errFull     = fmt.Errorf("mDNS message exceeds the %d bytes of one packet", MaxPacket)
	errLongName = fmt.Errorf("domain name exceeds %d bytes", maxName)
)

type encoder struct {
	buf    []byte
	off    int
	names  map[string]int // name -> offset, for compression
	counts [4]int
	id     uint16
	bits   uint16
	legacy bool
}

func newEncoder(m *dns.Msg) *encoder {
	e := &encoder{buf: make([]byte, MaxPacket+slack)}
	switch {
	case m.Response && len(m.Question) > 0:
		e.id, e.bits, e.legacy = m.Id, bitResponse|bitAuthoritative, true
	case m.Response:
		e.bits = bitResponse | bitAuthoritative
	default:
		e.id = m.Id
	}
	e.reset()
	return e
}

func (e *encoder) reset() {
	e.off, e.counts = headerLen, [4]int{}
	e.names = make(map[string]int)
}

// packet returns a copy of what was encoded so far, with its header.
func (e *encoder) packet(truncated bool) []byte {
	out := make([]byte, e.off)
	copy(out[headerLen:], e.buf[headerLen:e.off])
	binary.BigEndian.PutUint16(out, e.id)
	bits := e.bits
	if truncated {
		bits |= bitTruncated
	}
	binary.BigEndian.PutUint16(out[2:], bits)
	for i, n := range e.counts {
		binary.BigEndian.PutUint16(out[4+2*i:], uint16(n))
	}
	return out
}

func (e *encoder) question(q dns.Question) error {
	if e.off > MaxPacket {
		return errFull
	}
	off, err := e.name(q.Name, e.off, true)
	if err != nil {
		return fmt.Errorf("encode question %q: %w", q.Name, err)
	}
	binary.BigEndian.PutUint16(e.buf[off:], q.Qtype)
	binary.BigEndian.PutUint16(e.buf[off+2:], q.Qclass)
	e.off = off + 4
	e.counts[0]++
	return nil
}

func (e *encoder) record(rr dns.RR, section int) error {
	if e.off > MaxPacket {
		return errFull
	}
	h := rr.Header()
	off, err := e.rr(rr)
	if err != nil {
		return fmt.Errorf("encode record %q %s: %w", h.Name, dns.Type(h.Rrtype), err)
	}
	e.off = off
	e.counts[section]++
	return nil
}

func (e *encoder) rr(rr dns.RR) (int, error) {
	h := rr.Header()
	var target string
	var before, after []byte // data around the target
	switch rr := rr.(type) {
	case *dns.SRV:
		target = rr.Target
		before = binary.BigEndian.AppendUint16(nil, rr.Priority)
		before = binary.BigEndian.AppendUint16(before, rr.Weight)
		before = binary.BigEndian.AppendUint16(before, rr.Port)
	case *dns.NSEC:
		target = rr.NextDomain
		plain, err := RData(rr)
		if err != nil {
			return 0, err
		}
		next, _, drop := checkName(plain, 0)
		if drop != "" {
			return 0, fmt.Errorf("next domain name %q: %s", target, drop)
		}
		after = plain[next:]
	case *dns.PTR:
		target = rr.Ptr
	default:
		if len(h.Name) > maxPresentation {
			return 0, errLongName
		}
		return dns.PackRR(rr, e.buf, e.off, e.names, true)
	}

	off, err := e.name(h.Name, e.off, true)
	if err != nil {
		return 0, err
	}
	binary.BigEndian.PutUint16(e.buf[off:], h.Rrtype)
	binary.BigEndian.PutUint16(e.buf[off+2:], h.Class)
	binary.BigEndian.PutUint32(e.buf[off+4:], h.Ttl)
	length := off + 8
	off += 10
	start := off
	off += copy(e.buf[off:], before)
	// RFC 1035 allows to compress what a PTR points to, everywhere.
	compress := !e.legacy || h.Rrtype == dns.TypePTR
	if off, err = e.name(target, off, compress); err != nil {
		return 0, err
	}
	off += copy(e.buf[off:], after)
	binary.BigEndian.PutUint16(e.buf[length:], uint16(off-start))
	return off, nil
}

func (e *encoder) name(name string, off int, compress bool) (int, error) {
	if len(name) > maxPresentation {
		return 0, errLongName
	}
	return dns.PackDomainName(name, e.buf, off, e.names, compress)
}

// RData returns a record's data in wire form without compression, the form
// in which RFC 6762 section 8.2 compares records.
func RData(rr dns.RR) ([]byte, error) {
	buf := make([]byte, dns.Len(rr)+maxName)
	off, err := dns.PackRR(rr, buf, 0, nil, false)
	if err != nil {
		return nil, fmt.Errorf("encode record %q %s: %w", rr.Header().Name, dns.Type(rr.Header().Rrtype), err)
	}
	start, err := dns.PackDomainName(rr.Header().Name, make([]byte, maxName+slack), 0, nil, false)
	if err != nil {
		return nil, fmt.Errorf("encode name %q: %w", rr.Header().Name, err)
	}
	return buf[start+10 : off : off], nil
}

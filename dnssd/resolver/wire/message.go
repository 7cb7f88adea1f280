package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	// udpSize is the largest answer asked for over UDP: it fits into one packet of any IPv6 link.
	udpSize = 1232
	// padTo is what questions over TLS are padded to (RFC 8467 section 4.1), so that their size does not tell them.
	padTo = 128
)

var (
	// ErrForeign: a message that is not an answer to our question. It is ignored.
	ErrForeign = errors.New("not an answer to the question")
	// ErrMalformed: an answer to our question that cannot be understood.
	ErrMalformed = errors.New("malformed answer")
)

// Question is what is asked for. Two are the same question if they are equal.
type Question struct {
	Name string // as dns.UnpackDomainName writes it, in lower case, with a trailing dot
	Type uint16
}

// String returns name and type, for people.
func (q Question) String() string { return q.Name + " " + TypeName(q.Type) }

// TypeName is a type of records in words, such as PTR.
func TypeName(t uint16) string { return dns.Type(t).String() }

// NewQuestion checks a name and writes it in the one way that names are compared in.
func NewQuestion(name string, qtype uint16) (Question, error) {
	if name == "" {
		return Question{}, errors.New("the name is empty")
	}
	// RFC 6895 section 3.1: from 128 on they are questions and other things that are no data.
	if qtype == dns.TypeNone || qtype == dns.TypeOPT || 128 <= qtype && qtype <= 255 {
		return Question{}, fmt.Errorf("%s is not a type of records that can be looked up", TypeName(qtype))
	}
	wire := make([]byte, 256)
	n, err := dns.PackDomainName(dns.Fqdn(name), wire, 0, nil, false)
	if err != nil {
		return Question{}, fmt.Errorf("%q is not a domain name: %w", name, err)
	}
	plain, _, err := dns.UnpackDomainName(wire[:n], 0)
	if err != nil {
		return Question{}, fmt.Errorf("%q is not a domain name: %w", name, err)
	}
	return Question{dns.CanonicalName(plain), qtype}, nil
}

// encode writes the question as a message with ID 0; see setID.
func (q Question) encode(edns, padded bool) ([]byte, error) {
	m := &dns.Msg{
		// AD in a question asks for AD in the answer (RFC 6840 section 5.7).
		MsgHdr:   dns.MsgHdr{RecursionDesired: true, AuthenticatedData: true},
		Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: dns.ClassINET}},
	}
	if edns {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(udpSize)
		m.Extra = append(m.Extra, opt)
		if padded {
			const optionHeader = 4
			size := m.Len() + optionHeader
			opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, (padTo-size%padTo)%padTo)})
		}
	}
	b, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("write the question %s: %w", q, err)
	}
	return b, nil
}

func setID(packet []byte, id uint16) { binary.BigEndian.PutUint16(packet, id) }

// Message is what counts of an answer to our question.
type Message struct {
	Rcode     int  // the extended one, with EDNS0
	AA        bool // the server is the zone's own
	RA        bool // it resolves names for us
	AD        bool // it says that it validated the answer
	Truncated bool // nothing else of it is set then, but what comes before
	// Answer and Authority are the sections of that name. Records are of any class.
	Answer, Authority []dns.RR
	EDNS              bool
	Note              string // what the server says about its failure (RFC 8914), quoted; may be empty
}

// Decode reads an answer to question q, asked with an ID. The error is ErrForeign or ErrMalformed, with
// details. What follows a set TC bit is not looked at.
func Decode(b []byte, id uint16, q Question) (Message, error) {
	var m Message
	if len(b) < headerSize {
		return m, fmt.Errorf("%w: %d bytes", ErrForeign, len(b))
	}
	word := func(i int) uint16 { return binary.BigEndian.Uint16(b[2*i:]) }
	flags := word(1)
	const qr, aa, tc, ra, ad = 1 << 15, 1 << 10, 1 << 9, 1 << 7, 1 << 5
	switch {
	case word(0) != id:
		return m, fmt.Errorf("%w: another ID", ErrForeign)
	case flags&qr == 0:
		return m, fmt.Errorf("%w: it is a question", ErrForeign)
	case flags>>11&15 != dns.OpcodeQuery:
		return m, fmt.Errorf("%w: another opcode", ErrForeign)
	}
	m.Rcode = int(flags & 15)
	m.AA, m.Truncated, m.RA, m.AD = flags&aa != 0, flags&tc != 0, flags&ra != 0, flags&ad != 0
	if word(2) == 0 && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		return m, nil // who does not understand a question need not repeat it
	}
	if word(2) != 1 {
		return m, fmt.Errorf("%w: %d questions", ErrForeign, word(2))
	}
	name, off, err := dns.UnpackDomainName(b, headerSize)
	if err != nil || off+4 > len(b) {
		return m, fmt.Errorf("%w: its question is cut off", ErrForeign)
	}
	if dns.CanonicalName(name) != q.Name || binary.BigEndian.Uint16(b[off:]) != q.Type ||
		binary.BigEndian.Uint16(b[off+2:]) != dns.ClassINET {
		return m, fmt.Errorf("%w: another question", ErrForeign)
	}
	off += 4
	if m.Truncated {
		return m, nil
	}
	if m.Answer, off, err = unpackRecords(b, off, int(word(3))); err == nil {
		m.Authority, off, err = unpackRecords(b, off, int(word(4)))
	}
	var extra []dns.RR
	if err == nil {
		extra, _, err = unpackRecords(b, off, int(word(5)))
	}
	if err != nil {
		return m, err
	}
	for _, rr := range extra {
		if opt, ok := rr.(*dns.OPT); ok && !m.EDNS {
			m.EDNS = true
			m.Rcode |= opt.ExtendedRcode()
			m.Note = errorNote(opt)
		}
	}
	return m, nil
}

// unpackRecords reads n records. An answer with fewer is none: what is missing would count as gone.
func unpackRecords(b []byte, off, n int) ([]dns.RR, int, error) {
	var rrs []dns.RR
	for i := range n {
		if off >= len(b) {
			return nil, off, fmt.Errorf("%w: it ends after %d of %d records", ErrMalformed, i, n)
		}
		rr, next, err := dns.UnpackRR(b, off)
		if err != nil {
			return nil, off, fmt.Errorf("%w: record %d of %d: %w", ErrMalformed, i+1, n, err)
		}
		rrs, off = append(rrs, rr), next
	}
	return rrs, off, nil
}

// errorNote returns the first extended error of an answer in words.
func errorNote(opt *dns.OPT) string {
	for _, o := range opt.Option {
		ede, ok := o.(*dns.EDNS0_EDE)
		if !ok {
			continue
		}
		note := dns.ExtendedErrorCodeToString[ede.InfoCode]
		if note == "" {
			note = fmt.Sprintf("error %d", ede.InfoCode)
		}
		if ede.ExtraText != "" {
			text := strings.ToValidUTF8(ede.ExtraText, "?")
			note += fmt.Sprintf(" %.80q", text)
		}
		return note
	}
	return ""
}

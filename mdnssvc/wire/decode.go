package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/miekg/dns"
)

const (
	headerLen   = 12
	questionLen = 5  // root name, type, class
	recordLen   = 11 // root name, type, class, TTL, length of no data
	maxName     = 255
)

// Header bits (RFC 1035 section 4.1.1) that mean something in mDNS.
const (
	bitResponse      = 1 << 15
	maskOpcode       = 0xf << 11
	bitAuthoritative = 1 << 10
	bitTruncated     = 1 << 9
	maskRcode        = 0xf
)

// Decode parses one datagram. On success the reason is ""; otherwise the
// message is nil. A packet is taken or dropped as a whole: a record that does
// not parse after some that do still drops it, because whatever comes behind is
// guesswork.
//
// Of the header only the ID, the QR bit, AA and, in queries, TC survive; opcode
// and rcode must be zero and all other bits are ignored (RFC 6762 section 18).
// EDNS pseudo-records are left out: mDNS has no use for them. So is an NSEC
// record that does not parse, which is no reason to ignore the rest (section
// 6.1). Record types without a use in mDNS become dns.RFC3597. Bytes behind the
// last record are ignored.
//
// Decode does not keep b. Its memory is bounded by a small multiple of len(b).
func Decode(b []byte) (*dns.Msg, DropReason) {
	switch {
	case len(b) > MaxPacket:
		return nil, DropTooLarge
	case len(b) < headerLen:
		return nil, DropShort
	}
	bits := binary.BigEndian.Uint16(b[2:])
	switch {
	case bits&maskOpcode != 0:
		return nil, DropOpcode
	case bits&maskRcode != 0:
		return nil, DropRcode
	}
	var counts [4]int
	for i := range counts {
		counts[i] = int(binary.BigEndian.Uint16(b[4+2*i:]))
	}
	records := counts[1] + counts[2] + counts[3]
	switch {
	case counts[0]+records == 0:
		return nil, DropEmpty
	case counts[0]*questionLen+records*recordLen > len(b)-headerLen:
		return nil, DropMalformed
	}

	d := decoder{b: b, off: headerLen, budget: 16*len(b) + 4096}
	m := new(dns.Msg)
	m.Id = binary.BigEndian.Uint16(b)
	m.Response = bits&bitResponse != 0
	m.Authoritative = bits&bitAuthoritative != 0
	m.Truncated = bits&bitTruncated != 0 && !m.Response
	if counts[0] > 0 {
		m.Question = make([]dns.Question, 0, counts[0])
	}
	for range counts[0] {
		q, drop := d.question()
		if drop != "" {
			return nil, drop
		}
		m.Question = append(m.Question, q)
	}
	for i, section := range []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra} {
		if counts[i+1] == 0 {
			continue
		}
		rrs := make([]dns.RR, 0, counts[i+1])
		for range counts[i+1] {
			rr, drop := d.record()
			if drop != "" {
				return nil, drop
			}
			if rr != nil {
				rrs = append(rrs, rr)
			}
		}
		*section = rrs
	}
	return m, ""
}

// decoder walks a packet. It checks every name itself before the DNS library
// unpacks it, because that library follows pointers in any direction and has no
// notion of how much text a whole packet may unfold to.
type decoder struct {
	b      []byte
	off    int
	budget int // bytes of names, in presentation form, this packet may still unfold to
}

func (d *decoder) question() (dns.Question, DropReason) {
	name, drop := d.name()
	if drop != "" {
		return dns.Question{}, drop
	}
	if d.off+4 > len(d.b) {
		return dns.Question{}, DropMalformed
	}
	q := dns.Question{
		Name:   name,
		Qtype:  binary.BigEndian.Uint16(d.b[d.off:]),
		Qclass: binary.BigEndian.Uint16(d.b[d.off+2:]),
	}
	d.off += 4
	return q, ""
}

// record returns the next record, or nil when it is one to leave out.
func (d *decoder) record() (dns.RR, DropReason) {
	name, drop := d.name()
	if drop != "" {
		return nil, drop
	}
	if d.off+10 > len(d.b) {
		return nil, DropMalformed
	}
	h := dns.RR_Header{
		Name:     name,
		Rrtype:   binary.BigEndian.Uint16(d.b[d.off:]),
		Class:    binary.BigEndian.Uint16(d.b[d.off+2:]),
		Ttl:      binary.BigEndian.Uint32(d.b[d.off+4:]),
		Rdlength: binary.BigEndian.Uint16(d.b[d.off+8:]),
	}
	start := d.off + 10
	end := start + int(h.Rdlength)
	if end > len(d.b) {
		return nil, DropMalformed
	}
	// RFC 2181 section 8: a TTL with the top bit set is zero.
	if h.Ttl > math.MaxInt32 {
		h.Ttl = 0
	}
	d.off = end

	switch h.Rrtype {
	case dns.TypeOPT:
		return nil, ""
	case dns.TypeNSEC:
		rr, drop := d.data(h, start, end)
		if drop == DropMalformed || drop == DropLoop {
			return nil, ""
		}
		return rr, drop
	}
	return d.data(h, start, end)
}

// data returns the record with header h whose data are the bytes from start to end.
func (d *decoder) data(h dns.RR_Header, start, end int) (dns.RR, DropReason) {
	nameAt, known := rdataName(h.Rrtype)
	switch {
	case !known:
		return &dns.RFC3597{Hdr: h, Rdata: hex.EncodeToString(d.b[start:end])}, ""
	case h.Rdlength == 0 && h.Rrtype != dns.TypeTXT:
		// Only a TXT record may be empty (RFC 6763 section 6.1).
		return nil, DropMalformed
	}
	if nameAt >= 0 {
		next, size, drop := checkName(d.b[:end], start+nameAt)
		if drop != "" {
			return nil, drop
		}
		if next != end && h.Rrtype != dns.TypeNSEC {
			return nil, DropMalformed
		}
		if d.budget -= size; d.budget < 0 {
			return nil, DropExpansion
		}
	}
	// The slice ends where the record does, so the library cannot read on.
	rr, _, err := dns.UnpackRRWithHeader(h, d.b[:end], start)
	if err != nil {
		return nil, DropMalformed
	}
	return rr, ""
}

// rdataName reports whether records of a type are parsed at all, and where in
// their data a domain name begins (-1: nowhere). Types other than NSEC end
// with that name.
func rdataName(rrtype uint16) (at int, known bool) {
	switch rrtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeHINFO:
		return -1, true
	case dns.TypePTR, dns.TypeCNAME, dns.TypeNS, dns.TypeDNAME, dns.TypeNSEC:
		return 0, true
	case dns.TypeSRV:
		return 6, true
	}
	return -1, false
}

// name unpacks the domain name at d.off and moves behind it.
func (d *decoder) name() (string, DropReason) {
	next, size, drop := checkName(d.b, d.off)
	if drop != "" {
		return "", drop
	}
	if d.budget -= size; d.budget < 0 {
		return "", DropExpansion
	}
	name, _, err := dns.UnpackDomainName(d.b, d.off)
	if err != nil {
		return "", DropMalformed
	}
	d.off = next
	return name, ""
}

// checkName walks the domain name at off: labels of at most 63 bytes, 255 in
// all, and pointers that only ever lead further back (RFC 1035 section 4.1.4
// "a prior occurrence"), so that the walk ends. It returns the offset behind
// the name and an upper bound of its length in presentation form.
func checkName(b []byte, off int) (next, size int, drop DropReason) {
	wire, limit := 1, off
	for {
		if off >= len(b) {
			return 0, 0, DropMalformed
		}
		c := int(b[off])
		switch c & 0xc0 {
		case 0:
			if c == 0 {
				if next == 0 {
					next = off + 1
				}
				return next, size + 1, ""
			}
			if off+1+c > len(b) {
				return 0, 0, DropMalformed
			}
			if wire += c + 1; wire > maxName {
				return 0, 0, DropMalformed
			}
			size++
			for _, ch := range b[off+1 : off+1+c] {
				if ch < ' ' || ch > '~' {
					size += len(`\DDD`)
				} else {
					size += len(`\c`)
				}
			}
			off += 1 + c
		case 0xc0:
			if off+2 > len(b) {
				return 0, 0, DropMalformed
			}
			if next == 0 {
				next = off + 2
			}
			off = int(binary.BigEndian.Uint16(b[off:]) & 0x3fff)
			if off >= limit || off < headerLen {
				return 0, 0, DropLoop
			}
			limit = off
		default:
			return 0, 0, DropMalformed
		}
	}
}

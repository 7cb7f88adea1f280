package names

import (
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	// maxUDP is the largest message in one UDP datagram: it passes every network in one packet.
	maxUDP = 1232
	// minUDP is what everybody takes (RFC 1035).
	minUDP = dns.MinMsgSize
	// negativeTTL is how long the absence of names is known, in seconds, as in CoreDNS.
	negativeTTL = 5
	// serverTTL is how long an address of the API server is known, in seconds, as in CoreDNS.
	serverTTL = 5
	// firstMeta to lastMeta are no types of data: zone transfers, ANY and others (RFC 6895).
	firstMeta, lastMeta = 128, 255
)

// Why a query is not answered with data. They are labels of the metric.
const (
	refusedUnknown   = "unknown-source" // not of a guest
	refusedRate      = "rate"           // too many, or too many at a time
	refusedMalformed = "malformed"
	refusedKind      = "unsupported" // zone transfers, other classes, updates
	refusedOutside   = "egress"      // guests may not ask for names outside
	refusedForeign   = "foreign-name"
	refusedUpstream  = "upstream" // the cluster DNS does not answer
)

// check returns why a query cannot be asked for, with the response code; "" if it can.
func check(q *dns.Msg) (rcode int, why string) {
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, refusedKind
	case len(q.Question) != 1:
		return dns.RcodeFormatError, refusedMalformed
	case q.IsEdns0() != nil && q.IsEdns0().Version() != 0:
		return dns.RcodeBadVers, refusedKind
	}
	switch one := q.Question[0]; {
	case one.Qclass != dns.ClassINET:
		return dns.RcodeRefused, refusedKind
	case one.Qtype == dns.TypeNone, one.Qtype == dns.TypeOPT, one.Qtype >= firstMeta && one.Qtype <= lastMeta:
		return dns.RcodeNotImplemented, refusedKind
	}
	return dns.RcodeSuccess, ""
}

// upstream returns the query to the cluster DNS for one of a guest.
func upstream(q *dns.Msg, name string, as meaning) *dns.Msg {
	out := new(dns.Msg)
	out.SetQuestion(name, q.Question[0].Qtype)
	opt := q.IsEdns0()
	validates := as == outside && opt != nil && opt.Do()
	if as == outside {
		out.CheckingDisabled, out.AuthenticatedData = q.CheckingDisabled, q.AuthenticatedData
	}
	out.SetEdns0(maxUDP, validates)
	return out
}

// reply returns an answer without records.
func reply(q *dns.Msg, rcode int) *dns.Msg {
	out := new(dns.Msg)
	out.SetReply(q)
	out.Rcode, out.RecursionAvailable, out.Compress = rcode, true, true
	if len(q.Question) == 1 {
		out.Question = slices.Clone(q.Question) // with the case of its letters
	}
	if opt := q.IsEdns0(); opt != nil {
		out.SetEdns0(maxUDP, opt.Do())
	}
	return out
}

// absent returns the answer that there is no such name, or nothing of that type, in the domain
// of the consumer.
func (v *view) absent(q *dns.Msg, rcode int, ttl uint32) *dns.Msg {
	out := reply(q, rcode)
	out.Authoritative = true
	below := func(label string) string {
		if name, as := valid(label+v.theirs, own); as == own {
			return name
		}
		return v.theirs
	}
	out.Ns = []dns.RR{&dns.SOA{
		Hdr: dns.RR_Header{Name: v.theirs, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  below("ns.dns."), Mbox: below("hostmaster."), Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}}
	return out
}

// located returns the answer to a query for the API server of the consumer.
func (v *view) located(q *dns.Msg) *dns.Msg {
	out, asked := reply(q, dns.RcodeSuccess), q.Question[0]
	out.Authoritative = true
	header := dns.RR_Header{Name: asked.Name, Rrtype: asked.Qtype, Class: dns.ClassINET, Ttl: serverTTL}
	for _, a := range v.server {
		switch {
		case a.Is4() && asked.Qtype == dns.TypeA:
			out.Answer = append(out.Answer, &dns.A{Hdr: header, A: a.AsSlice()})
		case a.Is6() && asked.Qtype == dns.TypeAAAA:
			out.Answer = append(out.Answer, &dns.AAAA{Hdr: header, AAAA: a.AsSlice()})
		}
	}
	if len(out.Answer) == 0 {
		return v.absent(q, dns.RcodeSuccess, negativeTTL)
	}
	return out
}

// answer makes the answer for a guest from one of the cluster DNS, which was asked for name.
func (v *view) answer(q *dns.Msg, name string, as meaning, got *dns.Msg) *dns.Msg {
	switch got.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
	default:
		if as == own || got.Rcode > 0xf { // extended codes are about our question
			return reply(q, dns.RcodeServerFailure)
		}
		return reply(q, got.Rcode)
	}
	w := writer{view: v, from: name, to: q.Question[0].Name, closed: as == own, chain: map[string]bool{strings.ToLower(name): true}}
	out := reply(q, got.Rcode)
	out.Authoritative, out.Truncated = got.Authoritative, got.Truncated
	out.Answer = w.records(got.Answer)
	if as == own {
		if len(out.Answer) == 0 && !got.Truncated {
			rcode := got.Rcode
			if len(got.Answer) > 0 {
				rcode = dns.RcodeNameError // all of it was about others
			}
			return v.absent(q, rcode, negative(got))
		}
		out.Extra = append(w.records(got.Extra), out.Extra...)
		return out
	}
	out.AuthenticatedData = got.AuthenticatedData
	if len(got.Answer) > 0 && len(out.Answer) == 0 && !got.Truncated {
		out.Rcode = dns.RcodeNameError
		return out
	}
	out.Ns = w.records(got.Ns)
	return out
}

// negative is how long an answer says that what it does not have is absent.
func negative(got *dns.Msg) uint32 {
	for _, rr := range got.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(soa.Hdr.Ttl, soa.Minttl, negativeTTL)
		}
	}
	return negativeTTL
}

// writer writes records back.
type writer struct {
	*view
	from, to string // the name that was asked for, and what the guest calls it
	// closed: only types that are understood pass, of names that the answer leads to.
	closed bool
	chain  map[string]bool // these names, in lower case
}

func (w *writer) records(in []dns.RR) []dns.RR {
	var out []dns.RR
	for _, rr := range in {
		if rr, ok := w.record(rr); ok {
			out = append(out, rr)
		}
	}
	return out
}

// record returns what a guest is told of a record, false if nothing.
func (w *writer) record(rr dns.RR) (dns.RR, bool) {
	header := rr.Header()
	if header.Class != dns.ClassINET || header.Rrtype == dns.TypeOPT || header.Rrtype == dns.TypeTSIG || header.Rrtype == dns.TypeSIG {
		return nil, false
	}
	if w.closed && !w.chain[strings.ToLower(header.Name)] {
		return nil, false
	}
	owner, ok := w.name(header.Name)
	if !ok {
		return nil, false
	}
	rr = dns.Copy(rr)
	rr.Header().Name = owner
	var target *string
	switch rr := rr.(type) {
	case *dns.A, *dns.AAAA, *dns.TXT:
		return rr, true
	case *dns.CNAME:
		target = &rr.Target
	case *dns.SRV:
		target = &rr.Target
	case *dns.PTR:
		target = &rr.Ptr
	case *dns.MX:
		target = &rr.Mx
	case *dns.NS:
		target = &rr.Ns
	case *dns.DNAME:
		target = &rr.Target
	case *dns.SVCB:
		target = &rr.Target
	case *dns.HTTPS:
		target = &rr.Target
	case *dns.SOA:
		if _, ok := below(rr.Ns, w.ours); ok {
			return nil, false
		}
		if _, ok := below(rr.Mbox, w.ours); ok {
			return nil, false
		}
		return rr, !w.closed
	default:
		return rr, !w.closed
	}
	before := *target
	if *target, ok = w.name(before); ok && w.closed {
		w.chain[strings.ToLower(before)] = true
	}
	return rr, ok
}

// name returns what the guest calls a name of the cluster DNS, false if it may not have it.
func (w *writer) name(name string) (string, bool) {
	if strings.EqualFold(name, w.from) {
		return w.to, true
	}
	return w.back(name)
}

// fit packs an answer within a size, truncated if need be.
func fit(m *dns.Msg, size int) []byte {
	m.Truncate(size)
	if packed, err := m.Pack(); err == nil && len(packed) <= size {
		return packed
	}
	bare := &dns.Msg{MsgHdr: m.MsgHdr, Question: m.Question}
	bare.Rcode = dns.RcodeServerFailure
	packed, err := bare.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// room is the size of the answer that a guest takes by UDP.
func room(q *dns.Msg) int {
	if opt := q.IsEdns0(); opt != nil {
		return int(min(max(opt.UDPSize(), minUDP), maxUDP))
	}
	return minUDP
}

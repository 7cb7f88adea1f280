package resolver

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

// maxAliases is how many CNAME and DNAME records may follow each other, over all messages.
const maxAliases = 16

// reading is what a message says about the question it answers.
type reading struct {
	// outcome is empty if the message leads to an alias and does not say what is there.
	outcome Outcome
	// records are what was asked for, under name.
	records []dns.RR
	// name is the end of the aliases, and path the names on the way to it, without the one asked for.
	name string
	path []string
	ttl  uint32 // the least on the way; math.MaxUint32 if there was none
	// elsewhere: the server does not know, and others may. The outcome is Refused.
	elsewhere bool
	// delegation is the zone that the server refers to, if it does so.
	delegation string
	err        error // why, if the outcome is not conclusive
}

// read says what message m means as the answer to q. The names before are those that aliases have led
// through already, q.Name being the last.
func read(q wire.Question, m wire.Message, before []string) reading {
	r := follow(q, m.Answer, before)
	if r.err != nil {
		// BIND answers a circle with SERVFAIL; the circle says more.
		return r
	}
	switch m.Rcode {
	case dns.RcodeSuccess:
		if len(r.records) > 0 {
			return r.found()
		}
		return r.missing(m)
	case dns.RcodeNameError:
		if len(r.records) > 0 {
			return r.fail(BadAnswer, fmt.Errorf("it has records of %s and says that there is no such name", r.name))
		}
		return r.missing(m)
	case dns.RcodeRefused, dns.RcodeNotAuth:
		r.elsewhere = m.Rcode == dns.RcodeRefused
		return r.fail(Refused, said(m))
	case dns.RcodeYXDomain:
		return r.fail(BadAnswer, errors.New("an alias makes the name too long (YXDOMAIN)"))
	default:
		return r.fail(ServerFailure, said(m))
	}
}

// follow goes along the aliases among the records to their end, and finds what was asked for there.
func follow(q wire.Question, answer []dns.RR, before []string) reading {
	r := reading{name: q.Name, ttl: math.MaxUint32}
	owned := make(map[string][]dns.RR, len(answer))
	for _, rr := range answer {
		if rr.Header().Class == dns.ClassINET {
			name := dns.CanonicalName(rr.Header().Name)
			owned[name] = append(owned[name], rr)
		}
	}
	for {
		if r.records = ofType(owned[r.name], q.Type); len(r.records) > 0 {
			return r
		}
		target, ttl, err := alias(owned, r.name, q.Type)
		switch {
		case err != nil:
			return r.fail(BadAnswer, err)
		case target == "":
			return r
		case target == r.name || slices.Contains(before, target) || slices.Contains(r.path, target):
			return r.fail(BadAnswer, fmt.Errorf("the aliases (CNAME) of %s lead in a circle, over %s", q.Name, target))
		case len(before)+len(r.path) > maxAliases:
			return r.fail(BadAnswer, fmt.Errorf("there are more than %d aliases (CNAME) in a row, %s being the last", maxAliases, target))
		}
		r.name, r.path, r.ttl = target, append(r.path, target), min(r.ttl, ttl)
	}
}

func (r reading) fail(o Outcome, err error) reading {
	r.outcome, r.err, r.records = o, err, nil
	return r
}

// found puts the records into one shape, with their real TTL.
func (r reading) found() reading {
	r.outcome = Found
	for _, rr := range r.records {
		h := rr.Header()
		h.Name, h.Ttl = r.name, sane(h.Ttl)
		r.ttl = min(r.ttl, h.Ttl)
	}
	return r
}

// missing says what an answer without records means.
func (r reading) missing(m wire.Message) reading {
	soa := negativeTTL(m.Authority, r.name)
	switch {
	case m.Rcode == dns.RcodeNameError:
		r.outcome = NoName
	case soa != nil:
		r.outcome = NoData
	case len(r.path) > 0:
		return r // ask on
	case !m.AA:
		// Delegations have NS records and no SOA (RFC 2308 section 2.2). Who neither resolves
		// for us nor says that it is its own zone knows nothing.
		if r.delegation = delegation(m.Authority, r.name); r.delegation != "" {
			r.elsewhere = true
			return r.fail(Refused, fmt.Errorf("it refers to the servers of %s", r.delegation))
		}
		if !m.RA {
			r.elsewhere = true
			return r.fail(Refused, errors.New("it does not resolve names for this box, and has no such zone"))
		}
		fallthrough
	default:
		r.outcome = NoData
	}
	if soa == nil {
		r.ttl = 0
	} else {
		r.ttl = min(r.ttl, *soa)
	}
	return r
}

// ofType returns the records of one type.
func ofType(rrs []dns.RR, t uint16) []dns.RR {
	var out []dns.RR
	for _, rr := range rrs {
		if rr.Header().Rrtype == t {
			out = append(out, rr)
		}
	}
	return out
}

// alias returns the name that records make an alias of, "" if they do not.
func alias(owned map[string][]dns.RR, name string, qtype uint16) (string, uint32, error) {
	target, ttl := "", uint32(math.MaxUint32)
	for _, rr := range owned[name] {
		cname, ok := rr.(*dns.CNAME)
		if !ok {
			continue
		}
		to := dns.CanonicalName(cname.Target)
		if target != "" && to != target {
			return "", 0, fmt.Errorf("%s is an alias (CNAME) of both %s and %s", name, target, to)
		}
		target, ttl = to, min(ttl, sane(cname.Hdr.Ttl))
	}
	if target != "" {
		return target, ttl, nil
	}
	// A DNAME comes with the CNAME that follows from it, but nobody has to believe that (RFC 6672 section 3.1).
	for off, end := dns.NextLabel(name, 0); !end; off, end = dns.NextLabel(name, off) {
		for _, rr := range owned[name[off:]] {
			dname, ok := rr.(*dns.DNAME)
			if !ok {
				continue
			}
			to := dns.CanonicalName(dname.Target)
			if to == "." {
				to = ""
			}
			q, err := wire.NewQuestion(name[:off]+to, qtype)
			if err != nil {
				return "", 0, fmt.Errorf("the alias (DNAME) of %s: %w", name[off:], err)
			}
			return q.Name, sane(dname.Hdr.Ttl), nil
		}
	}
	return "", 0, nil
}

// negativeTTL returns how long it holds that there is nothing (RFC 2308 section 5), nil if the records
// do not say so.
func negativeTTL(authority []dns.RR, name string) *uint32 {
	for _, rr := range authority {
		if soa, ok := rr.(*dns.SOA); ok && soa.Hdr.Class == dns.ClassINET && dns.IsSubDomain(soa.Hdr.Name, name) {
			ttl := min(sane(soa.Hdr.Ttl), sane(soa.Minttl))
			return &ttl
		}
	}
	return nil
}

// delegation returns the zone above name that NS records refer to, "" if there are none.
func delegation(authority []dns.RR, name string) string {
	for _, rr := range authority {
		if h := rr.Header(); h.Rrtype == dns.TypeNS && h.Class == dns.ClassINET && dns.IsSubDomain(h.Name, name) {
			return dns.CanonicalName(h.Name)
		}
	}
	return ""
}

// sane is a TTL as RFC 2181 section 8 has it.
func sane(ttl uint32) uint32 {
	if ttl > math.MaxInt32 {
		return 0
	}
	return ttl
}

// said is the answer code of a server in words.
func said(m wire.Message) error {
	text := dns.RcodeToString[m.Rcode]
	if text == "" {
		text = fmt.Sprintf("code %d", m.Rcode)
	}
	if m.Note != "" {
		text += ": " + m.Note
	}
	return fmt.Errorf("it says %s", text)
}

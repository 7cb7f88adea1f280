package responder

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/mdns"
	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// TTLs of RFC 6762 section 10 in seconds: short for records that hold or name a
// host, because a host's addresses move; long for all others, unless the
// announcement says otherwise.
const (
	hostTTL  = 120
	otherTTL = 4500
)

// maxTTL is the largest TTL there is (RFC 2181 section 8).
const maxTTL = (1<<31 - 1) * time.Second

// claim is one of the two names a responder wants for itself alone.
type claim uint8

const (
	hostClaim claim = iota
	instanceClaim
	numClaims // how many there are
)

// record is one resource record of ours. Records are immutable once their zone
// is built.
type record struct {
	rr     dns.RR // class IN without the cache-flush bit
	id     string // recordID
	claim  claim  // the name that must be ours before the record may be used
	unique bool   // member of a unique record set (RFC 6762 section 2)
	set    []*record
}

// zone is everything there is to say on one link.
type zone struct {
	names   [numClaims]string // full names
	keys    [numClaims]string // wire.Key of names
	records []*record         // NSEC included, in the order they are sent
	byID    map[string]*record
	byName  map[string][]*record // NSEC not included
	nsec    [numClaims]*record
	srv     *record
	txt     *record
	a, aaaa []*record
	ttl     uint32 // seconds, of the records that live longest
}

// ttls returns the TTLs, in seconds, of records that hold or name a host, and of
// all others. The first are never the longer ones: who has forgotten the service
// needs no host.
func (a *Announcement) ttls() (short, long uint32) {
	if a.TTL == 0 {
		return hostTTL, otherTTL
	}
	long = uint32(a.TTL / time.Second)
	return min(hostTTL, long), long
}

// recordID identifies name, type and data of a record, with names folded as RFC
// 6762 section 16 compares them. Class and TTL are left out.
func recordID(rr dns.RR) string {
	h := rr.Header()
	var data string
	switch rr := rr.(type) {
	case *dns.PTR:
		data = wire.Key(rr.Ptr)
	case *dns.SRV:
		data = fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, wire.Key(rr.Target))
	case *dns.TXT:
		data = strings.Join(rr.Txt, "\x00")
	case *dns.A:
		data = string(rr.A.To4())
	case *dns.AAAA:
		data = string(rr.AAAA)
	default:
		raw, err := wire.RData(rr)
		if err != nil {
			// Not a record that could ever have been sent, so equal to none.
			return fmt.Sprintf("%p", rr)
		}
		data = string(raw)
	}
	return wire.Key(h.Name) + "\x00" + strconv.Itoa(int(h.Rrtype)) + "\x00" + data
}

// newZone builds the records of an announcement for a link with the given
// addresses, of which there must be one at least. host and instance are the
// labels in use, which conflicts may have changed.
//
// The records come from hashicorp/mdns. Its answers are taken one question at a
// time and filtered to the name and type asked for, because it mixes additional
// records into them; it knows no TTL but 120 s, no cache-flush bit, no subtype
// and no NSEC, so these are put right here.
func newZone(a *Announcement, host, instance string, addrs []netip.Prefix) (*zone, error) {
	txt, err := wire.EncodeTXT(a.TXT)
	if err != nil {
		return nil, err
	}
	ips := make([]net.IP, 0, len(addrs))
	for _, p := range addrs {
		ips = append(ips, net.IP(p.Addr().Unmap().WithZone("").AsSlice()))
	}
	domain := strings.Trim(a.Domain, ".") + "."
	z := &zone{
		names:  [numClaims]string{wire.HostName(host, domain), wire.InstanceName(instance, a.Service, domain)},
		byID:   make(map[string]*record),
		byName: make(map[string][]*record),
	}
	for k, name := range z.names {
		z.keys[k] = wire.Key(name)
	}
	service := wire.ServiceName(a.Service, domain)
	svc, err := mdns.NewMDNSService(wire.EscapeLabel(instance), a.Service, domain, z.names[hostClaim], int(a.Port), ips, txt)
	if err != nil {
		return nil, err
	}
	ask := func(name string, rrtype uint16) []dns.RR {
		var out []dns.RR
		for _, rr := range svc.Records(dns.Question{Name: name, Qtype: rrtype, Qclass: dns.ClassINET}) {
			if h := rr.Header(); h.Name == name && h.Rrtype == rrtype {
				out = append(out, rr)
			}
		}
		return out
	}
	add := func(rrs []dns.RR, ttl uint32, c claim, unique bool) []*record {
		var set []*record
		for _, rr := range rrs {
			rr.Header().Ttl = ttl
			rec := &record{rr: rr, id: recordID(rr), claim: c, unique: unique}
			if z.byID[rec.id] != nil {
				continue
			}
			z.byID[rec.id] = rec
			z.records = append(z.records, rec)
			set = append(set, rec)
		}
		for _, rec := range set {
			rec.set = []*record{rec}
			if unique {
				rec.set = set
			}
			if h := rec.rr.Header(); h.Rrtype != dns.TypeNSEC {
				key := wire.Key(h.Name)
				z.byName[key] = append(z.byName[key], rec)
			}
		}
		return set
	}

	short, long := a.ttls()
	z.ttl = long
	inst, hostName := z.names[instanceClaim], z.names[hostClaim]
	add(ask(service, dns.TypePTR), long, instanceClaim, false)
	for _, sub := range a.Subtypes {
		add([]dns.RR{pointer(wire.SubtypeName(sub, a.Service, domain), inst)}, long, instanceClaim, false)
	}
	srv := ask(inst, dns.TypeSRV)
	for _, rr := range srv {
		// There is one target, so nothing to weigh it against.
		rr.(*dns.SRV).Priority, rr.(*dns.SRV).Weight = 0, 0
	}
	z.srv = add(srv, short, instanceClaim, true)[0]
	z.txt = add(ask(inst, dns.TypeTXT), long, instanceClaim, true)[0]
	z.a = add(ask(hostName, dns.TypeA), short, hostClaim, true)
	z.aaaa = add(ask(hostName, dns.TypeAAAA), short, hostClaim, true)
	add(ask(wire.ServiceName(wire.ServiceEnumeration, domain), dns.TypePTR), long, instanceClaim, false)

	var addressTypes []uint16
	if len(z.a) > 0 {
		addressTypes = append(addressTypes, dns.TypeA)
	}
	if len(z.aaaa) > 0 {
		addressTypes = append(addressTypes, dns.TypeAAAA)
	}
	z.nsec[hostClaim] = add([]dns.RR{nsec(hostName, addressTypes)}, short, hostClaim, true)[0]
	z.nsec[instanceClaim] = add([]dns.RR{nsec(inst, []uint16{dns.TypeTXT, dns.TypeSRV})}, long, instanceClaim, true)[0]
	return z, nil
}

func pointer(name, target string) *dns.PTR {
	return &dns.PTR{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypePTR, Class: dns.ClassINET}, Ptr: target}
}

// nsec says that a name has records of these types and no others, in the form
// RFC 6762 section 6.1 prescribes: it points to itself, and it does not list
// itself.
func nsec(name string, types []uint16) *dns.NSEC {
	return &dns.NSEC{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeNSEC, Class: dns.ClassINET}, NextDomain: name, TypeBitMap: types}
}

// lookup returns the records that answer a question; for a name of ours without
// records of that type, the NSEC record that says so (RFC 6762 section 6.1).
func (z *zone) lookup(q dns.Question) []*record {
	if class := wire.Class(q.Qclass); class != dns.ClassINET && class != dns.ClassANY {
		return nil
	}
	key := wire.Key(q.Name)
	var out []*record
	for _, rec := range z.byName[key] {
		if q.Qtype == dns.TypeANY || q.Qtype == rec.rr.Header().Rrtype {
			out = append(out, rec)
		}
	}
	if out == nil {
		for k := range numClaims {
			if z.keys[k] == key {
				return []*record{z.nsec[k]}
			}
		}
	}
	return out
}

// additional returns the records a receiver of rec is likely to ask for next
// (RFC 6763 section 12, RFC 6762 section 6.2).
func (z *zone) additional(rec *record) []*record {
	switch h := rec.rr.Header(); h.Rrtype {
	case dns.TypePTR:
		if wire.Key(rec.rr.(*dns.PTR).Ptr) != z.keys[instanceClaim] {
			return nil
		}
		return append([]*record{z.srv, z.txt}, z.addresses()...)
	case dns.TypeSRV, dns.TypeA, dns.TypeAAAA:
		return z.addresses()
	}
	return nil
}

// addresses returns the host's address records and, when one of the two types
// is missing, the NSEC record that says so.
func (z *zone) addresses() []*record {
	out := append(append([]*record(nil), z.a...), z.aaaa...)
	if len(z.a) == 0 || len(z.aaaa) == 0 {
		out = append(out, z.nsec[hostClaim])
	}
	return out
}

// mentions reports whether the zone has a record of that name.
func (z *zone) mentions(name string) bool { return len(z.byName[wire.Key(name)]) > 0 }

// claimOf returns which of our own names a name is.
func (z *zone) claimOf(name string) (claim, bool) {
	key := wire.Key(name)
	for k := range numClaims {
		if z.keys[k] == key {
			return k, true
		}
	}
	return 0, false
}

// sameAs reports whether two zones say the same, for the same time.
func (z *zone) sameAs(o *zone) bool {
	if len(z.byID) != len(o.byID) {
		return false
	}
	for id, rec := range z.byID {
		if old := o.byID[id]; old == nil || old.rr.Header().Ttl != rec.rr.Header().Ttl {
			return false
		}
	}
	return true
}

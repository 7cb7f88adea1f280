package resolver

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

// FuzzAnswer reads any bytes as the answer to a question: whatever is believed has to be about it.
func FuzzAnswer(f *testing.F) {
	types := []uint16{dns.TypePTR, dns.TypeSRV, dns.TypeTXT, dns.TypeA, dns.TypeAAAA, dns.TypeCNAME}
	for _, seed := range []struct {
		rcode   int
		qtype   uint8
		records []string
	}{
		{0, 0, []string{"example.com. 60 PTR liqo-cluster.example.com.", "example.com. 60 PTR liqo-cluster-2.example.com."}},
		{0, 1, []string{"example.com. 60 SRV 0 0 443 auth.server.example.com.", "auth.server.example.com. 60 A 192.0.2.1"}},
		{0, 2, []string{`example.com. 60 TXT "txtvers=1" "id=x"`}},
		{0, 3, []string{"example.com. 60 CNAME a.example.com.", "a.example.com. 60 CNAME b.example.com.", "b.example.com. 60 A 192.0.2.1"}},
		{0, 4, []string{"example.com. 60 CNAME a.example.com.", soa}},
		{0, 3, []string{"com. 60 DNAME org.", "example.org. 60 A 192.0.2.1"}},
		{0, 3, []string{"example.com. 60 CNAME example.com."}},
		{0, 5, []string{"example.com. 4294967295 CNAME example.com."}},
		{dns.RcodeNameError, 0, []string{soa}},
		{0, 0, []string{"example.com. 60 NS ns.example.com."}},
		{dns.RcodeRefused, 0, nil},
		{dns.RcodeServerFailure, 0, nil},
	} {
		q := new(dns.Msg)
		q.SetQuestion("example.com.", types[seed.qtype])
		m := reply(f, q, seed.rcode, seed.records...)
		f.Add(pack(f, m), seed.qtype)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: 6, ExtraText: "bogus"})
		m.RecursionAvailable, m.Authoritative = false, true
		f.Add(pack(f, m), seed.qtype)
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		q := wire.Question{Name: "example.com.", Type: types[int(n)%len(types)]}
		var id uint16
		if len(b) >= 2 {
			id = binary.BigEndian.Uint16(b)
		}
		if _, err := wire.Decode(b, id+1, q); err == nil {
			t.Fatal("an answer with another ID is believed")
		}
		m, err := wire.Decode(b, id, q)
		if err != nil || m.Truncated {
			return
		}
		r := read(q, m, []string{q.Name})
		if r.outcome == "" && len(r.path) == 0 || (r.outcome == "" || r.outcome.Conclusive()) != (r.err == nil) || (r.outcome == Found) != (len(r.records) > 0) {
			t.Fatalf("contradicts itself: %+v", r)
		}
		if r.elsewhere && r.outcome != Refused || len(r.path) > maxAliases {
			t.Fatalf("%+v", r)
		}
		if (r.outcome == Found || r.outcome == NoData && len(r.path) == 0 || r.outcome == NoName) && r.ttl > math.MaxInt32 {
			t.Fatalf("TTL %d", r.ttl)
		}
		for _, rr := range r.records {
			if h := rr.Header(); h.Rrtype != q.Type || h.Class != dns.ClassINET || h.Name != r.name || h.Ttl < r.ttl || h.Ttl > math.MaxInt32 {
				t.Fatalf("believed %v as %s of %s", rr, wire.TypeName(q.Type), r.name)
			}
		}
		from := q.Name
		for _, to := range r.path {
			if !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return leads(rr, from, to) }) {
				t.Fatalf("nothing leads from %s to %s", from, to)
			}
			from = to
		}
		if r.name != from {
			t.Fatalf("the way ends at %s and the name is %s", from, r.name)
		}
	})
}

// leads reports whether a record makes one name an alias of another.
func leads(rr dns.RR, from, to string) bool {
	owner := dns.CanonicalName(rr.Header().Name)
	switch alias := rr.(type) {
	case *dns.CNAME:
		return owner == from && dns.CanonicalName(alias.Target) == to
	case *dns.DNAME:
		target := dns.CanonicalName(alias.Target)
		return owner != from && dns.IsSubDomain(owner, from) && dns.IsSubDomain(target, to) &&
			dns.CountLabel(from)-dns.CountLabel(owner) == dns.CountLabel(to)-dns.CountLabel(target)
	}
	return false
}

func FuzzResolvConf(f *testing.F) {
	for _, s := range []string{"", "nameserver 192.0.2.1\nnameserver fe80::1%eth0\n", "options timeout:3 attempts:2 rotate use-vc",
		"options timeout:-9223372036854775809", "# x\n;y\nsearch a b\r\n", "nameserver \x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseConf(b)
		if len(c.servers) == 0 || len(c.servers) > maxNameServers || c.timeout < 0 || c.timeout > 30*time.Second || c.attempts < 0 || c.attempts > 5 {
			t.Fatalf("%+v", c)
		}
		for _, s := range c.servers {
			if !s.IsValid() {
				t.Fatalf("%+v", c)
			}
		}
	})
}

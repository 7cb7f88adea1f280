package dnssd

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
)

// scripted answers the questions of a look from bytes of strangers: a byte that says
// what comes of it, two of length, and a message of that length. It begins again at the
// end.
type scripted struct {
	script []byte
	off    int
}

func (s *scripted) Lookup(_ context.Context, name string, qtype uint16) resolver.Answer {
	outcomes := []resolver.Outcome{resolver.Found, resolver.Found, resolver.Found, resolver.Found, resolver.NoData, resolver.NoName, resolver.ServerFailure, resolver.Timeout}
	if s.off+3 > len(s.script) {
		s.off = 0
	}
	if len(s.script) < 3 {
		return resolver.Answer{Outcome: resolver.NoName, Server: "192.0.2.53:53"}
	}
	o := outcomes[s.script[s.off]&7]
	size := min(int(binary.BigEndian.Uint16(s.script[s.off+1:])), len(s.script)-s.off-3)
	body := s.script[s.off+3 : s.off+3+size]
	s.off += 3 + size
	a := resolver.Answer{Outcome: o, Name: name, Server: "192.0.2.53:53"}
	if !o.Conclusive() {
		a.Err = fmt.Errorf("no answer: %s", body)
		return a
	}
	if o != resolver.Found {
		return a
	}
	var m dns.Msg
	if m.Unpack(body) != nil {
		a.Outcome, a.Err = resolver.BadAnswer, fmt.Errorf("bad answer %s", body)
		return a
	}
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == qtype {
			a.Records = append(a.Records, rr)
			a.TTL = time.Duration(rr.Header().Ttl) * time.Second
		}
	}
	if len(a.Records) == 0 {
		a.Outcome = resolver.NoData
	}
	return a
}

// FuzzLook reads whole looks from bytes, twice with one memory, and checks what holds
// for every report.
func FuzzLook(f *testing.F) {
	script := func(texts ...string) []byte {
		var out []byte
		for _, text := range texts {
			m := new(dns.Msg)
			m.SetQuestion("example.com.", dns.TypePTR)
			m.Response = true
			m.Answer = zoneRecords(f, text)
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			out = append(append(append(out, 0), binary.BigEndian.AppendUint16(nil, uint16(len(b)))...), b...)
		}
		return out
	}
	everything := classic + `
x. SRV 0 0 1 h.
x. SRV 0 0 0 .
x. SRV 0 0 0 a\ b.
x. SRV 9 0 7 1.2.3.4.
x. TXT "id=` + testID + `" "fp=` + testFP + `" "name=a\007"
x. TXT "v=spf1"
x. PTR .
x. PTR a\ b\000\255\.c.example.com.
x. AAAA ::ffff:127.0.0.1
x. AAAA fe80::1
x. AAAA 2001:db8::1
x. A 0.0.0.0`
	f.Add(script(everything))
	f.Add(script(everything, "x. TXT x", "x. PTR b.net.", everything))
	f.Add(append(script("x. PTR a.net."), 6, 0, 4, 'l', 0x1b, '\n', 0xff))
	f.Add([]byte{4, 0, 0, 7, 0, 0, 5, 0, 0})
	f.Add([]byte{0, 0, 12, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4096 {
			return // it is repeated for hundreds of questions
		}
		// One question at a time, so that a failure can be had again.
		l := look{
			asker:   asker{domain: withDefaults(Domain{Name: "example.com"}), resolver: &scripted{script: raw}, gate: newGate(1), start: time.Now(), whole: t.Context(), memory: newMemory(nil)},
			service: "_liqo._tcp", limit: 20, seed: 1,
		}
		for range 2 {
			r := l.run(t.Context())
			valid(t, r)
			if len(r.Instances) > 20 || len(r.Skipped) > 22 {
				t.Errorf("%d instances, %d skipped", len(r.Instances), len(r.Skipped))
			}
			if len(l.memory.topics) > 3+maxDomains+20*(2+2*maxServices) {
				t.Errorf("%d topics", len(l.memory.topics))
			}
			wait := l.memory.next(r.At, l.domain, 0.5).Sub(r.At)
			if wait < l.domain.MinInterval || wait > l.domain.MaxInterval {
				t.Errorf("next look after %s", wait)
			}
			l.memory.expire()
		}
	})
}

// FuzzDecodeTXT reads the escaped strings of TXT records.
func FuzzDecodeTXT(f *testing.F) {
	f.Add(`id=x`, `ID=y`)
	f.Add(`\065=\`, `=\999`)
	f.Fuzz(func(t *testing.T, a, b string) {
		keys := decodeTXT([]string{a, b})
		if len(keys) > 2 {
			t.Errorf("%v", keys)
		}
		for key := range keys {
			if key == "" || !ascii(key) {
				t.Errorf("key %q", key)
			}
		}
	})
}

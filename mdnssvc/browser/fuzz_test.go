package browser

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// script turns fuzz input into a life of a Browser: messages made of few names,
// so that they meet each other, raw packets, and steps of time of all sizes.
type script struct {
	data []byte
	t    *testing.T
	b    *Browser
	now  time.Time
}

func (s *script) byte() int {
	if len(s.data) == 0 {
		return 0
	}
	c := s.data[0]
	s.data = s.data[1:]
	return int(c)
}

var (
	fuzzTTLs  = []uint32{0, 1, 2, 10, 120, 4500, 1 << 31}
	fuzzSteps = []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 250 * time.Millisecond, time.Second, 3 * time.Second, 30 * time.Second, 2 * time.Minute, time.Hour, 24 * time.Hour}
)

func (s *script) rr() dns.RR {
	c := s.byte()
	ttl := fuzzTTLs[s.byte()%len(fuzzTTLs)]
	n := s.byte()
	instance := fmt.Sprintf("I%d.%s", n%12, serviceFQDN)
	host := fmt.Sprintf("h%d.local.", n/12%5)
	class := uint16(dns.ClassINET)
	if c&0x80 != 0 {
		class |= wire.TopBit
	}
	switch c % 8 {
	case 0, 1:
		return &dns.PTR{Hdr: hdr(serviceFQDN, dns.TypePTR, class, ttl), Ptr: instance}
	case 2:
		return &dns.SRV{Hdr: hdr(instance, dns.TypeSRV, class, ttl), Port: uint16(n / 60), Priority: uint16(c / 8 % 2), Target: host}
	case 3:
		return &dns.TXT{Hdr: hdr(instance, dns.TypeTXT, class, ttl), Txt: []string{fmt.Sprint("x=", n/128)}}
	case 4:
		return &dns.A{Hdr: hdr(host, dns.TypeA, class, ttl), A: []byte{10, 0, 0, byte(n)}}
	case 5:
		return &dns.AAAA{Hdr: hdr(host, dns.TypeAAAA, class, ttl), AAAA: append([]byte{0xfe, 0x80, 14: 0}, byte(n))}
	case 6:
		return &dns.NSEC{Hdr: hdr(host, dns.TypeNSEC, class, ttl), NextDomain: host, TypeBitMap: []uint16{[]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT}[n%3]}}
	}
	return &dns.A{Hdr: hdr(host, dns.TypeA, class, ttl)}
}

func (s *script) message() *dns.Msg {
	c := s.byte()
	if c >= 0xf0 {
		size := min(s.byte()*4, len(s.data))
		m, drop := wire.Decode(s.data[:size])
		s.data = s.data[size:]
		if drop != "" {
			return nil
		}
		return m
	}
	m := new(dns.Msg)
	m.Response = c&3 != 0
	m.Truncated = c&0x40 != 0
	for range c >> 2 & 7 {
		rr := s.rr()
		switch {
		case !m.Response:
			m.Question = append(m.Question, dns.Question{Name: rr.Header().Name, Qtype: rr.Header().Rrtype, Qclass: rr.Header().Class})
			if c&0x20 != 0 {
				m.Answer = append(m.Answer, s.rr())
			}
		case c&0x80 != 0:
			m.Extra = append(m.Extra, rr)
		default:
			m.Answer = append(m.Answer, rr)
		}
	}
	return m
}

// due has the Browser do what is due until end.
func (s *script) due(end time.Time, take func([]Event)) {
	for rounds := 0; ; rounds++ {
		next := s.b.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(s.now) {
			s.now = next
		}
		packets, events := s.b.Due(s.now)
		take(events)
		for _, p := range packets {
			if _, err := wire.EncodeAll(p.Msg, 1232); err != nil {
				s.t.Fatalf("not encodable: %v", err)
			}
		}
		if next := s.b.Next(); !next.IsZero() && !next.After(s.now) {
			s.t.Fatalf("Next does not advance: %v at %v", next, s.now)
		}
		if rounds > 20000 {
			s.t.Fatal("busy without end")
		}
	}
	s.now = end
}

func FuzzBrowser(f *testing.F) {
	f.Add([]byte{1, 0, 5, 4, 0, 0, 1, 0, 5, 4, 2, 5, 4, 60, 3, 5, 0, 4, 4, 0})
	seed := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		b := make([]byte, 600)
		for k := range b {
			b[k] = byte(seed.UintN(256))
		}
		f.Add(b)
	}
	f.Fuzz(lifeOf)
}

// lifeOf plays data as a script and holds everything that happens against what
// must always be true.
func lifeOf(t *testing.T, data []byte) {
	if len(data) > 4096 {
		return
	}
	s := &script{data: data, t: t, now: epoch}
	s.b = New(Config{
		Rand: rand.New(rand.NewPCG(1, 3)), Service: service, Domain: "local", MaxInstances: 8,
		Remembered: func(name string) bool { return name == "I3" || name == "i3" },
	})
	alive := map[string]Instance{}
	take := func(events []Event) {
		for _, e := range events {
			checkEvent(t, alive, e)
			if e.Reason == ReasonEvicted && wire.Key(e.Instance.Name) == "i3." {
				t.Fatal("evicted although remembered")
			}
		}
	}
	both, one := [2]bool{true, true}, [2]bool{true, false}
	s.b.SetLinks(s.now, []LinkFamilies{{Index: 1, Families: both}, {Index: 2, Families: one}})
	s.b.SetEnabled(s.now, true)
	for len(s.data) > 0 {
		switch op := s.byte(); {
		case op < 150:
			m := s.message()
			if m == nil {
				continue
			}
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(op % 5)}), 5353)
			events, _ := s.b.Receive(s.now, wire.Received{Msg: m, Link: 1 + op/5%2, Family: wire.Family(op / 10 % 2), From: from, ToMulticast: op != 77, Self: op == 78})
			take(events)
		case op < 230:
			s.due(s.now.Add(fuzzSteps[s.byte()%len(fuzzSteps)]), take)
		case op < 240:
			s.now = s.now.Add(fuzzSteps[s.byte()%len(fuzzSteps)]) // nobody calls Due for a while
		case op < 248:
			s.b.Reconfirm(s.now, 1+op%2, fmt.Sprintf("I%d", s.byte()%12))
		case op < 253:
			s.b.SetLinks(s.now, [][]LinkFamilies{
				{{Index: 1, Families: both}},
				{{Index: 1, Families: one}, {Index: 2, Families: both}},
				nil,
				{{Index: 2, Families: one}, {Index: 2}},
				{{Index: 1, Families: both, Off: true}, {Index: 2, Families: both}},
			}[op-248])
		case op == 253:
			s.b.SetEnabled(s.now, s.byte()%4 != 0)
		}
		for _, i := range alive {
			if l := s.b.links[i.Link]; l != nil && l.off && len(s.b.events) == 0 {
				t.Fatalf("%s is found on a link that is off", i.Name)
			}
		}
		if !s.b.enabled && len(s.b.events) == 0 && len(alive) > 0 {
			t.Fatal("switched off and nothing lost")
		}
		checkStructure(t, s.b)
	}
	s.due(s.now.Add(5*time.Second), take)
	list := s.b.Instances()
	if len(list) != len(alive) {
		t.Fatalf("Instances has %d, events say %d", len(list), len(alive))
	}
	// Without a word from anybody everything ends.
	s.due(s.now.Add(2*maxTTL), take)
	if len(alive) != 0 || s.b.timers.len() > 2 {
		t.Fatalf("%d instances and %d timers left", len(alive), s.b.timers.len())
	}
}

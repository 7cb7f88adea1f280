package responder

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"liqo.io/agent/mdnssvc/wire"
)

// observer checks what a random sequence makes the responder send.
type observer struct {
	last map[string]time.Time // link, family and record -> last multicast
	// probed holds, per link and family, when a probe for our names was last
	// delivered: answers to it may follow each other faster.
	probed map[string]time.Time
}

func conversationKey(link int, f wire.Family) string { return fmt.Sprintf("%d/%s", link, f) }

func (o *observer) check(t *rapid.T, p sent) {
	if p.Unicast.IsValid() || !p.Msg.Response {
		return
	}
	conv := conversationKey(p.Link, p.Family)
	seen := map[string]bool{}
	for _, rr := range append(p.Msg.Answer[:len(p.Msg.Answer):len(p.Msg.Answer)], p.Msg.Extra...) {
		if rr.Header().Ttl == 0 {
			continue // goodbyes never wait
		}
		id := conv + " " + recordID(rr)
		if seen[id] {
			t.Fatalf("record twice in one packet: %v", rr)
		}
		seen[id] = true
		gap := time.Second
		if probed, ok := o.probed[conv]; ok && p.at.Sub(probed) <= time.Second {
			gap = defenceInterval
		}
		if last, ok := o.last[id]; ok && p.at.Sub(last) < gap {
			t.Fatalf("%v again after %v", rr, p.at.Sub(last))
		}
		o.last[id] = p.at
	}
}

// Whatever happens: no record is multicast twice within a second, packets and
// tables are bounded, Next moves on, and the end is a name of our own or silence.
func TestRandomSequences(t *testing.T) {
	addrs := []netip.Prefix{ourAddr, netip.MustParsePrefix("192.168.1.11/24"), ourAddr6, netip.MustParsePrefix("2001:db8::1/64")}
	names := []string{service, instance, host, meta, "_edge._sub." + service, "other.local.", `box\ \(2\).` + service, "box-host-2.local."}
	qtypes := []uint16{dns.TypePTR, dns.TypeSRV, dns.TypeTXT, dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeNSEC}
	records := []string{
		service + " %d IN PTR " + instance, meta + " %d IN PTR " + service, service + " %d IN PTR x." + service,
		instance + " %d IN SRV 0 0 6447 " + host, instance + " %d IN SRV 0 0 1 " + host, instance + ` %d IN TXT "txtvers=1" "id=box"`,
		instance + ` %d IN TXT "id=x"`, host + " %d IN A 192.168.1.10", host + " %d IN A 192.168.1.99", host + " %d IN AAAA fe80::10",
		host + " %d IN NSEC " + host + " A", `box\032(2).` + service + " %d IN SRV 0 0 1 x.local.",
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := newBed(t, rapid.Uint64().Draw(rt, "seed"))
		b.loopback = rapid.Bool().Draw(rt, "loopback")
		o := &observer{last: map[string]time.Time{}, probed: map[string]time.Time{}}
		flush := func() {
			for _, p := range b.take() {
				o.check(rt, p)
			}
			if n := len(b.r.truncated); n > maxTruncated {
				rt.Fatalf("%d truncated queries", n)
			}
			if n := len(b.r.unicasts); n > 2*unicastBurst {
				rt.Fatalf("%d unicast answers", n)
			}
			for _, c := range b.r.convs {
				if c.zone != nil && len(c.pending) > 4*len(c.zone.records) {
					rt.Fatalf("%d answers wait", len(c.pending))
				}
			}
		}
		drawRecords := func(most int) []dns.RR {
			var out []dns.RR
			for range rapid.IntRange(0, most).Draw(rt, "records") {
				s := fmt.Sprintf(rapid.SampledFrom(records).Draw(rt, "record"), rapid.SampledFrom([]int{0, 1, 60, 120, 4500}).Draw(rt, "ttl"))
				x := rr(t, s)
				if rapid.Bool().Draw(rt, "flush") {
					x.Header().Class |= wire.TopBit
				}
				out = append(out, x)
			}
			return out
		}
		links := func() {
			var list []LinkAddrs
			known := map[string]bool{}
			for index := 1; index <= rapid.IntRange(0, 2).Draw(rt, "links"); index++ {
				l := LinkAddrs{Index: index, Families: [2]bool{rapid.Bool().Draw(rt, "v4"), rapid.Bool().Draw(rt, "v6")}}
				for _, a := range addrs {
					if rapid.Bool().Draw(rt, "addr") {
						l.Addrs = append(l.Addrs, a)
					}
				}
				list = append(list, l)
				for f, on := range l.Families {
					if on {
						known[conversationKey(index, wire.Family(f))] = true
					}
				}
			}
			b.links(list...)
			// What was said on a link that went away is another link's business.
			for _, c := range []string{"1/ipv4", "1/ipv6", "2/ipv4", "2/ipv6"} {
				if !known[c] {
					for id := range o.last {
						if len(id) > len(c) && id[:len(c)] == c {
							delete(o.last, id)
						}
					}
				}
			}
		}
		b.links(oneLink(ourAddr)...)
		b.announce(announcementForTest())

		receive := func(m *dns.Msg) {
			in := wire.Received{Msg: m, Link: rapid.IntRange(1, 2).Draw(rt, "link"), ToMulticast: rapid.IntRange(0, 9).Draw(rt, "dst") > 0,
				From: rapid.SampledFrom([]netip.AddrPort{querier, otherAddr, legacyAddr, offLinkAddr}).Draw(rt, "from")}
			if rapid.Bool().Draw(rt, "family") {
				in.Family = wire.IPv6
			}
			if len(m.Ns) > 0 {
				o.probed[conversationKey(in.Link, in.Family)] = b.now
			}
			b.receiveAs(in)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { flush() },
			"query": func(rt *rapid.T) {
				m := new(dns.Msg)
				for range rapid.IntRange(1, 4).Draw(rt, "questions") {
					m.Question = append(m.Question, query(q{rapid.SampledFrom(names).Draw(rt, "name"), rapid.SampledFrom(qtypes).Draw(rt, "type"),
						rapid.Bool().Draw(rt, "qu")}).Question...)
				}
				m.Answer = drawRecords(3)
				m.Truncated = rapid.IntRange(0, 3).Draw(rt, "tc") == 0
				if rapid.IntRange(0, 9).Draw(rt, "probe") == 0 {
					m.Ns = drawRecords(3)
				}
				receive(m)
			},
			"known answers": func(rt *rapid.T) {
				m := &dns.Msg{Answer: drawRecords(5)}
				if len(m.Answer) > 0 {
					m.Truncated = rapid.Bool().Draw(rt, "tc")
					receive(m)
				}
			},
			"response": func(rt *rapid.T) {
				if m := (&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: drawRecords(3)}); len(m.Answer) > 0 {
					receive(m)
				}
			},
			"wait":      func(rt *rapid.T) { b.run(time.Duration(rapid.IntRange(0, 400).Draw(rt, "ms")) * time.Millisecond) },
			"wait long": func(rt *rapid.T) { b.run(time.Duration(rapid.IntRange(0, 40).Draw(rt, "s")) * time.Second) },
			"links":     func(*rapid.T) { links() },
			"withdraw":  func(*rapid.T) { b.announce(nil) },
			"announce": func(rt *rapid.T) {
				a := announcementForTest()
				a.Port = uint16(rapid.IntRange(6447, 6448).Draw(rt, "port"))
				a.TTL = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 5 * time.Hour}).Draw(rt, "TTL")
				if rapid.Bool().Draw(rt, "subtype") {
					a.Subtypes = []string{"_edge"}
				}
				b.announce(a)
			},
		})

		// Left alone, the responder comes to rest with its names won.
		flush()
		b.links(oneLink(ourAddr)...)
		b.announce(announcementForTest())
		b.run(5 * time.Minute)
		flush()
		if !b.r.Established() || !b.r.Next().IsZero() {
			rt.Fatalf("established %v, next %v", b.r.Established(), b.r.Next())
		}
		for _, p := range b.r.Goodbye(b.now) {
			if p.Link != 1 {
				rt.Fatalf("goodbye on link %d", p.Link)
			}
		}
	})
}

// FuzzReceive feeds raw packets to a responder that probes and to one that holds
// its names.
func FuzzReceive(f *testing.F) {
	seed := func(m *dns.Msg) {
		raw, err := wire.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint16(wire.Port), true)
		f.Add(raw, uint16(40000), false)
	}
	seed(query(q{name: service, qtype: dns.TypePTR}, q{name: host, qtype: dns.TypeANY, qu: true}))
	probe := query(q{name: instance, qtype: dns.TypeANY, qu: true})
	probe.Ns = rrs(f, instance+" 120 IN SRV 0 0 1 "+host)
	seed(probe)
	seed(answers(f, instance+" 120 IN SRV 0 0 1 "+host, host+" 0 IN A 192.168.1.10", instance+` 120 IN TXT "x"`))
	f.Fuzz(func(t *testing.T, raw []byte, port uint16, multicast bool) {
		m, drop := wire.Decode(raw)
		if drop != "" {
			return
		}
		for _, age := range []time.Duration{300 * time.Millisecond, 5 * time.Second} {
			b := newBed(t, 1)
			b.links(oneLink(ourAddr)...)
			b.announce(announcementForTest())
			b.run(age)
			b.take()
			in := wire.Received{Msg: m, Link: 1, From: netip.AddrPortFrom(querier.Addr(), port), ToMulticast: multicast}
			b.r.Receive(b.now, in)
			b.run(10 * time.Second)
			if got := len(b.take()); got > 20 {
				t.Fatalf("%d packets caused by one", got)
			}
			if !b.r.Established() {
				t.Fatal("not established")
			}
		}
	})
}

// What a packet of a thousand neighbours costs, most of which are not about us.
func BenchmarkReceive(b *testing.B) {
	bed := established(b, 1)
	other := answers(b, service+" 4500 IN PTR other."+service, "other."+service+" 120 IN SRV 0 0 1 other.local.", "other.local. 120 IN A 192.168.1.99")
	ask := query(q{name: service, qtype: dns.TypePTR})
	for i := range 25 {
		ask.Answer = append(ask.Answer, rr(b, fmt.Sprintf("%s 4500 IN PTR other%d.%s", service, i, service)))
	}
	for name, m := range map[string]*dns.Msg{"response": other, "query with 25 known answers": ask} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bed.r.Receive(bed.now, wire.Received{Msg: m, Link: 1, From: otherAddr, ToMulticast: true})
			}
		})
	}
}

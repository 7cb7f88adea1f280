package responder

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/mdnssvc/wire"
)

func Test6_Answers(t *testing.T) {
	sub := "PTR 4500 _edge._sub." + service + ">" + instance
	everything := []string{recSRV, recTXT, recA, recHostNSEC}
	tests := []struct {
		name    string
		q       q
		answers []string // nil: silence
		extras  []string
		shared  bool
	}{
		{"12.1 PTR", q{name: service, qtype: dns.TypePTR}, []string{recPTR}, everything, true},
		{"12.1 subtype PTR", q{name: "_edge._sub." + service, qtype: dns.TypePTR}, []string{sub}, everything, true},
		{"RFC 6763 9 service types", q{name: meta, qtype: dns.TypePTR}, []string{recMeta}, []string{}, true},
		{"ANY of the service", q{name: service, qtype: dns.TypeANY}, []string{recPTR}, everything, true},
		{"12.2 SRV", q{name: instance, qtype: dns.TypeSRV}, []string{recSRV}, []string{recA, recHostNSEC}, false},
		{"12.3 TXT", q{name: instance, qtype: dns.TypeTXT}, []string{recTXT}, []string{}, false},
		{"6.5 ANY of the instance", q{name: instance, qtype: dns.TypeANY}, []string{recSRV, recTXT}, []string{recA, recHostNSEC}, false},
		{"6.2 A", q{name: host, qtype: dns.TypeA}, []string{recA}, []string{recHostNSEC}, false},
		{"6.5 ANY of the host", q{name: host, qtype: dns.TypeANY}, []string{recA}, []string{recHostNSEC}, false},
		{"6.1 AAAA that does not exist", q{name: host, qtype: dns.TypeAAAA}, []string{recHostNSEC}, []string{}, false},
		{"6.1 HINFO that does not exist", q{name: host, qtype: dns.TypeHINFO}, []string{recHostNSEC}, []string{}, false},
		{"6.1 A of the instance", q{name: instance, qtype: dns.TypeA}, []string{recInstNSEC}, []string{}, false},
		{"16 letters", q{name: strings.ToUpper(host), qtype: dns.TypeA}, []string{recA}, []string{recHostNSEC}, false},
		{"6 SRV of the service", q{name: service, qtype: dns.TypeSRV}, nil, nil, false},
		{"another service", q{name: "_http._tcp.local.", qtype: dns.TypePTR}, nil, nil, false},
		{"another host", q{name: "other.local.", qtype: dns.TypeA}, nil, nil, false},
		{"the domain", q{name: "local.", qtype: dns.TypeANY}, nil, nil, false},
		{"reverse mapping", q{name: "10.1.168.192.in-addr.arpa.", qtype: dns.TypePTR}, nil, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			everySeed(t, func(t *testing.T, seed uint64) {
				b := newBed(t, seed)
				b.links(oneLink(ourAddr)...)
				a := announcementForTest()
				a.Subtypes = []string{"_edge"}
				b.announce(a)
				b.run(10 * time.Second)
				b.take()
				asked := b.now
				if drop := b.receive(querier, query(tt.q)); drop != "" {
					t.Fatal(drop)
				}
				b.run(700 * time.Millisecond)
				if tt.answers == nil {
					b.expectNothing()
					return
				}
				p := b.expect(tt.answers, tt.extras)
				if p.Unicast.IsValid() || len(p.Msg.Question) != 0 || p.Msg.Id != 0 || !p.Msg.Response || !p.Msg.Authoritative {
					t.Errorf("header %v to %v", p.Msg.MsgHdr, p.Unicast)
				}
				if tt.shared {
					within(t, "shared answer", p.at.Sub(asked), 20*time.Millisecond, 120*time.Millisecond)
				} else {
					within(t, "unique answer", p.at.Sub(asked), 0, 0)
				}
			})
		})
	}
}

func Test6_QuestionClass(t *testing.T) {
	for class, want := range map[uint16]int{dns.ClassINET: 1, dns.ClassANY: 1, dns.ClassCHAOS: 0, dns.ClassNONE: 0} {
		b := established(t, 1)
		m := query(q{name: host, qtype: dns.TypeA})
		m.Question[0].Qclass = class
		b.receive(querier, m)
		b.run(time.Second)
		if got := b.take(); len(got) != want {
			t.Errorf("class %d: %d packets, want %d", class, len(got), want)
		}
	}
}

func Test6_1_6_2_BothFamilies(t *testing.T) {
	b := established(t, 1, oneLink(ourAddr, ourAddr6)...)
	aaaa := "AAAA 120 fe80::10!"
	b.receive(querier, query(q{name: host, qtype: dns.TypeA}))
	b.run(0)
	b.expect([]string{recA}, []string{aaaa})
	b.run(2 * time.Second)
	b.receive(querier, query(q{name: host, qtype: dns.TypeAAAA}))
	b.run(0)
	b.expect([]string{aaaa}, []string{recA})
	b.run(2 * time.Second)
	b.receive(querier, query(q{name: host, qtype: dns.TypeTXT}))
	b.run(0)
	b.expect([]string{"NSEC 120 " + host + " [A AAAA]!"}, []string{})
	b.run(2 * time.Second)
	b.receive(querier, query(q{name: service, qtype: dns.TypePTR}))
	b.run(time.Second)
	b.expect([]string{recPTR}, []string{recSRV, recTXT, recA, aaaa})
}

func Test6_OncePerSecond(t *testing.T) {
	everySeed(t, func(t *testing.T, seed uint64) {
		b := established(t, seed)
		b.receive(querier, query(q{name: host, qtype: dns.TypeA}))
		b.run(0)
		first := b.expect([]string{recA}, nil)
		for range 30 {
			b.run(100 * time.Millisecond)
			b.receive(querier, query(q{name: host, qtype: dns.TypeA}))
		}
		b.run(2 * time.Second)
		got := b.take()
		last := first.at
		for _, p := range got {
			if d := p.at.Sub(last); d < time.Second || d > 1100*time.Millisecond {
				t.Fatalf("again after %v", d)
			}
			last = p.at
		}
		if len(got) != 3 {
			t.Fatalf("%d packets for 30 queries in 3 s, want 3", len(got))
		}
	})
}

func Test6_3_SeveralQuestions(t *testing.T) {
	everySeed(t, func(t *testing.T, seed uint64) {
		b := established(t, seed)
		asked := b.now
		b.receive(querier, query(q{name: host, qtype: dns.TypeA}, q{name: instance, qtype: dns.TypeSRV}, q{name: "other.local.", qtype: dns.TypeA}))
		b.run(time.Second)
		p := b.expect([]string{recA, recSRV}, []string{recHostNSEC})
		within(t, "answer", p.at.Sub(asked), 20*time.Millisecond, 120*time.Millisecond)
	})
}

func Test6_4_Aggregation(t *testing.T) {
	b := established(t, 3)
	// Several queriers, one packet.
	for i := range 10 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(100 + i)}), wire.Port)
		b.receive(from, query(q{name: service, qtype: dns.TypePTR}, q{name: host, qtype: dns.TypeA}))
	}
	b.run(time.Second)
	b.expect([]string{recPTR, recA}, []string{recSRV, recTXT, recHostNSEC})
}

// An answer that may go along with another one still waits its 20 ms.
func Test6_SharedAnswersKeepTheirDelay(t *testing.T) {
	everySeed(t, func(t *testing.T, seed uint64) {
		b := established(t, seed)
		asked := b.now
		b.receive(querier, query(q{name: service, qtype: dns.TypePTR}))
		b.run(5 * time.Millisecond)
		b.receive(otherAddr, query(q{name: host, qtype: dns.TypeA}))
		b.run(time.Second)
		got := b.take()
		if len(got) != 2 || !slices.Equal(shorts(got[0].Msg.Answer), []string{recA}) || !slices.Equal(shorts(got[1].Msg.Answer), []string{recPTR}) {
			t.Fatalf("%s", describe(got))
		}
		within(t, "shared answer", got[1].at.Sub(asked), 20*time.Millisecond, 120*time.Millisecond)
	})
}

func Test7_1_KnownAnswers(t *testing.T) {
	tests := []struct {
		name    string
		q       q
		known   []string
		answers []string // nil: silence
		extras  []string
	}{
		{"full TTL", q{name: service, qtype: dns.TypePTR}, []string{service + " 4500 IN PTR " + instance}, nil, nil},
		{"half TTL", q{name: service, qtype: dns.TypePTR}, []string{service + " 2250 IN PTR " + instance}, nil, nil},
		{"below half", q{name: service, qtype: dns.TypePTR}, []string{service + " 2249 IN PTR " + instance}, []string{recPTR}, nil},
		{"other data", q{name: service, qtype: dns.TypePTR}, []string{service + " 4500 IN PTR other." + service}, []string{recPTR}, nil},
		{"capitals", q{name: service, qtype: dns.TypePTR}, []string{strings.ToUpper(service) + " 4500 IN PTR " + strings.ToUpper(instance)}, nil, nil},
		{"unique", q{name: instance, qtype: dns.TypeSRV}, []string{instance + " 120 IN SRV 0 0 6447 " + host}, nil, nil},
		{"old port", q{name: instance, qtype: dns.TypeSRV}, []string{instance + " 120 IN SRV 0 0 1 " + host}, []string{recSRV}, nil},
		{"one of two", q{name: instance, qtype: dns.TypeANY}, []string{instance + " 120 IN SRV 0 0 6447 " + host}, []string{recTXT}, []string{}},
		{"denial", q{name: host, qtype: dns.TypeAAAA}, []string{host + " 120 IN NSEC " + host + " A"}, nil, nil},
		{"known additionals are left out", q{name: service, qtype: dns.TypePTR},
			[]string{instance + " 120 IN SRV 0 0 6447 " + host, host + " 60 IN A 192.168.1.10"}, []string{recPTR}, []string{recTXT, recHostNSEC}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := established(t, 1)
			m := query(tt.q)
			m.Answer = rrs(t, tt.known...)
			b.receive(querier, m)
			b.run(time.Second)
			if tt.answers == nil {
				b.expectNothing()
				return
			}
			b.expect(tt.answers, tt.extras)
		})
	}
}

// Of a set of unique records all are sent, with the cache-flush bit, or none.
func Test10_2_SetsAreSentWhole(t *testing.T) {
	second := netip.MustParsePrefix("192.168.1.11/24")
	both := []string{recA, "A 120 192.168.1.11!"}
	knows := func(tc bool, addrs ...string) *dns.Msg {
		m := query(q{name: host, qtype: dns.TypeA})
		m.Truncated = tc
		for _, a := range addrs {
			m.Answer = append(m.Answer, rr(t, host+" 120 IN A "+a))
		}
		return m
	}
	for name, c := range map[string]struct {
		do   func(b *bed)
		want []string // nil: silence
	}{
		"one is known":      {func(b *bed) { b.receive(querier, knows(false, "192.168.1.11")) }, both},
		"both are known":    {func(b *bed) { b.receive(querier, knows(false, "192.168.1.10", "192.168.1.11")) }, nil},
		"one is at its end": {func(b *bed) { b.receive(otherAddr, answers(t, host+" 0 IN A 192.168.1.11")) }, both},
		"somebody else gives one of them": {func(b *bed) {
			b.receive(querier, query(q{name: host, qtype: dns.TypeA}, q{name: "other.local.", qtype: dns.TypeA}))
			b.run(5 * time.Millisecond)
			b.receive(otherAddr, answers(t, host+" 120 IN A 192.168.1.11"))
		}, both},
		"somebody else gives both": {func(b *bed) {
			b.receive(querier, query(q{name: host, qtype: dns.TypeA}, q{name: "other.local.", qtype: dns.TypeA}))
			b.run(5 * time.Millisecond)
			b.receive(otherAddr, answers(t, host+" 120 IN A 192.168.1.11", host+" 120 IN A 192.168.1.10"))
		}, nil},
		"both are known from two packets": {func(b *bed) {
			b.receive(querier, knows(true, "192.168.1.10"))
			b.run(100 * time.Millisecond)
			rest := knows(false, "192.168.1.11")
			rest.Question = nil
			b.receive(querier, rest)
		}, nil},
		"by unicast": {func(b *bed) {
			m := knows(false, "192.168.1.11")
			m.Question[0].Qclass |= wire.TopBit
			b.receive(querier, m)
		}, both},
		"one was not there when it was asked for": {func(b *bed) {
			b.receive(querier, query(q{name: service, qtype: dns.TypePTR, qu: true}))
			b.links(oneLink(ourAddr, second, netip.MustParsePrefix("192.168.1.12/24"))...)
			b.r.convs[0].news.left = 0 // what is announced would have it anyway
		}, []string{recPTR}},
	} {
		t.Run(name, func(t *testing.T) {
			b := established(t, 1, oneLink(ourAddr, second)...)
			c.do(b)
			b.run(time.Second)
			if c.want == nil {
				b.expectNothing()
				return
			}
			p := b.expect(c.want, nil)
			var told []string
			for _, s := range shorts(append(p.Msg.Answer, p.Msg.Extra...)) {
				if strings.HasPrefix(s, "A ") {
					told = append(told, s)
				}
			}
			if want := len(b.r.convs[0].zone.a); len(told) != want || !strings.HasSuffix(told[0], "!") {
				t.Errorf("addresses %q, want all %d, with the cache-flush bit", told, want)
			}
		})
	}
}

// What others say and ask for is no business of ours, whatever else a message has.
func Test6_OnlyOwnRecordsAndOnlyAnswers(t *testing.T) {
	b := established(t, 1)
	// A response is not answered, though it has a question.
	m := answers(t, service+" 4500 IN PTR other."+service, "other."+service+" 120 IN SRV 0 0 1 other.local.")
	m.Question = query(q{name: host, qtype: dns.TypeA}).Question
	b.receive(otherAddr, m)
	b.run(time.Second)
	b.expectNothing()
	// What it said is not passed on.
	b.receive(querier, query(q{name: service, qtype: dns.TypePTR}))
	b.run(time.Second)
	b.expect([]string{recPTR}, nil)
	b.receive(querier, query(q{name: "other." + service, qtype: dns.TypeSRV}))
	b.run(time.Second)
	b.expectNothing()
}

func Test7_2_Truncated(t *testing.T) {
	ask := func(known ...string) *dns.Msg {
		m := query(q{name: service, qtype: dns.TypePTR})
		m.Truncated = true
		m.Answer = rrs(t, known...)
		return m
	}
	more := func(tc bool, known ...string) *dns.Msg {
		return &dns.Msg{MsgHdr: dns.MsgHdr{Truncated: tc}, Answer: rrs(t, known...)}
	}
	other := service + " 4500 IN PTR other." + service
	ours := service + " 4500 IN PTR " + instance

	t.Run("waits 400 to 500 ms", func(t *testing.T) {
		everySeed(t, func(t *testing.T, seed uint64) {
			b := established(t, seed)
			asked := b.now
			b.receive(querier, ask(other))
			b.run(100 * time.Millisecond)
			b.receive(querier, more(false, other))
			b.run(time.Second)
			p := b.expect([]string{recPTR}, nil)
			within(t, "answer", p.at.Sub(asked), 400*time.Millisecond, 500*time.Millisecond)
		})
	})
	t.Run("unique too", func(t *testing.T) {
		b := established(t, 1)
		asked := b.now
		m := query(q{name: host, qtype: dns.TypeA})
		m.Truncated = true
		b.receive(querier, m)
		b.run(time.Second)
		p := b.expect([]string{recA}, nil)
		within(t, "answer", p.at.Sub(asked), 400*time.Millisecond, 500*time.Millisecond)
	})
	t.Run("known in a later packet", func(t *testing.T) {
		b := established(t, 1)
		b.receive(querier, ask(other))
		b.run(300 * time.Millisecond)
		b.receive(querier, more(true, other))
		b.run(300 * time.Millisecond)
		b.receive(querier, more(false, ours))
		b.run(2 * time.Second)
		b.expectNothing()
	})
	t.Run("from another source", func(t *testing.T) {
		b := established(t, 1)
		b.receive(querier, ask(other))
		b.receive(otherAddr, more(false, ours))
		b.run(time.Second)
		b.expect([]string{recPTR}, nil)
	})
	t.Run("more extends the wait, not for ever", func(t *testing.T) {
		b := established(t, 1)
		asked := b.now
		b.receive(querier, ask(other))
		for range 50 {
			b.run(100 * time.Millisecond)
			b.receive(querier, more(true, other))
		}
		p := b.expect([]string{recPTR}, nil)
		within(t, "answer", p.at.Sub(asked), time.Second, 2*time.Second)
	})
	t.Run("others are not held up", func(t *testing.T) {
		b := established(t, 1)
		b.receive(querier, ask(other))
		asked := b.now
		b.receive(otherAddr, query(q{name: service, qtype: dns.TypePTR}))
		b.run(200 * time.Millisecond)
		p := b.expect([]string{recPTR}, nil)
		within(t, "answer", p.at.Sub(asked), 20*time.Millisecond, 120*time.Millisecond)
	})
	t.Run("a flood is bounded", func(t *testing.T) {
		b := established(t, 1)
		for i := range 5000 {
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), wire.Port)
			b.receive(from, ask(other))
		}
		if len(b.r.truncated) != maxTruncated {
			t.Errorf("%d contexts", len(b.r.truncated))
		}
		b.run(3 * time.Second)
		if got := b.take(); len(got) > 2 {
			t.Errorf("%d packets", len(got))
		}
		if len(b.r.truncated) != 0 {
			t.Errorf("%d contexts left", len(b.r.truncated))
		}
	})
}

func Test7_4_DuplicateAnswers(t *testing.T) {
	tests := []struct {
		name   string
		answer string
		silent bool
	}{
		{"same", meta + " 4500 IN PTR " + service, true},
		{"longer", meta + " 5000 IN PTR " + service, true},
		{"shorter", meta + " 4499 IN PTR " + service, false},
		{"other data", meta + " 4500 IN PTR _http._tcp.local.", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := established(t, 1)
			b.receive(querier, query(q{name: meta, qtype: dns.TypePTR}))
			b.run(10 * time.Millisecond)
			b.receive(otherAddr, answers(t, tt.answer))
			b.run(time.Second)
			if tt.silent {
				b.expectNothing()
			} else {
				b.expect([]string{recMeta}, []string{})
			}
		})
	}
}

// What comes back to us is not somebody else's answer.
func Test7_4_OwnAnswersDoNotCount(t *testing.T) {
	b := established(t, 1)
	b.receive(querier, query(q{name: meta, qtype: dns.TypePTR}))
	b.receiveAs(wire.Received{Msg: answers(t, meta+" 4500 IN PTR "+service), Link: 1, From: netip.AddrPortFrom(ourAddr.Addr(), wire.Port), ToMulticast: true, Self: true})
	b.run(time.Second)
	b.expect([]string{recMeta}, []string{})
}

func Test6_6_Rescue(t *testing.T) {
	tests := []struct {
		name   string
		answer string
		want   []string
	}{
		{"goodbye for a shared record", meta + " 0 IN PTR " + service, []string{recMeta}},
		{"goodbye for a unique record", instance + " 0 IN SRV 0 0 6447 " + host, []string{recSRV}},
		{"below half", host + " 59 IN A 192.168.1.10", []string{recA}},
		{"half", host + " 60 IN A 192.168.1.10", nil},
		{"other data", service + " 0 IN PTR other." + service, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := established(t, 1)
			b.receive(otherAddr, answers(t, tt.answer))
			b.run(time.Second)
			if tt.want == nil {
				b.expectNothing()
			} else {
				b.expect(tt.want, []string{})
			}
		})
	}
}

func Test5_4_UnicastQuestions(t *testing.T) {
	t.Run("multicast not long ago", func(t *testing.T) {
		b := established(t, 1)
		b.receive(querier, query(q{name: host, qtype: dns.TypeA, qu: true}))
		b.run(time.Second)
		if p := b.expect([]string{recA}, []string{recHostNSEC}); p.Unicast != querier || p.Msg.Id != 0 || len(p.Msg.Question) != 0 {
			t.Errorf("%s", describe([]sent{p}))
		}
	})
	t.Run("shared is delayed", func(t *testing.T) {
		everySeed(t, func(t *testing.T, seed uint64) {
			b := established(t, seed)
			asked := b.now
			b.receive(querier, query(q{name: service, qtype: dns.TypePTR, qu: true}))
			b.run(time.Second)
			p := b.expect([]string{recPTR}, []string{recSRV, recTXT, recA, recHostNSEC})
			within(t, "answer", p.at.Sub(asked), 20*time.Millisecond, 120*time.Millisecond)
			if p.Unicast != querier {
				t.Errorf("to %v", p.Unicast)
			}
		})
	})
	t.Run("not multicast within a quarter of the TTL", func(t *testing.T) {
		b := established(t, 1)
		b.run(31 * time.Second)
		b.receive(querier, query(q{name: host, qtype: dns.TypeA, qu: true}))
		b.run(time.Second)
		if p := b.expect([]string{recA}, nil); p.Unicast.IsValid() {
			t.Errorf("to %v", p.Unicast)
		}
		// The PTR's quarter is longer.
		b.receive(querier, query(q{name: service, qtype: dns.TypePTR, qu: true}))
		b.run(time.Second)
		if p := b.expect([]string{recPTR}, nil); p.Unicast != querier {
			t.Errorf("to %v", p.Unicast)
		}
	})
	t.Run("unicast answers are not limited to one a second", func(t *testing.T) {
		b := established(t, 1)
		for range 5 {
			b.receive(querier, query(q{name: host, qtype: dns.TypeA, qu: true}))
			b.run(100 * time.Millisecond)
		}
		if got := b.take(); len(got) != 5 {
			t.Errorf("%d answers", len(got))
		}
	})
	t.Run("a mixed query gets both", func(t *testing.T) {
		b := established(t, 1)
		b.receive(querier, query(q{name: host, qtype: dns.TypeA, qu: true}, q{name: instance, qtype: dns.TypeTXT}))
		b.run(time.Second)
		got := b.take()
		if len(got) != 2 {
			t.Fatalf("%s", describe(got))
		}
		for _, p := range got {
			want := recTXT
			if p.Unicast.IsValid() {
				want = recA
			}
			if a := shorts(p.Msg.Answer); !slices.Equal(a, []string{want}) {
				t.Errorf("%s", describe(got))
			}
		}
	})
	t.Run("known answers count", func(t *testing.T) {
		b := established(t, 1)
		m := query(q{name: service, qtype: dns.TypePTR, qu: true})
		m.Answer = rrs(t, service+" 4500 IN PTR "+instance)
		b.receive(querier, m)
		b.run(time.Second)
		b.expectNothing()
	})
}

func Test5_5_DirectUnicastQuery(t *testing.T) {
	b := established(t, 1)
	b.run(time.Hour)
	in := wire.Received{Msg: query(q{name: service, qtype: dns.TypePTR}), Link: 1, From: querier}
	if drop := b.receiveAs(in); drop != "" {
		t.Fatal(drop)
	}
	b.run(0)
	if p := b.expect([]string{recPTR}, nil); p.Unicast != querier {
		t.Errorf("to %v", p.Unicast)
	}
	in.From = offLinkAddr
	if drop := b.receiveAs(in); drop != DropOffLink {
		t.Errorf("off-link source: %q", drop)
	}
	in.From = netip.MustParseAddrPort("[fe80::9%eth0]:5353")
	if drop := b.receiveAs(in); drop != "" {
		t.Errorf("link-local source: %q", drop)
	}
}

func Test6_7_Legacy(t *testing.T) {
	tests := []struct {
		name    string
		q       q
		answers []string // nil: silence
		extras  []string
	}{
		{"PTR", q{name: service, qtype: dns.TypePTR}, []string{"PTR 10 " + service + ">" + instance},
			[]string{"SRV 10 " + host + ":6447", "TXT 10 txtvers=1,id=box", "A 10 192.168.1.10", "NSEC 10 " + host + " [A]"}},
		{"A", q{name: host, qtype: dns.TypeA}, []string{"A 10 192.168.1.10"}, []string{"NSEC 10 " + host + " [A]"}},
		{"AAAA", q{name: host, qtype: dns.TypeAAAA}, []string{"NSEC 10 " + host + " [A]"}, []string{}},
		{"QU bit is repeated", q{name: host, qtype: dns.TypeA, qu: true}, []string{"A 10 192.168.1.10"}, nil},
		{"capitals are repeated", q{name: strings.ToUpper(host), qtype: dns.TypeA}, []string{"A 10 192.168.1.10"}, nil},
		{"other", q{name: "other.local.", qtype: dns.TypeA}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := established(t, 1)
			m := query(tt.q)
			m.Id = 4711
			m.RecursionDesired = true
			b.receive(legacyAddr, m)
			b.run(time.Second)
			if tt.answers == nil {
				b.expectNothing()
				return
			}
			p := b.expect(tt.answers, tt.extras)
			if p.Unicast != legacyAddr || p.Msg.Id != 4711 || len(p.Msg.Question) != 1 || p.Msg.Question[0] != m.Question[0] {
				t.Errorf("%s", describe([]sent{p}))
			}
		})
	}
	t.Run("fits 512 bytes", func(t *testing.T) {
		b := newBed(t, 1)
		b.links(oneLink(ourAddr)...)
		a := announcementForTest()
		a.TXT = append(a.TXT, [2]string{"x", strings.Repeat("x", 250)}, [2]string{"y", strings.Repeat("y", 250)})
		b.announce(a)
		b.run(10 * time.Second)
		b.take()
		b.receive(legacyAddr, query(q{name: service, qtype: dns.TypePTR}))
		b.run(time.Second)
		p := b.expect([]string{"PTR 10 " + service + ">" + instance}, []string{"SRV 10 " + host + ":6447"})
		if raw, err := wire.Encode(p.Msg); err != nil || len(raw) > 512 {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
	})
	t.Run("too many questions", func(t *testing.T) {
		b := established(t, 1)
		var qs []q
		for i := range 100 {
			qs = append(qs, q{name: fmt.Sprintf("h%d.local.", i), qtype: dns.TypeA})
		}
		if drop := b.receive(legacyAddr, query(qs...)); drop != DropTooManyQuestions {
			t.Errorf("drop %q", drop)
		}
	})
	t.Run("a flood is bounded", func(t *testing.T) {
		b := established(t, 1)
		busy := 0
		for range 5000 {
			if b.receive(legacyAddr, query(q{name: host, qtype: dns.TypeA})) == DropBusy {
				busy++
			}
		}
		b.run(0)
		if got := len(b.take()); got > unicastBurst || got+busy != 5000 {
			t.Errorf("%d answered, %d dropped", got, busy)
		}
		b.run(time.Second)
		if drop := b.receive(legacyAddr, query(q{name: host, qtype: dns.TypeA})); drop != "" {
			t.Errorf("still %q a second later", drop)
		}
	})
}

func Test8_1_Defence(t *testing.T) {
	probe := func(qu bool) *dns.Msg {
		m := query(q{name: host, qtype: dns.TypeANY, qu: qu}, q{name: instance, qtype: dns.TypeANY, qu: qu})
		m.Ns = rrs(t, host+" 120 IN A 192.168.1.99", instance+" 120 IN SRV 0 0 1 "+host)
		return m
	}
	t.Run("QU, multicast not long ago", func(t *testing.T) {
		b := established(t, 1)
		b.receive(otherAddr, probe(true))
		b.run(0)
		if p := b.expect([]string{recA, recSRV, recTXT}, nil); p.Unicast != otherAddr {
			t.Errorf("to %v", p.Unicast)
		}
	})
	t.Run("QU, not multicast for long", func(t *testing.T) {
		b := established(t, 1)
		b.run(time.Hour)
		b.receive(otherAddr, probe(true))
		b.run(0)
		got := b.take()
		if len(got) != 2 || got[0].Unicast.IsValid() == got[1].Unicast.IsValid() {
			t.Errorf("want one unicast and one multicast answer: %s", describe(got))
		}
	})
	t.Run("QM, again after 250 ms", func(t *testing.T) {
		b := established(t, 1)
		var at []time.Time
		for range 10 {
			b.receive(otherAddr, probe(false))
			b.run(100 * time.Millisecond)
			for _, p := range b.take() {
				if p.Unicast.IsValid() || len(p.Msg.Answer) != 3 {
					t.Fatalf("%s", describe([]sent{p}))
				}
				at = append(at, p.at)
			}
		}
		for i := 1; i < len(at); i++ {
			within(t, "defence", at[i].Sub(at[i-1]), 250*time.Millisecond, 350*time.Millisecond)
		}
		if len(at) < 3 {
			t.Errorf("%d answers", len(at))
		}
	})
	t.Run("known answers do not silence it", func(t *testing.T) {
		b := established(t, 1)
		m := probe(true)
		m.Answer = rrs(t, host+" 120 IN A 192.168.1.10")
		b.receive(otherAddr, m)
		b.run(0)
		b.expect([]string{recA, recSRV, recTXT}, nil)
	})
	if b := established(t, 1); b.receive(otherAddr, probe(true)) != "" || len(b.conflicts) != 0 {
		t.Error("a probe is no conflict")
	}
}

// TestAttackAnswersToElsewhere: who writes the address of a host elsewhere as the
// source of a query does not have us send it anything.
func TestAttackAnswersToElsewhere(t *testing.T) {
	legacy := netip.AddrPortFrom(offLinkAddr.Addr(), 40000)
	probe := query(q{name: instance, qtype: dns.TypeANY, qu: true})
	probe.Ns = rrs(t, instance+" 120 IN SRV 0 0 1 other.local.")
	first, second := query(q{name: service, qtype: dns.TypePTR, qu: true}), query()
	first.Truncated = true
	second.Answer = rrs(t, service+" 4500 IN PTR other."+service)
	for _, tt := range []struct {
		what string
		from netip.AddrPort
		sent []*dns.Msg
		want string
	}{
		{"an ordinary DNS query", legacy, []*dns.Msg{query(q{name: service, qtype: dns.TypePTR})}, "nothing"},
		{"a question for a unicast answer", offLinkAddr, []*dns.Msg{query(q{name: host, qtype: dns.TypeA, qu: true})}, "multicast"},
		{"such a question in two parts", offLinkAddr, []*dns.Msg{first, second}, "multicast"},
		{"a probe for a name of ours", offLinkAddr, []*dns.Msg{probe}, "multicast"},
	} {
		b := established(t, 1)
		b.run(time.Hour) // whatever may be answered by multicast again
		for _, m := range tt.sent {
			b.receive(tt.from, m)
		}
		b.run(3 * time.Second)
		got := "nothing"
		for _, p := range b.take() {
			if got = "multicast"; p.Unicast.IsValid() {
				got = "unicast"
				break
			}
		}
		attack.Attempt{What: "have answers sent to a host elsewhere by " + tt.what + " to the group with its address as the source",
			As: "stranger on the LAN", Want: tt.want}.Saw(t, got)
		// Where the answer was multicast not long ago, too.
		for _, m := range tt.sent {
			b.receive(tt.from, m)
		}
		b.run(3 * time.Second)
		for _, p := range b.take() {
			if p.Unicast.IsValid() {
				t.Errorf("%s, again: sent to %v", tt.what, p.Unicast)
			}
		}
	}
	b := established(t, 1)
	if drop := b.receive(legacy, query(q{name: service, qtype: dns.TypePTR})); drop != DropOffLink {
		t.Errorf("dropped as %q", drop)
	}
	if drop := b.receive(legacy, query(q{name: "other.local.", qtype: dns.TypeA})); drop != "" {
		t.Errorf("what is none of our business is dropped as %q", drop)
	}
}

func TestDropReasons(t *testing.T) {
	b := established(t, 1)
	response := answers(t, instance+" 120 IN SRV 0 0 1 other.local.")
	tests := []struct {
		name string
		in   wire.Received
		want wire.DropReason
	}{
		{"unknown link", wire.Received{Msg: response, Link: 7, From: otherAddr, ToMulticast: true}, DropUnknownLink},
		{"unknown family", wire.Received{Msg: response, Link: 1, Family: wire.IPv6, From: otherAddr, ToMulticast: true}, DropUnknownLink},
		{"6 response from another port", wire.Received{Msg: response, Link: 1, From: legacyAddr, ToMulticast: true}, DropSourcePort},
		{"port 0", wire.Received{Msg: query(q{name: host, qtype: dns.TypeA}), Link: 1, From: netip.AddrPortFrom(querier.Addr(), 0), ToMulticast: true}, DropSourcePort},
		{"11 unicast response from off-link", wire.Received{Msg: response, Link: 1, From: offLinkAddr}, DropOffLink},
		{"multicast is on-link by definition", wire.Received{Msg: query(q{name: "x.", qtype: 1}), Link: 1, From: offLinkAddr, ToMulticast: true}, ""},
	}
	for _, tt := range tests {
		if got := b.receiveAs(tt.in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if len(b.conflicts) != 0 {
		t.Errorf("a dropped packet made a conflict: %q", b.conflicts)
	}
}

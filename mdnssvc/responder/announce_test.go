package responder

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

func goodbyes(p sent) []string {
	var out []string
	for _, rr := range p.Msg.Answer {
		if rr.Header().Ttl == 0 {
			out = append(out, strings.TrimSuffix(short(rr), "!"))
		}
	}
	slices.Sort(out)
	return out
}

var allGoodbyes = []string{"A 0 192.168.1.10", "PTR 0 " + service + ">" + instance, "PTR 0 " + meta + ">" + service,
	"SRV 0 " + host + ":6447", "TXT 0 txtvers=1,id=box"}

func Test10_1_Goodbye(t *testing.T) {
	t.Run("withdrawn", func(t *testing.T) {
		b := established(t, 1)
		b.announce(nil)
		b.run(0)
		got := b.take()
		if len(got) != 1 || !slices.Equal(goodbyes(got[0]), allGoodbyes) || got[0].Unicast.IsValid() {
			t.Fatalf("%s", describe(got))
		}
		b.receive(querier, query(q{name: service, qtype: dns.TypePTR}))
		b.run(time.Minute)
		b.expectNothing()
		if b.r.Established() || b.r.Instance() != "" {
			t.Error("still established")
		}
		b.announce(announcementForTest())
		b.run(5 * time.Second)
		if got := b.take(); len(got) != 5 {
			t.Errorf("announced again: %s", describe(got))
		}
	})
	t.Run("shutdown", func(t *testing.T) {
		both := []LinkAddrs{{Index: 1, Addrs: []netip.Prefix{ourAddr, ourAddr6}, Families: [2]bool{true, true}},
			{Index: 2, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}, Families: [2]bool{true, false}}}
		b := established(t, 1, both...)
		packets := b.r.Goodbye(b.now)
		if len(packets) != 3 {
			t.Fatalf("%d packets, want one for each link and family", len(packets))
		}
		for _, p := range packets {
			for _, rr := range p.Msg.Answer {
				if rr.Header().Ttl != 0 {
					t.Errorf("%v", rr)
				}
				if a, ok := rr.(*dns.A); ok && (a.A.String() == "10.0.0.1") != (p.Link == 2) {
					t.Errorf("%v on link %d", rr, p.Link)
				}
			}
		}
		if !b.r.Next().IsZero() || len(b.r.Due(b.now)) != 0 {
			t.Error("something is left to do")
		}
	})
	t.Run("never announced", func(t *testing.T) {
		b := newBed(t, 1)
		b.links(oneLink(ourAddr)...)
		b.announce(announcementForTest())
		b.run(600 * time.Millisecond)
		b.take()
		if got := b.r.Goodbye(b.now); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
	t.Run("twice", func(t *testing.T) {
		b := established(t, 1)
		b.r.Goodbye(b.now)
		if got := b.r.Goodbye(b.now); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

func Test8_3_NoAnnouncementsWithoutAReason(t *testing.T) {
	b := established(t, 1)
	b.run(7 * 24 * time.Hour)
	b.expectNothing()
	b.links(oneLink(ourAddr)...) // told once more, and nothing is new
	b.announce(announcementForTest())
	b.run(time.Hour)
	b.expectNothing()
}

func TestRestart(t *testing.T) {
	b := established(t, 1)
	b.r.Restart(b.now)
	if b.r.Established() {
		t.Error("still established before it probed")
	}
	b.receive(querier, query(q{name: host, qtype: dns.TypeA}))
	b.run(5 * time.Second)
	got := b.take()
	if len(got) != 5 || len(got[2].Msg.Ns) != 3 || len(got[3].Msg.Answer) != 5 || !b.r.Established() {
		t.Errorf("want 3 probes and 2 announcements: %s", describe(got))
	}
	b.announce(nil)
	b.run(0)
	b.take()
	b.r.Restart(b.now)
	b.run(time.Minute)
	b.expectNothing()
}

// One instance, one target: priority and weight are zero (RFC 6763 section 5).
func TestOneServiceHasNothingToWeigh(t *testing.T) {
	b := established(t, 1)
	b.receive(querier, query(q{name: instance, qtype: dns.TypeSRV}))
	b.run(time.Second)
	if srv := b.expect([]string{recSRV}, nil).Msg.Answer[0].(*dns.SRV); srv.Priority != 0 || srv.Weight != 0 {
		t.Errorf("%v", srv)
	}
}

func Test8_4_ChangedTXT(t *testing.T) {
	b := established(t, 1)
	a := announcementForTest()
	a.TXT[1][1] = "new"
	changed := b.now
	b.announce(a)
	b.run(3 * time.Second)
	got := b.take()
	if len(got) != 2 || got[0].at != changed {
		t.Fatalf("want two announcements, the first at once, and no probes: %s", describe(got))
	}
	for _, p := range got {
		want := []string{recA, recPTR, recMeta, recSRV, "TXT 4500 txtvers=1,id=new!"}
		slices.Sort(want)
		if a := shorts(p.Msg.Answer); !slices.Equal(a, want) {
			t.Errorf("announced %q", a)
		}
	}
	within(t, "second", got[1].at.Sub(got[0].at), time.Second, 1100*time.Millisecond)

	b.announce(a) // nothing changed
	b.run(3 * time.Second)
	b.expectNothing()

	// The old text was flushed by the new one and needs no goodbye.
	b.announce(nil)
	b.run(0)
	want := slices.Clone(allGoodbyes)
	want[len(want)-1] = "TXT 0 txtvers=1,id=new"
	if got := b.take(); len(got) != 1 || !slices.Equal(goodbyes(got[0]), want) {
		t.Errorf("%s", describe(got))
	}
}

func Test8_4_ChangedNames(t *testing.T) {
	b := established(t, 1)
	a := announcementForTest()
	a.Instance = "Küche. 1"
	b.announce(a)
	b.run(5 * time.Second)
	got := b.take()
	if len(got) != 6 || len(goodbyes(got[0])) != 3 || len(got[1].Msg.Question) != 1 {
		t.Fatalf("want goodbyes, probes for the instance only, and announcements: %s", describe(got))
	}
	if name := got[1].Msg.Question[0].Name; name != `K\195\188che\.\ 1.`+service {
		t.Errorf("probed for %s", name)
	}
	if b.r.Instance() != "Küche. 1" {
		t.Errorf("instance %q", b.r.Instance())
	}
}

func Test8_4_ChangedAddress(t *testing.T) {
	second := netip.MustParsePrefix("192.168.1.11/24")
	t.Run("replaced", func(t *testing.T) {
		b := established(t, 1)
		changed := b.now
		b.links(oneLink(second)...)
		b.run(3 * time.Second)
		got := b.take()
		if len(got) != 2 || got[0].at != changed {
			t.Fatalf("%s", describe(got))
		}
		for _, p := range got {
			if a := shorts(p.Msg.Answer); !slices.Contains(a, "A 120 192.168.1.11!") || slices.Contains(a, recA) {
				t.Errorf("%q", a)
			}
		}
	})
	t.Run("one more", func(t *testing.T) {
		b := established(t, 1)
		b.links(oneLink(ourAddr, second)...)
		b.run(3 * time.Second)
		got := b.take()
		if len(got) != 2 {
			t.Fatalf("%s", describe(got))
		}
		if a := shorts(got[0].Msg.Answer); !slices.Contains(a, "A 120 192.168.1.11!") || !slices.Contains(a, recA) {
			t.Errorf("a set must be announced whole: %q", a)
		}
	})
	t.Run("last of a family", func(t *testing.T) {
		b := established(t, 1, oneLink(ourAddr, ourAddr6)...)
		b.links(oneLink(ourAddr)...)
		b.run(3 * time.Second)
		got := b.take()
		if len(got) != 3 || !slices.Equal(goodbyes(got[0]), []string{"AAAA 0 fe80::10"}) {
			t.Fatalf("want a goodbye for the AAAA record: %s", describe(got))
		}
		b.receive(querier, query(q{name: host, qtype: dns.TypeAAAA}))
		b.run(time.Second)
		b.expect([]string{recHostNSEC}, []string{})
	})
	t.Run("last of all", func(t *testing.T) {
		b := established(t, 1)
		b.links(oneLink()...)
		b.run(time.Minute)
		got := b.take()
		if len(got) != 1 || !slices.Equal(goodbyes(got[0]), allGoodbyes) || b.r.Established() {
			t.Fatalf("%s", describe(got))
		}
		b.links(oneLink(second)...)
		b.run(5 * time.Second)
		if got := b.take(); len(got) != 5 {
			t.Errorf("want probes and announcements: %s", describe(got))
		}
	})
	t.Run("at most ten times a minute", func(t *testing.T) {
		b := established(t, 1)
		start := b.now
		n := 0
		for i := range 60 {
			addr := ourAddr
			if i%2 == 0 {
				addr = second
			}
			b.links(oneLink(addr)...)
			b.run(2 * time.Second)
			for _, p := range b.take() {
				for _, rr := range p.Msg.Answer {
					if rr.Header().Rrtype == dns.TypeA {
						n++
					}
				}
			}
		}
		// Each update is announced twice; two minutes have begun and a third begins.
		if most := 2 * (2*updateLimit + 1); n > most || n < updateLimit {
			t.Errorf("the address was announced %d times in %v, want at most %d", n, b.now.Sub(start), most)
		}
		b.run(2 * time.Minute)
		if got := b.take(); len(got) == 0 || !slices.Contains(shorts(got[len(got)-1].Msg.Answer), recA) {
			t.Errorf("the last address was never announced: %s", describe(got))
		}
	})
}

func TestLinksComeAndGo(t *testing.T) {
	first := LinkAddrs{Index: 1, Addrs: []netip.Prefix{ourAddr}, Families: [2]bool{true, false}}
	second := LinkAddrs{Index: 2, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8"), ourAddr6}, Families: [2]bool{true, true}}
	b := established(t, 1, first)
	b.links(first, second)
	b.run(5 * time.Second)
	count := map[string]int{}
	for _, p := range b.take() {
		if p.Link != 2 {
			t.Errorf("the first link is disturbed: %s", describe([]sent{p}))
		}
		count[p.Family.String()]++
		for _, rr := range append(p.Msg.Answer, p.Msg.Ns...) {
			if a, ok := rr.(*dns.A); ok && a.A.String() != "10.0.0.1" {
				t.Errorf("%v on link 2", rr)
			}
		}
	}
	if count["ipv4"] != 5 || count["ipv6"] != 5 {
		t.Errorf("packets %v, want 3 probes and 2 announcements over each family", count)
	}
	// A query is answered over the family it came by.
	b.receiveAs(wire.Received{Msg: query(q{name: host, qtype: dns.TypeA}), Link: 2, Family: wire.IPv6,
		From: netip.MustParseAddrPort("[fe80::9%eth1]:5353"), ToMulticast: true})
	b.run(time.Second)
	if p := b.expect([]string{"A 120 10.0.0.1!"}, []string{"AAAA 120 fe80::10!"}); p.Family != wire.IPv6 || p.Link != 2 {
		t.Errorf("%s", describe([]sent{p}))
	}
	// A removed link is forgotten, with everything that waited to be said there.
	b.receiveAs(wire.Received{Msg: query(q{name: service, qtype: dns.TypePTR, qu: true}), Link: 2, From: netip.MustParseAddrPort("10.0.0.2:5353"), ToMulticast: true})
	b.links(first)
	b.run(time.Minute)
	b.expectNothing()
	if !b.r.Established() {
		t.Error("not established on what is left")
	}
}

func TestAnnouncementIsValidated(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Announcement)
		want   string // part of the error; "": fine
	}{
		{"fine", func(*Announcement) {}, ""},
		{"dots and UTF-8", func(a *Announcement) { a.Instance, a.Domain = "Dr. Käse", "local." }, ""},
		{"long", func(a *Announcement) { a.Instance = strings.Repeat("x", 64) }, "label"},
		{"empty instance", func(a *Announcement) { a.Instance = "" }, "label"},
		{"empty host", func(a *Announcement) { a.Host = "" }, "label"},
		{"not UTF-8", func(a *Announcement) { a.Host = "\xff" }, "label"},
		{"control character", func(a *Announcement) { a.Instance = "a\tb" }, "control"},
		{"port", func(a *Announcement) { a.Port = 0 }, "port"},
		{"service", func(a *Announcement) { a.Service = "liqo" }, "service"},
		{"service without protocol", func(a *Announcement) { a.Service = "_liqo" }, "service"},
		{"domain", func(a *Announcement) { a.Domain = "" }, "domain"},
		{"TXT", func(a *Announcement) { a.TXT = [][2]string{{"a=b", "c"}} }, "TXT"},
		{"subtype", func(a *Announcement) { a.Subtypes = []string{""} }, "label"},
		{"long service", func(a *Announcement) { a.Service = "_" + strings.Repeat("x", 63) + "._tcp" }, "encode"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := established(t, 1)
			a := announcementForTest()
			tt.change(a)
			err := b.r.SetAnnouncement(b.now, a)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one about %q", err, tt.want)
			}
			if b.r.Instance() != "box" || !b.r.Established() {
				t.Error("a refused announcement changed something")
			}
		})
	}
}

func TestNoTXTIsOneEmptyString(t *testing.T) {
	b := newBed(t, 1)
	b.links(oneLink(ourAddr)...)
	a := announcementForTest()
	a.TXT = nil
	b.announce(a)
	b.run(5 * time.Second)
	b.take()
	b.receive(querier, query(q{name: instance, qtype: dns.TypeTXT}))
	b.run(time.Second)
	p := b.expect([]string{"TXT 4500 !"}, nil)
	if txt := p.Msg.Answer[0].(*dns.TXT).Txt; len(txt) != 1 || txt[0] != "" {
		t.Errorf("%q", txt)
	}
}

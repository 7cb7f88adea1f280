package responder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// lasting is the test announcement with a TTL.
func lasting(ttl time.Duration) *Announcement {
	a := announcementForTest()
	a.TTL = ttl
	return a
}

// recs are records of the test announcement with other TTLs than the usual.
func recs(short, long int, list ...string) (out []string) {
	for _, s := range list {
		s = strings.Replace(s, " 4500 ", fmt.Sprintf(" %d ", long), 1)
		out = append(out, strings.Replace(s, " 120 ", fmt.Sprintf(" %d ", short), 1))
	}
	return out
}

func Test10_TTL(t *testing.T) {
	for _, tc := range []struct {
		ttl         time.Duration
		short, long int
	}{
		{0, 120, 4500},
		{75 * time.Minute, 120, 4500},
		{24 * time.Hour, 120, 86400},
		{120 * time.Second, 120, 120},
		{90 * time.Second, 90, 90},
		{time.Second, 1, 1},
	} {
		b := newBed(t, 1)
		b.links(oneLink(ourAddr)...)
		b.announce(lasting(tc.ttl))
		b.run(800 * time.Millisecond)
		got := b.take()
		if len(got) < 3 {
			t.Fatalf("TTL %v: %s", tc.ttl, describe(got))
		}
		for _, rr := range got[0].Msg.Ns { // what a probe shows is what will be announced
			if want := recs(tc.short, tc.long, recSRV, recTXT, recA); !slices.Contains(want, short(rr)+"!") {
				t.Errorf("TTL %v: a probe shows %s", tc.ttl, short(rr))
			}
		}
		b.run(2 * time.Second)
		news := b.take()
		got = append(got[3:], news...)
		if len(got) != announceCount {
			t.Fatalf("TTL %v: %s", tc.ttl, describe(got))
		}
		for _, s := range got {
			want := recs(tc.short, tc.long, recPTR, recMeta, recSRV, recTXT, recA)
			slices.Sort(want)
			if a := shorts(s.Msg.Answer); !slices.Equal(a, want) {
				t.Errorf("TTL %v: announced %q, want %q", tc.ttl, a, want)
			}
			extra := recs(tc.short, tc.long, recHostNSEC, recInstNSEC)
			slices.Sort(extra)
			if e := shorts(s.Msg.Extra); !slices.Equal(e, extra) {
				t.Errorf("TTL %v: beside it %q, want %q", tc.ttl, e, extra)
			}
		}
	}
}

// Test8_4_ChangedTTL: who has the records is told that they last for less, or
// longer, without any doubt whose names they are.
func Test8_4_ChangedTTL(t *testing.T) {
	b := established(t, 1)
	for _, change := range []struct {
		ttl         time.Duration
		short, long int
	}{{90 * time.Second, 90, 90}, {10 * time.Minute, 120, 600}, {0, 120, 4500}} {
		b.announce(lasting(change.ttl))
		b.run(0)
		want := recs(change.short, change.long, recPTR, recMeta, recSRV, recTXT, recA)
		b.expect(slices.Clone(want), nil)
		if !b.r.Established() {
			t.Fatal("the names are in doubt")
		}
		b.run(5 * time.Second)
		b.expect(want, nil)
		b.announce(lasting(change.ttl)) // which changes nothing
		b.run(5 * time.Second)
		b.expectNothing()
	}
	b.announce(lasting(75 * time.Minute)) // which is what it is already
	b.run(5 * time.Second)
	b.expectNothing()
	b.announce(nil)
	b.run(0)
	if got := b.take(); len(got) != 1 || !slices.Equal(goodbyes(got[0]), allGoodbyes) {
		t.Errorf("goodbye after changes: %s", describe(got))
	}
}

// TestTTLDecides: what others know, and how long ago something was multicast, is
// compared with the TTL in use.
func TestTTLDecides(t *testing.T) {
	b := established(t, 1)
	b.announce(lasting(90 * time.Second))
	b.run(5 * time.Second)
	b.take()
	ask := query(q{name: service, qtype: dns.TypePTR})
	ask.Answer = rrs(t, service+" 45 IN PTR "+instance)
	b.receive(querier, ask)
	b.run(time.Second)
	b.expectNothing()
	ask.Answer = rrs(t, service+" 44 IN PTR "+instance)
	b.receive(querier, ask)
	b.run(time.Second)
	b.expect(recs(90, 90, recPTR), nil)

	// Section 5.4: an answer by unicast is enough for a quarter of the TTL. It is
	// remembered for that long, whatever changes meanwhile.
	b.announce(lasting(4 * time.Hour))
	b.run(5 * time.Second)
	b.take()
	for _, tc := range []struct {
		after   time.Duration
		unicast bool
	}{{55 * time.Minute, true}, {10 * time.Minute, false}} {
		b.run(tc.after)
		b.links(oneLink(ourAddr)...)
		b.receive(querier, query(q{name: instance, qtype: dns.TypeTXT, qu: true}))
		b.run(time.Second)
		if p := b.expect(recs(120, 14400, recTXT), nil); p.Unicast.IsValid() != tc.unicast {
			t.Errorf("answered to %v", p.Unicast)
		}
	}
}

func TestTTLIsValidated(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		0: true, time.Second: true, maxTTL: true,
		-time.Second: false, time.Millisecond: false, 1500 * time.Millisecond: false, maxTTL + time.Second: false,
	} {
		if err := lasting(ttl).Validate(); (err == nil) != ok {
			t.Errorf("TTL %v: %v, want ok %v", ttl, err, ok)
		} else if err != nil && !strings.Contains(err.Error(), "TTL") {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
	b := established(t, 1)
	if err := b.r.SetAnnouncement(b.now, lasting(time.Millisecond)); err == nil {
		t.Error("a TTL that cannot be announced was taken")
	}
	b.receive(querier, query(q{name: service, qtype: dns.TypePTR, qu: true}))
	b.run(time.Second)
	if p := b.expect([]string{recPTR}, nil); !p.Unicast.IsValid() || p.Unicast.Port() != wire.Port {
		t.Errorf("sent to %v", p.Unicast)
	}
}

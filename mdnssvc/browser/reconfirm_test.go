package browser

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

func asksFor(n *network, from int, t uint16, name string) (out []sentPacket) {
	for _, p := range n.sent[from:] {
		for _, q := range p.Msg.Question {
			if q.Qtype == t && wire.Key(q.Name) == wire.Key(name) {
				out = append(out, p)
			}
		}
	}
	return out
}

func TestReconfirmDead(t *testing.T) {
	n, r := steady(t, 31, Config{})
	n.run(20 * time.Second)
	r.dead = true
	start, sent := n.now, len(n.sent)
	n.b.Reconfirm(n.now, 1, r.name)
	n.run(10 * time.Second)
	e := last(n)
	if d := e.at.Sub(start); e.Kind != Lost || e.Reason != ReasonNoAnswer || d > 4*time.Second {
		t.Fatalf("after %v: %+v", d, e)
	}
	for typ, name := range map[uint16]string{dns.TypeSRV: r.fqdn(), dns.TypeA: r.hostFQDN()} {
		asks := asksFor(n, sent, typ, name)
		if len(asks) < 2 || asks[1].at.Sub(asks[0].at) < askGap {
			t.Errorf("asked for %s: %d times", dns.Type(typ), len(asks))
		}
	}
	// It is not among the known answers any more.
	n.run(time.Minute)
	if p := n.browses(wire.IPv4); len(p[len(p)-1].Msg.Answer) != 0 {
		t.Error("still among the known answers")
	}
}

func TestReconfirmAlive(t *testing.T) {
	for seed := range uint64(40) {
		n := newNetwork(t, seed, Config{})
		r := n.add(1)[0]
		n.start()
		n.run(20 * time.Second)
		if seed%2 == 1 {
			n.lossAnswer = 0.3
		}
		n.b.Reconfirm(n.now, 1, r.name)
		n.run(30 * time.Second)
		if len(n.events) != 1 {
			t.Errorf("seed %d: events %+v", seed, n.events[1:])
		}
	}
}

// TestReconfirmStorm: a dead endpoint on a living responder is asked about less
// and less, whatever the caller does.
func TestReconfirmStorm(t *testing.T) {
	n, r := steady(t, 32, Config{})
	n.run(20 * time.Second)
	before := r.askedFor[dns.TypeSRV]
	for range 600 {
		n.b.Reconfirm(n.now, 1, r.name)
		n.b.Reconfirm(n.now, 1, "unknown")
		n.b.Reconfirm(n.now, 2, r.name)
		n.run(time.Second)
	}
	if got := r.askedFor[dns.TypeSRV] - before; got > 7+7 {
		t.Errorf("asked %d times in 10 minutes", got)
	}
	if len(n.events) != 1 {
		t.Errorf("events: %+v", n.events)
	}
}

// TestReconfirmStaleAddress: the host answers, but not with the address that
// failed.
func TestReconfirmStaleAddress(t *testing.T) {
	n, r := steady(t, 33, Config{})
	fresh := addr("10.8.8.8")
	r.addrs[0] = append(r.addrs[0][:0:0], fresh)
	n.run(2 * time.Second)
	n.b.Reconfirm(n.now, 1, r.name)
	n.run(6 * time.Second)
	if got := n.b.Instances()[0].Addrs; len(got) != 1 || got[0] != fresh {
		t.Errorf("addresses: %v", got)
	}
}

func query(questions ...dns.Question) *dns.Msg { return &dns.Msg{Question: questions} }

func (n *network) overhear(m *dns.Msg, change func(*wire.Received)) {
	in := wire.Received{Msg: m, Link: 1, From: netipPort("10.0.77.77:5353"), ToMulticast: true}
	if change != nil {
		change(&in)
	}
	n.receive(in)
}

func TestObservedFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		dead  bool
		times int
		lost  bool
	}{{"dead", true, 2, true}, {"alive", false, 5, false}, {"one question", true, 1, false}} {
		n, r := steady(t, 34, Config{})
		n.run(10 * time.Second)
		r.dead = c.dead
		m := query(dns.Question{Name: r.fqdn(), Qtype: dns.TypeSRV, Qclass: dns.ClassINET})
		for range c.times {
			n.overhear(m, nil)
			n.run(1200 * time.Millisecond)
		}
		sent := len(n.sent)
		n.run(20 * time.Second)
		if got := len(n.count(Lost, "")) == 1; got != c.lost {
			t.Errorf("%s: lost %v", c.name, got)
		}
		if asked := len(asksFor(n, sent, dns.TypeSRV, r.fqdn())) > 0; asked != (c.times > 1) {
			t.Errorf("%s: asked %v", c.name, asked)
		}
	}
}

// TestDuplicateQuestions: another host's query stands for ours only when it
// brings the same answers (RFC 6762 section 7.3).
func TestDuplicateQuestions(t *testing.T) {
	browse := dns.Question{Name: upper(serviceFQDN), Qtype: dns.TypePTR, Qclass: dns.ClassINET}
	qu := browse
	qu.Qclass |= wire.TopBit
	stranger := newNeighbour(99)
	for _, c := range []struct {
		name       string
		msg        func(r *neighbour) *dns.Msg
		change     func(*wire.Received)
		suppresses bool
	}{
		{"same", func(r *neighbour) *dns.Msg { return query(browse) }, nil, true},
		{"known to us", func(r *neighbour) *dns.Msg { m := query(browse); m.Answer = []dns.RR{r.ptr(4400)}; return m }, nil, true},
		{"unknown to us", func(r *neighbour) *dns.Msg {
			m := query(browse)
			m.Answer = []dns.RR{stranger.ptr(4400)}
			return m
		}, nil, false},
		{"unicast answer", func(r *neighbour) *dns.Msg { return query(qu) }, nil, false},
		{"truncated", func(r *neighbour) *dns.Msg { m := query(browse); m.Truncated = true; return m }, nil, false},
		{"legacy", func(r *neighbour) *dns.Msg { return query(browse) }, func(in *wire.Received) { in.From = netipPort("10.0.77.77:4000") }, false},
		{"from this host", func(r *neighbour) *dns.Msg { return query(browse) }, func(in *wire.Received) { in.Self = true }, false},
		{"to us alone", func(r *neighbour) *dns.Msg { return query(browse) }, func(in *wire.Received) { in.ToMulticast = false }, false},
		{"other link", func(r *neighbour) *dns.Msg { return query(browse) }, func(in *wire.Received) { in.Link = 9 }, false},
		{"other family", func(r *neighbour) *dns.Msg { return query(browse) }, func(in *wire.Received) { in.Family = wire.IPv6 }, false},
		{"other type", func(r *neighbour) *dns.Msg {
			return query(dns.Question{Name: serviceFQDN, Qtype: dns.TypeTXT, Qclass: dns.ClassINET})
		}, nil, false},
	} {
		n, r := steady(t, 35, Config{}) // queries at 0, 1 and 3 s; the next one at 7 s
		first := n.browses(wire.IPv4)[0].at
		n.run(first.Add(6 * time.Second).Sub(n.now))
		n.overhear(c.msg(r), c.change)
		n.run(first.Add(8 * time.Second).Sub(n.now))
		if got := len(n.browses(wire.IPv4)); (got == 3) != c.suppresses {
			t.Errorf("%s: %d queries", c.name, got)
		}
		n.run(first.Add(15 * time.Second).Add(time.Millisecond).Sub(n.now))
		if got := n.browses(wire.IPv4); got[len(got)-1].at.Sub(first) != 15*time.Second {
			t.Errorf("%s: the query after it came at %v", c.name, got[len(got)-1].at.Sub(first))
		}
	}
	// Long before the next one is due, it means nothing.
	n, _ := steady(t, 35, Config{})
	n.overhear(query(browse), nil)
	n.run(3 * time.Second)
	if got := len(n.browses(wire.IPv4)); got != 4 {
		t.Errorf("early: %d queries", got)
	}
}

// TestKnownAnswersOfOthers: what another host's query lists as known is taken from it
// by nobody (RFC 6762 section 7.1).
func TestKnownAnswersOfOthers(t *testing.T) {
	n, r := steady(t, 37, Config{})
	stranger := newNeighbour(99)
	m := query(dns.Question{Name: serviceFQDN, Qtype: dns.TypePTR, Qclass: dns.ClassINET})
	m.Answer = append(stranger.announcement().Answer, r.goodbye().Answer...)
	n.overhear(m, nil)
	n.run(time.Minute)
	if len(n.events) != 1 || len(n.b.Instances()) != 1 {
		t.Errorf("events: %+v", n.events)
	}
	if asked := asksFor(n, 0, dns.TypeSRV, stranger.fqdn()); len(asked) != 0 {
		t.Errorf("asked for an instance that nobody announced: %v", asked)
	}
}

// TestDuplicateRefresh: a question about an instance that another host just
// asked is not repeated.
func TestDuplicateRefresh(t *testing.T) {
	n, r := steady(t, 36, Config{})
	r.dead = true // so that the questions keep coming
	at := n.events[0].at.Add(96 * time.Second)
	n.run(at.Sub(n.now) - 500*time.Millisecond)
	sent := len(n.sent)
	for range 8 {
		n.overhear(query(dns.Question{Name: r.fqdn(), Qtype: dns.TypeSRV, Qclass: dns.ClassINET}), nil)
		n.run(500 * time.Millisecond)
	}
	if got := asksFor(n, sent, dns.TypeSRV, r.fqdn()); len(got) != 0 {
		t.Errorf("asked %d times", len(got))
	}
	if got := asksFor(n, sent, dns.TypeA, r.hostFQDN()); len(got) == 0 {
		t.Error("the address was not asked for")
	}
}

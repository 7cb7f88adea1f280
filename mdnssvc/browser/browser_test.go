package browser

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// TestThousand is the bed of the project's numbers: 1,000 neighbours.
func TestThousand(t *testing.T) {
	n := newNetwork(t, 1, Config{})
	n.add(1000)
	n.start()
	n.run(30 * time.Second)

	sent := n.browses(wire.IPv4)
	first := sent[0].at
	if d := first.Sub(epoch); d < minFirst || d > maxFirst {
		t.Errorf("first query after %v", d)
	}
	for k, want := range []time.Duration{0, 1, 3, 7, 15} {
		if d := sent[k].at.Sub(first); d != want*time.Second {
			t.Errorf("query %d came %v after the first", k, d)
		}
		if known := len(sent[k].Msg.Answer); (k == 0) != (known == 0) || k > 0 && known != 1000 {
			t.Errorf("query %d has %d known answers", k, known)
		}
	}
	if len(sent) != 5 || len(n.sent) != 5 {
		t.Errorf("%d queries for the service, %d in all", len(sent), len(n.sent))
	}
	found := n.count(Found, "")
	if len(found) != 1000 || len(n.events) != 1000 {
		t.Fatalf("%d found, %d events", len(found), len(n.events))
	}
	if d := found[999].at.Sub(first); d > 130*time.Millisecond {
		t.Errorf("the last was found after %v", d)
	}
	if n.answers > 1100 {
		t.Errorf("%d answers caused", n.answers)
	}
}

func TestLostAnswers(t *testing.T) {
	for seed := range uint64(2) {
		n := newNetwork(t, seed, Config{})
		n.lossAnswer = 0.1
		n.add(1000)
		n.start()
		n.run(30 * time.Second)
		first := n.browses(wire.IPv4)[0].at
		found := n.count(Found, "")
		if len(found) != 1000 || len(n.events) != 1000 {
			t.Fatalf("seed %d: %d found, %d events", seed, len(found), len(n.events))
		}
		if d := found[949].at.Sub(first); d > 1300*time.Millisecond {
			t.Errorf("seed %d: 95 %% after %v", seed, d)
		}
		// What the schedule allows: one neighbour in ten thousand loses four answers.
		if d := found[998].at.Sub(first); d > 7500*time.Millisecond {
			t.Errorf("seed %d: all but one after %v", seed, d)
		}
		if n.answers > 1130 {
			t.Errorf("seed %d: %d answers caused", seed, n.answers)
		}
	}
}

// TestLivingStays: nobody who lives is ever lost, however bad the link.
func TestLivingStays(t *testing.T) {
	for _, c := range []struct {
		query, answer float64
		time          time.Duration
	}{{0, 0, 4 * time.Hour}, {0.1, 0.1, 3 * time.Hour}, {0, 0.3, 3 * time.Hour}, {0.3, 0.3, time.Hour}} {
		n := newNetwork(t, 7, Config{})
		n.lossQuery, n.lossAnswer = c.query, c.answer
		n.add(60)
		n.start()
		n.run(c.time)
		if len(n.count(Found, "")) != 60 || len(n.events) != 60 {
			t.Errorf("loss %v/%v: %d events; first lost: %v", c.query, c.answer, len(n.events), n.count(Lost, ""))
		}
		if c.answer == 0 {
			// 120 s records, refreshed at 80 %: SRV and addresses of all 60 go into a few packets.
			perCycle := float64(len(n.sent)) / (c.time.Seconds() / 96)
			if perCycle > 15 {
				t.Errorf("%.1f packets per refresh of 60 neighbours", perCycle)
			}
		}
	}
}

func TestVanished(t *testing.T) {
	n := newNetwork(t, 3, Config{})
	n.add(20)
	n.start()
	n.run(10 * time.Second)
	n.neighbours[4].dead = true
	n.run(3 * time.Minute)
	lost := n.count(Lost, "")
	if len(lost) != 1 || lost[0].Instance.Name != n.neighbours[4].name || lost[0].Reason != ReasonExpired {
		t.Fatalf("lost: %+v", lost)
	}
	found := n.count(Found, n.neighbours[4].name)[0].at
	if d := lost[0].at.Sub(found); d < 120*time.Second || d > 120*time.Second+10*time.Millisecond {
		t.Errorf("lost after %v", d)
	}
	// It is not among the known answers, so it is found at once when it is back.
	n.neighbours[4].dead = false
	n.announce(n.neighbours[4], n.neighbours[4].announcement())
	if len(n.count(Found, n.neighbours[4].name)) != 2 {
		t.Error("not found again")
	}
}

func TestRefreshTimes(t *testing.T) {
	var r record
	for _, jitter := range []uint8{0, 128, 255} {
		r.set(epoch, 120, jitter)
		last := time.Duration(0)
		for try := 0; ; try++ {
			at := r.refreshAt()
			if at.IsZero() {
				if try < 12 {
					t.Errorf("jitter %d: only %d tries", jitter, try)
				}
				break
			}
			after := at.Sub(epoch)
			if try%3 == 0 && try <= 9 {
				low := 120 * time.Second * time.Duration(80+5*(try/3)) / 100
				if after < low || after > low+2400*time.Millisecond {
					t.Errorf("jitter %d: try %d after %v", jitter, try, after)
				}
			}
			if after-last < askGap || after >= 120*time.Second {
				t.Errorf("jitter %d: try %d after %v, the one before after %v", jitter, try, after, last)
			}
			last = after
			r.refreshed(at)
		}
	}
}

func TestGoodbye(t *testing.T) {
	n := newNetwork(t, 4, Config{})
	r := n.add(2)[0]
	n.start()
	n.run(5 * time.Second)
	start := n.now
	r.dead = true
	n.announce(r, r.goodbye())
	n.run(5 * time.Second)
	lost := n.count(Lost, "")
	if len(lost) != 1 || lost[0].Reason != ReasonGoodbye || lost[0].at.Sub(start) != time.Second {
		t.Fatalf("lost: %+v", lost)
	}
	// A goodbye that is taken back within the second was none.
	r = n.neighbours[1]
	n.announce(r, r.goodbye())
	n.after(500*time.Millisecond, func() { n.announce(r, r.announcement()) })
	n.run(5 * time.Second)
	if got := n.count(Lost, r.name); len(got) != 0 {
		t.Errorf("lost although announced again: %+v", got)
	}
}

func TestNameCase(t *testing.T) {
	n := newNetwork(t, 5, Config{})
	r := n.add(1)[0]
	n.start()
	n.run(5 * time.Second)
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}
	m.Answer = []dns.RR{
		&dns.PTR{Hdr: hdr("_LIQO._tcp.LOCAL.", dns.TypePTR, dns.ClassINET, 4500), Ptr: "0" + r.fqdn()[1:]},
		&dns.A{Hdr: hdr("BOX-1.Local.", dns.TypeA, flush, 120), A: []byte{10, 0, 0, 1}},
	}
	m.Answer[0].(*dns.PTR).Ptr = upper(r.fqdn())
	if drop := n.announce(r, m); drop != "" {
		t.Errorf("dropped: %s", drop)
	}
	n.run(time.Minute)
	if len(n.events) != 1 {
		t.Errorf("events: %+v", n.events)
	}
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

func TestLinksAndSwitch(t *testing.T) {
	n := newNetwork(t, 6, Config{})
	r := n.add(1)[0]
	other := *r // the same box on a second link
	other.link, other.lastMulti = 2, map[string]time.Time{}
	n.neighbours = append(n.neighbours, &other)
	v4 := [2]bool{true, false}
	n.start(LinkFamilies{Index: 1, Families: v4}, LinkFamilies{Index: 2, Families: v4})
	n.run(5 * time.Second)
	if len(n.b.Instances()) != 2 {
		t.Fatalf("instances: %+v", n.b.Instances())
	}
	n.b.SetLinks(n.now, []LinkFamilies{{Index: 2, Families: v4}})
	if n.b.Next().After(n.now) {
		t.Error("what happened is not told at once")
	}
	n.run(time.Second)
	if lost := n.count(Lost, ""); len(lost) != 1 || lost[0].Reason != ReasonLinkGone || lost[0].Instance.Link != 1 {
		t.Fatalf("lost: %+v", lost)
	}
	if drop := n.announce(r, r.announcement()); drop != DropUnknownLink {
		t.Errorf("drop reason %q", drop)
	}
	n.b.SetEnabled(n.now, false)
	n.run(time.Minute)
	if lost := n.count(Lost, ""); len(lost) != 2 || lost[1].Reason != ReasonDiscoveryOff {
		t.Fatalf("lost: %+v", lost)
	}
	if drop := n.announce(&other, other.announcement()); drop != DropDisabled {
		t.Errorf("drop reason %q", drop)
	}
	before := len(n.sent)
	n.run(time.Hour)
	if len(n.sent) != before || !n.b.Next().IsZero() {
		t.Error("still busy while switched off")
	}
	n.b.SetEnabled(n.now, true)
	n.b.SetLinks(n.now, []LinkFamilies{{Index: 1, Families: v4}, {Index: 2, Families: v4}})
	n.run(5 * time.Second)
	if len(n.b.Instances()) != 2 {
		t.Errorf("after switching on again: %+v", n.b.Instances())
	}
}

// TestRestart: queries begin again, with what is known, and nothing is lost.
func TestRestart(t *testing.T) {
	n, _ := steady(t, 25, Config{})
	n.run(time.Hour)
	before := len(n.browses(wire.IPv4))
	start := n.now
	n.b.Restart(n.now)
	n.run(10 * time.Second)
	sent := n.browses(wire.IPv4)[before:]
	if len(sent) != 4 || sent[0].at.Sub(start) > maxFirst || sent[1].at.Sub(sent[0].at) != firstGap {
		t.Errorf("%d queries: %v", len(sent), sent)
	}
	if len(n.events) != 1 {
		t.Errorf("events: %+v", n.events)
	}
}

// TestKnownAnswersHaveNoFlushBit: nor has a query an ID (RFC 6762 sections 10.2 and 18.1).
func TestKnownAnswersHaveNoFlushBit(t *testing.T) {
	n := newNetwork(t, 26, Config{})
	n.add(5)
	n.start()
	n.run(10 * time.Minute)
	known := 0
	for _, p := range n.sent {
		if p.Msg.Id != 0 || p.Msg.Response {
			t.Errorf("header %+v", p.Msg.MsgHdr)
		}
		for _, q := range p.Msg.Question {
			if q.Qclass != dns.ClassINET {
				t.Errorf("question %v", q)
			}
		}
		for _, rr := range p.Msg.Answer {
			if known++; rr.Header().Class != dns.ClassINET {
				t.Errorf("known answer %v", rr)
			}
		}
	}
	if known == 0 {
		t.Error("no known answers")
	}
}

func TestDualStack(t *testing.T) {
	n := newNetwork(t, 8, Config{})
	for k, r := range n.add(30) {
		r.addrs[1] = append(r.addrs[1], addr("fe80::1"), addr("2001:db8::1"))
		switch k % 3 {
		case 0:
			r.families = [2]bool{true, true}
		case 1:
			r.families = [2]bool{false, true}
		}
	}
	n.start(LinkFamilies{Index: 1, Families: [2]bool{true, true}})
	n.run(30 * time.Second)
	if len(n.count(Found, "")) != 30 || len(n.events) != 30 {
		t.Fatalf("%d found, %d events", len(n.count(Found, "")), len(n.events))
	}
	if n.answers != 30 {
		t.Errorf("%d answers of 30 neighbours", n.answers)
	}
	if len(n.browses(wire.IPv4)) != 5 || len(n.browses(wire.IPv6)) != 5 {
		t.Errorf("%d queries by IPv4, %d by IPv6", len(n.browses(wire.IPv4)), len(n.browses(wire.IPv6)))
	}
	i := n.b.Instances()[0]
	if len(i.Addrs) != 3 || i.Addrs[2] != addr("fe80::1%1") {
		t.Errorf("addresses: %v", i.Addrs)
	}
	n.run(time.Hour)
	if len(n.events) != 30 {
		t.Errorf("%d events after an hour", len(n.events))
	}
}

// TestLate: a Browser nobody called for a while asks before it gives up.
func TestLate(t *testing.T) {
	n := newNetwork(t, 9, Config{})
	n.add(50)
	n.start()
	n.run(10 * time.Second)
	n.neighbours[7].dead = true
	n.now = n.now.Add(3 * time.Hour)
	n.run(20 * time.Second)
	lost := n.count(Lost, "")
	if len(lost) != 1 || lost[0].Instance.Name != n.neighbours[7].name {
		t.Errorf("%d lost: %+v", len(lost), lost)
	}
}

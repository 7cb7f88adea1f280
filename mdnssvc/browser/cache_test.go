package browser

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

func response(answers ...dns.RR) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: answers}
}

// steady returns a network with one neighbour that was found and is quiet.
func steady(t *testing.T, seed uint64, cfg Config) (*network, *neighbour) {
	t.Helper()
	n := newNetwork(t, seed, cfg)
	r := n.add(1)[0]
	n.start()
	n.run(5 * time.Second)
	if len(n.events) != 1 || n.events[0].Kind != Found {
		t.Fatalf("events: %+v", n.events)
	}
	return n, r
}

func last(n *network) timedEvent { return n.events[len(n.events)-1] }

// TestAddressChange: the new address is told at once and first, the old one goes
// after a second (RFC 6762 section 10.2).
func TestAddressChange(t *testing.T) {
	n, r := steady(t, 11, Config{})
	old, fresh := r.addrs[0][0], addr("10.9.9.9")
	r.addrs[0] = []netip.Addr{fresh}
	start := n.now
	n.announce(r, response(r.hostRRs()...))
	if e := last(n); e.Kind != Updated || !slices.Equal(e.Instance.Addrs, []netip.Addr{fresh, old}) {
		t.Fatalf("told: %+v", e)
	}
	n.run(2 * time.Second)
	e := last(n)
	if len(n.events) != 3 || e.Kind != Updated || !slices.Equal(e.Instance.Addrs, []netip.Addr{fresh}) || e.at.Sub(start) != time.Second {
		t.Fatalf("told %v later: %+v", e.at.Sub(start), e)
	}
	n.run(time.Hour)
	if len(n.events) != 3 {
		t.Errorf("events: %+v", n.events)
	}
}

// TestFlushGrace: records of one set that come in two messages within a second
// do not flush each other.
func TestFlushGrace(t *testing.T) {
	n, r := steady(t, 12, Config{})
	r.addrs[0] = []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}
	both := r.addrRR(0, 120)
	n.run(3 * time.Second)
	n.announce(r, response(both[0]))
	n.after(300*time.Millisecond, func() { n.announce(r, response(both[1])) })
	n.run(10 * time.Second)
	if got := n.b.Instances()[0].Addrs; len(got) != 2 || len(n.events) != 2 {
		t.Errorf("addresses %v, events %+v", got, n.events)
	}
}

func TestAddressGoodbye(t *testing.T) {
	n, r := steady(t, 13, Config{})
	r.dead = true
	n.announce(r, response(r.addrRR(0, 0)...))
	n.run(3 * time.Second)
	if e := last(n); e.Kind != Lost || e.Reason != ReasonGoodbye {
		t.Errorf("told: %+v", e)
	}
}

// TestMoves: port, TXT and host may change in place; an instance that moves to a
// host whose addresses are still unknown is not lost meanwhile.
func TestMoves(t *testing.T) {
	n, r := steady(t, 14, Config{})
	r.port, r.txt = 7000, []string{"txtvers=1", "name=new"}
	n.announce(r, response(r.srv(120), r.txtRR(4500)))
	if e := last(n); len(n.events) != 2 || e.Kind != Updated || e.Instance.Port != 7000 || e.Instance.TXT[1] != "name=new" {
		t.Fatalf("told: %+v", e)
	}
	oldSRV := r.srv(0)
	r.host, r.addrs[0] = "other", []netip.Addr{addr("10.7.7.7")}
	n.announce(r, response(r.srv(120)))
	n.announce(r, response(oldSRV)) // the goodbye of what was replaced changes nothing
	if len(n.events) != 2 {
		t.Fatalf("told too early: %+v", last(n))
	}
	n.run(time.Second)
	if e := last(n); len(n.events) != 3 || e.Kind != Updated || e.Instance.Host != "other.local." || e.Instance.Addrs[0] != addr("10.7.7.7") {
		t.Fatalf("told: %+v", e)
	}
	// To a host that never answers: lost, but not before it was asked for.
	start := n.now
	r.dead = true
	r.host = "nowhere"
	n.announce(r, response(r.srv(120)))
	n.run(20 * time.Second)
	e := last(n)
	if d := e.at.Sub(start); e.Kind != Lost || e.Reason != ReasonNoAnswer || d < 3*time.Second || d > 10*time.Second {
		t.Errorf("after %v: %+v", d, e)
	}
}

// TestSeveralSRV: of several SRV records in one message the one with the least
// priority counts, in whatever order they come (RFC 6763 section 5).
func TestSeveralSRV(t *testing.T) {
	for _, order := range [][]uint16{{20, 10, 30}, {10, 20, 30}, {30, 20, 10}} {
		n, r := steady(t, 27, Config{})
		m := response()
		for _, priority := range order {
			m.Answer = append(m.Answer, &dns.SRV{Hdr: hdr(r.fqdn(), dns.TypeSRV, flush, 120), Priority: priority, Port: 1000 + priority, Target: r.hostFQDN()})
		}
		n.announce(r, m)
		if e := last(n); e.Kind != Updated || e.Instance.Port != 1010 {
			t.Errorf("%v: told %+v", order, e)
		}
	}
}

// TestSharedHost: one change of a host with many instances reaches all of them.
func TestSharedHost(t *testing.T) {
	for _, count := range []int{3, manyUsers + 20} {
		n := newNetwork(t, 15, Config{})
		for _, r := range n.add(count) {
			r.host, r.addrs[0] = "shared", []netip.Addr{addr("10.1.1.1")}
		}
		n.start()
		n.run(5 * time.Second)
		fresh := []dns.RR{&dns.A{Hdr: hdr("shared.local.", dns.TypeA, flush, 120), A: []byte{10, 2, 2, 2}}}
		for _, r := range n.neighbours {
			r.addrs[0] = []netip.Addr{addr("10.2.2.2")}
		}
		n.announce(n.neighbours[0], response(fresh...))
		n.run(5 * time.Second)
		if got := len(n.count(Updated, "")); got != 2*count {
			t.Errorf("%d updates of %d instances", got, count)
		}
		for _, r := range n.neighbours {
			r.dead = true
		}
		n.run(5 * time.Minute)
		if got := len(n.count(Lost, "")); got != count || len(n.b.links[1].hosts) != 0 {
			t.Errorf("%d of %d lost, hosts %v", got, count, n.b.links[1].hosts)
		}
	}
}

// TestPiecemeal: answers without additional records, in one message each.
func TestPiecemeal(t *testing.T) {
	n := newNetwork(t, 16, Config{})
	for _, r := range n.add(1000) {
		r.additional = false
	}
	n.start()
	n.run(30 * time.Second)
	found := n.count(Found, "")
	if len(found) != 1000 || len(n.events) != 1000 {
		t.Fatalf("%d found, %d events", len(found), len(n.events))
	}
	if d := found[999].at.Sub(epoch); d > 2500*time.Millisecond {
		t.Errorf("the last was found after %v", d)
	}
	if len(n.sent) > 300 {
		t.Errorf("%d packets sent", len(n.sent))
	}
}

func TestPiecemealWithLoss(t *testing.T) {
	n := newNetwork(t, 17, Config{})
	n.lossAnswer, n.lossQuery = 0.2, 0.1
	for _, r := range n.add(200) {
		r.additional = false
	}
	n.start()
	n.run(10 * time.Second)
	if found := n.count(Found, ""); len(found) < 190 {
		t.Errorf("%d found after 10 s", len(found))
	}
	// Whoever did not answer six questions is heard of with a later query.
	n.run(3 * time.Minute)
	if found := n.count(Found, ""); len(found) != 200 {
		t.Errorf("%d found", len(found))
	}
}

// TestNSEC: a family that the host says it has not is not asked for again.
func TestNSEC(t *testing.T) {
	for _, nsec := range []bool{true, false} {
		n, r := func() (*network, *neighbour) {
			n := newNetwork(t, 18, Config{})
			r := n.add(1)[0]
			r.nsec = nsec
			n.start(LinkFamilies{Index: 1, Families: [2]bool{true, true}})
			n.run(5 * time.Second)
			return n, r
		}()
		n.run(time.Hour)
		if len(n.events) != 1 {
			t.Errorf("events: %+v", n.events)
		}
		if got := r.askedFor[dns.TypeAAAA]; nsec && got != 0 || !nsec && got != otherTries {
			t.Errorf("NSEC %v: asked for AAAA %d times", nsec, got)
		}
		if r.askedFor[dns.TypeA] < 20 {
			t.Errorf("asked for A only %d times", r.askedFor[dns.TypeA])
		}
	}
}

// TestNoTXT: an instance that has no TXT record, an empty one, or one with an empty
// string says the same (RFC 6763 section 6.1).
func TestNoTXT(t *testing.T) {
	for name, txt := range map[string]func(r *neighbour) dns.RR{
		"one empty string": func(r *neighbour) dns.RR { r.txt = []string{""}; return r.txtRR(4500) },
		"no string":        func(r *neighbour) dns.RR { r.txt = nil; return r.txtRR(4500) },
		"no record": func(r *neighbour) dns.RR {
			return &dns.NSEC{Hdr: hdr(r.fqdn(), dns.TypeNSEC, flush, 4500), NextDomain: r.fqdn(), TypeBitMap: []uint16{dns.TypeSRV}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, 24, Config{})
			r := newNeighbour(1)
			m := r.announcement()
			m.Answer[2] = txt(r)
			n.start()
			for range 2 {
				n.announce(r, m)
				n.run(time.Minute)
				if len(n.events) != 1 || n.events[0].Kind != Found || len(wire.DecodeTXT(n.events[0].Instance.TXT)) != 0 {
					t.Fatalf("events: %+v", n.events)
				}
			}
			// Once it has one, that counts, and a denial does not end it.
			r.txt = []string{"a=b"}
			n.announce(r, response(r.txtRR(4500)))
			n.announce(r, m)
			if e := n.events[1]; e.Kind != Updated || len(e.Instance.TXT) != 1 || e.Instance.TXT[0] != "a=b" {
				t.Fatalf("events: %+v", n.events)
			}
			if denied := name == "no record"; denied != (len(n.events) == 2) {
				t.Errorf("events: %+v", n.events)
			}
		})
	}
}

// TestTTLCap: a TTL of a year is not believed for longer than 75 minutes, and
// the known answers still carry the sender's own count.
func TestTTLCap(t *testing.T) {
	n := newNetwork(t, 19, Config{})
	r := n.add(1)[0]
	r.ttlPTR, r.ttl = 365*86400, 365*86400
	n.start()
	n.run(10 * time.Minute)
	answers := r.answers
	n.run(4 * time.Hour)
	if len(n.events) != 1 {
		t.Fatalf("events: %+v", n.events)
	}
	known := 0
	for _, p := range n.browses(wire.IPv4) {
		for _, rr := range p.Msg.Answer {
			known++
			if rr.Header().Ttl < 364*86400 {
				t.Fatalf("known answer: %v", rr)
			}
		}
	}
	if known < 5 {
		t.Errorf("%d known answers", known)
	}
	if r.answers == answers {
		t.Error("never asked for again")
	}
	n.b = New(n.b.cfg) // afresh, and then it vanishes
	n.alive = map[string]Instance{}
	n.start()
	n.run(5 * time.Second)
	r.dead = true
	n.run(maxTTL)
	if e := last(n); e.Kind != Lost {
		t.Errorf("not lost after 75 minutes")
	}
}

// TestNotRefreshed: what is not found is not kept alive.
func TestNotRefreshed(t *testing.T) {
	n := newNetwork(t, 20, Config{})
	r := n.add(1)[0]
	r.mute, r.additional = true, false
	n.start()
	n.run(20 * time.Second)
	n.neighbours = nil
	before := len(n.sent)
	n.run(10 * time.Minute)
	asks := 0
	for _, p := range n.sent[before:] {
		if p.Msg.Question[0].Qtype != dns.TypePTR {
			asks++
		}
	}
	if asks > 2 {
		t.Errorf("asked %d times more for what does not answer", asks)
	}
	n.run(2 * time.Hour)
	if l := n.b.links[1]; len(l.all) != 0 || len(l.sources) != 0 {
		t.Errorf("still there: %d", len(l.all))
	}
}

// TestRearm: an instance that gave no answer is tried again when it is heard of
// later, because it is not among the known answers.
func TestRearm(t *testing.T) {
	n := newNetwork(t, 21, Config{})
	r := n.add(1)[0]
	r.mute, r.additional = true, false
	n.start()
	n.run(3 * time.Minute)
	r.mute = false
	n.run(5 * time.Minute)
	if len(n.events) != 1 || n.events[0].Kind != Found {
		t.Errorf("events: %+v", n.events)
	}
}

// TestDrops: each thing not used has its reason.
func TestDrops(t *testing.T) {
	n, r := steady(t, 22, Config{})
	multicast := func(in wire.Received) wire.Received {
		in.Link, in.ToMulticast = 1, true
		if !in.From.IsValid() {
			in.From = r.from
		}
		return in
	}
	otherPTR := &dns.PTR{Hdr: hdr("_ipp._tcp.local.", dns.TypePTR, dns.ClassINET, 4500), Ptr: "printer._ipp._tcp.local."}
	ptr := func(target string) *dns.PTR {
		return &dns.PTR{Hdr: hdr(serviceFQDN, dns.TypePTR, dns.ClassINET, 4500), Ptr: target}
	}
	a := func(s string) *dns.A {
		return &dns.A{Hdr: hdr(r.hostFQDN(), dns.TypeA, dns.ClassINET, 120), A: addr(s).AsSlice()}
	}
	srv := func(port uint16, target string) *dns.SRV {
		return &dns.SRV{Hdr: hdr(r.fqdn(), dns.TypeSRV, flush, 120), Port: port, Target: target}
	}
	var long []string
	for len(long) < 40 {
		long = append(long, string(make([]byte, 100)))
	}
	var many []dns.RR
	for k := range maxAddrs + 1 {
		many = append(many, a(fmt.Sprintf("10.5.0.%d", k+1)))
	}
	chaos := r.ptr(4500)
	chaos.Header().Class = dns.ClassCHAOS
	for _, c := range []struct {
		name string
		in   wire.Received
		want wire.DropReason
	}{
		{"used", multicast(wire.Received{Msg: r.announcement()}), ""},
		{"other port", multicast(wire.Received{Msg: r.announcement(), From: netip.AddrPortFrom(r.from.Addr(), 40000)}), DropSourcePort},
		{"unicast", wire.Received{Msg: r.announcement(), Link: 1, From: r.from}, DropUnicast},
		{"other service", multicast(wire.Received{Msg: response(otherPTR)}), DropNotAsked},
		{"other class", multicast(wire.Received{Msg: response(chaos)}), DropNotAsked},
		{"empty", multicast(wire.Received{Msg: response()}), DropNotAsked},
		{"address of a stranger", multicast(wire.Received{Msg: response(&dns.A{Hdr: hdr("x.local.", dns.TypeA, flush, 120), A: []byte{10, 3, 3, 3}})}), DropNotAsked},
		{"PTR to another service", multicast(wire.Received{Msg: response(ptr("x._ipp._tcp.local."))}), DropForeignName},
		{"PTR to another domain", multicast(wire.Received{Msg: response(ptr("x._liqo._tcp.example."))}), DropForeignName},
		{"PTR to the service", multicast(wire.Received{Msg: response(ptr(serviceFQDN))}), DropForeignName},
		{"PTR too deep", multicast(wire.Received{Msg: response(ptr("x.y._liqo._tcp.local."))}), DropForeignName},
		{"goodbye of a stranger", multicast(wire.Received{Msg: response(&dns.PTR{Hdr: hdr(serviceFQDN, dns.TypePTR, dns.ClassINET, 0), Ptr: "x._liqo._tcp.local."})}), DropNotAsked},
		{"no port", multicast(wire.Received{Msg: response(srv(0, "x.local."))}), DropBadSRV},
		{"no target", multicast(wire.Received{Msg: response(srv(80, "."))}), DropBadSRV},
		{"huge TXT", multicast(wire.Received{Msg: response(&dns.TXT{Hdr: hdr(r.fqdn(), dns.TypeTXT, flush, 4500), Txt: long})}), DropTXTSize},
		{"multicast address", multicast(wire.Received{Msg: response(a("224.0.0.251"))}), DropBadAddress},
		{"no address", multicast(wire.Received{Msg: response(a("0.0.0.0"))}), DropBadAddress},
		{"loopback", multicast(wire.Received{Msg: response(a("127.0.0.1"))}), DropBadAddress},
		{"broadcast", multicast(wire.Received{Msg: response(a("255.255.255.255"))}), DropBadAddress},
		{"bytes missing", multicast(wire.Received{Msg: response(&dns.A{Hdr: hdr(r.hostFQDN(), dns.TypeA, flush, 120)})}), DropBadAddress},
		{"too many addresses", multicast(wire.Received{Msg: response(many...)}), DropAddressLimit},
	} {
		if got := n.receive(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		n.consistent()
	}
	if drop := n.receive(multicast(wire.Received{Msg: response(a("127.0.0.1")), From: netip.MustParseAddrPort("127.0.0.1:5353")})); drop == DropBadAddress {
		t.Error("loopback refused from loopback")
	}
}

// TestAnyName: an instance name is any text, and told as such.
func TestAnyName(t *testing.T) {
	const name = "Küche 2. Stock (hinten)"
	n := newNetwork(t, 23, Config{})
	r := newNeighbour(1)
	m := r.announcement()
	fqdn := wire.InstanceName(name, service, "local")
	m.Answer[0].(*dns.PTR).Ptr = fqdn
	m.Answer[1].Header().Name = fqdn
	m.Answer[2].Header().Name = fqdn
	b, err := wire.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	m, _ = wire.Decode(b)
	n.start()
	if drop := n.announce(r, m); drop != "" || len(n.events) != 1 || n.events[0].Instance.Name != name {
		t.Fatalf("drop %q, events %+v", drop, n.events)
	}
	n.run(5 * time.Second)
	n.b.Reconfirm(n.now, 1, name)
	n.run(5 * time.Second)
	if e := last(n); e.Kind != Lost || e.Instance.Name != name || e.Reason != ReasonNoAnswer {
		t.Errorf("told: %+v", e)
	}
}

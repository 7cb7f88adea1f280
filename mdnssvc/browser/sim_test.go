package browser

import (
	stdheap "container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	service     = "_liqo._tcp"
	serviceFQDN = "_liqo._tcp.local."
	flush       = dns.ClassINET | wire.TopBit
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// neighbour is a simulated responder: it answers as RFC 6762 wants it, after a
// random delay, once a second per record at most.
type neighbour struct {
	name, host string
	link       int
	addrs      [2][]netip.Addr
	families   [2]bool // which groups it is in
	port       uint16
	txt        []string
	ttlPTR     uint32
	ttl        uint32 // SRV and addresses
	additional bool   // sends additional records
	nsec       bool
	dead       bool
	mute       bool // answers the service question only
	from       netip.AddrPort
	lastMulti  map[string]time.Time
	answers    int
	askedFor   map[uint16]int
}

func newNeighbour(n int) *neighbour {
	a4 := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	return &neighbour{
		name: fmt.Sprintf("%08x-6c65-4c1b-9e0a-1f1d0c0b%04x", n*2654435761&0xffffffff, n), host: fmt.Sprintf("box-%d", n), link: 1,
		addrs: [2][]netip.Addr{{a4}, nil}, families: [2]bool{true, false}, port: 6447,
		txt:    []string{"txtvers=1", "name=box", "id=x"},
		ttlPTR: 4500, ttl: 120, additional: true, nsec: true,
		from: netip.AddrPortFrom(a4, 5353), lastMulti: map[string]time.Time{}, askedFor: map[uint16]int{},
	}
}

func (n *neighbour) fqdn() string     { return n.name + "." + serviceFQDN }
func (n *neighbour) hostFQDN() string { return n.host + ".local." }

func hdr(name string, t, class uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: t, Class: class, Ttl: ttl}
}

func (n *neighbour) ptr(ttl uint32) dns.RR {
	return &dns.PTR{Hdr: hdr(serviceFQDN, dns.TypePTR, dns.ClassINET, ttl), Ptr: n.fqdn()}
}
func (n *neighbour) srv(ttl uint32) dns.RR {
	return &dns.SRV{Hdr: hdr(n.fqdn(), dns.TypeSRV, flush, ttl), Port: n.port, Target: n.hostFQDN()}
}
func (n *neighbour) txtRR(ttl uint32) dns.RR {
	return &dns.TXT{Hdr: hdr(n.fqdn(), dns.TypeTXT, flush, ttl), Txt: n.txt}
}
func (n *neighbour) addrRR(f int, ttl uint32) (out []dns.RR) {
	for _, a := range n.addrs[f] {
		if f == 0 {
			out = append(out, &dns.A{Hdr: hdr(n.hostFQDN(), dns.TypeA, flush, ttl), A: a.AsSlice()})
		} else {
			out = append(out, &dns.AAAA{Hdr: hdr(n.hostFQDN(), dns.TypeAAAA, flush, ttl), AAAA: a.AsSlice()})
		}
	}
	return out
}
func (n *neighbour) hostRRs() []dns.RR {
	out := append(n.addrRR(0, n.ttl), n.addrRR(1, n.ttl)...)
	if n.nsec {
		var types []uint16
		for f, t := range addrTypes {
			if len(n.addrs[f]) > 0 {
				types = append(types, t)
			}
		}
		out = append(out, &dns.NSEC{Hdr: hdr(n.hostFQDN(), dns.TypeNSEC, flush, n.ttl), NextDomain: n.hostFQDN(), TypeBitMap: types})
	}
	return out
}

// announcement is what it multicasts unasked.
func (n *neighbour) announcement() *dns.Msg {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	m.Answer = append([]dns.RR{n.ptr(n.ttlPTR), n.srv(n.ttl), n.txtRR(n.ttlPTR)}, n.hostRRs()...)
	return m
}

func (n *neighbour) goodbye() *dns.Msg {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	m.Answer = append([]dns.RR{n.ptr(0), n.srv(0), n.txtRR(0)}, append(n.addrRR(0, 0), n.addrRR(1, 0)...)...)
	return m
}

// answer returns the response to a query with known answers, nil for none.
func (n *neighbour) answer(now time.Time, q *dns.Msg, known map[string]uint32, f wire.Family) *dns.Msg {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	once := func(what string) bool {
		what += f.String()
		if last, ok := n.lastMulti[what]; ok && now.Sub(last) < time.Second {
			return false
		}
		n.lastMulti[what] = now
		return true
	}
	for _, qu := range q.Question {
		key := wire.Key(qu.Name)
		switch {
		case key == serviceFQDN && qu.Qtype == dns.TypePTR:
			ttl, known := known[n.fqdn()]
			if known && ttl*2 >= n.ttlPTR || !once("ptr") {
				continue
			}
			m.Answer = append(m.Answer, n.ptr(n.ttlPTR))
			if n.additional {
				m.Extra = append(append(m.Extra, n.srv(n.ttl), n.txtRR(n.ttlPTR)), n.hostRRs()...)
			}
		case n.mute:
		case key == wire.Key(n.fqdn()) && qu.Qtype == dns.TypeSRV:
			n.askedFor[qu.Qtype]++
			if once("srv") {
				m.Answer = append(m.Answer, n.srv(n.ttl))
				if n.additional {
					m.Extra = append(m.Extra, n.hostRRs()...)
				}
			}
		case key == wire.Key(n.fqdn()) && qu.Qtype == dns.TypeTXT:
			n.askedFor[qu.Qtype]++
			if once("txt") {
				m.Answer = append(m.Answer, n.txtRR(n.ttlPTR))
			}
		case key == wire.Key(n.hostFQDN()) && (qu.Qtype == dns.TypeA || qu.Qtype == dns.TypeAAAA):
			n.askedFor[qu.Qtype]++
			if once(dns.Type(qu.Qtype).String()) {
				m.Answer = append(m.Answer, n.hostRRs()...)
			}
		}
	}
	if len(m.Answer) == 0 {
		return nil
	}
	n.answers++
	return m
}

type delivery struct {
	at  time.Time
	seq int
	in  wire.Received
	run func() // instead of in
}
type deliveries []delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at.Before(d[j].at) || d[i].at.Equal(d[j].at) && d[i].seq < d[j].seq
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(delivery)) }
func (d *deliveries) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

type sentPacket struct {
	at time.Time
	wire.Packet
}
type timedEvent struct {
	at time.Time
	Event
}

// network runs a Browser among simulated neighbours in virtual time, and holds
// its events against what must always be true of them.
type network struct {
	t          testing.TB
	b          *Browser
	rng        *rand.Rand
	now        time.Time
	queue      deliveries
	seq        int
	neighbours []*neighbour
	lossQuery  float64
	lossAnswer float64
	sent       []sentPacket
	events     []timedEvent
	alive      map[string]Instance
	drops      map[wire.DropReason]int
	answers    int
}

func newNetwork(t testing.TB, seed uint64, cfg Config) *network {
	cfg.Rand = rand.New(rand.NewPCG(seed, 1))
	cfg.Service, cfg.Domain = service, "local"
	n := &network{t: t, b: New(cfg), rng: rand.New(rand.NewPCG(seed, 2)), now: epoch, alive: map[string]Instance{}, drops: map[wire.DropReason]int{}}
	return n
}

// start switches browsing on, on link 1 with IPv4 unless told otherwise.
func (n *network) start(links ...LinkFamilies) {
	if len(links) == 0 {
		links = []LinkFamilies{{Index: 1, Families: [2]bool{true, false}}}
	}
	n.b.SetLinks(n.now, links)
	n.b.SetEnabled(n.now, true)
}

func (n *network) add(count int) []*neighbour {
	for range count {
		n.neighbours = append(n.neighbours, newNeighbour(len(n.neighbours)+1))
	}
	return n.neighbours[len(n.neighbours)-count:]
}

func key(i Instance) string { return fmt.Sprintf("%d/%s", i.Link, wire.Key(i.Name)) }

func (n *network) record(events []Event) {
	n.t.Helper()
	for _, e := range events {
		n.events = append(n.events, timedEvent{n.now, e})
		checkEvent(n.t, n.alive, e)
	}
}

// checkEvent holds one event against those before it.
func checkEvent(t testing.TB, alive map[string]Instance, e Event) {
	t.Helper()
	k := key(e.Instance)
	was, found := alive[k]
	switch e.Kind {
	case Found, Updated:
		if found == (e.Kind == Found) {
			t.Fatalf("%s of %s, found before: %v", e.Kind, k, found)
		}
		i := e.Instance
		if i.Port == 0 || i.Host == "" || i.TXT == nil || len(i.Addrs) == 0 || e.Reason != "" {
			t.Fatalf("%s with something missing: %+v", e.Kind, e)
		}
		if found && was.Port == i.Port && was.Host == i.Host && slices.Equal(was.TXT, i.TXT) && slices.Equal(was.Addrs, i.Addrs) {
			t.Fatalf("updated without a difference: %+v", i)
		}
		alive[k] = i
	case Lost:
		if !found || e.Reason == "" {
			t.Fatalf("lost (%q) of %s, found before: %v", e.Reason, k, found)
		}
		delete(alive, k)
	}
}

func (n *network) send(packets []wire.Packet) {
	n.t.Helper()
	for _, p := range packets {
		parts, err := wire.EncodeAll(p.Msg, 1440)
		if err != nil {
			n.t.Fatalf("a packet cannot be encoded: %v", err)
		}
		if p.Msg.Response || len(p.Msg.Question) == 0 || len(p.Msg.Answer) == 0 && len(parts) != 1 {
			n.t.Fatalf("not a query, or one split by its questions: %v", p.Msg)
		}
		n.sent = append(n.sent, sentPacket{n.now, p})
		asked := map[string]bool{}
		for _, q := range p.Msg.Question {
			asked[wire.Key(q.Name)] = true
		}
		known := map[string]uint32{}
		for _, rr := range p.Msg.Answer {
			known[wire.Key(rr.(*dns.PTR).Ptr)] = rr.Header().Ttl
		}
		for _, r := range n.neighbours {
			if !asked[serviceFQDN] && !asked[r.fqdn()] && !asked[r.hostFQDN()] {
				continue
			}
			if r.dead || r.link != p.Link || !r.families[p.Family] || n.rng.Float64() < n.lossQuery {
				continue
			}
			at := n.now.Add(time.Duration(n.rng.Int64N(int64(10 * time.Millisecond))))
			if p.Msg.Question[0].Qtype == dns.TypePTR {
				at = n.now.Add(20*time.Millisecond + time.Duration(n.rng.Int64N(int64(100*time.Millisecond))))
			}
			if m := r.answer(n.now, p.Msg, known, p.Family); m != nil {
				n.answers++
				n.deliver(at, r, p.Family, m)
			}
		}
	}
}

// deliver has the browser receive m from r at a time, or loses it.
func (n *network) deliver(at time.Time, r *neighbour, f wire.Family, m *dns.Msg) {
	if n.rng.Float64() < n.lossAnswer {
		return
	}
	n.at(at, wire.Received{Msg: m, Link: r.link, Family: f, From: r.from, ToMulticast: true}, nil)
}

func (n *network) at(at time.Time, in wire.Received, run func()) {
	n.seq++
	stdheap.Push(&n.queue, delivery{at: at, seq: n.seq, in: in, run: run})
}

// after runs something later.
func (n *network) after(d time.Duration, run func()) { n.at(n.now.Add(d), wire.Received{}, run) }

// announce has the browser receive m from r now.
func (n *network) announce(r *neighbour, m *dns.Msg) wire.DropReason {
	n.t.Helper()
	return n.receive(wire.Received{Msg: m, Link: r.link, Family: wire.IPv4, From: r.from, ToMulticast: true})
}

func (n *network) receive(in wire.Received) wire.DropReason {
	n.t.Helper()
	events, drop := n.b.Receive(n.now, in)
	n.drops[drop]++
	n.record(events)
	return drop
}

// run lets time pass.
func (n *network) run(d time.Duration) {
	n.t.Helper()
	end := n.now.Add(d)
	for {
		next := n.b.Next()
		timer := !next.IsZero()
		if len(n.queue) > 0 && (!timer || n.queue[0].at.Before(next)) {
			next, timer = n.queue[0].at, false
		} else if !timer {
			break
		}
		if next.After(end) {
			break
		}
		if next.After(n.now) {
			n.now = next
		}
		if timer {
			packets, events := n.b.Due(n.now)
			n.record(events)
			n.send(packets)
			if again := n.b.Next(); !again.IsZero() && !again.After(n.now) {
				n.t.Fatalf("after Due at %v, Next is %v", n.now, again)
			}
			continue
		}
		switch d := stdheap.Pop(&n.queue).(delivery); {
		case d.run != nil:
			d.run()
		default:
			n.receive(d.in)
		}
	}
	n.now = end
	n.consistent()
}

// consistent compares Instances with the events.
func (n *network) consistent() {
	n.t.Helper()
	list := n.b.Instances()
	if len(list) != len(n.alive) {
		n.t.Fatalf("Instances has %d, events say %d", len(list), len(n.alive))
	}
	for _, i := range list {
		if want := n.alive[key(i)]; want.Host != i.Host || want.Port != i.Port || !slices.Equal(want.Addrs, i.Addrs) {
			n.t.Fatalf("Instances has %+v, events say %+v", i, want)
		}
	}
	checkStructure(n.t, n.b)
}

// checkStructure verifies what the parts of a Browser believe of each other.
func checkStructure(t testing.TB, b *Browser) {
	t.Helper()
	for _, l := range b.order {
		if len(l.all) != len(l.instances) || len(l.all) > b.cfg.MaxInstances {
			t.Fatalf("%d instances listed, %d indexed, %d allowed", len(l.all), len(l.instances), b.cfg.MaxInstances)
		}
		users, members, waiting := 0, 0, 0
		for _, h := range l.hosts {
			found := 0
			for k, i := range h.users {
				if i.host != h || i.hostSlot != k || i.gone {
					t.Fatalf("host %s and its user %s disagree", h.key, i.key)
				}
				if i.found {
					found++
				}
			}
			if len(h.users) == 0 || h.found != found || len(h.addrs[0]) > maxAddrs || len(h.addrs[1]) > maxAddrs {
				t.Fatalf("host %s: %d users, %d/%d found, %d addresses", h.key, len(h.users), h.found, found, h.count())
			}
			users += len(h.users)
			if h.queued != nil {
				waiting++
			}
		}
		for _, i := range l.all {
			if i.host != nil {
				users--
			}
			if i.gone || l.sources[i.src.addr] != i.src || !i.ptr.live() {
				t.Fatalf("instance %s is not properly there", i.key)
			}
			if i.queued != nil {
				waiting++
			}
		}
		if users != 0 {
			t.Fatalf("hosts have %d users too many", users)
		}
		for _, s := range l.sources {
			members += s.evictable() + s.protected
		}
		if members != len(l.all) || l.order.len() != len(l.sources) {
			t.Fatalf("sources have %d instances of %d, order has %d of %d sources", members, len(l.all), l.order.len(), len(l.sources))
		}
		queued := l.urgent.Len()
		for e := l.turns.Front(); e != nil; e = e.Next() {
			queued += e.Value.(*source).waiting.Len()
		}
		if queued != waiting || waiting > 0 && l.flush.IsZero() {
			t.Fatalf("%d wait in queues, %d say so; flush at %v", queued, waiting, l.flush)
		}
	}
	for k, tm := range b.timers.items {
		if tm.place != k || k > 0 && tm.at.Before(b.timers.items[(k-1)/2].at) {
			t.Fatal("timers are out of order")
		}
	}
}

// count returns the events of a kind, all of them for instances with that name
// unless it is empty.
func (n *network) count(kind EventKind, name string) (out []timedEvent) {
	for _, e := range n.events {
		if e.Kind == kind && (name == "" || wire.Key(e.Instance.Name) == wire.Key(name)) {
			out = append(out, e)
		}
	}
	return out
}

// browses returns the queries for the service that were sent by a family.
func (n *network) browses(f wire.Family) (out []sentPacket) {
	for _, p := range n.sent {
		if p.Family == f && p.Msg.Question[0].Qtype == dns.TypePTR {
			out = append(out, p)
		}
	}
	return out
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

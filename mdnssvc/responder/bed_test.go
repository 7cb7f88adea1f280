package responder

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	service  = "_liqo._tcp.local."
	instance = "box._liqo._tcp.local."
	host     = "box-host.local."
	meta     = "_services._dns-sd._udp.local."
)

var (
	ourAddr     = netip.MustParsePrefix("192.168.1.10/24")
	ourAddr6    = netip.MustParsePrefix("fe80::10/64")
	querier     = netip.MustParseAddrPort("192.168.1.20:5353")
	otherAddr   = netip.MustParseAddrPort("192.168.1.30:5353")
	legacyAddr  = netip.MustParseAddrPort("192.168.1.20:40000")
	offLinkAddr = netip.MustParseAddrPort("10.9.9.9:5353")
)

func announcementForTest() *Announcement {
	return &Announcement{Instance: "box", Service: "_liqo._tcp", Domain: "local", Host: "box-host", Port: 6447,
		TXT: [][2]string{{"txtvers", "1"}, {"id", "box"}}}
}

func oneLink(addrs ...netip.Prefix) []LinkAddrs {
	return []LinkAddrs{{Index: 1, Addrs: addrs, Families: [2]bool{true, false}}}
}

// sent is a packet and when it left.
type sent struct {
	at time.Time
	wire.Packet
}

// bed drives one Responder by simulated time. Every packet goes through the
// codec, as it would on a network.
type bed struct {
	t         testing.TB
	r         *Responder
	now       time.Time
	sent      []sent
	conflicts []string
	renames   []string
	loopback  bool // hand our own multicasts back, as a socket does
}

func newBed(t testing.TB, seed uint64) *bed {
	b := &bed{t: t, now: time.Unix(1_000_000, 0), loopback: true}
	b.r = New(Config{
		Rand:       rand.New(rand.NewPCG(seed, 1)),
		OnConflict: func(name string, _ time.Time) { b.conflicts = append(b.conflicts, name) },
		OnRename:   func(instance string) { b.renames = append(b.renames, instance) },
	})
	return b
}

// established returns a bed that finished probing and announcing on one link.
func established(t testing.TB, seed uint64, links ...LinkAddrs) *bed {
	b := newBed(t, seed)
	if links == nil {
		links = oneLink(ourAddr)
	}
	b.links(links...)
	b.announce(announcementForTest())
	b.run(10 * time.Second)
	if !b.r.Established() {
		t.Fatal("not established after 10 s")
	}
	b.take()
	return b
}

func (b *bed) links(links ...LinkAddrs) {
	b.t.Helper()
	if err := b.r.SetLinks(b.now, links); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) announce(a *Announcement) {
	b.t.Helper()
	if err := b.r.SetAnnouncement(b.now, a); err != nil {
		b.t.Fatal(err)
	}
}

// run lets d pass.
func (b *bed) run(d time.Duration) {
	b.t.Helper()
	end := b.now.Add(d)
	for range 100_000 {
		next := b.r.Next()
		if next.IsZero() || next.After(end) {
			b.now = end
			return
		}
		if next.After(b.now) {
			b.now = next
		}
		b.collect(b.r.Due(b.now))
		if next := b.r.Next(); !next.IsZero() && !next.After(b.now) && !b.loopback {
			b.t.Fatalf("Next is %v after Due: busy loop", next.Sub(b.now))
		}
	}
	b.t.Fatal("busy loop")
}

func (b *bed) collect(packets []wire.Packet) {
	b.t.Helper()
	for _, p := range packets {
		raw, err := wire.Encode(p.Msg)
		if err != nil {
			b.t.Fatalf("own packet: %v\n%v", err, p.Msg)
		}
		m, drop := wire.Decode(raw)
		if drop != "" {
			b.t.Fatalf("own packet: %s\n%v", drop, p.Msg)
		}
		p.Msg = m
		b.sent = append(b.sent, sent{b.now, p})
		if b.loopback && !p.Unicast.IsValid() {
			self := wire.Received{Msg: m.Copy(), Link: p.Link, Family: p.Family, From: netip.AddrPortFrom(ourAddr.Addr(), wire.Port), ToMulticast: true, Self: true}
			if drop := b.r.Receive(b.now, self); drop != "" {
				b.t.Fatalf("own packet dropped: %s", drop)
			}
		}
	}
}

// take returns what was sent since the last call.
func (b *bed) take() []sent {
	out := b.sent
	b.sent = nil
	return out
}

// receive delivers a message that came to the group on link 1 by IPv4.
func (b *bed) receive(from netip.AddrPort, m *dns.Msg) wire.DropReason {
	b.t.Helper()
	return b.receiveAs(wire.Received{Msg: m, Link: 1, From: from, ToMulticast: true})
}

func (b *bed) receiveAs(in wire.Received) wire.DropReason {
	b.t.Helper()
	raw, err := wire.Encode(in.Msg)
	if err != nil {
		b.t.Fatal(err)
	}
	m, drop := wire.Decode(raw)
	if drop != "" {
		b.t.Fatal(drop)
	}
	in.Msg = m
	return b.r.Receive(b.now, in)
}

func rr(t testing.TB, s string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return rr
}

func rrs(t testing.TB, list ...string) []dns.RR {
	var out []dns.RR
	for _, s := range list {
		out = append(out, rr(t, s))
	}
	return out
}

type q struct {
	name  string
	qtype uint16
	qu    bool
}

func query(questions ...q) *dns.Msg {
	m := new(dns.Msg)
	for _, x := range questions {
		class := uint16(dns.ClassINET)
		if x.qu {
			class |= wire.TopBit
		}
		m.Question = append(m.Question, dns.Question{Name: x.name, Qtype: x.qtype, Qclass: class})
	}
	return m
}

func answers(t testing.TB, list ...string) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: rrs(t, list...)}
}

// short names a record as tests compare it: "type data ttl", with a "!" behind
// when the cache-flush bit is set.
func short(rr dns.RR) string {
	h := rr.Header()
	s := fmt.Sprintf("%s %d", dns.Type(h.Rrtype), h.Ttl)
	switch rr := rr.(type) {
	case *dns.PTR:
		s = fmt.Sprintf("%s %s>%s", s, h.Name, rr.Ptr)
	case *dns.SRV:
		s = fmt.Sprintf("%s %s:%d", s, rr.Target, rr.Port)
	case *dns.A:
		s = fmt.Sprintf("%s %s", s, rr.A)
	case *dns.AAAA:
		s = fmt.Sprintf("%s %s", s, rr.AAAA)
	case *dns.NSEC:
		s = fmt.Sprintf("%s %s %v", s, h.Name, types(rr.TypeBitMap))
	case *dns.TXT:
		s = fmt.Sprintf("%s %s", s, strings.Join(rr.Txt, ","))
	}
	if h.Class&wire.TopBit != 0 {
		s += "!"
	}
	return s
}

func types(list []uint16) []string {
	var out []string
	for _, t := range list {
		out = append(out, dns.TypeToString[t])
	}
	return out
}

func shorts(list []dns.RR) []string {
	out := []string{}
	for _, rr := range list {
		out = append(out, short(rr))
	}
	slices.Sort(out)
	return out
}

// expect fails unless exactly one packet was sent with these answers and
// additional records (nil: any), and returns it.
func (b *bed) expect(wantAnswers, wantExtras []string) sent {
	b.t.Helper()
	got := b.take()
	if len(got) != 1 {
		b.t.Fatalf("%d packets, want 1: %s", len(got), describe(got))
	}
	slices.Sort(wantAnswers)
	if a := shorts(got[0].Msg.Answer); !slices.Equal(a, wantAnswers) {
		b.t.Fatalf("answers\n %q, want\n %q", a, wantAnswers)
	}
	slices.Sort(wantExtras)
	if e := shorts(got[0].Msg.Extra); wantExtras != nil && !slices.Equal(e, wantExtras) {
		b.t.Fatalf("additional records\n %q, want\n %q", e, wantExtras)
	}
	return got[0]
}

func (b *bed) expectNothing() {
	b.t.Helper()
	if got := b.take(); len(got) != 0 {
		b.t.Fatalf("sent %s, want nothing", describe(got))
	}
}

func describe(list []sent) string {
	var sb strings.Builder
	for _, s := range list {
		fmt.Fprintf(&sb, "\nlink %d %s to %v questions %v answers %q authority %q additional %q", s.Link, s.Family, s.Unicast,
			s.Msg.Question, shorts(s.Msg.Answer), shorts(s.Msg.Ns), shorts(s.Msg.Extra))
	}
	return sb.String()
}

// The records of the test announcement, as short writes them.
const (
	recPTR      = "PTR 4500 " + service + ">" + instance
	recMeta     = "PTR 4500 " + meta + ">" + service
	recSRV      = "SRV 120 " + host + ":6447!"
	recTXT      = "TXT 4500 txtvers=1,id=box!"
	recA        = "A 120 192.168.1.10!"
	recHostNSEC = "NSEC 120 " + host + " [A]!"
	recInstNSEC = "NSEC 4500 " + instance + " [TXT SRV]!"
)

func everySeed(t *testing.T, f func(t *testing.T, seed uint64)) {
	for seed := range uint64(20) {
		f(t, seed)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func within(t testing.TB, what string, d, low, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Fatalf("%s after %v, want %v to %v", what, d, low, high)
	}
}

package browser

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

func netipPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// bogus returns a response that announces an instance that leads nowhere.
func bogus(k int) *dns.Msg {
	return response(&dns.PTR{Hdr: hdr(serviceFQDN, dns.TypePTR, dns.ClassINET, 4500), Ptr: fmt.Sprintf("bogus-%d.%s", k, serviceFQDN)})
}

func (n *network) flood(from string, msg func(k int) *dns.Msg, perMilli int, d time.Duration) {
	k := 0
	for range d / time.Millisecond {
		for range perMilli {
			n.receive(wire.Received{Msg: msg(k), Link: 1, From: netipPort(from), ToMulticast: true})
			k++
		}
		n.run(time.Millisecond)
	}
}

// TestFloodPTR: bogus names cause no storm of queries, no growth, and do not
// keep true neighbours, old or new, from being there.
func TestFloodPTR(t *testing.T) {
	n := newNetwork(t, 41, Config{MaxInstances: 400})
	for k, r := range n.add(60) {
		r.additional = k%2 == 0
	}
	n.start()
	n.after(3*time.Second, func() {
		// More neighbours appear in the middle of it.
		for _, r := range n.add(40) {
			r.additional = false
			n.announce(r, response(r.ptr(4500)))
		}
	})
	n.flood("10.0.66.66:5353", bogus, 5, 10*time.Second)
	if got := len(n.count(Found, "")); got != 100 {
		t.Errorf("%d of 100 found", got)
	}
	if got := len(n.count(Lost, "")); got != 0 {
		t.Errorf("%d lost", got)
	}
	names := 0
	for _, p := range n.sent {
		seen := map[string]bool{}
		for _, q := range p.Msg.Question {
			if !seen[q.Name] {
				seen[q.Name] = true
				names++
			}
		}
	}
	if limit := 10*unverifiedRate + unverifiedBurst + 10*verifiedRate; names > limit || len(n.sent) > 800 {
		t.Errorf("%d names asked for in %d packets", names, len(n.sent))
	}
	if n.drops[DropUnresolvedLimit] == 0 {
		t.Errorf("drops: %v", n.drops)
	}
	if len(n.b.links[1].hosts) > 400 || len(n.b.links[1].sources) > 400 || n.b.timers.len() > 1000 {
		t.Errorf("grown to %d hosts, %d sources, %d timers", len(n.b.links[1].hosts), len(n.b.links[1].sources), n.b.timers.len())
	}
}

// full returns a complete announcement of a made-up instance.
func full(k int) *dns.Msg {
	r := newNeighbour(20000 + k)
	r.ttl, r.ttlPTR = 4500, 4500
	return r.announcement()
}

// TestFloodComplete: instances that look perfect, from one address. The ones of
// everybody else stay.
func TestFloodComplete(t *testing.T) {
	n := newNetwork(t, 42, Config{MaxInstances: 300})
	n.add(150)
	n.start()
	n.run(5 * time.Second)
	n.flood("10.0.66.66:5353", full, 1, time.Second)
	if got := len(n.count(Lost, "")); got != 0 {
		t.Errorf("%d lost", got)
	}
	if n.drops[DropFull] == 0 {
		t.Errorf("drops: %v", n.drops)
	}
	// There is always room for somebody new: the flooder's share shrinks.
	for _, r := range n.add(50) {
		n.announce(r, r.announcement())
	}
	n.run(5 * time.Second)
	own := 0
	for _, i := range n.b.Instances() {
		for _, r := range n.neighbours {
			if r.name == i.Name {
				own++
			}
		}
	}
	if own != 200 {
		t.Errorf("%d of 200 there", own)
	}
	for _, e := range n.count(Lost, "") {
		if e.Reason != ReasonEvicted {
			t.Errorf("lost: %+v", e)
		}
	}
}

// TestFloodManySources: with as many addresses as names nobody has too large a
// share; what resolved stays, what did not gives way.
func TestFloodManySources(t *testing.T) {
	n := newNetwork(t, 43, Config{MaxInstances: 200})
	n.add(100)
	n.start()
	n.run(5 * time.Second)
	for k := range 5000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 66, byte(k >> 8), byte(k)}), 5353)
		n.receive(wire.Received{Msg: bogus(k), Link: 1, From: from, ToMulticast: true})
		if k%10 == 0 {
			n.run(10 * time.Millisecond)
		}
	}
	r := n.add(1)[0]
	n.announce(r, r.announcement())
	n.run(10 * time.Second)
	if len(n.count(Lost, "")) != 0 || len(n.count(Found, "")) != 101 {
		t.Errorf("%d found, %d lost", len(n.count(Found, "")), len(n.count(Lost, "")))
	}
}

func TestRememberedStay(t *testing.T) {
	remembered := map[string]bool{}
	n := newNetwork(t, 44, Config{MaxInstances: 100, Remembered: func(name string) bool { return remembered[name] }})
	for k, r := range n.add(90) {
		r.from = netipPort("10.0.0.250:5353") // a reflector: one source for all
		remembered[r.name] = k < 50
	}
	n.start()
	n.run(5 * time.Second)
	for k, r := range n.neighbours {
		remembered[r.name] = k < 80 // some became so after they were found
	}
	for k := range 2000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 66, byte(k % 5), 1}), 5353)
		n.receive(wire.Received{Msg: full(k), Link: 1, From: from, ToMulticast: true})
	}
	n.run(time.Second)
	for _, e := range n.count(Lost, "") {
		if remembered[e.Instance.Name] {
			t.Fatalf("evicted although remembered: %s", e.Instance.Name)
		}
	}
	if len(n.count(Lost, "")) == 0 {
		t.Error("nobody made room")
	}
	// A remembered newcomer always finds room while somebody is not remembered.
	for _, r := range n.add(20) {
		remembered[r.name] = true
		n.announce(r, r.announcement())
		if len(n.count(Found, r.name)) != 1 {
			t.Fatalf("no room for %s", r.name)
		}
	}
	r := n.add(1)[0]
	remembered[r.name] = true
	if drop := n.announce(r, r.announcement()); drop != DropFull {
		t.Errorf("with 100 of 100 remembered: %q", drop)
	}
}

// TestShortTTL: records that live for a second or two cannot make us ask without
// end.
func TestShortTTL(t *testing.T) {
	n := newNetwork(t, 45, Config{})
	for _, r := range n.add(300) {
		r.ttl, r.ttlPTR = 2, 2
	}
	n.start()
	n.run(30 * time.Second)
	if len(n.sent) > 1200 {
		t.Errorf("%d packets in 30 s", len(n.sent))
	}
	// Nor can they make us repeat the list of all others every second.
	n = newNetwork(t, 47, Config{})
	n.add(400)
	for _, r := range n.add(20) {
		r.ttlPTR = 2
		n.after(time.Duration(n.rng.Int64N(int64(2*time.Second))), func() { n.announce(r, r.announcement()) })
	}
	n.start()
	n.run(30 * time.Second)
	if got := len(n.browses(wire.IPv4)); got > 5+30/5 {
		t.Errorf("%d queries for the service in 30 s", got)
	}
}

// TestMemory measures what an instance takes.
func TestMemory(t *testing.T) {
	n := newNetwork(t, 46, Config{})
	n.start(LinkFamilies{Index: 1, Families: [2]bool{true, true}})
	const count = 2000
	heapSize := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heapSize()
	for k := range count {
		r := newNeighbour(k)
		r.addrs[1] = []netip.Addr{addr("fe80::1"), addr("2001:db8::1")}
		b, err := wire.Encode(r.announcement())
		if err != nil {
			t.Fatal(err)
		}
		m, drop := wire.Decode(b)
		if drop != "" {
			t.Fatal(drop)
		}
		if _, drop := n.b.Receive(n.now, wire.Received{Msg: m, Link: 1, From: r.from, ToMulticast: true}); drop != "" {
			t.Fatal(drop)
		}
	}
	per := (heapSize() - before) / count
	t.Logf("%d bytes per instance", per)
	if per > 10_000 || len(n.b.Instances()) != count {
		t.Errorf("%d bytes per instance", per)
	}
}

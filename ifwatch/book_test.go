package ifwatch

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	macA  = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB  = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
	gw    = gatewayKey{2, netip.MustParseAddr("192.0.2.1")}
	other = gatewayKey{2, netip.MustParseAddr("192.0.2.2")}
)

// desk is a book and the tables it is shown.
type desk struct {
	*book
	t       *testing.T
	now     time.Time
	carrier map[int]bool
	lapsed  bool
	routers []gatewayKey
	table   []neighbour
}

func newDesk(t *testing.T) *desk {
	return &desk{book: newBook(), t: t, now: epoch, carrier: map[int]bool{2: true}, routers: []gatewayKey{gw}}
}

// look shows the tables after a while and checks what is told about link 2.
func (d *desk) look(after time.Duration, want ...net.HardwareAddr) {
	d.t.Helper()
	d.now = d.now.Add(after)
	d.book.look(d.now, d.carrier, d.carrier, func(link int) bool { return d.lapsed && link == 2 }, d.routers, d.table)
	d.lapsed = false
	var got []net.HardwareAddr
	for _, g := range d.on(2) {
		got = append(got, g.MAC)
	}
	if !slices.EqualFunc(got, want, func(a, b net.HardwareAddr) bool { return a.String() == b.String() }) {
		d.t.Errorf("after %v: told %v, want %v", d.now.Sub(epoch), got, want)
	}
}

func (d *desk) has(k gatewayKey, mac net.HardwareAddr, confirmed time.Duration) {
	d.table = []neighbour{{gatewayKey: k, mac: mac, confirmed: confirmed}}
}

func TestBookAsksSeldom(t *testing.T) {
	d := newDesk(t)
	d.look(0, nil)
	asked := []time.Duration{}
	for at := d.now; at.Before(epoch.Add(4*time.Minute + time.Second)); {
		for range d.ask(at) {
			asked = append(asked, at.Sub(epoch))
		}
		if len(d.ask(at)) > 0 {
			t.Fatal("asked twice at once")
		}
		next := d.next()
		if !next.After(at) {
			t.Fatalf("next is %v at %v", next.Sub(epoch), at.Sub(epoch))
		}
		at = next
		d.look(at.Sub(d.now), nil)
	}
	s := time.Second
	want := []time.Duration{0, s, 2 * s, 3 * s, 4 * s, 64 * s, 124 * s, 184 * s}
	if !slices.Equal(asked, want) {
		t.Errorf("asked after %v, want %v", asked, want)
	}

	d.has(gw, macA, 0)
	d.look(time.Second, macA)
	if !d.next().IsZero() || len(d.ask(d.now.Add(time.Hour))) > 0 {
		t.Errorf("a resolved gateway is asked for at %v", d.next())
	}
	// A second router is asked for in quick succession though the first is old.
	d.routers = []gatewayKey{gw, other, gw}
	d.look(time.Hour, macA, nil)
	if got := d.ask(d.now); !slices.Equal(got, []gatewayKey{other}) || !d.next().Equal(d.now.Add(time.Second)) {
		t.Errorf("asked %v, next after %v", got, d.next().Sub(d.now))
	}
	// What is gone is not asked for.
	d.routers = nil
	d.look(time.Second)
	if !d.next().IsZero() {
		t.Error("a gateway without a route is looked at again")
	}
}

func TestBookRemembersARouterThatRestarts(t *testing.T) {
	d := newDesk(t)
	d.has(gw, macA, 0)
	d.look(0, macA)
	d.table = nil // for hours it was there; now the entry failed
	d.look(5*time.Hour, macA)
	if len(d.ask(d.now)) != 1 {
		t.Error("a router that no longer answers is not asked for")
	}
	d.look(9*time.Minute+59*time.Second, macA)
	if at := d.next(); at.After(d.now.Add(time.Second)) {
		t.Errorf("next look after %v, later than the address is to be forgotten", at.Sub(d.now))
	}
	d.look(time.Second, nil)

	d.has(gw, macA, 0)
	d.look(time.Minute, macA)
	d.table = nil
	d.look(time.Second, macA)
	d.has(gw, macB, 0) // another one answers
	d.look(time.Second, macB)

	// The link was down: what was remembered is void, and the route is new.
	d.table, d.lapsed = nil, true
	d.look(time.Hour, nil)
	d.ask(d.now)
	if !d.next().Equal(d.now.Add(time.Second)) {
		t.Error("after a lapse the router is not asked for in quick succession")
	}
	d.has(gw, macA, 0)
	d.look(time.Second, macA)
	d.table, d.carrier = nil, map[int]bool{}
	d.look(time.Second)
	d.carrier = map[int]bool{2: true}
	d.look(time.Second, nil)
}

func TestBookDoubtsWhatOutlivedTheCarrier(t *testing.T) {
	d := newDesk(t)
	d.has(gw, macA, 0)
	d.look(0, macA)
	d.carrier = map[int]bool{}
	d.look(time.Second) // down, and the kernel keeps the entry
	d.has(gw, macA, 10*time.Second)
	d.look(10 * time.Second)
	d.carrier = map[int]bool{2: true}
	d.has(gw, macA, 12*time.Second)
	d.look(2*time.Second, nil)
	if len(d.ask(d.now)) != 1 {
		t.Error("nothing is done to have the entry confirmed")
	}
	d.has(gw, macA, 13*time.Second)
	d.look(time.Second, nil)
	d.has(gw, macA, 10*time.Millisecond) // confirmed since
	d.look(time.Second, macA)
	d.has(gw, macA, time.Hour) // and it stays so
	d.look(time.Hour, macA)

	// An entry that went away is not the one that comes then, however old it says it is.
	d.carrier = map[int]bool{}
	d.look(time.Second)
	d.carrier, d.table = map[int]bool{2: true}, nil
	d.look(time.Second, nil)
	d.has(gw, macB, time.Minute)
	d.look(time.Second, macB)
	if len(d.doubtful) != 0 {
		t.Errorf("doubts are kept: %v", d.doubtful)
	}

	// A person's entry does not depend on the carrier.
	d.carrier = map[int]bool{}
	d.table = []neighbour{{gatewayKey: gw, mac: macA, permanent: true, confirmed: time.Hour}}
	d.look(time.Second)
	d.carrier = map[int]bool{2: true}
	d.look(time.Second, macA)
}

func TestNews(t *testing.T) {
	x := expected{gw: macA, other: nil}
	for _, tc := range []struct {
		what string
		n    neighbour
		want bool
	}{
		{"the same", neighbour{gatewayKey: gw, mac: macA}, false},
		{"another address", neighbour{gatewayKey: gw, mac: macB}, true},
		{"lost", neighbour{gatewayKey: gw}, true},
		{"resolved", neighbour{gatewayKey: other, mac: macB}, true},
		{"still not resolved", neighbour{gatewayKey: other}, false},
		{"the same address on another link", neighbour{gatewayKey: gatewayKey{3, gw.addr}, mac: macB}, false},
		{"somebody else", neighbour{gatewayKey: gatewayKey{2, netip.MustParseAddr("192.0.2.9")}, mac: macB}, false},
	} {
		if got := x.news(tc.n); got != tc.want {
			t.Errorf("%s: news = %v, want %v", tc.what, got, tc.want)
		}
	}
}

func TestLinkEqualSeesGateways(t *testing.T) {
	l := Link{Index: 2, GatewaysKnown: true, Gateways: []Gateway{{gw.addr, macA}}}
	for name, o := range map[string]Link{
		"not known":       {Index: 2},
		"none":            {Index: 2, GatewaysKnown: true},
		"not resolved":    {Index: 2, GatewaysKnown: true, Gateways: []Gateway{{gw.addr, nil}}},
		"another MAC":     {Index: 2, GatewaysKnown: true, Gateways: []Gateway{{gw.addr, macB}}},
		"another address": {Index: 2, GatewaysKnown: true, Gateways: []Gateway{{other.addr, macA}}},
	} {
		if l.Equal(o) || o.Equal(l) {
			t.Errorf("%s: equal to %+v", name, l)
		}
	}
	if !l.Equal(Link{Index: 2, GatewaysKnown: true, Gateways: []Gateway{{gw.addr, slices.Clone(macA)}}}) {
		t.Error("not equal to itself")
	}
	for g, want := range map[string]string{
		Gateway{Addr: gw.addr}.String():            "192.0.2.1",
		Gateway{Addr: gw.addr, MAC: macA}.String(): "192.0.2.1 (02:00:00:00:00:0a)",
	} {
		if g != want {
			t.Errorf("String = %q, want %q", g, want)
		}
	}
}

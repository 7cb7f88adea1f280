package responder

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

func Test8_1_ThreeProbesThenAnnounce(t *testing.T) {
	everySeed(t, func(t *testing.T, seed uint64) {
		b := newBed(t, seed)
		start := b.now
		b.links(oneLink(ourAddr)...)
		b.announce(announcementForTest())
		b.run(5 * time.Second)
		got := b.take()
		if len(got) != 5 {
			t.Fatalf("%d packets, want 3 probes and 2 announcements: %s", len(got), describe(got))
		}
		within(t, "first probe", got[0].at.Sub(start), 0, 250*time.Millisecond)
		for i, p := range got[:3] {
			if i > 0 {
				within(t, "probe", p.at.Sub(got[i-1].at), 250*time.Millisecond, 250*time.Millisecond)
			}
			m := p.Msg
			if m.Response || p.Unicast.IsValid() || len(m.Question) != 2 || len(m.Answer) != 0 {
				t.Fatalf("probe %s", describe(got[i:i+1]))
			}
			for k, name := range []string{host, instance} {
				if q := m.Question[k]; q.Name != name || q.Qtype != dns.TypeANY || q.Qclass != dns.ClassINET|wire.TopBit {
					t.Errorf("question %v", q)
				}
			}
			want := []string{"A 120 192.168.1.10", "SRV 120 box-host.local.:6447", "TXT 4500 txtvers=1,id=box"}
			if ns := shorts(m.Ns); !slices.Equal(ns, want) {
				t.Errorf("proposed %q, want %q", ns, want)
			}
		}
		within(t, "announcement after the last probe", got[3].at.Sub(got[2].at), 250*time.Millisecond, 250*time.Millisecond)
		within(t, "second announcement", got[4].at.Sub(got[3].at), time.Second, 1100*time.Millisecond)
		for _, p := range got[3:] {
			want := []string{recA, recPTR, recMeta, recSRV, recTXT}
			slices.Sort(want)
			if a := shorts(p.Msg.Answer); !slices.Equal(a, want) {
				t.Errorf("announced %q, want %q", a, want)
			}
			if e := shorts(p.Msg.Extra); !slices.Equal(e, []string{recHostNSEC, recInstNSEC}) {
				t.Errorf("additional %q", e)
			}
		}
		if len(b.conflicts) != 0 || b.r.Instance() != "box" || !b.r.Established() {
			t.Errorf("conflicts %q, instance %q, established %v", b.conflicts, b.r.Instance(), b.r.Established())
		}
	})
}

func Test8_1_NothingAnsweredWhileProbing(t *testing.T) {
	b := newBed(t, 1)
	b.links(oneLink(ourAddr)...)
	b.announce(announcementForTest())
	for range 9 {
		b.receive(querier, query(q{name: service, qtype: dns.TypePTR}, q{name: host, qtype: dns.TypeA, qu: true}))
		b.receive(legacyAddr, query(q{name: instance, qtype: dns.TypeSRV}))
		b.run(80 * time.Millisecond)
		for _, p := range b.take() {
			if p.Msg.Response && !b.r.Established() {
				t.Fatalf("answered while probing: %s", describe([]sent{p}))
			}
		}
	}
}

func Test8_1_ConflictWhileProbing(t *testing.T) {
	tests := []struct {
		name             string
		answer           string
		instance, target string
	}{
		{"instance by SRV", instance + " 120 IN SRV 0 0 1 other.local.", "box (2)", host},
		{"instance by TXT", instance + ` 4500 IN TXT "id=other"`, "box (2)", host},
		{"instance by another type", instance + ` 4500 IN HINFO a b`, "box (2)", host},
		{"instance in capitals", strings.ToUpper(instance) + " 120 IN SRV 0 0 1 other.local.", "box (2)", host},
		{"host by A", host + " 120 IN A 192.168.1.99", "box", "box-host-2.local."},
		{"host by AAAA", host + " 120 IN AAAA fe80::99", "box", "box-host-2.local."},
		{"same SRV", instance + " 120 IN SRV 0 0 6447 " + host, "box", host},
		{"same A", host + " 120 IN A 192.168.1.10", "box", host},
		{"goodbye", host + " 0 IN A 192.168.1.99", "box", host},
		{"denial", host + " 120 IN NSEC " + host + " AAAA", "box", host},
		{"another name", "x" + host + " 120 IN A 192.168.1.99", "box", host},
		{"another class", host + " 120 CH A 192.168.1.99", "box", host},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			everySeed(t, func(t *testing.T, seed uint64) {
				for _, delay := range []time.Duration{300 * time.Millisecond, 700 * time.Millisecond} {
					b := newBed(t, seed)
					b.links(oneLink(ourAddr)...)
					b.announce(announcementForTest())
					b.run(delay)
					b.take()
					if drop := b.receive(otherAddr, answers(t, tt.answer)); drop != "" {
						t.Fatal(drop)
					}
					renamed := tt.instance != "box" || tt.target != host
					if (len(b.conflicts) == 1) != renamed {
						t.Fatalf("conflicts %q", b.conflicts)
					}
					b.run(3 * time.Second)
					if b.r.Instance() != tt.instance || !b.r.Established() {
						t.Fatalf("instance %q, established %v, want %q", b.r.Instance(), b.r.Established(), tt.instance)
					}
					if (len(b.renames) == 1 && b.renames[0] == tt.instance) != (tt.instance != "box") {
						t.Fatalf("renames %q", b.renames)
					}
					got := b.take()
					probes := 0
					for _, p := range got {
						if !p.Msg.Response {
							probes++
						}
						for _, rr := range p.Msg.Answer {
							if srv, ok := rr.(*dns.SRV); ok && (srv.Target != tt.target || srv.Hdr.Ttl == 0) {
								t.Errorf("SRV %v", srv)
							}
							if rr.Header().Ttl == 0 {
								t.Errorf("goodbye for a name that was never ours: %v", rr)
							}
						}
					}
					if renamed && probes != 3 {
						t.Errorf("%d probes for the new name, want 3", probes)
					}
				}
			})
		})
	}
}

// What comes before the first probe is nobody's answer to it: late news, which
// the probes put to the test.
func Test8_1_NoConflictBeforeTheFirstProbe(t *testing.T) {
	news := answers(t, instance+" 120 IN SRV 0 0 1 other.local.", host+" 120 IN A 192.168.1.99")
	everySeed(t, func(t *testing.T, seed uint64) {
		b := newBed(t, seed)
		b.links(oneLink(ourAddr)...)
		b.announce(announcementForTest())
		b.receive(otherAddr, news)
		b.run(5 * time.Second)
		if len(b.conflicts) != 0 || !b.r.Established() || b.r.Instance() != "box" {
			t.Fatalf("at the start: conflicts %q, established %v as %q", b.conflicts, b.r.Established(), b.r.Instance())
		}
		b.take()
		// A contradiction that is told twice, as announcements are, is one.
		b.receive(otherAddr, news)
		b.receive(otherAddr, news)
		if b.r.Instance() != "box" || len(b.conflicts) != 2 {
			t.Fatalf("renamed to %q without a probe, conflicts %q", b.r.Instance(), b.conflicts)
		}
		b.run(300 * time.Millisecond)
		if got := b.take(); len(got) == 0 || got[0].Msg.Response {
			t.Fatalf("want a probe: %s", describe(got))
		}
		b.receive(otherAddr, news)
		if b.r.Instance() != "box (2)" {
			t.Fatalf("still %q after an answer to the probe", b.r.Instance())
		}
	})
}

func Test8_1_UnicastConflict(t *testing.T) {
	b := newBed(t, 1)
	b.links(oneLink(ourAddr)...)
	b.announce(announcementForTest())
	b.run(300 * time.Millisecond)
	b.receiveAs(wire.Received{Msg: answers(t, instance+" 120 IN SRV 0 0 1 other.local."), Link: 1, From: otherAddr})
	if b.r.Instance() != "box (2)" {
		t.Error("a unicast answer to a probe must count")
	}
}

func Test8_1_ManyConflictsSlowDown(t *testing.T) {
	b := newBed(t, 1)
	b.links(oneLink(ourAddr)...)
	b.announce(announcementForTest())
	start := b.now
	probes := 0
	for i := range 40 {
		// Answer the first probe of each attempt.
		for range 100 {
			next := b.r.Next()
			b.run(next.Sub(b.now))
			if got := b.take(); len(got) > 0 && !got[0].Msg.Response {
				break
			}
		}
		probes++
		if i == 15 {
			within(t, "16th attempt", b.now.Sub(start), 5*time.Second, 10*time.Second)
		}
		b.receive(otherAddr, answers(t, wire.InstanceName(b.r.Instance(), "_liqo._tcp", "local")+" 120 IN SRV 0 0 1 other.local."))
		if len(b.conflicts) != i+1 {
			t.Fatalf("%d conflicts, want %d", len(b.conflicts), i+1)
		}
	}
	// 25 of the attempts waited for five seconds.
	if d := b.now.Sub(start); d < 120*time.Second {
		t.Errorf("%d attempts in %v", probes, d)
	}
	b.run(20 * time.Second)
	if !b.r.Established() || b.r.Instance() != "box (41)" {
		t.Errorf("established %v as %q", b.r.Established(), b.r.Instance())
	}
}

func Test8_2_Tiebreak(t *testing.T) {
	tests := []struct {
		name  string
		ns    []string
		loses bool
	}{
		// Ours: A 192.168.1.10 for the host; TXT and SRV for the instance.
		{"later address wins", []string{host + " 120 IN A 192.168.1.11"}, true},
		{"earlier address loses", []string{host + " 120 IN A 192.168.1.9"}, false},
		{"address beyond 127 is compared unsigned", []string{host + " 120 IN A 200.0.0.1"}, true},
		{"same address", []string{host + " 120 IN A 192.168.1.10"}, false},
		{"same and one more", []string{host + " 120 IN A 192.168.1.10", host + " 120 IN AAAA fe80::1"}, true},
		{"higher type wins", []string{host + " 120 IN AAAA ::1"}, true},
		{"order of records does not matter", []string{host + " 120 IN A 192.168.1.11", host + " 120 IN A 192.168.1.9"}, false},
		{"another name", []string{"x." + host + " 120 IN A 200.0.0.1"}, false},
		{"cache-flush bit does not count", []string{host + " 120 CLASS32769 A 192.168.1.9"}, false},
		{"higher class wins", []string{host + " 120 CH A 192.168.1.9"}, true},
		{"TXT before SRV", []string{instance + ` 120 IN TXT "a"`, instance + " 120 IN SRV 0 0 9999 z.local."}, false},
		{"SRV decides after the same TXT", []string{instance + ` 120 IN TXT "txtvers=1" "id=box"`, instance + " 120 IN SRV 0 0 9999 z.local."}, true},
		{"no TXT is a higher type first", []string{instance + " 120 IN SRV 0 0 1 a.local."}, true},
		{"all the same", []string{instance + ` 120 IN TXT "txtvers=1" "id=box"`, instance + " 120 IN SRV 0 0 6447 " + host}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			everySeed(t, func(t *testing.T, seed uint64) {
				b := newBed(t, seed)
				b.links(oneLink(ourAddr)...)
				b.announce(announcementForTest())
				b.run(400 * time.Millisecond)
				before := len(b.take())
				m := query(q{name: host, qtype: dns.TypeANY, qu: true}, q{name: instance, qtype: dns.TypeANY, qu: true})
				for _, s := range tt.ns {
					x := rr(t, s)
					m.Ns = append(m.Ns, x)
				}
				lost := b.now
				b.receive(otherAddr, m)
				b.run(600 * time.Millisecond)
				b.receive(otherAddr, m) // a second probe of the same does not prolong the wait
				b.run(5 * time.Second)
				if !b.r.Established() || b.r.Instance() != "box" || len(b.conflicts) != 0 {
					t.Fatalf("instance %q, established %v, conflicts %q", b.r.Instance(), b.r.Established(), b.conflicts)
				}
				var probes []time.Time
				for _, p := range b.take() {
					if !p.Msg.Response {
						probes = append(probes, p.at)
					}
				}
				if !tt.loses {
					if len(probes) != 3-before {
						t.Errorf("%d probes after %d, want 3 in all", len(probes), before)
					}
					return
				}
				if len(probes) != 3 {
					t.Fatalf("%d probes after a lost tiebreak, want 3", len(probes))
				}
				within(t, "next probe", probes[0].Sub(lost), time.Second, time.Second)
			})
		})
	}
}

// Simulates several responders on one link.
type lan struct {
	beds  []*bed
	addrs []netip.AddrPort
}

func (l *lan) add(t *testing.T, seed uint64, a *Announcement, addr string) *bed {
	b := newBed(t, seed)
	b.loopback = false
	p := netip.MustParsePrefix(addr)
	b.links(oneLink(p)...)
	b.announce(a)
	l.beds = append(l.beds, b)
	l.addrs = append(l.addrs, netip.AddrPortFrom(p.Addr(), wire.Port))
	return b
}

// run lets d pass on all of them in steps of a millisecond, the time a packet
// travels.
func (l *lan) run(d time.Duration) {
	for range d / time.Millisecond {
		type packet struct {
			from int
			sent
		}
		var air []packet
		for i, b := range l.beds {
			b.run(time.Millisecond)
			for _, p := range b.take() {
				air = append(air, packet{i, p})
			}
		}
		for _, p := range air {
			for i, b := range l.beds {
				if !p.Unicast.IsValid() || p.Unicast == l.addrs[i] {
					b.receiveAs(wire.Received{Msg: p.Msg, Link: 1, From: l.addrs[p.from], ToMulticast: !p.Unicast.IsValid(), Self: i == p.from})
				}
			}
		}
	}
}

// A cloned SD card: the same names, other addresses and another key.
func Test9_ClonedBoxes(t *testing.T) {
	for _, lag := range []time.Duration{0, 100 * time.Millisecond, 600 * time.Millisecond, 5 * time.Second} {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			everySeed(t, func(t *testing.T, seed uint64) {
				if seed > 5 {
					return
				}
				l := new(lan)
				var names []string
				for i := range 3 {
					a := announcementForTest()
					a.TXT = append(a.TXT, [2]string{"fp", fmt.Sprint(i)})
					l.add(t, seed*10+uint64(i), a, fmt.Sprintf("192.168.1.%d/24", 10+i))
					l.run(lag)
				}
				l.run(12 * time.Second)
				hosts := map[string]bool{}
				for _, b := range l.beds {
					if !b.r.Established() {
						t.Fatalf("%q not established", b.r.Instance())
					}
					names = append(names, b.r.Instance())
					hosts[b.r.convs[0].zone.names[hostClaim]] = true
					if got := b.r.wanted.TXT[1]; got != [2]string{"id", "box"} {
						t.Errorf("id changed to %q", got)
					}
				}
				slices.Sort(names)
				if !slices.Equal(names, []string{"box", "box (2)", "box (3)"}) || len(hosts) != 3 {
					t.Errorf("names %q, hosts %v", names, hosts)
				}
			})
		})
	}
}

func Test9_ConflictAfterEstablishment(t *testing.T) {
	b := established(t, 1)
	b.receive(otherAddr, answers(t, instance+` 4500 IN TXT "id=other"`))
	if !slices.Equal(b.conflicts, []string{instance}) || b.r.Established() {
		t.Fatalf("conflicts %q, established %v", b.conflicts, b.r.Established())
	}
	if b.r.Instance() != "box" {
		t.Fatal("renamed before it probed")
	}
	// Nobody answers the probes: the name stays.
	start := b.now
	b.run(3 * time.Second)
	got := b.take()
	if len(got) != 5 || got[0].Msg.Response || len(got[0].Msg.Question) != 1 || got[0].Msg.Question[0].Name != instance {
		t.Fatalf("want probes for the instance only, then announcements: %s", describe(got))
	}
	within(t, "probe", got[0].at.Sub(start), 0, 250*time.Millisecond)
	if !b.r.Established() || b.r.Instance() != "box" {
		t.Error("name lost without a reason")
	}

	// Now somebody defends it.
	b.receive(otherAddr, answers(t, instance+` 4500 IN TXT "id=other"`))
	b.run(260 * time.Millisecond)
	b.take()
	b.receive(otherAddr, answers(t, instance+` 4500 IN TXT "id=other"`))
	if b.r.Instance() != "box (2)" {
		t.Fatalf("still %q", b.r.Instance())
	}
	b.run(0)
	bye := b.take()
	if len(bye) != 1 || !slices.Equal(shorts(bye[0].Msg.Answer), []string{
		"PTR 0 " + service + ">" + instance, "SRV 0 " + host + ":6447!", "TXT 0 txtvers=1,id=box!"}) {
		t.Fatalf("want goodbyes for the old name: %s", describe(bye))
	}
	b.run(3 * time.Second)
	if got := b.take(); len(got) != 5 || !b.r.Established() {
		t.Fatalf("want 3 probes and 2 announcements: %s", describe(got))
	}
}

func Test9_NoConflict(t *testing.T) {
	for _, s := range []string{
		host + " 120 IN A 192.168.1.10",
		instance + " 120 IN SRV 0 0 6447 " + host,
		strings.ToUpper(instance) + " 120 IN SRV 0 0 6447 " + strings.ToUpper(host),
		instance + ` 4500 IN TXT "txtvers=1" "id=box"`,
		host + " 0 IN A 192.168.1.99",
		host + " 120 IN HINFO a b",
		service + " 4500 IN PTR other." + service,
		instance + " 4500 IN NSEC " + instance + " A",
	} {
		b := established(t, 1)
		b.receive(otherAddr, answers(t, s))
		if len(b.conflicts) != 0 || !b.r.Established() {
			t.Errorf("%s: conflicts %q", s, b.conflicts)
		}
	}
}

// Another responder on this host may know more addresses of it than we announce.
func Test9_HostNameOfAnotherResponderHere(t *testing.T) {
	b := established(t, 1)
	in := wire.Received{Msg: answers(t, host+" 120 IN AAAA fe80::77"), Link: 1, From: netip.AddrPortFrom(ourAddr.Addr(), wire.Port), ToMulticast: true, Self: true}
	b.receiveAs(in)
	if len(b.conflicts) != 0 {
		t.Error("conflict with ourselves")
	}
	in.Msg = answers(t, instance+" 120 IN SRV 0 0 1 other.local.")
	b.receiveAs(in)
	if len(b.conflicts) != 1 {
		t.Error("another service of the same name on this host is a conflict")
	}
}

// Two links that are one LAN: what we say on one is heard on the other.
func Test9_OwnRecordsOfAnotherLink(t *testing.T) {
	second := netip.MustParsePrefix("192.168.1.11/24")
	b := newBed(t, 1)
	b.loopback = false
	b.links(LinkAddrs{Index: 1, Addrs: []netip.Prefix{ourAddr}, Families: [2]bool{true, false}},
		LinkAddrs{Index: 2, Addrs: []netip.Prefix{second}, Families: [2]bool{true, false}})
	b.announce(announcementForTest())
	for range 3000 {
		b.run(time.Millisecond)
		for _, p := range b.take() {
			from := netip.AddrPortFrom(ourAddr.Addr(), wire.Port)
			if p.Link == 2 {
				from = netip.AddrPortFrom(second.Addr(), wire.Port)
			}
			for link := 1; link <= 2; link++ {
				b.receiveAs(wire.Received{Msg: p.Msg, Link: link, From: from, ToMulticast: true, Self: link == p.Link})
			}
		}
	}
	if len(b.conflicts) != 0 || !b.r.Established() || b.r.Instance() != "box" {
		t.Errorf("conflicts %q, established %v", b.conflicts, b.r.Established())
	}
	for _, want := range []struct {
		link int
		a    string
	}{{1, recA}, {2, "A 120 192.168.1.11!"}} {
		b.run(2 * time.Second)
		b.take()
		b.receiveAs(wire.Received{Msg: query(q{name: host, qtype: dns.TypeA}), Link: want.link, From: querier, ToMulticast: true})
		b.run(200 * time.Millisecond)
		if got := b.expect([]string{want.a}, nil); got.Link != want.link {
			t.Errorf("answered on link %d", got.Link)
		}
	}
}

// Our packets from before a change come back after it.
func Test9_OwnLatePackets(t *testing.T) {
	b := established(t, 1)
	b.loopback = false
	a := announcementForTest()
	a.TXT[1][1] = "changed"
	b.announce(a)
	for _, s := range []string{instance + ` 4500 IN TXT "txtvers=1" "id=box"`} {
		b.receiveAs(wire.Received{Msg: answers(t, s), Link: 1, From: netip.AddrPortFrom(ourAddr.Addr(), wire.Port), ToMulticast: true, Self: true})
	}
	if len(b.conflicts) != 0 {
		t.Errorf("conflicts %q", b.conflicts)
	}
}

func TestLabels(t *testing.T) {
	long := strings.Repeat("a", 63)
	wide := strings.Repeat("\u00e9", 31) + "x" // 63 bytes
	tests := []struct {
		base, instance, host string
		n                    int
	}{
		{"box", "box", "box", 0},
		{"box", "box (2)", "box-2", 1},
		{"box", "box (100)", "box-100", 99},
		{long, long[:59] + " (2)", long[:61] + "-2", 1},
		{wide, wide[:58] + " (2)", wide[:60] + "-2", 1},
	}
	for _, tt := range tests {
		r := New(Config{})
		r.wanted = &Announcement{Instance: tt.base, Host: tt.base}
		r.renames = [numClaims]int{tt.n, tt.n}
		if got := r.label(instanceClaim); got != tt.instance || len(got) > 63 {
			t.Errorf("instance %q, want %q", got, tt.instance)
		}
		if got := r.label(hostClaim); got != tt.host || len(got) > 63 {
			t.Errorf("host %q, want %q", got, tt.host)
		}
	}
}

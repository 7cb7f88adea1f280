package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

const soa = "example.com. 300 IN SOA ns.example.com. root.example.com. 1 60 60 3600 120"

func TestLookup(t *testing.T) {
	long := strings.Repeat("x.", 16)
	for _, c := range []struct {
		name    string
		handle  handler
		asked   string
		qtype   uint16
		outcome Outcome
		records []string
		end     string
		ttl     time.Duration
		message string
	}{
		{"records, their least TTL, and nothing else",
			says(t, 0, "Example.COM. 60 PTR a.example.com.", "example.com. 50 PTR b.example.com.", "example.com. 5 A 192.0.2.1",
				"example.org. 7 PTR evil.example.com.", "example.com. 7 CH PTR evil.example.com."),
			"EXAMPLE.com", dns.TypePTR, Found,
			[]string{"example.com. 60 IN PTR a.example.com.", "example.com. 50 IN PTR b.example.com."}, "example.com.", 50 * time.Second, ""},
		{"no such name, for as long as the SOA's minimum", says(t, dns.RcodeNameError, soa),
			"x.example.com", dns.TypeA, NoName, nil, "x.example.com.", 2 * time.Minute, ""},
		{"no such records", says(t, 0, strings.Replace(soa, "300", "30", 1)),
			"example.com.", dns.TypeA, NoData, nil, "example.com.", 30 * time.Second, ""},
		{"no such records, without SOA", says(t, 0), "example.com.", dns.TypeA, NoData, nil, "example.com.", 0, ""},
		{"no such records, as the zone's own server says without SOA", func(q *dns.Msg, _ string) [][]byte {
			m := reply(t, q, 0)
			m.RecursionAvailable, m.Authoritative = false, true
			return [][]byte{pack(t, m)}
		}, "example.com.", dns.TypeA, NoData, nil, "example.com.", 0, ""},
		{"an SOA of somebody else", says(t, dns.RcodeNameError, strings.Replace(soa, "example.com. 300", "example.org. 300", 1)),
			"example.com.", dns.TypeA, NoName, nil, "example.com.", 0, ""},
		{"a TTL that is negative", says(t, 0, "example.com. 4294967295 A 192.0.2.1"),
			"example.com", dns.TypeA, Found, []string{"example.com. 0 IN A 192.0.2.1"}, "example.com.", 0, ""},
		{"aliases in one answer, in any order",
			says(t, 0, "c.example.org. 30 A 192.0.2.1", "b.example.com. 20 CNAME C.example.org.", "a.example.com. 10 CNAME b.example.com."),
			"a.example.com", dns.TypeA, Found, []string{"c.example.org. 30 IN A 192.0.2.1"}, "c.example.org.", 10 * time.Second, ""},
		{"aliases over several answers",
			zone(t, "a.example.com. 40 CNAME b.example.com.", "b.example.com. 20 CNAME c.example.org.", "c.example.org. 30 A 192.0.2.1"),
			"a.example.com", dns.TypeA, Found, []string{"c.example.org. 30 IN A 192.0.2.1"}, "c.example.org.", 20 * time.Second, ""},
		{"an alias of nothing", says(t, dns.RcodeNameError, "a.example.com. 10 CNAME b.example.com.", soa),
			"a.example.com", dns.TypeA, NoName, nil, "b.example.com.", 10 * time.Second, ""},
		{"an alias of a name without such records", says(t, 0, "a.example.com. 1000 CNAME b.example.com.", soa),
			"a.example.com", dns.TypeA, NoData, nil, "b.example.com.", 2 * time.Minute, ""},
		{"the alias itself", says(t, 0, "a.example.com. 10 CNAME b.example.com."),
			"a.example.com", dns.TypeCNAME, Found, []string{"a.example.com. 10 IN CNAME b.example.com."}, "a.example.com.", 10 * time.Second, ""},
		{"a circle in one answer", says(t, 0, "a.example.com. 10 CNAME b.example.com.", "b.example.com. 10 CNAME a.example.com."),
			"a.example.com", dns.TypeA, BadAnswer, nil, "a.example.com.", 0, "lead in a circle"},
		{"a circle that the server calls its failure", says(t, dns.RcodeServerFailure, "a.example.com. 10 CNAME b.example.com.", "b.example.com. 10 CNAME a.example.com."),
			"a.example.com", dns.TypeA, BadAnswer, nil, "a.example.com.", 0, "lead in a circle"},
		{"a circle of one", says(t, 0, "a.example.com. 10 CNAME a.example.com."),
			"a.example.com", dns.TypeA, BadAnswer, nil, "a.example.com.", 0, "lead in a circle"},
		{"a circle over several answers", zone(t, "a.example.com. 10 CNAME b.example.com.", "b.example.com. 10 CNAME a.example.com."),
			"a.example.com", dns.TypeA, BadAnswer, nil, "b.example.com.", 0, "lead in a circle"},
		{"aliases without end", endless(t), "a.example.com", dns.TypeA, BadAnswer, nil, "xxxxxxxxxxxxxxxxa.example.com.", 0,
			"more than 16 aliases"},
		{"two aliases of one name", says(t, 0, "a.example.com. 10 CNAME b.example.com.", "a.example.com. 10 CNAME c.example.com."),
			"a.example.com", dns.TypeA, BadAnswer, nil, "a.example.com.", 0, "an alias (CNAME) of both b.example.com. and c.example.com."},
		{"a DNAME without its CNAME", says(t, 0, "example.com. 10 DNAME example.org.", "a.b.example.org. 20 A 192.0.2.1"),
			"A.b.example.com", dns.TypeA, Found, []string{"a.b.example.org. 20 IN A 192.0.2.1"}, "a.b.example.org.", 10 * time.Second, ""},
		{"a DNAME to the root", says(t, 0, "example.com. 10 DNAME .", "a. 20 A 192.0.2.1"),
			"a.example.com", dns.TypeA, Found, []string{"a. 20 IN A 192.0.2.1"}, "a.", 10 * time.Second, ""},
		{"a DNAME is not about its own name", says(t, 0, "example.com. 10 DNAME example.org."),
			"example.com", dns.TypeA, NoData, nil, "example.com.", 0, ""},
		{"a DNAME that makes a name too long", says(t, 0, "example.com. 10 DNAME "+strings.Repeat(strings.Repeat("y", 60)+".", 4)),
			long + "example.com", dns.TypeA, BadAnswer, nil, long + "example.com.", 0, "not a domain name"},
		{"a name that is and is not", says(t, dns.RcodeNameError, "example.com. 10 A 192.0.2.1"),
			"example.com", dns.TypeA, BadAnswer, nil, "example.com.", 0, "says that there is no such name"},
		{"a server in trouble", says(t, dns.RcodeServerFailure), "example.com", dns.TypeA, ServerFailure, nil, "example.com.", 0, "it says SERVFAIL"},
		{"a server that refuses", says(t, dns.RcodeRefused), "example.com", dns.TypePTR, Refused, nil, "example.com.", 0, "it says REFUSED"},
		{"another one", says(t, dns.RcodeNotAuth), "example.com", dns.TypeA, Refused, nil, "example.com.", 0, "NOTAUTH"},
		{"a code that nobody knows", says(t, 14), "example.com", dns.TypeA, ServerFailure, nil, "example.com.", 0, "it says code 14"},
		{"a name with escapes", says(t, 0, `a\.b\007.example.com. 60 PTR x.example.com.`), `\097\.b\007.example.com`, dns.TypePTR, Found,
			[]string{`a\.b\007.example.com. 60 IN PTR x.example.com.`}, `a\.b\007.example.com.`, time.Minute, ""},
		{"not a name", silent, "a..b", dns.TypeA, BadAnswer, nil, "a..b", 0, "not a domain name"},
		{"no name", silent, "", dns.TypeA, BadAnswer, nil, "", 0, "empty"},
		{"a name too long", silent, strings.Repeat("abcdefg.", 40), dns.TypeA, BadAnswer, nil, strings.Repeat("abcdefg.", 40), 0, "not a domain name"},
		{"not a type of records", silent, "example.com", dns.TypeANY, BadAnswer, nil, "example.com", 0, "ANY is not a type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := asking(t, serve(t, "127.0.0.1", 0, c.handle))
			a := look(t, r, c.asked, c.qtype, c.outcome)
			if diff := cmp.Diff(c.records, texts(a.Records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if a.Name != c.end || a.TTL != c.ttl {
				t.Errorf("name %q and TTL %v, want %q and %v", a.Name, a.TTL, c.end, c.ttl)
			}
			if c.message != "" && !strings.Contains(a.Err.Error(), c.message) {
				t.Errorf("error %q does not say %q", a.Err, c.message)
			}
		})
	}
}

// endless answers every name with an alias of a longer one.
func endless(t testing.TB) handler {
	return func(q *dns.Msg, _ string) [][]byte {
		name := q.Question[0].Name
		return [][]byte{pack(t, reply(t, q, 0, fmt.Sprintf("%s 10 CNAME x%s", name, name)))}
	}
}

func TestWhatIsAsked(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, says(t, 0))
	r := asking(t, s)
	for range 20 {
		look(t, r, "Box.Example.com", dns.TypeA, NoData)
	}
	ids := map[uint16]bool{}
	for _, q := range s.questions() {
		ids[q.Id] = true
		opt := q.IsEdns0()
		if !q.RecursionDesired || !q.AuthenticatedData || q.CheckingDisabled || opt == nil || opt.UDPSize() != 1232 || opt.Do() || len(q.Question) != 1 ||
			q.Question[0] != (dns.Question{Name: "box.example.com.", Qtype: dns.TypeA, Qclass: dns.ClassINET}) {
			t.Fatalf("asked:\n%s", q)
		}
	}
	if len(ids) < 15 {
		t.Errorf("20 questions had only %d IDs", len(ids))
	}
	if r.Queries() != 20 {
		t.Errorf("%d questions counted, want 20", r.Queries())
	}
}

func TestAuthenticatedOnlyIfAllIs(t *testing.T) {
	for _, c := range []struct {
		first, second, want bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		records := zone(t, "a.example.com. 10 CNAME b.example.com.", "b.example.com. 10 A 192.0.2.1")
		r := asking(t, serve(t, "127.0.0.1", 0, func(q *dns.Msg, over string) [][]byte {
			b := records(q, over)[0]
			if q.Question[0].Name == "a.example.com." && c.first || q.Question[0].Name == "b.example.com." && c.second {
				b[3] |= 1 << 5
			}
			return [][]byte{b}
		}))
		if a := look(t, r, "a.example.com", dns.TypeA, Found); a.Authenticated != c.want {
			t.Errorf("%+v: authenticated %v", c, a.Authenticated)
		}
	}
}

func TestFailover(t *testing.T) {
	good := says(t, 0, "example.com. 60 A 192.0.2.1")
	for _, c := range []struct {
		name  string
		first handler
	}{
		{"in trouble", says(t, dns.RcodeServerFailure)},
		{"refuses", says(t, dns.RcodeRefused)},
		{"does not know questions", says(t, dns.RcodeNotImplemented)},
		{"refers elsewhere", func(q *dns.Msg, _ string) [][]byte {
			m := reply(t, q, 0, "com. 60 NS a.gtld-servers.net.")
			m.RecursionAvailable = false
			return [][]byte{pack(t, m)}
		}},
		{"does not resolve", func(q *dns.Msg, _ string) [][]byte {
			m := reply(t, q, 0)
			m.RecursionAvailable = false
			return [][]byte{pack(t, m)}
		}},
		{"answers nonsense", says(t, dns.RcodeNameError, "example.com. 60 A 192.0.2.6")},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers := several(t, c.first, good)
			r := system(t, "", servers)
			for range 3 {
				a := look(t, r, "example.com", dns.TypeA, Found)
				if a.Server != servers[1].addr.String() {
					t.Errorf("answered by %s", a.Server)
				}
			}
			first := servers[0].asked.Load()
			if first == 0 || servers[1].asked.Load() != 3 {
				t.Errorf("asked %d and %d times", first, servers[1].asked.Load())
			}
			// The one that knew is asked first for a while: nothing more came to the other.
			look(t, r, "example.com", dns.TypeA, Found)
			if servers[0].asked.Load() != first {
				t.Error("the server that does not know is still asked first")
			}
		})
	}
}

func TestFailoverFromSilenceAndAbsence(t *testing.T) {
	servers := several(t, silent, says(t, 0, "example.com. 60 A 192.0.2.1"))
	untilQuick(t, func(d time.Duration) bool {
		a, quick := lookQuickly(t, system(t, "", servers, timeout(d)), "example.com", dns.TypeA, Found)
		if quick && a.Server != servers[1].addr.String() {
			t.Errorf("answered by %s", a.Server)
		}
		return quick
	})
	// Nobody listens at the address before.
	gone := &server{addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), servers[0].addr.Port())}
	r := system(t, "", []*server{gone, servers[1]})
	look(t, r, "example.com", dns.TypeA, Found)
}

func TestNothingOfItCountsAsAbsence(t *testing.T) {
	final := several(t, says(t, dns.RcodeNameError, soa), says(t, 0, "example.com. 60 A 192.0.2.1"))
	look(t, system(t, "", final), "example.com", dns.TypeA, NoName)
	if final[1].asked.Load() != 0 {
		t.Error("NXDOMAIN is final, yet another server was asked")
	}
	for _, c := range []struct {
		name     string
		handlers []handler
		want     Outcome
		server   int // that is said to have answered; -1 none
		message  string
	}{
		{"all silent", []handler{silent, silent}, Timeout, -1, "no answer within %v"},
		{"one in trouble", []handler{silent, says(t, dns.RcodeServerFailure)}, ServerFailure, 1, "its own log says why"},
		{"one refuses", []handler{says(t, dns.RcodeRefused), silent}, Refused, 0, "let that server answer this box"},
	} {
		t.Run(c.name, func(t *testing.T) {
			untilQuick(t, func(d time.Duration) bool {
				servers := several(t, c.handlers...)
				r := system(t, "attempts:2", servers, timeout(d))
				a, quick := lookQuickly(t, r, "example.com", dns.TypeA, c.want)
				if !quick || c.server >= 0 && servers[c.server].asked.Load() > 1 {
					return false // what it said came too late
				}
				want := ""
				if c.server >= 0 {
					want = servers[c.server].addr.String()
				}
				if message := strings.ReplaceAll(c.message, "%v", d.String()); a.Server != want || !strings.Contains(a.Err.Error(), message) {
					t.Errorf("answered by %q: %v", a.Server, a.Err)
				}
				for _, s := range servers {
					if !strings.Contains(a.Err.Error(), s.addr.String()) {
						t.Errorf("%v does not name %s", a.Err, s.addr)
					}
				}
				for i, s := range servers {
					if i == c.server {
						continue // it had said what it had to say
					}
					eventually(t, "a silent server is asked twice", func() bool { return s.asked.Load() >= 2 })
					if n := s.asked.Load(); n != 2 {
						t.Errorf("server %d was asked %d times", i, n)
					}
				}
				return true
			})
		})
	}
	t.Run("none there", func(t *testing.T) {
		r := open(t, Config{Server: "127.0.0.77:9", Timeout: long})
		a := look(t, r, "example.com", dns.TypeA, Unreachable)
		if a.Server != "" || !strings.Contains(a.Err.Error(), "127.0.0.77:9: no DNS server listens there") {
			t.Errorf("answered by %q: %v", a.Server, a.Err)
		}
	})
}

func TestCancelEndsALookup(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, silent)
	r := asking(t, s)
	why := errors.New("the domain was removed")
	ctx, cancel := context.WithCancelCause(t.Context())
	answers := make(chan Answer, 1)
	go func() { answers <- r.Lookup(ctx, "example.com", dns.TypeA) }()
	eventually(t, "the server is asked", func() bool { return s.asked.Load() == 1 })
	cancel(why)
	if a := <-answers; a.Outcome != Timeout || !errors.Is(a.Err, why) {
		t.Errorf("%s, %v", a.Outcome, a.Err)
	}
	go func() { answers <- r.Lookup(t.Context(), "example.com", dns.TypeA) }()
	eventually(t, "the server is asked", func() bool { return s.asked.Load() == 2 })
	r.Close()
	if a := <-answers; a.Outcome != Unreachable || !errors.Is(a.Err, wire.ErrClosed) {
		t.Errorf("%s, %v", a.Outcome, a.Err)
	}
	if a := r.Lookup(t.Context(), "example.com", dns.TypeA); a.Outcome != Unreachable {
		t.Errorf("a closed resolver says %s, %v", a.Outcome, a.Err)
	}
}

func TestRotate(t *testing.T) {
	known := says(t, 0, "example.com. 60 A 192.0.2.1")
	servers := several(t, known, known, known)
	r := system(t, "rotate", servers)
	for range 9 {
		look(t, r, "example.com", dns.TypeA, Found)
	}
	for i, s := range servers {
		if s.asked.Load() != 3 {
			t.Errorf("server %d was asked %d times of 9", i, s.asked.Load())
		}
	}
}

func TestUseVC(t *testing.T) {
	servers := several(t, func(q *dns.Msg, over string) [][]byte {
		if over != "tcp" {
			t.Errorf("asked over %s", over)
		}
		return says(t, 0, "example.com. 60 A 192.0.2.1")(q, over)
	})
	look(t, system(t, "use-vc", servers), "example.com", dns.TypeA, Found)
}

// An authoritative server is configured, and names outside of its zones still resolve.
func TestServerThatOnlyKnowsItsZones(t *testing.T) {
	inZone := zone(t, "example.com. 60 PTR a.example.com.", "a.example.com. 60 SRV 0 0 443 box.example.com.",
		"box.example.com. 60 CNAME box.example.org.")
	world := func(t *testing.T) *server {
		return serve(t, "127.0.0.2", 0, zone(t, "box.example.org. 30 A 192.0.2.1", "example.com. 60 PTR evil.example.org.",
			"sub.example.com. 60 A 192.0.2.2"))
	}
	refuses := says(t, dns.RcodeRefused)
	refers := func(owner string) handler {
		return func(q *dns.Msg, _ string) [][]byte {
			m := reply(t, q, 0, owner+" 60 NS ns.example.net.")
			m.RecursionAvailable = false
			return [][]byte{pack(t, m)}
		}
	}
	for _, c := range []struct {
		name    string
		outside handler // what the server says about names that do not exist in its zone
		domain  string
		asked   string
		qtype   uint16
		want    Outcome
	}{
		{"an alias that leaves the zone, refused", refuses, "", "box.example.com", dns.TypeA, Found},
		{"an alias that leaves the zone, referred up", refers("."), "", "box.example.com", dns.TypeA, Found},
		{"a name outside, refused", refuses, "example.com", "box.example.org", dns.TypeA, Found},
		{"a name outside that nobody has", refuses, "example.com", "none.example.org", dns.TypeA, NoName},
		{"a list, refused", refuses, "", "sub.example.com", dns.TypePTR, Refused},
		{"a name inside, refused", refuses, "example.com", "sub.example.com", dns.TypeA, Refused},
		{"a name inside, given away", refers("sub.example.com."), "example.com", "sub.example.com", dns.TypeA, Found},
		{"a name inside, referred up", refers("com."), "example.com", "sub.example.com", dns.TypeA, Refused},
		{"the whole domain, given away", refers("example.com."), "example.com", "sub.example.com", dns.TypeA, Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			authoritative := serve(t, "127.0.0.1", 0, func(q *dns.Msg, over string) [][]byte {
				m := new(dns.Msg)
				b := inZone(q, over)[0]
				if err := m.Unpack(b); err != nil {
					t.Error(err)
				}
				if m.Rcode == dns.RcodeNameError {
					return c.outside(q, over)
				}
				b[2] |= 1 << 2  // AA
				b[3] &^= 1 << 7 // RA
				return [][]byte{b}
			})
			elsewhere := world(t)
			r := system(t, "", []*server{elsewhere}, func(cfg *Config) {
				cfg.Server, cfg.Domain = authoritative.addr.String(), c.domain
			})
			a := look(t, r, c.asked, c.qtype, c.want)
			want := elsewhere
			if c.want == Refused {
				want = authoritative
			}
			if a.Server != want.addr.String() {
				t.Errorf("answered by %s", a.Server)
			}
		})
	}
	t.Run("trouble is no reason to ask elsewhere", func(t *testing.T) {
		elsewhere := world(t)
		r := system(t, "", []*server{elsewhere}, func(cfg *Config) {
			cfg.Server = serve(t, "127.0.0.1", 0, says(t, dns.RcodeServerFailure)).addr.String()
		})
		look(t, r, "box.example.org", dns.TypeA, ServerFailure)
		if elsewhere.asked.Load() != 0 {
			t.Error("asked elsewhere")
		}
	})
}

func TestServerByName(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, says(t, 0, "example.com. 60 A 192.0.2.1"))
	fail := errors.New("no such host")
	var asked []string
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.77"), netip.MustParseAddr("::ffff:127.0.0.1")}
	r := open(t, Config{
		Server: fmt.Sprintf("ns.example.com:%d", s.addr.Port()), Timeout: long,
		LookupHost: func(_ context.Context, host string) ([]netip.Addr, error) {
			asked = append(asked, host)
			if fail != nil {
				return nil, fail
			}
			return addrs, nil
		},
	})
	a := look(t, r, "example.com", dns.TypeA, Unreachable)
	if !errors.Is(a.Err, fail) || !strings.Contains(a.Err.Error(), "the DNS server's own name ns.example.com") {
		t.Errorf("error %v", a.Err)
	}
	fail = nil
	for range 3 {
		if a := look(t, r, "example.com", dns.TypeA, Found); a.Server != s.addr.String() {
			t.Errorf("answered by %s", a.Server)
		}
	}
	fail = errors.New("the network is down")
	r.host.until = time.Time{} // it is time to ask again
	look(t, r, "example.com", dns.TypeA, Found)
	if want := slices.Repeat([]string{"ns.example.com"}, 3); !slices.Equal(asked, want) {
		t.Errorf("looked up %q", asked)
	}
}

// One address of a server is in trouble, the other refuses: what the first one would have said is not known.
func TestServerOfTwoMinds(t *testing.T) {
	servers := several(t, says(t, dns.RcodeServerFailure), says(t, dns.RcodeRefused), says(t, 0, "example.com. 60 A 192.0.2.1"))
	r := system(t, "", servers[2:], func(cfg *Config) {
		cfg.Server = fmt.Sprintf("ns.example.com:%d", servers[0].addr.Port())
		cfg.LookupHost = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{servers[0].addr.Addr(), servers[1].addr.Addr()}, nil
		}
	})
	look(t, r, "example.com", dns.TypeA, ServerFailure)
	if servers[2].asked.Load() != 0 {
		t.Error("asked elsewhere")
	}
}

func TestResolvConfIsReadAgain(t *testing.T) {
	servers := several(t, says(t, 0, "example.com. 60 A 192.0.2.1"), says(t, 0, "example.com. 60 A 192.0.2.2"))
	r := system(t, "", servers[:1])
	look(t, r, "example.com", dns.TypeA, Found)
	// The same size, within the same tick.
	if err := os.WriteFile(r.system.path, []byte("search example.org\noptions \nnameserver 127.0.0.3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a := look(t, r, "example.com", dns.TypeA, Found); a.Server != servers[1].addr.String() {
		t.Errorf("answered by %s", a.Server)
	}
	if err := os.Remove(r.system.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.system.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if a := look(t, r, "example.com", dns.TypeA, Found); a.Server != servers[1].addr.String() {
		t.Errorf("while the file is broken, answered by %s", a.Server)
	}
}

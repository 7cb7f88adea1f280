package resolver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver/wire"
)

const address = "example.com. 60 A 192.0.2.1"

// lies are messages that must not be taken for the answer.
func lies(t testing.TB, q *dns.Msg) [][]byte {
	wrong := func(change func(*dns.Msg)) []byte {
		m := reply(t, q, 0, "example.com. 60 A 192.0.2.66")
		m.Question = append([]dns.Question(nil), q.Question...)
		change(m)
		return pack(t, m)
	}
	cut := wrong(func(*dns.Msg) {})
	return [][]byte{
		{}, {0}, []byte("not a DNS message at all"),
		wrong(func(m *dns.Msg) { m.Id++ }),
		wrong(func(m *dns.Msg) { m.Response = false }),
		wrong(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }),
		wrong(func(m *dns.Msg) { m.Question = nil }),
		wrong(func(m *dns.Msg) { m.Question = append(m.Question, m.Question...) }),
		wrong(func(m *dns.Msg) { m.Question[0].Name = "example.org." }),
		wrong(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
		wrong(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		cut[:len(cut)-3], cut[:14],
	}
}

func TestLiesAreIgnored(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, over string) [][]byte {
		truth := pack(t, reply(t, q, 0, strings.ToUpper(address)))
		return append(lies(t, q), truth)
	})
	a := look(t, asking(t, s), "example.com", dns.TypeA, Found)
	if got := texts(a.Records); len(got) != 1 || got[0] != "example.com. 60 IN A 192.0.2.1" {
		t.Errorf("believed %q", got)
	}
	if s.asked.Load() != 1 {
		t.Errorf("asked %d times", s.asked.Load())
	}
}

func TestOnlyLies(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, _ string) [][]byte { return lies(t, q)[:11] })
	look(t, asking(t, s, timeout(short)), "example.com", dns.TypeA, Timeout)
}

func TestMangledAnswers(t *testing.T) {
	for name, mangle := range map[string]func([]byte) []byte{
		"cut off":             func(b []byte) []byte { return b[:len(b)-3] },
		"a record missing":    func(b []byte) []byte { b[7]++; return b },
		"a pointer to itself": func(b []byte) []byte { b[len(b)-16], b[len(b)-15] = 0xc0, byte(len(b)-16); return b },
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(q *dns.Msg, _ string) [][]byte { return [][]byte{mangle(pack(t, reply(t, q, 0, address)))} }
			untilQuick(t, func(d time.Duration) bool {
				a, quick := lookQuickly(t, asking(t, serve(t, "127.0.0.1", 0, answer), timeout(d)), "example.com", dns.TypeA, BadAnswer)
				if quick && !errors.Is(a.Err, wire.ErrMalformed) {
					t.Errorf("error %v", a.Err)
				}
				return quick
			})
			// Another server helps.
			untilQuick(t, func(d time.Duration) bool {
				_, quick := lookQuickly(t, system(t, "", several(t, answer, says(t, 0, address)), timeout(d)), "example.com", dns.TypeA, Found)
				return quick
			})
		})
	}
}

func TestAFloodOfLiesLeadsToTCP(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, over string) [][]byte {
		if over == "tcp" {
			return [][]byte{pack(t, reply(t, q, 0, address))}
		}
		var flood [][]byte
		for range 100 {
			flood = append(flood, lies(t, q)[3])
		}
		return flood
	})
	look(t, asking(t, s), "example.com", dns.TypeA, Found)
}

// A late answer to the first question must not be taken for one to the second.
func TestLateAnswer(t *testing.T) {
	untilQuick(t, func(d time.Duration) bool { return answersLate(t, d) })
}

// answersLate returns false if the second question was not answered in time.
func answersLate(t *testing.T, d time.Duration) bool {
	t.Helper()
	var mu sync.Mutex
	var late []byte
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, _ string) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		if late == nil {
			late = pack(t, reply(t, q, 0, "example.com. 60 A 192.0.2.66"))
			return nil
		}
		return [][]byte{late, pack(t, reply(t, q, 0, address))}
	})
	r := asking(t, s, timeout(d), func(c *Config) { c.Attempts = 2 })
	a, quick := lookQuickly(t, r, "example.com", dns.TypeA, Found)
	if got := texts(a.Records); quick && (len(got) != 1 || got[0] != "example.com. 60 IN A 192.0.2.1") {
		t.Errorf("believed %q", got)
	}
	return quick
}

// list is n PTR records of example.com.
func list(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("example.com. 60 PTR c%04d.example.com.", i))
	}
	return out
}

// truncating answers over UDP with what fits and TC, as real servers do, even in the middle of a record.
func truncating(t testing.TB, whole handler) handler {
	return func(q *dns.Msg, over string) [][]byte {
		b := whole(q, over)[0]
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		if over == "udp" && len(b) > size {
			b = b[:size]
			b[2] |= 1 << 1
		}
		return [][]byte{b}
	}
}

func TestBigAnswersOverTCP(t *testing.T) {
	for _, n := range []int{30, 100, 2000, 3000} {
		s := serve(t, "127.0.0.1", 0, truncating(t, says(t, 0, list(n)...)))
		r := asking(t, s)
		a := look(t, r, "example.com", dns.TypePTR, Found)
		if len(a.Records) != n {
			t.Errorf("%d records of %d", len(a.Records), n)
		}
		if want := int64(min(1, n/100)); s.tcp.Load() != want || r.Queries() != uint64(1+want) {
			t.Errorf("%d records took %d TCP connections and %d questions", n, s.tcp.Load(), r.Queries())
		}
	}
}

func TestTruncatedEvenOverTCP(t *testing.T) {
	broken := func(q *dns.Msg, _ string) [][]byte {
		m := reply(t, q, 0, address)
		m.Truncated = true
		return [][]byte{pack(t, m)}
	}
	a := look(t, asking(t, serve(t, "127.0.0.1", 0, broken)), "example.com", dns.TypeA, BadAnswer)
	if !strings.Contains(a.Err.Error(), "truncated even over TCP") {
		t.Errorf("error %v", a.Err)
	}
	look(t, system(t, "", several(t, broken, says(t, 0, address))), "example.com", dns.TypeA, Found)
}

func TestTCPThatNeverEnds(t *testing.T) {
	truncated := func(q *dns.Msg, _ string) [][]byte {
		m := reply(t, q, 0)
		m.Truncated = true
		return [][]byte{pack(t, m)}
	}
	for name, raw := range map[string]func(net.Conn){
		"silence": func(c net.Conn) { _, _ = readFramed(c); _, _ = readFramed(c) },
		"a trickle": func(c net.Conn) {
			_, _ = readFramed(c)
			// A promise of a long answer, a byte of it at a time, until the asker has enough.
			_, err := c.Write([]byte{0xff, 0xff})
			for err == nil {
				_, err = c.Write([]byte{0})
				time.Sleep(time.Millisecond)
			}
		},
		"only foreign messages": func(c net.Conn) {
			q, _ := readFramed(c)
			q[0]++
			q[2] |= 0x80
			var err error
			for err == nil {
				_, err = c.Write(framed(q))
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "127.0.0.1", 0, truncated, func(s *server) { s.raw = raw })
			untilQuick(t, func(d time.Duration) bool {
				a := look(t, asking(t, s, timeout(d)), "example.com", dns.TypeA, Timeout)
				quick := errors.Is(a.Err, wire.ErrSecond) // the answer over UDP came in time
				if quick && !strings.Contains(a.Err.Error(), fmt.Sprintf("over TCP, because the answer is too long for UDP or was forged: no answer within %v", d)) {
					t.Errorf("error %v", a.Err)
				}
				return quick
			})
		})
	}
	t.Run("hung up", func(t *testing.T) {
		s := serve(t, "127.0.0.1", 0, truncated, func(s *server) { s.raw = func(c net.Conn) { _, _ = readFramed(c) } })
		a := look(t, asking(t, s), "example.com", dns.TypeA, Unreachable)
		if !errors.Is(a.Err, wire.ErrBroken) {
			t.Errorf("error %v", a.Err)
		}
	})
}

func TestServersWithoutEDNS(t *testing.T) {
	for name, refuse := range map[string]func(q *dns.Msg) *dns.Msg{
		"FORMERR":                        func(q *dns.Msg) *dns.Msg { return reply(t, q, dns.RcodeFormatError) },
		"NOTIMP":                         func(q *dns.Msg) *dns.Msg { return reply(t, q, dns.RcodeNotImplemented) },
		"FORMERR, not even the question": func(q *dns.Msg) *dns.Msg { m := reply(t, q, dns.RcodeFormatError); m.Question = nil; return m },
		"BADVERS": func(q *dns.Msg) *dns.Msg {
			m := reply(t, q, dns.RcodeBadVers)
			m.SetEdns0(512, false)
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "127.0.0.1", 0, truncating(t, func(q *dns.Msg, over string) [][]byte {
				if q.IsEdns0() != nil {
					return [][]byte{pack(t, refuse(q))}
				}
				return says(t, 0, list(50)...)(q, over)
			}))
			r := asking(t, s)
			for range 2 {
				if a := look(t, r, "example.com", dns.TypePTR, Found); len(a.Records) != 50 {
					t.Errorf("%d records", len(a.Records))
				}
			}
			// Once in vain, and from then on without EDNS0: each time by UDP, and by TCP because of its size.
			if s.asked.Load() != 5 {
				t.Errorf("asked %d times", s.asked.Load())
			}
		})
	}
	t.Run("cannot do it either way", func(t *testing.T) {
		s := serve(t, "127.0.0.1", 0, says(t, dns.RcodeFormatError))
		look(t, asking(t, s), "example.com", dns.TypeA, ServerFailure)
		if s.asked.Load() != 2 {
			t.Errorf("asked %d times", s.asked.Load())
		}
	})
}

func TestWhatTheServerSaysIsToldOn(t *testing.T) {
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, _ string) [][]byte {
		m := reply(t, q, dns.RcodeServerFailure)
		m.SetEdns0(512, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeDNSBogus, ExtraText: "no \x1b[31mSIG"})
		return [][]byte{pack(t, m)}
	})
	a := look(t, asking(t, s), "example.com", dns.TypeA, ServerFailure)
	if !strings.Contains(a.Err.Error(), `it says SERVFAIL: DNSSEC Bogus "no \x1b[31mSIG"`) {
		t.Errorf("error %v", a.Err)
	}
}

// overTLS is a server that does DNS over TLS, for some names, and a resolver that trusts its authority.
func overTLS(t *testing.T, handle handler, names []string, change ...func(*Config)) (*server, *Resolver) {
	t.Helper()
	pool, config := authority(t, names...)
	s := serve(t, "127.0.0.1", 0, handle, func(s *server) { s.tls = config })
	return s, asking(t, s, append([]func(*Config){func(c *Config) {
		c.Server, c.RootCAs = "tls://"+s.addr.String(), pool
	}}, change...)...)
}

func TestTLSKeepsItsConnection(t *testing.T) {
	s, r := overTLS(t, says(t, 0, list(1000)...), []string{"127.0.0.1"})
	var all sync.WaitGroup
	for range 25 {
		all.Go(func() {
			for range 4 {
				if a := r.Lookup(t.Context(), "example.com", dns.TypePTR); len(a.Records) != 1000 {
					t.Errorf("%d records, %v", len(a.Records), a.Err)
				}
			}
		})
	}
	all.Wait()
	if s.tcp.Load() != 1 || s.asked.Load() != 100 || r.Queries() != 100 {
		t.Errorf("%d connections for %d questions, %d counted", s.tcp.Load(), s.asked.Load(), r.Queries())
	}
	for _, q := range s.questions() {
		q.Compress = false
		if n := q.Len(); n%128 != 0 {
			t.Fatalf("a question of %d bytes is not padded", n)
		}
	}
}

// Answers come in any order, and one that never comes holds nobody up.
func TestTLSAnswersOutOfOrder(t *testing.T) {
	var mu sync.Mutex
	var held [][]byte
	_, r := overTLS(t, func(q *dns.Msg, _ string) [][]byte {
		if q.Question[0].Name == "silent.example.com." {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		held = append(held, pack(t, reply(t, q, 0, q.Question[0].Name+" 60 TXT "+q.Question[0].Name)))
		if len(held) < 10 {
			return nil
		}
		out := held
		held = nil
		for i := range len(out) / 2 {
			out[i], out[len(out)-1-i] = out[len(out)-1-i], out[i]
		}
		return out
	}, []string{"127.0.0.1"})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if a := r.Lookup(ctx, "silent.example.com", dns.TypeTXT); a.Outcome != Timeout {
			t.Errorf("silence is %s, %v", a.Outcome, a.Err)
		}
	})
	var answered sync.WaitGroup
	for i := range 10 {
		answered.Go(func() {
			name := fmt.Sprintf("c%d.example.com.", i)
			a := r.Lookup(t.Context(), name, dns.TypeTXT)
			if a.Outcome != Found || a.Records[0].(*dns.TXT).Txt[0] != name {
				t.Errorf("%s: %+v", name, a)
			}
		})
	}
	answered.Wait()
	cancel()
	all.Wait()
}

func TestTLSConnectionsThatEnd(t *testing.T) {
	t.Run("after every answer", func(t *testing.T) {
		s, r := overTLS(t, func(q *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(t, reply(t, q, 0, address)), nil}
		}, []string{"127.0.0.1"})
		for range 5 {
			look(t, r, "example.com", dns.TypeA, Found)
		}
		if s.tcp.Load() != 5 {
			t.Errorf("%d connections", s.tcp.Load())
		}
	})
	t.Run("without an answer", func(t *testing.T) {
		s, r := overTLS(t, func(*dns.Msg, string) [][]byte { return [][]byte{nil} }, []string{"127.0.0.1"})
		a := look(t, r, "example.com", dns.TypeA, Unreachable)
		if !errors.Is(a.Err, wire.ErrBroken) || s.tcp.Load() != 1 {
			t.Errorf("%d connections, %v", s.tcp.Load(), a.Err)
		}
	})
	t.Run("when it hangs", func(t *testing.T) {
		untilQuick(t, func(d time.Duration) bool { return connectsAnew(t, d) })
	})
}

// connectsAnew returns false if an answer did not come in time.
func connectsAnew(t *testing.T, d time.Duration) bool {
	t.Helper()
	answers := make(chan struct{}, 1)
	answers <- struct{}{}
	_, r := overTLS(t, func(q *dns.Msg, _ string) [][]byte {
		select {
		case <-answers:
			return [][]byte{pack(t, reply(t, q, 0, address))}
		default:
			return nil
		}
	}, []string{"127.0.0.1"}, timeout(d))
	if _, quick := lookQuickly(t, r, "example.com", dns.TypeA, Found); !quick {
		return false
	}
	look(t, r, "example.com", dns.TypeA, Timeout)
	answers <- struct{}{}
	_, quick := lookQuickly(t, r, "example.com", dns.TypeA, Found)
	return quick
}

// A connection that has to be made again does not begin from nothing (RFC 7858 section 3.4).
func TestTLSResumes(t *testing.T) {
	pool, config := authority(t, "127.0.0.1")
	var resumed atomic.Int32
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if state.DidResume {
			resumed.Add(1)
		}
		return nil
	}
	s := serve(t, "127.0.0.1", 0, func(q *dns.Msg, _ string) [][]byte {
		return [][]byte{pack(t, reply(t, q, 0, address)), nil}
	}, func(s *server) { s.tls = config })
	r := asking(t, s, func(c *Config) { c.Server, c.RootCAs = "tls://"+c.Server, pool })
	for range 5 {
		look(t, r, "example.com", dns.TypeA, Found)
	}
	if s.tcp.Load() != 5 || resumed.Load() != 4 {
		t.Errorf("%d connections, %d of them resumed", s.tcp.Load(), resumed.Load())
	}
}

func TestTLSProvesWhoItIs(t *testing.T) {
	t.Run("the right name", func(t *testing.T) {
		pool, config := authority(t, "ns.example.com")
		s := serve(t, "127.0.0.1", 0, says(t, 0, address), func(s *server) { s.tls = config })
		r := open(t, Config{
			Server: fmt.Sprintf("tls://ns.example.com:%d", s.addr.Port()), RootCAs: pool, Timeout: long,
			LookupHost: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{s.addr.Addr()}, nil },
		})
		look(t, r, "example.com", dns.TypeA, Found)
	})
	for name, c := range map[string]struct {
		names   []string
		change  func(*Config)
		message string
	}{
		"another name":    {[]string{"ns.example.com"}, func(*Config) {}, "the server cannot prove who it is: x509: cannot validate certificate for 127.0.0.1"},
		"another address": {[]string{"127.0.0.2"}, func(*Config) {}, "is valid for 127.0.0.2, not 127.0.0.1"},
		"nobody vouches":  {[]string{"127.0.0.1"}, func(c *Config) { c.RootCAs = nil }, "signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := overTLS(t, says(t, 0, address), c.names, c.change)
			a := look(t, r, "example.com", dns.TypeA, Unreachable)
			if !strings.Contains(a.Err.Error(), c.message) || s.asked.Load() != 0 || a.Server != "" {
				t.Errorf("asked %d times: %v", s.asked.Load(), a.Err)
			}
		})
	}
	t.Run("no TLS there", func(t *testing.T) {
		s := serve(t, "127.0.0.1", 0, silent)
		a := look(t, asking(t, s, timeout(short), func(c *Config) { c.Server = "tls://" + c.Server }), "example.com", dns.TypeA, Timeout)
		if !strings.Contains(a.Err.Error(), "does it do DNS over TLS") {
			t.Errorf("error %v", a.Err)
		}
	})
	t.Run("an old version", func(t *testing.T) {
		pool, config := authority(t, "127.0.0.1")
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		s := serve(t, "127.0.0.1", 0, silent, func(s *server) { s.tls = config })
		r := asking(t, s, func(c *Config) { c.Server, c.RootCAs = "tls://"+c.Server, pool })
		look(t, r, "example.com", dns.TypeA, Unreachable)
	})
}

//go:build linux

package mdnscheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const answerTime = 700 * time.Millisecond

// answers returns a matcher for a multicast response with such an answer.
func (l *Lab) answers(name string, t uint16) func(seen) bool {
	return func(s seen) bool { return l.multicastAnswer(s) && has(s.msg.Answer, name, t) != nil }
}

func (l *Lab) answersPTR(s seen) bool { return l.answers(l.subject.Service, dns.TypePTR)(s) }
func (l *Lab) answersSRV(s seen) bool { return l.answers(l.srv.Hdr.Name, dns.TypeSRV)(s) }

func answeringChecks() []Check {
	return []Check{
		{"6", Must, "answers a shared question by multicast after 20 to 120 ms", func(ctx context.Context, l *Lab) error {
			s, at, err := l.ask(ctx, query(l.subject.Service, dns.TypePTR), multicast, answerTime, "answer", l.answersPTR)
			if err != nil {
				return err
			}
			return between("the answer", s.Time.Sub(at), 20*time.Millisecond, 120*time.Millisecond)
		}},
		{"6", Should, "answers a question for a unique record at once", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			s, at, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeSRV), multicast, answerTime, "answer", l.answersSRV)
			if err != nil {
				return err
			}
			return between("the answer", s.Time.Sub(at), 0, 10*time.Millisecond)
		}},
		{"6", Must, "answers every question of a packet", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeSRV)
			m.Question = append(m.Question, query(l.srv.Target, dns.TypeA).Question...)
			at, err := l.send(m, multicast)
			if err != nil {
				return err
			}
			if _, err := l.expect(at, answerTime, "SRV answer", l.answersSRV); err != nil {
				return err
			}
			_, err = l.expect(at, answerTime, "address answer", l.answers(l.srv.Target, dns.TypeA))
			return err
		}},
		{"6", Must, "answers type ANY with all records of the name", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			s, _, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeANY), multicast, answerTime, "answer", l.answersSRV)
			if err == nil && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeTXT) == nil {
				err = fmt.Errorf("no TXT among %v", s.msg.Answer)
			}
			return err
		}},
		{"6.5", Must, "answers class ANY", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeSRV)
			m.Question[0].Qclass = dns.ClassANY
			_, _, err := l.ask(ctx, m, multicast, answerTime, "answer", l.answersSRV)
			return err
		}},
		{"6.2", Should, "adds the addresses of the other family, or that there are none", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			s, _, err := l.ask(ctx, query(l.srv.Target, dns.TypeA), multicast, answerTime, "answer", l.answers(l.srv.Target, dns.TypeA))
			if err != nil {
				return err
			}
			all := slices.Concat(s.msg.Answer, s.msg.Extra)
			if has(all, l.srv.Target, dns.TypeAAAA) == nil && has(all, l.srv.Target, dns.TypeNSEC) == nil {
				err = fmt.Errorf("neither AAAA nor NSEC among %v", all)
			}
			return err
		}},
		{"10.2", Must, "gives a whole set although the querier knows a part of it", wholeSet},
		{"6", Must, "does not answer a question in a response", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeSRV)
			m.Response, m.Authoritative = true, true
			at, err := l.send(m, multicast)
			if err != nil {
				return err
			}
			return l.refuse(at, answerTime, "an answer", func(s seen) bool {
				return s.msg.Response && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
			})
		}},
		{"6.1", Must, "denies with NSEC a type that a name of its own does not have", func(ctx context.Context, l *Lab) error {
			return l.denial(ctx, func(s seen) bool { return has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeNSEC) != nil })
		}},
		{"6.1", Must, "its NSEC names itself as next and lists what exists, without NSEC", func(ctx context.Context, l *Lab) error {
			var bad error
			err := l.denial(ctx, func(s seen) bool {
				rr, ok := has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeNSEC).(*dns.NSEC)
				if !ok {
					return false
				}
				if !same(rr.NextDomain, rr.Hdr.Name) || !slices.Contains(rr.TypeBitMap, dns.TypeSRV) ||
					!slices.Contains(rr.TypeBitMap, dns.TypeTXT) || slices.Contains(rr.TypeBitMap, dns.TypeNSEC) {
					bad = fmt.Errorf("%v", rr)
				}
				return true
			})
			return errors.Join(err, bad)
		}},
		{"6", Must, "is silent about names that are not its own", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			nobody := "nobody-has-this." + l.subject.Service
			at, err := l.send(query(nobody, dns.TypeSRV), multicast)
			if err != nil {
				return err
			}
			return l.refuse(at, answerTime, "an answer", func(s seen) bool {
				about := func(rr dns.RR) bool { return same(rr.Header().Name, nobody) }
				return s.msg.Response && (s.msg.Rcode != 0 || slices.ContainsFunc(slices.Concat(s.msg.Answer, s.msg.Ns, s.msg.Extra), about))
			})
		}},
		{"16", Must, "compares names without regard to case", func(ctx context.Context, l *Lab) error {
			_, _, err := l.ask(ctx, query(strings.ToUpper(l.subject.Service), dns.TypePTR), multicast, answerTime, "answer", l.answersPTR)
			return err
		}},
		{"5.4", Should, "answers a QU question by unicast", func(ctx context.Context, l *Lab) error {
			if err := l.justMulticast(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.srv.Hdr.Name, dns.TypeSRV, wantUnicast), multicast)
			if err != nil {
				return err
			}
			_, err = l.expect(at, answerTime, "unicast answer", func(s seen) bool {
				return l.unicastAnswer(s) && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
			})
			return err
		}},
		{"5.5", Should, "answers a query that came by unicast", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			_, _, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeSRV), direct, answerTime, "answer", func(s seen) bool {
				return s.msg.Response && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
			})
			return err
		}},
		{"11", Should, "answers a QU question from off the link by multicast", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			_, _, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeSRV, wantUnicast), groupFromBeyond, answerTime, "multicast answer", l.answersSRV)
			return err
		}},
		{"6763 9", Must, "lists its service type under _services._dns-sd._udp", func(ctx context.Context, l *Lab) error {
			meta := "_services._dns-sd._udp.local."
			_, _, err := l.ask(ctx, query(meta, dns.TypePTR), multicast, answerTime, "answer", func(s seen) bool {
				return l.multicastAnswer(s) && slices.ContainsFunc(s.msg.Answer, func(rr dns.RR) bool {
					ptr, ok := rr.(*dns.PTR)
					return ok && same(ptr.Hdr.Name, meta) && same(ptr.Ptr, l.subject.Service)
				})
			})
			return err
		}},
		{"6763 12.1", Should, "adds SRV, TXT and addresses to a PTR answer", func(ctx context.Context, l *Lab) error {
			s, _, err := l.ask(ctx, query(l.subject.Service, dns.TypePTR), multicast, answerTime, "answer", l.answersPTR)
			if err != nil {
				return err
			}
			all := slices.Concat(s.msg.Answer, s.msg.Extra)
			for _, want := range []dns.RR{l.srv, l.txt, l.a[0]} {
				if h := want.Header(); has(all, h.Name, h.Rrtype) == nil {
					return fmt.Errorf("no %s record", dns.TypeToString[h.Rrtype])
				}
			}
			return nil
		}},
		{"6.7", Must, "answers a legacy query by unicast to where it came from", l7(func(*Lab, seen, *dns.Msg) error { return nil })},
		{"6.7", Must, "repeats a legacy query's ID and question", l7(func(_ *Lab, s seen, q *dns.Msg) error {
			if s.msg.Id != q.Id || len(s.msg.Question) != 1 || !same(s.msg.Question[0].Name, q.Question[0].Name) {
				return fmt.Errorf("ID %d for %d, questions %v", s.msg.Id, q.Id, s.msg.Question)
			}
			return nil
		})},
		{"6.7", Must, "sets no cache-flush bit in a legacy answer", l7(func(_ *Lab, s seen, _ *dns.Msg) error {
			for _, rr := range slices.Concat(s.msg.Answer, s.msg.Extra) {
				if rr.Header().Class&flush != 0 {
					return fmt.Errorf("set on %v", rr)
				}
			}
			return nil
		})},
		{"6.7", Should, "caps TTLs of a legacy answer at 10 s", l7(func(_ *Lab, s seen, _ *dns.Msg) error {
			for _, rr := range slices.Concat(s.msg.Answer, s.msg.Extra) {
				if rr.Header().Ttl > 10 {
					return fmt.Errorf("%d on %v", rr.Header().Ttl, rr)
				}
			}
			return nil
		})},
		{"18.14", Must, "does not compress the target of SRV in a legacy answer", l7(func(l *Lab, s seen, _ *dns.Msg) error {
			target := make([]byte, 256)
			n, err := dns.PackDomainName(l.srv.Target, target, 0, nil, false)
			if err == nil && !bytes.Contains(s.Payload, target[:n]) {
				err = fmt.Errorf("%s is nowhere whole in %q", l.srv.Target, s.Payload)
			}
			return err
		})},
	}
}

// wholeSet gives the subject a second address, and asks for both as one who knows one.
func wholeSet(ctx context.Context, l *Lab) error {
	if err := l.establish(ctx); err != nil {
		return err
	}
	return l.withSecondAddress(func(second [4]byte, at time.Time) error {
		both := func(s seen) bool {
			return l.multicastAnswer(s) && len(slices.DeleteFunc(slices.Clone(s.msg.Answer), func(rr dns.RR) bool {
				_, ok := rr.(*dns.A)
				return !ok || !same(rr.Header().Name, l.srv.Target)
			})) == 2
		}
		if _, err := l.expect(at, 10*time.Second, "announcement of both addresses", both); err != nil {
			return err
		}
		known := withTTL(l.a[0], l.a[0].Hdr.Ttl).(*dns.A)
		known.A = second[:]
		_, _, err := l.ask(ctx, query(l.srv.Target, dns.TypeA, knows(known)), multicast, answerTime, "answer with both addresses", both)
		return err
	})
}

// l7 is a check of the answer to a legacy query.
func l7(look func(l *Lab, s seen, q *dns.Msg) error) func(context.Context, *Lab) error {
	return func(ctx context.Context, l *Lab) error {
		if err := l.establish(ctx); err != nil {
			return err
		}
		m := query(l.srv.Hdr.Name, dns.TypeSRV)
		m.Id = 4711
		s, _, err := l.ask(ctx, m, legacy, answerTime, "unicast answer", func(s seen) bool {
			return l.unicastAnswer(s) && int(s.Dst.Port()) != 5353 && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
		})
		if err != nil {
			return err
		}
		return look(l, s, m)
	}
}

// denial asks for a type that the instance's name does not have.
func (l *Lab) denial(ctx context.Context, match func(seen) bool) error {
	if err := l.establish(ctx); err != nil {
		return err
	}
	_, _, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeHINFO), multicast, answerTime, "denial", func(s seen) bool {
		return l.multicastAnswer(s) && match(s)
	})
	return err
}

// justMulticast has the subject multicast its SRV record a moment ago.
func (l *Lab) justMulticast(ctx context.Context) error {
	if err := l.establish(ctx); err != nil {
		return err
	}
	_, _, err := l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeSRV), multicast, answerTime, "answer", l.answersSRV)
	return err
}

func suppressionChecks() []Check {
	return []Check{
		{"7.1", Must, "does not repeat an answer that the querier knows", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.subject.Service, dns.TypePTR, knows(withTTL(l.ptr, l.ptr.Hdr.Ttl))), multicast)
			if err != nil {
				return err
			}
			return l.refuse(at, answerTime, "a known answer", l.answersPTR)
		}},
		{"7.1", Must, "answers when the querier's copy has less than half its TTL left", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			_, _, err := l.ask(ctx, query(l.subject.Service, dns.TypePTR, knows(withTTL(l.ptr, l.ptr.Hdr.Ttl/2-10))), multicast,
				answerTime, "answer", l.answersPTR)
			return err
		}},
		{"7.2", Must, "waits for known answers that follow a truncated query", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.subject.Service, dns.TypePTR, truncated), multicast)
			if err != nil {
				return err
			}
			if err := l.refuse(at, 150*time.Millisecond, "an answer to a truncated query", l.answersPTR); err != nil {
				return err
			}
			rest := &dns.Msg{Answer: []dns.RR{withTTL(l.ptr, l.ptr.Hdr.Ttl)}}
			if at, err = l.send(rest, multicast); err != nil {
				return err
			}
			return l.refuse(at, answerTime, "an answer that the second packet made known", l.answersPTR)
		}},
		{"7.2", Should, "answers a truncated query after 400 to 500 ms when nothing follows", func(ctx context.Context, l *Lab) error {
			s, at, err := l.ask(ctx, query(l.subject.Service, dns.TypePTR, truncated), multicast, time.Second, "answer", l.answersPTR)
			if err != nil {
				return err
			}
			return between("the answer", s.Time.Sub(at), 400*time.Millisecond, 500*time.Millisecond)
		}},
		{"7.4", Should, "leaves out an answer that somebody else just gave", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.subject.Service, dns.TypePTR), multicast)
			if err != nil {
				return err
			}
			if _, err := l.send(response(withTTL(l.ptr, l.ptr.Hdr.Ttl)), multicast); err != nil {
				return err
			}
			return l.refuse(at, answerTime, "a duplicate answer", l.answersPTR)
		}},
		{"6", Must, "multicasts a record at most once a second", func(ctx context.Context, l *Lab) error {
			if err := l.justMulticast(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.srv.Hdr.Name, dns.TypeSRV), multicast)
			if err != nil {
				return err
			}
			return l.refuse(at, 800*time.Millisecond, "a second multicast", l.answersSRV)
		}},
		{"6", Must, "but defends its name against a probe within that second", func(ctx context.Context, l *Lab) error {
			if err := l.justMulticast(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeANY)
			m.Ns = []dns.RR{l.rival(true)}
			at, err := l.send(m, multicast)
			if err != nil {
				return err
			}
			_, err = l.expect(at, 600*time.Millisecond, "defence", func(s seen) bool {
				return (l.multicastAnswer(s) || l.unicastAnswer(s)) && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
			})
			return err
		}},
	}
}

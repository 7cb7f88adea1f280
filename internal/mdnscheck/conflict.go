//go:build linux

package mdnscheck

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// conflicting returns a response that claims the instance's SRV record for
// somebody else.
func (l *Lab) conflicting() *dns.Msg {
	rr := l.rival(true)
	rr.Hdr.Class |= flush
	return response(rr)
}

// reacts reports whether s shows that the subject took a conflict seriously.
func (l *Lab) reacts(s seen) bool {
	return l.probe(s) || l.multicastAnswer(s) && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
}

func conflictChecks() []Check {
	return []Check{
		{"9", Must, "probes again when somebody contradicts an established record", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			name := l.srv.Hdr.Name
			at, err := l.send(l.conflicting(), multicast)
			if err != nil {
				return err
			}
			if _, err := l.expect(at, startTime, "probe", func(s seen) bool { return l.probe(s) && asks(s.msg, name) }); err != nil {
				return err
			}
			l.started = at
			if err := l.announcedTwice(); err != nil {
				return err
			}
			return l.halt()
		}},
		{"9", Must, "keeps its name when nobody defends the contradiction", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			name := l.srv.Hdr.Name
			at, err := l.send(l.conflicting(), multicast)
			if err != nil {
				return err
			}
			l.started = at
			if err := l.announcedTwice(); err != nil {
				return err
			}
			if !same(l.srv.Hdr.Name, name) {
				return fmt.Errorf("is now %s", l.srv.Hdr.Name)
			}
			return l.halt()
		}},
		{"9", Must, "sees no conflict in its own data from another mouth", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at, err := l.send(response(dns.Copy(l.srv)), multicast)
			if err != nil {
				return err
			}
			return l.refuse(at, 900*time.Millisecond, "a reaction", l.reacts)
		}},
		// What is sent to the group counts as local wherever it claims to come
		// from; what is sent to us directly has to come from the link.
		{"11", Must, "ignores a unicast response from off the link", func(ctx context.Context, l *Lab) error {
			return l.ignores(ctx, l.conflicting, fromBeyond)
		}},
		{"11", Should, "ignores a unicast query from off the link", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at, err := l.send(query(l.srv.Hdr.Name, dns.TypeSRV), fromBeyond)
			if err != nil {
				return err
			}
			return l.refuse(at, answerTime, "an answer", func(s seen) bool {
				return s.msg.Response && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil
			})
		}},
		{"6", Must, "ignores a response from another port than 5353", func(ctx context.Context, l *Lab) error {
			return l.ignores(ctx, l.conflicting, legacy)
		}},
		{"8.4", Must, "announces a new address of its link", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			return l.withSecondAddress(func(second [4]byte, at time.Time) error {
				_, err := l.expect(at, 10*time.Second, "announcement of the new address", func(s seen) bool {
					return l.multicastAnswer(s) && slices.ContainsFunc(s.msg.Answer, func(rr dns.RR) bool {
						a, ok := rr.(*dns.A)
						return ok && same(a.Hdr.Name, l.srv.Target) && [4]byte(a.A.To4()) == second
					})
				})
				return err
			})
		}},
	}
}

// withSecondAddress gives the subject's link another address while look runs, and stops
// the subject after it. at is when the address was added.
func (l *Lab) withSecondAddress(look func(second [4]byte, at time.Time) error) error {
	added := l.subject.Addr.As4()
	added[3] += 100
	prefix := fmt.Sprintf("%d.%d.%d.%d/24", added[0], added[1], added[2], added[3])
	at := time.Now()
	l.subject.AddAddress(prefix)
	err := look(added, at)
	l.subject.DelAddress(prefix)
	if err != nil {
		return err
	}
	return l.halt()
}

// ignores checks that the subject does not react to a message.
func (l *Lab) ignores(ctx context.Context, message func() *dns.Msg, how sending) error {
	if err := l.establish(ctx); err != nil {
		return err
	}
	at, err := l.send(message(), how)
	if err != nil {
		return err
	}
	return l.refuse(at, 900*time.Millisecond, "a reaction", l.reacts)
}

func hostileChecks() []Check {
	ask := func(change func(*dns.Msg)) func(context.Context, *Lab) error {
		return func(ctx context.Context, l *Lab) error {
			return l.ignores(ctx, func() *dns.Msg { return query(l.srv.Hdr.Name, dns.TypeSRV, change) }, multicast)
		}
	}
	return []Check{
		{"18.3", Must, "ignores messages with another opcode", ask(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus })},
		{"18.11", Must, "ignores messages with a response code", ask(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError })},
		{"6", Must, "does not answer for another class", ask(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS })},
		{"18.1", Should, "does not mind an ID in a multicast query", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeSRV)
			m.Id = 99
			s, _, err := l.ask(ctx, m, multicast, answerTime, "answer", l.answersSRV)
			if err == nil && s.msg.Id != 0 {
				err = fmt.Errorf("answers with ID %d", s.msg.Id)
			}
			return err
		}},
		{"18", Must, "does not mind the bits of a query's header that mean nothing here", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			m := query(l.srv.Hdr.Name, dns.TypeSRV)
			m.Authoritative, m.RecursionDesired, m.RecursionAvailable, m.Zero, m.AuthenticatedData, m.CheckingDisabled = true, true, true, true, true, true
			s, _, err := l.ask(ctx, m, multicast, answerTime, "answer", l.answersSRV)
			want := dns.MsgHdr{Response: true, Authoritative: true}
			if err == nil && s.msg.MsgHdr != want {
				err = fmt.Errorf("answers with header %+v", s.msg.MsgHdr)
			}
			return err
		}},
		{"6.1", Must, "reads a message in which an NSEC record does not parse", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			b, err := query(l.srv.Hdr.Name, dns.TypeSRV).Pack()
			if err != nil {
				return err
			}
			// An additional record: x. NSEC x., with a window of no bytes.
			b = append(b, 1, 'x', 0, 0, 47, 0, 1, 0, 0, 0, 120, 0, 5, 1, 'x', 0, 0, 0)
			b[11] = 1
			at, err := l.sendRaw(b, multicast)
			if err != nil {
				return err
			}
			_, err = l.expect(at, answerTime, "answer", l.answersSRV)
			return err
		}},
		{"17", Must, "lives on after a thousand malformed packets", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			good, err := query(l.srv.Hdr.Name, dns.TypeSRV).Pack()
			if err != nil {
				return err
			}
			for i := range 1000 {
				b := slices.Clone(good)
				for range 1 + rand.IntN(6) {
					b[rand.IntN(len(b))] = byte(rand.Uint32())
				}
				if i%10 == 0 {
					b = append(b, make([]byte, 8900)...)
				}
				// A name that points at itself (RFC 1035 section 4.1.4).
				if i%7 == 0 {
					b = append(b[:12], 0xc0, 0x0c, 0, 1, 0, 1)
				}
				if _, err := l.sendRaw(b, multicast); err != nil {
					return err
				}
			}
			_, _, err = l.ask(ctx, query(l.srv.Hdr.Name, dns.TypeSRV), multicast, answerTime, "answer", l.answersSRV)
			return err
		}},
	}
}

func endingChecks() []Check {
	return []Check{
		{"10.1", Must, "says goodbye for its records when it stops", func(ctx context.Context, l *Lab) error {
			if err := l.establish(ctx); err != nil {
				return err
			}
			at := time.Now()
			if err := l.halt(); err != nil {
				return err
			}
			_, err := l.expect(at, 5*time.Second, "goodbye", func(s seen) bool {
				return l.multicastAnswer(s) && slices.ContainsFunc(s.msg.Answer, func(rr dns.RR) bool {
					ptr, ok := rr.(*dns.PTR)
					return ok && ptr.Hdr.Ttl == 0 && same(ptr.Ptr, l.srv.Hdr.Name)
				})
			})
			return err
		}},
	}
}

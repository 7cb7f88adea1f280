//go:build linux

package mdnscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// afresh adapts a check that looks at a start which is already complete.
func afresh(look func(l *Lab) error) func(context.Context, *Lab) error {
	return func(ctx context.Context, l *Lab) error {
		if l.stop == nil {
			if err := l.start(ctx); err != nil {
				return err
			}
			if err := l.announcedTwice(); err != nil {
				return err
			}
		}
		return look(l)
	}
}

// probes returns the subject's probes since its start that came before its
// first announcement.
func (l *Lab) probes() []seen {
	var out []seen
	for _, s := range l.since(l.started) {
		if l.multicastAnswer(s) && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil {
			break
		}
		if l.probe(s) {
			out = append(out, s)
		}
	}
	return out
}

// announcements returns the multicast responses since the start that carry the
// instance's SRV record.
func (l *Lab) announcements() []seen {
	var out []seen
	for _, s := range l.since(l.started) {
		if l.multicastAnswer(s) && has(s.msg.Answer, l.srv.Hdr.Name, dns.TypeSRV) != nil {
			out = append(out, s)
		}
	}
	return out
}

// probesFor returns the probes that ask for a name.
func (l *Lab) probesFor(name string) []seen {
	return slices.DeleteFunc(l.probes(), func(s seen) bool { return !asks(s.msg, name) })
}

func asks(m *dns.Msg, name string) bool {
	return slices.ContainsFunc(m.Question, func(q dns.Question) bool { return same(q.Name, name) })
}

func probingChecks() []Check {
	return []Check{
		{"8.1", Must, "probes three times for the instance before announcing it", afresh(func(l *Lab) error {
			if n := len(l.probesFor(l.srv.Hdr.Name)); n != 3 {
				return fmt.Errorf("%d probes", n)
			}
			return nil
		})},
		{"8.1", Must, "probes for the host name as well", afresh(func(l *Lab) error {
			if n := len(l.probesFor(l.srv.Target)); n < 3 {
				return fmt.Errorf("%d probes for %s", n, l.srv.Target)
			}
			return nil
		})},
		{"8.1", Must, "leaves 250 ms between probes and before announcing", afresh(func(l *Lab) error {
			steps := append(l.probesFor(l.srv.Hdr.Name), l.announcements()...)
			if len(steps) < 4 {
				return fmt.Errorf("%d probes and announcements", len(steps))
			}
			for i := range 3 {
				if err := between("a probe's successor", steps[i+1].Time.Sub(steps[i].Time), 250*time.Millisecond, 350*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})},
		{"8.1", Should, "asks for unicast responses in its first probe", afresh(func(l *Lab) error {
			probes := l.probesFor(l.srv.Hdr.Name)
			if len(probes) == 0 {
				return errors.New("no probe")
			}
			for _, q := range probes[0].msg.Question {
				if q.Qclass&qu == 0 {
					return fmt.Errorf("question for %s without the QU bit", q.Name)
				}
			}
			return nil
		})},
		{"8.1", Should, "probes with type ANY", afresh(func(l *Lab) error {
			for _, s := range l.probesFor(l.srv.Hdr.Name) {
				for _, q := range s.msg.Question {
					if q.Qtype != dns.TypeANY {
						return fmt.Errorf("question for %s of type %s", q.Name, dns.TypeToString[q.Qtype])
					}
				}
			}
			return nil
		})},
		{"8.2", Must, "lists the records it wants in the authority section", afresh(func(l *Lab) error {
			for _, s := range l.probesFor(l.srv.Hdr.Name) {
				if has(s.msg.Ns, l.srv.Hdr.Name, dns.TypeSRV) == nil {
					return fmt.Errorf("authority section: %v", s.msg.Ns)
				}
			}
			return nil
		})},
		{"10.2", Must, "sets no cache-flush bit in a probe's authority section", afresh(func(l *Lab) error {
			for _, s := range l.probes() {
				for _, rr := range s.msg.Ns {
					if rr.Header().Class&flush != 0 {
						return fmt.Errorf("set on %v", rr)
					}
				}
			}
			return nil
		})},
		{"8.2", Must, "a lost tiebreak makes it wait a second and probe again", func(ctx context.Context, l *Lab) error {
			return l.tiebreak(ctx, true)
		}},
		{"8.2", Must, "a won tiebreak changes nothing", func(ctx context.Context, l *Lab) error {
			return l.tiebreak(ctx, false)
		}},
		{"8.1", Must, "a conflicting answer while probing makes it choose another name", chooseAnother},
	}
}

// restart starts the subject again, with what was learned of it before, and
// waits for its first probe for the instance.
func (l *Lab) restart(ctx context.Context) (seen, error) {
	if l.srv == nil {
		if err := l.establish(ctx); err != nil {
			return seen{}, err
		}
	}
	if err := l.halt(); err != nil {
		return seen{}, err
	}
	if err := l.quiet(ctx); err != nil {
		return seen{}, err
	}
	if err := l.start(ctx); err != nil {
		return seen{}, err
	}
	return l.expect(l.started, startTime, "probe", func(s seen) bool { return l.probe(s) && asks(s.msg, l.srv.Hdr.Name) })
}

// rival returns an SRV record for the instance that sorts after (or before)
// every other: the lexicographic comparison of RFC 6762 section 8.2 begins
// with the rdata's priority.
func (l *Lab) rival(later bool) *dns.SRV {
	rr := &dns.SRV{Hdr: dns.RR_Header{Name: l.srv.Hdr.Name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: 120},
		Port: 1, Target: "a.local."}
	if later {
		rr.Priority = 0xffff
	}
	return rr
}

func (l *Lab) tiebreak(ctx context.Context, lose bool) error {
	first, err := l.restart(ctx)
	if err != nil {
		return err
	}
	name := l.srv.Hdr.Name
	// A rival's probe: the record sets are compared sorted, so one record of
	// the lowest type present (TXT, 16) decides before SRV (33) would.
	txt := &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 120}, Txt: []string{""}}
	if lose {
		txt.Txt = []string{"\\255\\255"}
		for range 15 {
			txt.Txt[0] += "\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255\\255"
		}
	}
	m := query(name, dns.TypeANY)
	m.Ns = []dns.RR{txt, l.rival(lose)}
	at, err := l.send(m, multicast)
	if err != nil {
		return err
	}
	next, err := l.expect(at.Add(time.Microsecond), startTime, "further probe", func(s seen) bool {
		return l.probe(s) && asks(s.msg, name) && s.Time.After(first.Time)
	})
	if err != nil {
		return err
	}
	if lose {
		// One probe may already have been on its way when the rival's came.
		if next.Time.Sub(at) < 20*time.Millisecond {
			if next, err = l.expect(next.Time.Add(time.Microsecond), startTime, "further probe", func(s seen) bool {
				return l.probe(s) && asks(s.msg, name)
			}); err != nil {
				return err
			}
		}
		if err := between("probing again", next.Time.Sub(at), time.Second, 1300*time.Millisecond); err != nil {
			return err
		}
	} else if err := between("the next probe", next.Time.Sub(first.Time), 250*time.Millisecond, 350*time.Millisecond); err != nil {
		return err
	}
	return l.announcedTwice()
}

func chooseAnother(ctx context.Context, l *Lab) error {
	if _, err := l.restart(ctx); err != nil {
		return err
	}
	old := l.srv.Hdr.Name
	claim := l.rival(true)
	claim.Hdr.Class |= flush
	if _, err := l.send(response(claim), multicast); err != nil {
		return err
	}
	if err := l.announcedTwice(); err != nil {
		return err
	}
	renamed := l.srv.Hdr.Name
	err := l.halt() // the next start has the old name again
	l.learned = learned{}
	if same(old, renamed) {
		return fmt.Errorf("still announces %s", old)
	}
	return err
}

func announcingChecks() []Check {
	return []Check{
		{"8.3", Must, "announces at least twice", afresh(func(l *Lab) error {
			if n := len(l.announcements()); n < 2 {
				return fmt.Errorf("%d announcements", n)
			}
			return nil
		})},
		{"8.3", Must, "leaves at least a second between announcements", afresh(func(l *Lab) error {
			a := l.announcements()
			for i := range len(a) - 1 {
				if gap := a[i+1].Time.Sub(a[i].Time); gap < 990*time.Millisecond {
					return fmt.Errorf("%v between announcements", gap)
				}
			}
			return nil
		})},
		{"8.3", Must, "announces all its records", afresh(func(l *Lab) error {
			a := l.announcements()[0].msg.Answer
			for _, want := range []struct {
				name string
				t    uint16
			}{{l.subject.Service, dns.TypePTR}, {l.srv.Hdr.Name, dns.TypeSRV}, {l.srv.Hdr.Name, dns.TypeTXT}} {
				if has(a, want.name, want.t) == nil {
					return fmt.Errorf("no %s record for %s in the answer section", dns.TypeToString[want.t], want.name)
				}
			}
			return nil
		})},
		{"10.2", Must, "sets the cache-flush bit on unique records", afresh(func(l *Lab) error {
			for _, rr := range []dns.RR{l.srv, l.txt, l.a[0]} {
				if rr.Header().Class&flush == 0 {
					return fmt.Errorf("not on %v", rr)
				}
			}
			return nil
		})},
		{"10.2", Must, "sets no cache-flush bit on shared records", afresh(func(l *Lab) error {
			if l.ptr.Hdr.Class&flush != 0 {
				return fmt.Errorf("set on %v", l.ptr)
			}
			return nil
		})},
		{"10", Should, "uses 120 s for records with a host name, 75 min for others", afresh(func(l *Lab) error {
			for rr, want := range map[dns.RR]uint32{l.srv: 120, l.a[0]: 120, l.ptr: 4500, l.txt: 4500} {
				if got := rr.Header().Ttl; got != want {
					return fmt.Errorf("TTL %d on %v, want %d", got, rr, want)
				}
			}
			return nil
		})},
		{"6", Must, "announces only addresses of the link it announces on", afresh(func(l *Lab) error {
			for _, a := range l.a {
				if !a.A.Equal(net.IP(l.subject.Addr.AsSlice())) {
					return fmt.Errorf("%s", a.A)
				}
			}
			return nil
		})},
		{"11", Should, "sends with IP TTL 255 from port 5353", afresh(func(l *Lab) error {
			for _, s := range l.since(l.started) {
				if s.Src.Addr() == l.subject.Addr && (s.TTL != 255 || s.Src.Port() != 5353) {
					return fmt.Errorf("TTL %d from port %d", s.TTL, s.Src.Port())
				}
			}
			return nil
		})},
		{"18", Must, "responds with a clean header and no question", afresh(func(l *Lab) error {
			for _, s := range l.announcements() {
				h := s.msg.MsgHdr
				want := dns.MsgHdr{Response: true, Authoritative: true}
				if h != want || len(s.msg.Question) > 0 {
					return fmt.Errorf("header %+v, %d questions", h, len(s.msg.Question))
				}
			}
			return nil
		})},
		{"18.14", Should, "compresses names", afresh(func(l *Lab) error {
			for _, s := range l.announcements() {
				m := s.msg.Copy()
				m.Compress = true
				if want := m.Len(); len(s.Payload) > want+want/10 {
					return fmt.Errorf("%d bytes where %d do", len(s.Payload), want)
				}
			}
			return nil
		})},
	}
}

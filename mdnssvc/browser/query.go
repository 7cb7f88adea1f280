package browser

import (
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// maxQuestions is the size up to which questions share a message. It fits the
// smallest MTU of IPv6, so that no link has to split them.
const maxQuestions = 1200

// browse sends the question for the service by one family, with everything known
// in its answer section (RFC 6762 section 7.1), unless another host just asked.
func (l *link) browse(now time.Time, family wire.Family) {
	if l.covered[family] {
		l.covered[family] = false
		return
	}
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: l.b.service, Qtype: dns.TypePTR, Qclass: dns.ClassINET}}
	if len(l.all) > 0 {
		m.Answer = make([]dns.RR, 0, len(l.all))
	}
	for _, i := range l.all {
		// What did not resolve is asked for as if it were unknown: its answer may
		// bring the records that are missing.
		if left, ok := i.ptr.known(now); ok && (i.found || !i.resolve.gaveUp(now)) {
			m.Answer = append(m.Answer, &dns.PTR{
				Hdr: dns.RR_Header{Name: l.b.service, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: left},
				Ptr: i.fqdn,
			})
		}
	}
	l.spacing = askGap + time.Duration(len(m.Answer))*spacingPerAnswer
	l.b.out = append(l.b.out, wire.Packet{Msg: m, Link: l.index, Family: family})
}

// flushAsks asks for what waits, as far as the budgets go: first for what was
// found before, then source by source, one name each in turn, so that a source
// with thousands of names that lead nowhere cannot starve the others.
func (l *link) flushAsks(now time.Time) {
	var q questions
	for e := l.urgent.Front(); e != nil; e = l.urgent.Front() {
		if !l.askOne(now, e.Value.(subject), &l.verified, &q) {
			break
		}
	}
	for e := l.turns.Front(); e != nil; e = l.turns.Front() {
		src := e.Value.(*source)
		if !l.askOne(now, src.waiting.Front().Value.(subject), &l.unverified, &q) {
			break
		}
		if src.turn != nil {
			l.turns.MoveToBack(src.turn)
		}
	}
	for _, f := range [2]wire.Family{wire.IPv4, wire.IPv6} {
		q.finish(l, f)
	}
	l.flush = time.Time{}
	if l.urgent.Len() > 0 || l.turns.Len() > 0 {
		l.flush = now.Add(budgetDelay)
	}
}

// askOne asks for what s needs and takes it off the queue; false means that the
// budget is used up.
func (l *link) askOne(now time.Time, s subject, from *budget, q *questions) bool {
	wanted := s.wants(now)
	if wanted && !from.take(now) {
		return false
	}
	l.dequeue(s)
	if wanted {
		var buf [2]uint16
		types, first := s.ask(now, buf[:0])
		for _, f := range [2]wire.Family{wire.IPv4, wire.IPv6} {
			// The first time the family by which it was heard of is enough; after
			// that the question goes out by both.
			heard := s.base().family
			if l.families[f] && (!first || f == heard || !l.families[heard]) {
				q.add(l, f, s.name(), types)
			}
		}
		if i, ok := s.(*instance); ok && i.host != nil && i.host.queued == nil && i.host.wants(now) {
			l.enqueue(now, i.host, 0)
		}
	}
	s.schedule()
	return true
}

// questions gathers questions into messages, by family.
type questions struct {
	list [2][]dns.Question
	size [2]int // bytes without compression, at most
}

func (q *questions) add(l *link, f wire.Family, name string, types []uint16) {
	if len(types) == 0 {
		return
	}
	size := len(name) + 1 + 4 + (len(types)-1)*(2+4)
	if q.size[f]+size > maxQuestions {
		q.finish(l, f)
	}
	q.size[f] += size
	for _, t := range types {
		q.list[f] = append(q.list[f], dns.Question{Name: name, Qtype: t, Qclass: dns.ClassINET})
	}
}

func (q *questions) finish(l *link, f wire.Family) {
	if len(q.list[f]) == 0 {
		return
	}
	m := new(dns.Msg)
	m.Question = q.list[f]
	l.b.out = append(l.b.out, wire.Packet{Msg: m, Link: l.index, Family: f})
	q.list[f], q.size[f] = nil, 0
}

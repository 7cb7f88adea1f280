package browser

import (
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// Passive observation of failures (RFC 6762 section 10.5): after two questions of
// other hosts at least a second apart, and poofWait without an answer after the
// second, a record is suspect. The RFC would drop it then; but two lost answers
// are not rare on a bad radio link, and a living neighbour is not to be reported
// lost, so it is put through a check first. What section 10.5 fears of that,
// every host on the link asking at once, cannot happen: checks are rare per
// instance, and a question that another host asks is not repeated (7.3).
const (
	poofWait  = 10 * time.Second
	poofReset = time.Minute // questions further apart are no pattern
)

type poof struct {
	last time.Time // latest unanswered question
	at   time.Time // when the record is suspect; zero after one question only
}

func (p *poof) asked(now time.Time) {
	since := now.Sub(p.last)
	switch {
	case p.last.IsZero() || since > poofReset:
		*p = poof{last: now}
	case since >= askGap:
		if p.last = now; p.at.IsZero() {
			p.at = now.Add(poofWait)
		}
	}
}

// observe learns from a query of another host. Only questions that will be
// answered by multicast count: not QU ones, not legacy ones, not probes, not what
// was sent to this host alone. A truncated query is left out because its known
// answers are not complete, and a query from this host because it may be our own.
func (l *link) observe(now time.Time, in wire.Received) {
	m := in.Msg
	if in.Self || !in.ToMulticast || in.From.Port() != wire.Port || m.Truncated || len(m.Ns) > 0 {
		return
	}
	for _, q := range m.Question {
		if q.Qclass != dns.ClassINET {
			continue
		}
		switch q.Qtype {
		case dns.TypePTR:
			if wire.Key(q.Name) == l.b.service {
				l.observeBrowse(now, in)
			}
		case dns.TypeSRV, dns.TypeTXT:
			// Known answers may be meant for any of the questions; with some there,
			// silence says nothing.
			if i := l.instances[wire.Key(q.Name)]; i != nil && len(m.Answer) == 0 {
				k := 0
				if q.Qtype == dns.TypeTXT {
					k = 1
				}
				i.note(k, in.Family, now)
				if i.found {
					i.poof.asked(now)
					i.schedule()
				}
			}
		case dns.TypeA, dns.TypeAAAA:
			if h := l.hosts[wire.Key(q.Name)]; h != nil && len(m.Answer) == 0 {
				k := 0
				if q.Qtype == dns.TypeAAAA {
					k = 1
				}
				h.note(k, in.Family, now)
			}
		}
	}
}

// observeBrowse lets another host's query for the service stand for our next one
// when that is near and the query's known answers hold nothing that ours would
// not: then whoever would answer us answers it (RFC 6762 section 7.3).
func (l *link) observeBrowse(now time.Time, in wire.Received) {
	second := !l.second.IsZero() && in.Family == l.secondFamily()
	if !l.families[in.Family] || !second && !l.near(now) && l.refresh.IsZero() {
		return
	}
	for _, rr := range in.Msg.Answer {
		ptr, ok := rr.(*dns.PTR)
		if !ok || wire.Key(ptr.Hdr.Name) != l.b.service {
			continue
		}
		i := l.instances[wire.Key(ptr.Ptr)]
		if i == nil || !i.found {
			return
		}
		if _, known := i.ptr.known(now); !known {
			return
		}
	}
	l.covered[in.Family] = true
}

// note records that another host asked for the k-th of the subject's types. It
// counts when it reached the neighbours that our own question would.
func (a *asker) note(k int, family wire.Family, now time.Time) {
	if family == a.family {
		a.heard[k] = now
	}
}

// askedByOther reports whether another host asked for the k-th type so recently
// that a question of ours counts as sent (RFC 6762 section 7.3).
func (a *asker) askedByOther(k int, now time.Time) bool {
	return !a.heard[k].IsZero() && now.Sub(a.heard[k]) < askGap
}

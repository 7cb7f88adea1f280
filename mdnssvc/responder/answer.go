package responder

import (
	"net/netip"
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

// RFC 6762 section 6: the random delay of answers that others may give as well.
const (
	sharedLow  = 20 * time.Millisecond
	sharedHigh = 120 * time.Millisecond
)

// reply is one record a querier asked for.
type reply struct {
	rec     *record
	unicast bool // by unicast, if it was multicast not long ago
	direct  bool // by unicast in any case: the query came by unicast
	defence bool // it answers a probe
}

// query answers a query by the rules of RFC 6762 section 6.
func (r *Responder) query(now time.Time, c *conversation, in wire.Received) wire.DropReason {
	m := in.Msg
	if in.From.Port() != wire.Port {
		return r.legacyQuery(now, c, in)
	}
	r.tiebreak(now, c, in)
	known := c.knownAnswers(m.Answer)
	if len(m.Question) == 0 {
		if x := r.truncatedOf(c, in.From); x != nil {
			r.moreKnown(now, x, known, m.Truncated)
		}
		return ""
	}

	var replies []reply
	shared := false
	here := r.onLink(in.Link, in.From.Addr())
	proposed := make(map[string]bool, len(m.Ns)) // names the sender probes for (section 8.1)
	for _, rr := range m.Ns {
		proposed[wire.Key(rr.Header().Name)] = true
	}
	for _, q := range m.Question {
		defence := len(proposed) > 0 && proposed[wire.Key(q.Name)]
		for _, rec := range c.zone.lookup(q) {
			if c.usable(rec) == nil {
				continue
			}
			replies = mergeReplies(replies, []reply{{
				rec:     rec,
				unicast: here && q.Qclass&wire.TopBit != 0, // anybody can write the address of a victim elsewhere as the source
				direct:  !in.ToMulticast,
				defence: defence && rec.unique,
			}})
			shared = shared || !rec.unique
		}
	}
	if len(replies) == 0 {
		return ""
	}

	notBefore, due := now, now
	switch {
	case m.Truncated && len(m.Ns) == 0:
		if r.wait(now, c, in.From, replies, known) {
			return ""
		}
		fallthrough
	case in.ToMulticast && (shared || len(m.Question) > 1):
		// Others may answer too (section 6), or may have an answer to the other
		// questions (section 6.3).
		notBefore, due = now.Add(sharedLow), now.Add(r.between(sharedLow, sharedHigh))
	}
	return r.reply(now, c, in.From, replies, known, notBefore, due)
}

// reply schedules answers, by multicast and unicast as section 5.4 has it.
func (r *Responder) reply(now time.Time, c *conversation, from netip.AddrPort, replies []reply, known map[string]bool, notBefore, due time.Time) wire.DropReason {
	u := &unicast{conv: c, to: from, due: due}
	for _, p := range replies {
		if c.usable(p.rec) == nil || p.rec.knownIn(known) && !p.defence {
			continue
		}
		var extras []*record
		for _, e := range c.zone.additional(p.rec) {
			if !e.knownIn(known) {
				extras = append(extras, e)
			}
		}
		last := c.lastMulticast(p.rec)
		ttl := time.Duration(p.rec.rr.Header().Ttl) * time.Second
		stale := last.IsZero() || now.Sub(last) >= ttl/4
		byUnicast := p.direct || p.unicast && (p.defence || !stale)
		byMulticast := !p.direct && (!p.unicast || stale)
		at, atLatest := notBefore, due
		if p.defence {
			at, atLatest = now, now // section 6.3: a defence is never delayed
			u.due = now
		}
		if byMulticast {
			c.schedule(p.rec, at, atLatest, p.defence, extras)
		}
		if byUnicast {
			u.answers = append(u.answers, p.rec)
			u.extras = append(u.extras, extras...)
		}
	}
	if len(u.answers) == 0 {
		return ""
	}
	return r.queueUnicast(now, u)
}

// mergeReplies adds replies to a list in which each record is once.
func mergeReplies(list, more []reply) []reply {
next:
	for _, p := range more {
		for i := range list {
			if l := &list[i]; l.rec.id == p.rec.id {
				// Who wants it multicast wins.
				l.unicast = l.unicast && p.unicast
				l.direct = l.direct && p.direct
				l.defence = l.defence || p.defence
				continue next
			}
		}
		list = append(list, p)
	}
	return list
}

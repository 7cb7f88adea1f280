package responder

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	legacyTTL       = 10  // RFC 6762 section 6.7
	legacySize      = 512 // what a resolver without EDNS takes (RFC 1035 section 4.2.1)
	legacyQuestions = 4   // more than any resolver asks at once

	// How many unicast answers are given at once and in a second, which also
	// bounds how many may wait. Sources of queries are easily forged, so answers
	// to them must be few; a thousand neighbours starting at once fit.
	unicastBurst  = 1024
	unicastPerSec = 1024
)

// unicast is an answer to one querier.
type unicast struct {
	conv            *conversation
	to              netip.AddrPort
	due             time.Time
	legacy          *dns.Msg // the query, when it must be repeated (section 6.7)
	answers, extras []*record
}

// legacyQuery answers an ordinary DNS resolver, which asks from a port of its
// own, knows nothing of multicast DNS and accepts only what looks like an
// ordinary answer (RFC 6762 section 6.7).
func (r *Responder) legacyQuery(now time.Time, c *conversation, in wire.Received) wire.DropReason {
	m := in.Msg
	if len(m.Question) > legacyQuestions {
		return DropTooManyQuestions
	}
	known := c.knownAnswers(m.Answer)
	u := &unicast{conv: c, to: in.From, due: now, legacy: m}
	shared := false
	for _, q := range m.Question {
		for _, rec := range c.zone.lookup(q) {
			if c.usable(rec) == nil || rec.knownIn(known) {
				continue
			}
			u.answers = append(u.answers, rec)
			u.extras = append(u.extras, c.zone.additional(rec)...)
			shared = shared || !rec.unique
		}
	}
	if len(u.answers) == 0 {
		return ""
	}
	if !r.onLink(in.Link, in.From.Addr()) {
		return DropOffLink // nor can it be answered by multicast: it would not listen
	}
	if shared && in.ToMulticast {
		u.due = now.Add(r.between(sharedLow, sharedHigh))
	}
	return r.queueUnicast(now, u)
}

// queueUnicast makes an answer wait for its time.
func (r *Responder) queueUnicast(now time.Time, u *unicast) wire.DropReason {
	if !r.allowance.take(now) {
		return DropBusy
	}
	u.trim()
	r.unicasts = append(r.unicasts, u)
	return ""
}

// sendUnicasts sends the answers whose time has come.
func (r *Responder) sendUnicasts(now time.Time) {
	r.unicasts = slices.DeleteFunc(r.unicasts, func(u *unicast) bool {
		if u.due.After(now) {
			return false
		}
		u.answers, u.extras = u.conv.stillUsable(u.answers), u.conv.stillUsable(u.extras)
		u.trim()
		if len(u.answers) > 0 {
			r.emit(now, u.conv, u.message(), u.to)
		}
		return true
	})
}

func (u *unicast) message() *dns.Msg {
	m := response(u.answers, u.extras, u.legacy != nil)
	if u.legacy != nil {
		m.Id, m.Question = u.legacy.Id, u.legacy.Question
		// Additional records are a courtesy, and not one if they cost the answer.
		for len(m.Extra) > 0 && m.Len() > legacySize {
			m.Extra = m.Extra[:len(m.Extra)-1]
		}
	}
	return m
}

// trim leaves each record once, as an answer rather than as an additional one.
func (u *unicast) trim() {
	seen := make(map[string]bool)
	once := func(recs []*record) []*record {
		out := recs[:0:0]
		for _, rec := range recs {
			if !seen[rec.id] {
				seen[rec.id] = true
				out = append(out, rec)
			}
		}
		return out
	}
	u.answers = once(u.answers)
	u.extras = once(u.extras)
}

// stillUsable returns those of the records that may still be sent, with the sets they
// are in now.
func (c *conversation) stillUsable(recs []*record) []*record {
	out := recs[:0:0]
	for _, rec := range recs {
		if cur := c.usable(rec); cur != nil {
			out = append(out, cur.set...)
		}
	}
	return out
}

// bucket allows a burst and then a steady rate.
type bucket struct {
	tokens float64
	filled time.Time
}

func (b *bucket) take(now time.Time) bool {
	if b.filled.IsZero() {
		b.tokens = unicastBurst
	} else if d := now.Sub(b.filled); d > 0 {
		b.tokens = min(unicastBurst, b.tokens+d.Seconds()*unicastPerSec)
	}
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

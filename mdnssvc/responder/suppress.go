package responder

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// RFC 6762 section 7.2: how long a query that announces more known answers
// waits for them, counted from the last packet that announces more.
const (
	truncatedLow  = 400 * time.Millisecond
	truncatedHigh = 500 * time.Millisecond
	truncatedMax  = 2 * time.Second // and in all, whatever keeps coming
	maxTruncated  = 128
)

// truncatedQuery is a query with the TC bit, which waits for the rest of its known answers.
type truncatedQuery struct {
	conv    *conversation
	from    netip.AddrPort
	due     time.Time
	last    time.Time // due is never set beyond this
	replies []reply
	known   map[string]bool
}

// knownAnswers returns which of our records a querier knows already with at
// least half of their TTL left (RFC 6762 section 7.1).
func (c *conversation) knownAnswers(answers []dns.RR) map[string]bool {
	known := make(map[string]bool)
	for _, rr := range answers {
		h := rr.Header()
		if wire.Class(h.Class) != dns.ClassINET || !c.zone.mentions(h.Name) {
			continue
		}
		if rec := c.zone.byID[recordID(rr)]; rec != nil && h.Ttl >= rec.rr.Header().Ttl/2 {
			known[rec.id] = true
		}
	}
	return known
}

// knownIn reports whether a querier that knows these records knows this one, and
// all of its set, because sets are sent whole.
func (rec *record) knownIn(known map[string]bool) bool {
	for _, m := range rec.set {
		if !known[m.id] {
			return false
		}
	}
	return true
}

// truncatedOf returns the waiting query of a source, or nil.
func (r *Responder) truncatedOf(c *conversation, from netip.AddrPort) *truncatedQuery {
	for _, x := range r.truncated {
		if x.conv == c && x.from == from {
			return x
		}
	}
	return nil
}

// wait keeps a truncated query until its known answers are complete, and
// reports whether it did: when too many wait already, the query is answered
// like any other.
func (r *Responder) wait(now time.Time, c *conversation, from netip.AddrPort, replies []reply, known map[string]bool) bool {
	x := r.truncatedOf(c, from)
	if x == nil {
		if len(r.truncated) == maxTruncated {
			return false
		}
		x = &truncatedQuery{conv: c, from: from, last: now.Add(truncatedMax), known: known}
		r.truncated = append(r.truncated, x)
	}
	x.replies = mergeReplies(x.replies, replies)
	r.moreKnown(now, x, known, true)
	return true
}

// moreKnown adds known answers to a waiting query; more says that others follow.
func (r *Responder) moreKnown(now time.Time, x *truncatedQuery, known map[string]bool, more bool) {
	for id := range known {
		x.known[id] = true
	}
	if !more {
		return
	}
	x.due = now.Add(r.between(truncatedLow, truncatedHigh))
	if x.due.After(x.last) {
		x.due = x.last
	}
}

// endTruncated answers the queries that waited long enough.
func (r *Responder) endTruncated(now time.Time) {
	r.truncated = slices.DeleteFunc(r.truncated, func(x *truncatedQuery) bool {
		due := !x.due.After(now)
		if due && x.conv.zone != nil {
			r.reply(now, x.conv, x.from, x.replies, x.known, now, now)
		}
		return due
	})
}

// sameRecord deals with another host's multicast of a record that is ours too.
func (r *Responder) sameRecord(now time.Time, c *conversation, rec *record, ttl uint32, self bool) {
	full := rec.rr.Header().Ttl
	switch {
	case ttl < full/2:
		// RFC 6762 section 6.6: receivers are about to forget a record that still
		// holds, so it is announced again.
		if c.usable(rec) == nil {
			return
		}
		due := now
		if !rec.unique {
			due = now.Add(r.between(sharedLow, sharedHigh))
		}
		c.schedule(rec, due, due, false, nil)
	case ttl >= full && !self:
		// Section 7.4: somebody else has just given the answer.
		delete(c.pending, rec.id)
	}
}

package responder

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// Intervals of RFC 6762 section 6: the least time between two multicasts of one
// record, and the exception for answers to a probe. The first is a little longer
// than the RFC's second, so that the jitter of sending leaves a second of it.
const (
	multicastInterval = time.Second + 10*time.Millisecond
	defenceInterval   = 250 * time.Millisecond
)

// conversation is mDNS by one IP version on one link.
type conversation struct {
	link   int
	family wire.Family

	zone   *zone // nil: there is nothing to announce here
	claims [numClaims]claimState
	round  probeRound
	news   announcement

	pending   map[string]*answer   // by recordID: what waits to be multicast
	published map[string]*record   // by recordID: what was multicast and not withdrawn since
	history   map[string]time.Time // by recordID: the last multicast
}

func newConversation(link int, f wire.Family) *conversation {
	return &conversation{
		link:      link,
		family:    f,
		pending:   make(map[string]*answer),
		published: make(map[string]*record),
		history:   make(map[string]time.Time),
	}
}

// answer is one record that waits to be multicast.
type answer struct {
	rec       *record
	notBefore time.Time          // it may leave with another answer from here on
	due       time.Time          // it leaves of its own
	defence   bool               // it answers a probe
	extras    map[string]*record // additional records its queriers do not know
}

// usable returns the record of that identity as it may be sent now: nil when it
// is no longer ours or its name has not been won.
func (c *conversation) usable(rec *record) *record {
	if c.zone == nil {
		return nil
	}
	cur := c.zone.byID[rec.id]
	if cur == nil || c.claims[cur.claim] != held {
		return nil
	}
	return cur
}

// lastMulticast returns when a record, or for a unique one any of its set, was
// last multicast. Sets go together, because a set that goes with the cache-flush
// bit must be complete (RFC 6762 section 10.2).
func (c *conversation) lastMulticast(rec *record) time.Time {
	var last time.Time
	for _, m := range rec.set {
		if t := c.history[m.id]; t.After(last) {
			last = t
		}
	}
	return last
}

// allowedAt returns the earliest time a record may be multicast again.
func (c *conversation) allowedAt(rec *record, defence bool) time.Time {
	last := c.lastMulticast(rec)
	switch {
	case last.IsZero():
		return last
	case defence:
		return last.Add(defenceInterval)
	}
	return last.Add(multicastInterval)
}

// schedule makes a record wait to be multicast, or an already waiting one hurry.
func (c *conversation) schedule(rec *record, notBefore, due time.Time, defence bool, extras []*record) {
	a := c.pending[rec.id]
	if a == nil {
		a = &answer{rec: rec, notBefore: notBefore, due: due, extras: make(map[string]*record)}
		c.pending[rec.id] = a
	}
	if notBefore.Before(a.notBefore) {
		a.notBefore = notBefore
	}
	if due.Before(a.due) {
		a.due = due
	}
	a.defence = a.defence || defence
	for _, e := range extras {
		a.extras[e.id] = e
	}
}

// at returns when an answer leaves of its own.
func (c *conversation) at(a *answer) time.Time {
	if t := c.allowedAt(a.rec, a.defence); t.After(a.due) {
		return t
	}
	return a.due
}

// next returns when the conversation has something to do, or the zero time.
func (c *conversation) next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if c.probing() {
		sooner(c.round.next)
	}
	if c.news.left > 0 {
		sooner(c.news.next)
	}
	for _, a := range c.pending {
		sooner(c.at(a))
	}
	return next
}

// flush multicasts what is due, and along with it what may already go, in one
// message (RFC 6762 section 6.4).
func (r *Responder) flush(now time.Time, c *conversation) {
	due := false
	for id, a := range c.pending {
		cur := c.usable(a.rec)
		if cur == nil {
			delete(c.pending, id)
			continue
		}
		a.rec = cur
		due = due || !c.at(a).After(now)
	}
	if !due {
		return
	}
	c.completeSets()
	var answers, extras []*record
	wanted := make(map[string]bool)
	for _, rec := range c.zone.records {
		a := c.pending[rec.id]
		if a == nil || a.notBefore.After(now) || c.allowedAt(rec, a.defence).After(now) {
			continue
		}
		answers = append(answers, rec)
		for id := range a.extras {
			wanted[id] = true
		}
	}
	for _, rec := range answers {
		delete(c.pending, rec.id)
		delete(wanted, rec.id)
	}
	for _, rec := range c.zone.records {
		of := slices.ContainsFunc(rec.set, func(m *record) bool { return wanted[m.id] })
		if of && c.usable(rec) != nil && !c.allowedAt(rec, false).After(now) {
			extras = append(extras, rec)
			// An answer that was to follow has just been given.
			delete(c.pending, rec.id)
		}
	}
	for _, rec := range append(answers[:len(answers):len(answers)], extras...) {
		c.history[rec.id] = now
		if rec.rr.Header().Rrtype != dns.TypeNSEC {
			c.publish(rec)
		}
	}
	r.emit(now, c, response(answers, extras, false), netip.AddrPort{})
}

// completeSets makes the rest of a unique set wait along with a member of it: all
// of a set are sent, or none (RFC 6762 section 10.2).
func (c *conversation) completeSets() {
	for _, rec := range c.zone.records {
		a := c.pending[rec.id]
		if a == nil {
			continue
		}
		for _, m := range rec.set {
			if m != rec {
				c.schedule(m, a.notBefore, a.due, a.defence, nil)
			}
		}
	}
}

// publish notes that others know a record now, and no longer what it replaces.
func (c *conversation) publish(rec *record) {
	h := rec.rr.Header()
	maps.DeleteFunc(c.published, func(id string, old *record) bool {
		o := old.rr.Header()
		return rec.unique && c.zone.byID[id] == nil && o.Rrtype == h.Rrtype && wire.Key(o.Name) == wire.Key(h.Name)
	})
	c.published[rec.id] = rec
}

// forget drops history that no rule looks at any more.
func (c *conversation) forget(now time.Time) {
	ttl := time.Duration(otherTTL) * time.Second
	if c.zone != nil {
		ttl = time.Duration(c.zone.ttl) * time.Second
	}
	keep := max(multicastInterval, ttl/4)
	maps.DeleteFunc(c.history, func(_ string, last time.Time) bool {
		return now.Sub(last) > keep
	})
}

// response makes a response message. The cache-flush bit goes to members of
// unique sets that are complete in it: a part of a set, such as what a goodbye
// is for, must not flush the rest (RFC 6762 section 10.2). A legacy response has neither that bit nor TTLs above
// 10 s (section 6.7).
func response(answers, extras []*record, legacy bool) *dns.Msg {
	present := make(map[string]bool, len(answers)+len(extras))
	for _, rec := range answers {
		present[rec.id] = true
	}
	for _, rec := range extras {
		present[rec.id] = true
	}
	render := func(recs []*record) []dns.RR {
		out := make([]dns.RR, 0, len(recs))
		for _, rec := range recs {
			rr := dns.Copy(rec.rr)
			h := rr.Header()
			complete := rec.unique
			for _, m := range rec.set {
				complete = complete && present[m.id]
			}
			switch {
			case legacy:
				h.Ttl = min(h.Ttl, legacyTTL)
			case complete:
				h.Class |= wire.TopBit
			}
			out = append(out, rr)
		}
		return out
	}
	m := &dns.Msg{Answer: render(answers), Extra: render(extras)}
	m.Response, m.Authoritative = true, true
	return m
}

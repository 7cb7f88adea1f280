package responder

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	announceCount = 2 // RFC 6762 section 8.3: at least two, a second apart

	// Section 8.4: records SHOULD NOT be updated more than ten times a minute.
	updateLimit  = 10
	updateWindow = time.Minute
)

// announcement is what is left of announcing a conversation's records.
type announcement struct {
	left    int
	next    time.Time
	updates []time.Time // the latest updates, oldest first
}

// announce makes all records whose names are ours wait to be multicast, at once
// or as soon as the one-second rule allows.
func (r *Responder) announce(now time.Time, c *conversation) {
	if c.news.left == 0 || c.news.next.After(now) {
		return
	}
	c.news.left--
	c.news.next = now.Add(multicastInterval)
	var denials []*record
	for k, rec := range c.zone.nsec {
		if c.claims[k] == held {
			denials = append(denials, rec)
		}
	}
	for _, rec := range c.zone.records {
		if c.claims[rec.claim] == held && rec.rr.Header().Rrtype != dns.TypeNSEC {
			c.schedule(rec, now, now, false, denials)
		}
	}
}

// startUpdate announces changed data (RFC 6762 section 8.4).
func (c *conversation) startUpdate(now time.Time) {
	if c.news.left == announceCount {
		return // an announcement that has not begun will tell the latest data
	}
	c.news.left, c.news.next = announceCount, now
	if n := len(c.news.updates); n == updateLimit {
		if free := c.news.updates[0].Add(updateWindow); free.After(now) {
			c.news.next = free
		}
		c.news.updates = c.news.updates[1:]
	}
	c.news.updates = append(c.news.updates, c.news.next)
}

// adopt makes z what the conversation is about: it takes leave of records that
// are gone, probes for names that are new, and announces data that changed. z is
// nil when there is nothing to announce.
func (r *Responder) adopt(now time.Time, c *conversation, z *zone) {
	old := c.zone
	c.zone = z
	c.forget(now)
	r.leave(now, c)
	if z == nil {
		c.claims = [numClaims]claimState{}
		c.news.left = 0
		clear(c.pending)
		return
	}
	started := false
	for k := range numClaims {
		if old == nil || old.keys[k] != z.keys[k] || c.claims[k] == idle {
			r.startProbing(now, c, k)
			started = true
		}
	}
	if !started && !z.sameAs(old) && slices.Contains(c.claims[:], held) {
		c.startUpdate(now)
	}
}

// leave says goodbye to records that were multicast and are no longer in the
// zone (RFC 6762 section 10.1). Where a unique set only changed, no goodbye is
// needed: the new set flushes the old one when it is multicast.
func (r *Responder) leave(now time.Time, c *conversation) {
	var gone []*record
	for id, rec := range c.published {
		if c.zone != nil && c.zone.byID[id] != nil {
			continue
		}
		if c.zone != nil && rec.unique && c.zone.replaces(rec) {
			continue
		}
		delete(c.published, id)
		gone = append(gone, rec)
	}
	if len(gone) == 0 {
		return
	}
	slices.SortFunc(gone, func(a, b *record) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	m := response(gone, nil, false)
	for _, rr := range m.Answer {
		rr.Header().Ttl = 0
	}
	r.emit(now, c, m, netip.AddrPort{})
}

// replaces reports whether the zone has other records of the same name and type.
func (z *zone) replaces(rec *record) bool {
	h := rec.rr.Header()
	for _, other := range z.byName[wire.Key(h.Name)] {
		if other.rr.Header().Rrtype == h.Rrtype {
			return true
		}
	}
	return false
}

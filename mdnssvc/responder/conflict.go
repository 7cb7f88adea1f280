package responder

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	maxLabel = 63

	// pastOurs is how long data that were ours are still recognised as such:
	// our own packets come back to us, late ones after we changed our mind.
	pastOurs = 10 * time.Second
)

// response looks at what others announce: whether it contradicts us (RFC 6762
// sections 8.1 and 9), answers for us (7.4), or is about to let a record of ours
// expire (6.6).
func (r *Responder) response(now time.Time, c *conversation, in wire.Received) {
	var conflict [numClaims]bool
	for _, section := range [][]dns.RR{in.Msg.Answer, in.Msg.Extra} {
		for _, rr := range section {
			h := rr.Header()
			if wire.Class(h.Class) != dns.ClassINET || !c.zone.mentions(h.Name) {
				continue
			}
			id := recordID(rr)
			if rec := c.zone.byID[id]; rec != nil {
				if in.ToMulticast {
					r.sameRecord(now, c, rec, h.Ttl, in.Self)
				}
				continue
			}
			if k, ok := c.zone.claimOf(h.Name); ok && c.contradicts(k, h) && !r.isOurs(now, id) && !(in.Self && k == hostClaim) {
				conflict[k] = true
			}
		}
	}
	// Before the first probe it may be late news, perhaps of ourselves; whoever
	// has the name will answer the probe (section 8.1).
	probed := c.round.sent > 0
	for k := range numClaims {
		if conflict[k] && (c.claims[k] == held || probed) {
			r.conflict(now, c, k)
		}
	}
}

// contradicts reports whether a record of one of our names that is not ours is a
// conflict. While we only probe for the name, any data there show that it is
// taken; afterwards it takes data of a kind that we are the authority for. A
// goodbye contradicts nobody, and neither does the statement that something
// does not exist.
func (c *conversation) contradicts(k claim, h *dns.RR_Header) bool {
	switch {
	case h.Ttl == 0 || h.Rrtype == dns.TypeNSEC:
		return false
	case c.claims[k] == probing:
		return true
	case k == hostClaim:
		return h.Rrtype == dns.TypeA || h.Rrtype == dns.TypeAAAA
	}
	return h.Rrtype == dns.TypeSRV || h.Rrtype == dns.TypeTXT
}

// isOurs reports whether we announce that very record on some link, or did so a
// moment ago. Links may be bridged, and packets come late.
func (r *Responder) isOurs(now time.Time, id string) bool {
	until, ok := r.mine[id]
	return ok && (until.IsZero() || until.After(now))
}

// conflict gives up a name that we only probed for, and tests one that we held
// (RFC 6762 section 9).
func (r *Responder) conflict(now time.Time, c *conversation, k claim) {
	r.noteConflict(now)
	if r.cfg.OnConflict != nil {
		r.cfg.OnConflict(c.zone.names[k], now)
	}
	if c.claims[k] == held {
		r.startProbing(now, c, k)
		return
	}
	r.renames[k]++
	if r.refresh(now) != nil {
		// Records of the old label were fine, and the new one is no longer than a
		// label may be; should it be refused all the same, keep off the name.
		r.renames[k]--
		r.startProbing(now, c, k)
		return
	}
	if k == instanceClaim && r.cfg.OnRename != nil {
		r.cfg.OnRename(r.label(k))
	}
}

// tiebreak settles who goes first when somebody else probes for a name while we
// do (RFC 6762 section 8.2). The loser waits a second, by when the winner
// answers for the name; or it was a ghost of our own, and nobody does.
func (r *Responder) tiebreak(now time.Time, c *conversation, in wire.Received) {
	if len(in.Msg.Ns) == 0 || c.round.deferred {
		return
	}
	for k := range numClaims {
		if c.claims[k] != probing || in.Self && k == hostClaim {
			continue
		}
		var theirs []dns.RR
		foreign := false
		for _, rr := range in.Msg.Ns {
			if wire.Key(rr.Header().Name) == c.zone.keys[k] {
				theirs = append(theirs, rr)
				foreign = foreign || !r.isOurs(now, recordID(rr))
			}
		}
		if !foreign {
			continue
		}
		var ours []dns.RR
		for _, rec := range c.zone.byName[c.zone.keys[k]] {
			ours = append(ours, rec.rr)
		}
		if compareSets(ours, theirs) < 0 {
			next := now.Add(tiebreakPause)
			if r.slow && c.round.next.After(next) {
				next = c.round.next
			}
			c.round = probeRound{next: next, deferred: true}
			return
		}
	}
}

// compareSets compares two sets of proposed records as RFC 6762 section 8.2.1
// says: each in order, record by record, and a set that ends first is the lesser.
func compareSets(a, b []dns.RR) int {
	return slices.CompareFunc(proposals(a), proposals(b), proposal.compare)
}

// proposal is a record in the form in which tiebreaks compare it.
type proposal struct {
	class, rrtype uint16
	data          []byte
}

func (p proposal) compare(o proposal) int {
	return cmp.Or(cmp.Compare(p.class, o.class), cmp.Compare(p.rrtype, o.rrtype), bytes.Compare(p.data, o.data))
}

func proposals(rrs []dns.RR) []proposal {
	out := make([]proposal, 0, len(rrs))
	for _, rr := range rrs {
		h := rr.Header()
		data, err := wire.RData(rr)
		if err != nil {
			continue // what cannot be written was not received
		}
		out = append(out, proposal{class: wire.Class(h.Class), rrtype: h.Rrtype, data: data})
	}
	slices.SortFunc(out, proposal.compare)
	return out
}

// label returns the plain text of a name's first label as it is in use: the
// wished one, or "host-2" and "instance (2)" after a first conflict, "…3" after
// a second. The wished text is cut, between characters, where a label ends.
func (r *Responder) label(k claim) string {
	base, format := r.wanted.Host, "-%d"
	if k == instanceClaim {
		base, format = r.wanted.Instance, " (%d)"
	}
	n := r.renames[k]
	if n == 0 {
		return base
	}
	suffix := fmt.Sprintf(format, n+1)
	if room := maxLabel - len(suffix); len(base) > room {
		for room > 0 && !utf8.RuneStart(base[room]) {
			room--
		}
		base = base[:room]
	}
	return base + suffix
}

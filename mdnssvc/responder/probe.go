package responder

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// RFC 6762 section 8.1.
const (
	probeDelay    = 250 * time.Millisecond // at most, before the first probe
	probeInterval = 250 * time.Millisecond
	probeCount    = 3

	conflictWindow = 10 * time.Second
	conflictLimit  = 15
	conflictPause  = 5 * time.Second

	tiebreakPause = time.Second // section 8.2
)

// claimState is how far a conversation got with one of our names.
type claimState uint8

const (
	idle    claimState = iota // nothing is wanted
	probing                   // somebody else may have it: nothing may be answered with it
	held                      // it is ours
)

// probeRound is one attempt to win the names that are being probed for. All of
// them are probed for in the same packets.
type probeRound struct {
	next     time.Time
	sent     int
	deferred bool // a tiebreak was lost and no probe was sent since
}

func (c *conversation) probing() bool {
	for _, s := range c.claims {
		if s == probing {
			return true
		}
	}
	return false
}

// startProbing begins a new attempt to win a name, together with those that were
// being probed for already.
func (r *Responder) startProbing(now time.Time, c *conversation, k claim) {
	c.claims[k] = probing
	delay := r.between(0, probeDelay)
	if r.slow {
		delay = conflictPause
	}
	c.round = probeRound{next: now.Add(delay)}
}

// probe sends the next probe, or declares victory when the last one found no
// objection.
func (r *Responder) probe(now time.Time, c *conversation) {
	if !c.probing() || c.round.next.After(now) {
		return
	}
	if c.round.sent < probeCount {
		c.round.sent++
		c.round.deferred = false
		c.round.next = now.Add(probeInterval)
		r.emit(now, c, c.probeMessage(), netip.AddrPort{})
		return
	}
	for k := range c.claims {
		if c.claims[k] == probing {
			c.claims[k] = held
		}
	}
	c.news.left, c.news.next = announceCount, now
}

// probeMessage asks for any record of the names being probed for, wants the
// answer by unicast, and shows what we would put there (RFC 6762 section 8.1).
func (c *conversation) probeMessage() *dns.Msg {
	m := new(dns.Msg)
	for k := range numClaims {
		if c.claims[k] != probing {
			continue
		}
		m.Question = append(m.Question, dns.Question{Name: c.zone.names[k], Qtype: dns.TypeANY, Qclass: dns.ClassINET | wire.TopBit})
		for _, rec := range c.zone.byName[c.zone.keys[k]] {
			m.Ns = append(m.Ns, dns.Copy(rec.rr))
		}
	}
	return m
}

// noteConflict counts one conflict. After too many of them each new attempt
// waits, until one succeeds (RFC 6762 section 8.1).
func (r *Responder) noteConflict(now time.Time) {
	r.conflicts = append(r.conflicts, now)
	if n := len(r.conflicts); n >= conflictLimit {
		r.conflicts = r.conflicts[n-conflictLimit:]
		r.slow = r.slow || now.Sub(r.conflicts[0]) <= conflictWindow
	}
}

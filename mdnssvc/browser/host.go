package browser

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	// maxAddrs bounds the addresses of one family a host may have. IPv6 hosts
	// with several prefixes and privacy addresses reach about ten.
	maxAddrs = 16
	// holdTries is how many questions for the addresses of a new host may stay
	// unanswered (7 s) before an instance that moved there counts as lost.
	holdTries = 3
	// otherTries is how often a family nothing is known about is asked for beside
	// the other one.
	otherTries = 3
	// manyUsers is the number of instances on one host from which on a change of
	// its addresses is told to them later, several changes at once, so that one
	// small packet cannot cause work for thousands.
	manyUsers  = 16
	manyUpdate = 100 * time.Millisecond
)

// host holds the addresses of one host name for as long as an SRV record of
// ours points to it.
type host struct {
	timer
	asker
	link  *link
	key   string
	fqdn  string
	addrs [2][]address // by family
	order []netip.Addr // what list returned; nil after a change
	none  [2]time.Time // until when NSEC says that the host has no such address (RFC 6762 section 6.1)
	other [2]uint8     // tries for a family nothing is known about

	resolve retry // for a host without any address
	check   check
	limit   checkLimit

	users   []*instance
	found   int       // users that are found
	tellAt  time.Time // when to tell users, of whom there are many
	reason  string    // why, if they are lost by it
	touched bool      // in browser.hosts
}

// address is one A or AAAA record.
type address struct {
	record
	addr  netip.Addr
	added time.Time // first heard of
}

var addrTypes = [2]uint16{wire.IPv4: dns.TypeA, wire.IPv6: dns.TypeAAAA}

func (h *host) name() string { return h.fqdn }

func (h *host) urgent() bool { return h.found > 0 || len(h.users) > 0 && h.users[0].group == nil }

func (h *host) count() int { return len(h.addrs[0]) + len(h.addrs[1]) }

// holding reports whether the addresses of the host are still being asked for.
func (h *host) holding(now time.Time) bool {
	return h.resolve.tries < holdTries || h.resolve.tries == holdTries && now.Before(h.resolve.at)
}

func (h *host) join(i *instance) {
	i.hostSlot = len(h.users)
	h.users = append(h.users, i)
	if i.found {
		h.found++
	}
}

// leave removes i; a host without users is forgotten.
func (h *host) leave(i *instance) {
	last := len(h.users) - 1
	h.users[i.hostSlot] = h.users[last]
	h.users[i.hostSlot].hostSlot = i.hostSlot
	h.users[last] = nil
	h.users = h.users[:last]
	if i.found {
		h.found--
	}
	if last == 0 {
		delete(h.link.hosts, h.key)
		h.link.dequeue(h)
		h.link.b.wakeAt(&h.timer, time.Time{})
	}
}

func (h *host) nextAsk() time.Time {
	var next time.Time
	if h.count() == 0 {
		next = h.resolve.next()
	}
	if !h.answered() {
		next = earliest(next, h.check.next())
	}
	if h.found > 0 {
		for f := range h.addrs {
			for k := range h.addrs[f] {
				next = earliest(next, h.addrs[f][k].refreshAt())
			}
		}
	}
	return next
}

// wants includes addresses that may be refreshed already, so that they share a
// packet with the records of the instance.
func (h *host) wants(now time.Time) bool {
	if due(h.nextAsk(), now) {
		return true
	}
	for f := range h.addrs {
		if h.found > 0 && slices.ContainsFunc(h.addrs[f], func(a address) bool { return a.refreshDue(now) }) {
			return true
		}
	}
	return false
}

// answered reports whether each family the host has was heard of since the
// check began.
func (h *host) answered() bool {
	for f := range h.addrs {
		if len(h.addrs[f]) > 0 && !h.confirmed(f) {
			return false
		}
	}
	return true
}

func (h *host) confirmed(family int) bool {
	return slices.ContainsFunc(h.addrs[family], func(a address) bool { return !a.received.Before(h.check.start) })
}

func (h *host) ask(now time.Time, types []uint16) (_ []uint16, first bool) {
	retry := h.count() == 0 && due(h.resolve.next(), now)
	checking := due(h.check.next(), now)
	first = !checking && (!retry || h.resolve.tries == 0)
	var want [2]bool
	refresh := false
	for f := range h.addrs {
		want[f] = retry || checking && len(h.addrs[f]) > 0 && !h.confirmed(f)
		for k := range h.addrs[f] {
			if a := &h.addrs[f][k]; h.found > 0 && a.refreshDue(now) {
				want[f], refresh, first = true, true, first && a.tries == 0
				a.refreshed(now)
			}
		}
	}
	for f := range want {
		if len(h.addrs[f]) == 0 {
			if refresh && h.other[f] < otherTries {
				h.other[f]++
				want[f] = true
			}
			want[f] = want[f] && now.After(h.none[f])
		}
		if want[f] && !h.askedByOther(f, now) {
			types = append(types, addrTypes[f])
		}
	}
	if retry {
		h.resolve.tried(now)
	}
	if checking {
		h.check.step += 2
	}
	return types, first
}

func (h *host) schedule() {
	next := earliest(h.tellAt, h.check.deadline())
	for f := range h.addrs {
		for k := range h.addrs[f] {
			next = earliest(next, h.addrs[f][k].expires)
		}
	}
	if h.count() == 0 && h.found > 0 && h.resolve.tries == holdTries {
		next = earliest(next, h.resolve.at)
	}
	if h.queued == nil {
		next = earliest(next, h.nextAsk())
	}
	h.link.b.wakeAt(&h.timer, next)
}

func (h *host) wake(now time.Time, late time.Duration) {
	if h.found > 0 {
		h.spare(now, late)
	}
	reason, had := "", h.count()
	if due(h.check.deadline(), now) {
		h.remove(func(a *address) bool { return a.received.Before(h.check.start) })
		h.check = check{}
		reason = ReasonNoAnswer
	}
	h.remove(func(a *address) bool {
		if !a.expired(now) {
			return false
		}
		reason = a.record.reason()
		return true
	})
	if due(h.nextAsk(), now) {
		h.link.enqueue(now, h, refreshDelay)
	}
	switch {
	case had > 0 && h.count() == 0:
		// All were asked for often enough while they lived.
		h.resolve.giveUp()
		h.tell(now, reason)
	case h.count() < had:
		h.tell(now, reason)
	case h.count() == 0 && h.found > 0 && !h.holding(now):
		h.tell(now, ReasonNoAnswer)
	case due(h.tellAt, now):
		h.tellAt = time.Time{}
		h.tellAll(now, h.reason)
	}
	if len(h.users) > 0 {
		h.schedule()
	}
}

// spare is to addresses what instance.spare is to the other records.
func (h *host) spare(now time.Time, late time.Duration) {
	again, ending := late > lateAfter && !h.check.start.IsZero(), false
	for f := range h.addrs {
		for k := range h.addrs[f] {
			if a := &h.addrs[f][k]; a.spare(now, late) {
				again, ending = true, ending || a.ending != 0
			}
		}
	}
	switch {
	case ending:
		h.link.checkSoon(now, h, &h.check)
	case again:
		h.check = newHostCheck(now)
	}
}

func (h *host) remove(gone func(*address) bool) {
	for f := range h.addrs {
		h.addrs[f] = slices.DeleteFunc(h.addrs[f], func(a address) bool { return gone(&a) })
	}
	h.order = nil
}

// receive takes in an A or AAAA record of the host.
func (h *host) receive(now time.Time, addr netip.Addr, hdr *dns.RR_Header) wire.DropReason {
	f := int(wire.FamilyOf(addr))
	set := h.addrs[f]
	at := slices.IndexFunc(set, func(a address) bool { return a.addr == addr })
	if hdr.Ttl == 0 {
		if at >= 0 {
			set[at].end(now, goodbye)
			h.question(now)
		}
		return ""
	}
	var drop wire.DropReason
	if at < 0 {
		if len(set) >= maxAddrs {
			oldest := 0
			for k := range set {
				if set[k].expires.Before(set[oldest].expires) {
					oldest = k
				}
			}
			set = slices.Delete(set, oldest, oldest+1)
			drop = DropAddressLimit
		}
		h.order = nil
		set = append(set, address{addr: addr, added: now})
		at = len(set) - 1
		h.addrs[f] = set
	}
	set[at].set(now, hdr.Ttl, h.link.jitter(now))
	h.other[f] = 0
	h.none[f] = time.Time{}
	if hdr.Class&wire.TopBit != 0 {
		// The set was given anew: what was heard of more than a second ago and is
		// not part of it any more has one second left (RFC 6762 section 10.2).
		for k := range set {
			if a := &set[k]; a.ending == 0 && now.Sub(a.received) > goodbyeTTL {
				a.end(now, flushed)
			}
		}
	}
	return drop
}

// question is to a host without an address that stays what link.question is to
// an instance.
func (h *host) question(now time.Time) {
	for f := range h.addrs {
		if slices.ContainsFunc(h.addrs[f], func(a address) bool { return a.ending == 0 }) {
			return
		}
	}
	if h.found > 0 && h.check.start.IsZero() {
		h.link.checkSoon(now, h, &h.check)
	}
}

// receiveNSEC takes in which address types the host says it does not have. An
// address already known is left to its own TTL: some responders deny what they
// only do not tell by this family.
func (h *host) receiveNSEC(now time.Time, rr *dns.NSEC) {
	for f, t := range addrTypes {
		if !slices.Contains(rr.TypeBitMap, t) {
			h.none[f] = now.Add(min(time.Duration(rr.Hdr.Ttl)*time.Second, maxTTL))
		}
	}
}

// list returns the addresses, those heard of last first; of those heard of
// together, the ones that need no zone. The slice is the same until one comes or
// goes, so that hearing of a host again costs no memory, and must not be changed.
func (h *host) list() []netip.Addr {
	if h.order != nil {
		return h.order
	}
	all := make([]address, 0, h.count())
	all = append(append(all, h.addrs[0]...), h.addrs[1]...)
	slices.SortFunc(all, func(a, b address) int {
		if c := b.added.Compare(a.added); c != 0 {
			return c
		}
		if x, y := a.addr.IsLinkLocalUnicast(), b.addr.IsLinkLocalUnicast(); x != y {
			if x {
				return 1
			}
			return -1
		}
		return a.addr.Compare(b.addr)
	})
	out := make([]netip.Addr, len(all))
	for k := range all {
		out[k] = all[k].addr
	}
	h.order = out
	return out
}

// minTTL returns the smallest TTL among ttl and the addresses.
func (h *host) minTTL(ttl uint32) uint32 {
	for f := range h.addrs {
		for k := range h.addrs[f] {
			ttl = min(ttl, h.addrs[f][k].ttl)
		}
	}
	return ttl
}

// tell lets the instances on the host know that its addresses changed.
func (h *host) tell(now time.Time, reason string) {
	if len(h.users) <= manyUsers {
		h.tellAll(now, reason)
		return
	}
	if h.reason = reason; h.tellAt.IsZero() {
		h.tellAt = now.Add(manyUpdate)
	}
}

func (h *host) tellAll(now time.Time, reason string) {
	for k := len(h.users) - 1; k >= 0; k-- { // who is lost by it leaves, and the last one takes its place
		i := h.users[k]
		i.update(now, reason)
		if i.host == h {
			i.schedule()
		}
	}
}

package browser

import (
	"container/list"
	"net/netip"
	"strconv"
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

const (
	// The first query waits this long at random (RFC 6762 section 5.2), so that
	// hosts that start together do not ask together.
	minFirst, maxFirst = 20 * time.Millisecond, 120 * time.Millisecond
	// Queries follow each other after firstGap, then twice the gap before, up to
	// maxGap (section 5.2).
	firstGap = time.Second
	maxGap   = time.Hour
	// secondDelay is how long the second family's query follows the first's. A
	// responder takes up to 120 ms for an answer (section 6).
	secondDelay = 200 * time.Millisecond
	// askDelay and refreshDelay gather questions into common packets: what is
	// needed now waits shortly, a refresh has plenty of time.
	askDelay     = 20 * time.Millisecond
	refreshDelay = 250 * time.Millisecond
	// budgetDelay is how long questions wait once the budget is used up.
	budgetDelay = 50 * time.Millisecond
	// jitterPeriod is how long records heard of get the same jitter, so that those
	// of neighbours that answered together stay together and their refreshes share
	// packets. What the jitter is for, that hosts do not all ask at once (section
	// 5.2), needs only that each host draws its own.
	jitterPeriod = 10 * time.Second
	// spacingPerAnswer keeps queries that only refresh PTR records apart in
	// proportion to the known answers they carry: senders of short-lived records
	// must not make us repeat a long list every second.
	spacingPerAnswer = 10 * time.Millisecond
)

// Names asked for per second, and at once. For what was found this only paces the
// questions, and with them the answers: 5,000 neighbours with the usual 120 s
// need 100 names a second and 10 s for all of them. For what was not it is the
// bound on what bogus announcements can make us ask; its burst lets a thousand
// true ones be asked for quickly.
const (
	verifiedRate, verifiedBurst     = 1000, 100
	unverifiedRate, unverifiedBurst = 500, 1000
)

// subject is something to ask for by name: an instance or a host.
type subject interface {
	name() string
	urgent() bool
	base() *asker
	// wants reports whether there is something to ask for now.
	wants(now time.Time) bool
	// ask appends the record types to ask for now and notes that they were asked
	// for; first is false when one of them was asked for before.
	ask(now time.Time, types []uint16) (_ []uint16, first bool)
	schedule()
}

// asker is what instances and hosts have in common.
type asker struct {
	src    *source       // who announced it
	family wire.Family   // by which it was heard of last
	queue  *list.List    // that it waits in, to be asked for
	queued *list.Element // where in queue; nil: it does not wait
	heard  [2]time.Time  // when another host last asked for each of its two types
}

func (a *asker) base() *asker { return a }

// link is what is known about one link, and what is to be asked there.
type link struct {
	timer
	b         *Browser
	index     int
	zone      string
	families  [2]bool
	off       bool // as LinkFamilies says
	instances map[string]*instance
	all       []*instance // the same; link.drop keeps their index
	hosts     map[string]*host
	sources   map[netip.Addr]*source
	order     heap[*source] // who gives way first

	// Queries for the service itself.
	next    time.Time     // the next scheduled one; zero: not browsing
	gap     time.Duration // between the last one and next
	last    time.Time     // the last query, for whatever reason
	spacing time.Duration // least time from last to one that only refreshes
	refresh time.Time     // when to ask because PTR records need it
	second  time.Time     // when the second family asks what the first asked at last
	covered [2]bool       // another host's query stands for our next one (section 7.3)

	jitterValue uint8
	jitterUntil time.Time

	// Questions about instances and hosts.
	flush      time.Time // when those that wait are asked
	urgent     list.List // subject: found or remembered
	turns      list.List // *source: those with something waiting, next first
	verified   budget
	unverified budget
}

func newLink(b *Browser, index int) *link {
	l := &link{
		b:         b,
		index:     index,
		zone:      strconv.Itoa(index),
		instances: make(map[string]*instance),
		hosts:     make(map[string]*host),
		sources:   make(map[netip.Addr]*source),
		order:     heap[*source]{before: gives},
	}
	l.timer = timer{place: outside, owner: l}
	l.verified = newBudget(verifiedRate, verifiedBurst)
	l.unverified = newBudget(unverifiedRate, unverifiedBurst)
	return l
}

// start begins to query, or begins again.
func (l *link) start(now time.Time) {
	l.stop()
	l.next = now.Add(l.b.between(minFirst, maxFirst))
	l.gap = firstGap / 2
	l.schedule()
}

// stop ends all queries for the service.
func (l *link) stop() {
	l.next, l.refresh, l.second = time.Time{}, time.Time{}, time.Time{}
	l.covered = [2]bool{}
	l.schedule()
}

// silence loses every instance because browsing is switched off, and ends all
// queries.
func (l *link) silence() {
	l.clear(ReasonDiscoveryOff)
	l.stop()
}

// clear loses every instance.
func (l *link) clear(reason string) {
	for len(l.all) > 0 {
		l.drop(l.all[len(l.all)-1], reason)
	}
}

func (l *link) schedule() {
	l.b.wakeAt(&l.timer, earliest(l.next, l.refresh, l.second, l.flush))
}

func (l *link) wake(now time.Time, _ time.Duration) {
	if scheduled := due(l.next, now); scheduled || due(l.refresh, now) {
		l.query(now, scheduled)
	}
	if due(l.second, now) {
		l.second = time.Time{}
		l.browse(now, l.secondFamily())
	}
	if due(l.flush, now) {
		l.flushAsks(now)
	}
	l.schedule()
}

func (l *link) firstFamily() wire.Family {
	if l.families[wire.IPv4] {
		return wire.IPv4
	}
	return wire.IPv6
}

// secondFamily is only asked for when both are in use.
func (l *link) secondFamily() wire.Family { return wire.IPv6 }

// query asks for the service, by each family whose question no other host just
// asked.
func (l *link) query(now time.Time, scheduled bool) {
	l.refresh, l.second = time.Time{}, time.Time{}
	l.last = now
	l.spacing = askGap
	// A query to refresh records is no different from a scheduled one, which
	// would only repeat it when it is near.
	if scheduled || l.near(now) {
		l.gap = min(2*l.gap, maxGap)
		l.next = now.Add(l.gap)
	}
	l.browse(now, l.firstFamily())
	if l.families[wire.IPv4] && l.families[wire.IPv6] {
		l.second = now.Add(secondDelay)
	}
}

// near reports whether the next scheduled query is so near that a query now
// stands for it.
func (l *link) near(now time.Time) bool { return due(l.next, now.Add(l.gap/2)) }

// refreshPTR has the service asked for because a PTR record nears its end. gap
// is how long ago the last query may be to have asked for it as well: none of
// them lists a record as known that has less than half of its life left.
func (l *link) refreshPTR(now time.Time, gap time.Duration) {
	if !l.last.IsZero() && now.Sub(l.last) < gap {
		return
	}
	at := now.Add(refreshDelay)
	if soonest := l.last.Add(l.spacing); at.Before(soonest) {
		at = soonest
	}
	l.refresh = earliest(l.refresh, at)
	l.schedule()
}

// enqueue has s asked for after delay at the latest, if its turn comes.
func (l *link) enqueue(now time.Time, s subject, delay time.Duration) {
	if a := s.base(); a.queued == nil {
		if s.urgent() {
			a.queue = &l.urgent
		} else {
			a.queue = &a.src.waiting
			if a.src.turn == nil {
				a.src.turn = l.turns.PushBack(a.src)
			}
		}
		a.queued = a.queue.PushBack(s)
	}
	l.flush = earliest(l.flush, now.Add(delay))
	l.schedule()
}

// dequeue takes s out of the queue it waits in, if it does.
func (l *link) dequeue(s subject) {
	a := s.base()
	if a.queued == nil {
		return
	}
	a.queue.Remove(a.queued)
	a.queue, a.queued = nil, nil
	if src := a.src; src.turn != nil && src.waiting.Len() == 0 {
		l.turns.Remove(src.turn)
		src.turn = nil
	}
}

// jitter returns the jitter for a record heard of now.
func (l *link) jitter(now time.Time) uint8 {
	if !now.Before(l.jitterUntil) {
		l.jitterValue = uint8(l.b.cfg.Rand.UintN(256))
		l.jitterUntil = now.Add(jitterPeriod)
	}
	return l.jitterValue
}

// host returns the host of a name, for the SRV record of i.
func (l *link) host(now time.Time, key, fqdn string, i *instance) *host {
	h := l.hosts[key]
	if h == nil {
		h = &host{link: l, key: key, fqdn: fqdn}
		h.timer = timer{place: outside, owner: h}
		h.src, h.family = i.src, i.family
		h.resolve.start(now)
		l.hosts[key] = h
	}
	return h
}

// add makes a new instance.
func (l *link) add(now time.Time, key, fqdn, label string, src *source, remembered bool) *instance {
	i := &instance{link: l, key: key, fqdn: fqdn, label: label, created: now, armed: now, index: len(l.all)}
	i.timer = timer{place: outside, owner: i}
	i.pub = Instance{Name: label, Service: l.b.cfg.Service, Domain: l.b.cfg.Domain, Link: l.index}
	i.resolve.start(now)
	l.enroll(i, src, remembered)
	l.instances[key] = i
	l.all = append(l.all, i)
	return i
}

// drop forgets an instance, and says so when it was found.
func (l *link) drop(i *instance, reason string) {
	if i.found {
		l.b.emit(Lost, i.pub, reason)
	}
	l.dequeue(i)
	i.setHost(nil)
	i.found, i.gone = false, true
	l.discharge(i)
	last := len(l.all) - 1
	l.all[i.index] = l.all[last]
	l.all[i.index].index = i.index
	l.all[last] = nil
	l.all = l.all[:last]
	delete(l.instances, i.key)
	l.b.wakeAt(&i.timer, time.Time{})
}

package browser

import (
	"container/list"
	"slices"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// rearmAfter is how long an instance that did not resolve is left in peace
// before hearing its PTR once more starts new tries.
const rearmAfter = time.Minute

// instance is one PTR record of the service on one link and what it leads to.
// It is found, that is, told to the caller, once SRV, TXT and an address are
// there; when one of them ends for good the whole instance goes, its PTR too:
// a PTR kept without the rest would sit among our known answers and silence the
// neighbour if it comes back.
type instance struct {
	timer
	asker
	link    *link
	key     string // wire.Key of the full name
	fqdn    string
	label   string // plain text of the instance label
	created time.Time

	ptr, srv, txt record
	port          uint16
	priority      uint16
	message       uint64 // that brought the SRV record, see Browser.messages
	text          []string
	host          *host // SRV target; nil without one
	hostSlot      int   // place in host.users

	resolve retry     // for a missing SRV or TXT
	armed   time.Time // when resolve was started
	check   check
	limit   checkLimit
	poof    poof

	found   bool
	pub     Instance // as last told
	touched bool     // in browser.touched
	gone    bool     // dropped
	index   int      // in link.all

	group *list.List    // which of its source's lists holds it; nil: protected from eviction
	spot  *list.Element // where in group
}

func (i *instance) name() string { return i.fqdn }

func (i *instance) urgent() bool { return i.found || i.group == nil }

func (i *instance) missing() bool { return !i.srv.live() || !i.txt.live() }

// nextAsk returns when something is to be asked for under the instance's name.
func (i *instance) nextAsk() time.Time {
	next := i.check.next()
	if i.missing() {
		next = earliest(next, i.resolve.next())
	}
	if i.found {
		next = earliest(next, i.srv.refreshAt(), i.txt.refreshAt())
	}
	return next
}

func (i *instance) wants(now time.Time) bool { return due(i.nextAsk(), now) }

func (i *instance) ask(now time.Time, types []uint16) (_ []uint16, first bool) {
	retry := i.missing() && due(i.resolve.next(), now)
	checking := due(i.check.next(), now)
	first = !checking && (!retry || i.resolve.tries == 0)
	for k, r := range [2]*record{&i.srv, &i.txt} {
		want := checking && (int(i.check.step)%2 == k || r.ending == goodbye)
		switch {
		case !r.live():
			want = want || retry
		case i.found && r.refreshDue(now):
			want, first = true, first && r.tries == 0
			r.refreshed(now)
		}
		if want && !i.askedByOther(k, now) {
			types = append(types, [2]uint16{dns.TypeSRV, dns.TypeTXT}[k])
		}
	}
	if retry {
		i.resolve.tried(now)
	}
	if checking {
		i.check.step++
	}
	return types, first
}

// schedule sets the timer to whatever comes first.
func (i *instance) schedule() {
	next := earliest(i.ptr.expires, i.srv.expires, i.txt.expires, i.check.deadline(), i.poof.at)
	if i.found {
		next = earliest(next, i.ptr.refreshAt())
	}
	if i.queued == nil {
		next = earliest(next, i.nextAsk())
	}
	i.link.b.wakeAt(&i.timer, next)
}

func (i *instance) wake(now time.Time, late time.Duration) {
	l := i.link
	if i.found {
		i.spare(now, late)
	}
	if due(i.check.deadline(), now) {
		l.drop(i, ReasonNoAnswer)
		return
	}
	if due(i.poof.at, now) {
		i.poof = poof{}
		l.reconfirm(now, i)
	}
	reason := ""
	for _, r := range [3]*record{&i.ptr, &i.srv, &i.txt} {
		if r.expired(now) {
			reason = r.reason()
			r.clear()
		}
	}
	switch {
	case reason != "" && (i.found || !i.ptr.live()):
		l.drop(i, reason)
		return
	case reason != "":
		// It never was complete, and was asked for more than once.
		i.resolve.giveUp()
		if !i.srv.live() {
			i.setHost(nil)
		}
	}
	if i.found && due(i.ptr.refreshAt(), now) {
		gap := i.ptr.retryGap()
		i.ptr.refreshed(now)
		l.refreshPTR(now, gap)
	}
	if due(i.nextAsk(), now) {
		l.enqueue(now, i, refreshDelay)
	}
	i.schedule()
}

// spare handles a wake-up that comes late (the process, or the machine, was stopped):
// what ended meanwhile is asked for now instead of being given up, as the refresh
// questions were never asked, or the answers not read.
func (i *instance) spare(now time.Time, late time.Duration) {
	again, ending := late > lateAfter && !i.check.start.IsZero(), false
	for _, r := range [3]*record{&i.ptr, &i.srv, &i.txt} {
		if r.spare(now, late) {
			again, ending = true, ending || r.ending != 0
		}
	}
	switch {
	case ending:
		i.link.checkSoon(now, i, &i.check)
	case again:
		i.check = check{start: now}
	default:
		return
	}
	i.link.refreshPTR(now, askGap)
}

// receivePTR takes in a PTR that names the instance.
func (i *instance) receivePTR(now time.Time, ttl uint32) {
	if ttl == 0 {
		i.ptr.end(now, goodbye)
		i.link.question(now, i)
		return
	}
	i.ptr.set(now, ttl, i.link.jitter(now))
	if i.found || !i.resolve.gaveUp(now) || now.Sub(i.armed) < rearmAfter {
		return
	}
	i.armed = now
	i.resolve.start(now)
	if i.host != nil && i.host.count() == 0 {
		i.host.resolve.start(now)
	}
}

func (i *instance) receiveSRV(now time.Time, rr *dns.SRV) wire.DropReason {
	if rr.Port == 0 || rr.Target == "." || rr.Target == "" {
		return DropBadSRV
	}
	key := wire.Key(rr.Target)
	same := i.srv.live() && rr.Port == i.port && i.host != nil && i.host.key == key
	if rr.Hdr.Ttl == 0 {
		// The goodbye for a record that was replaced already means nothing.
		if same {
			i.srv.end(now, goodbye)
			i.link.question(now, i)
		}
		return ""
	}
	if !same && i.srv.live() && i.message == i.link.b.messages && rr.Priority >= i.priority {
		return "" // the lesser of several in one message
	}
	i.srv.set(now, rr.Hdr.Ttl, i.link.jitter(now))
	i.alive(now)
	i.port, i.priority, i.message = rr.Port, rr.Priority, i.link.b.messages
	if i.host == nil || i.host.key != key {
		i.setHost(i.link.host(now, key, rr.Target, i))
	}
	return ""
}

func (i *instance) receiveTXT(now time.Time, rr *dns.TXT) wire.DropReason {
	size := 0
	for _, s := range rr.Txt {
		size += stringOverhead + len(s)
	}
	if size > maxTXT {
		return DropTXTSize
	}
	text := rr.Txt
	if len(text) == 0 {
		text = noTXT
	}
	if rr.Hdr.Ttl == 0 {
		if i.txt.live() && slices.Equal(i.text, text) {
			i.txt.end(now, goodbye)
			i.link.question(now, i)
		}
		return ""
	}
	i.txt.set(now, rr.Hdr.Ttl, i.link.jitter(now))
	i.alive(now)
	i.text = text
	return ""
}

// noTXT is what an instance without a TXT record says, or with an empty one (RFC
// 6763 section 6.1).
var noTXT = []string{""}

// receiveNSEC takes in that the instance has no TXT record.
func (i *instance) receiveNSEC(now time.Time, rr *dns.NSEC) {
	if rr.Hdr.Ttl == 0 || slices.Contains(rr.TypeBitMap, dns.TypeTXT) || i.txt.live() && !slices.Equal(i.text, noTXT) {
		return
	}
	i.txt.set(now, rr.Hdr.Ttl, i.link.jitter(now))
	i.alive(now)
	i.text = noTXT
}

// A TXT record should not exceed 1300 bytes (RFC 6763 section 6.2). The bound
// is on what it takes in memory, where a byte may be escaped as four.
const (
	maxTXT         = 4096
	stringOverhead = 16
)

// alive notes that the instance answered. Whoever says goodbye answers no more,
// so a goodbye that waits to take effect was not its own.
func (i *instance) alive(now time.Time) {
	i.ptr.resume(now)
	i.srv.resume(now)
	i.txt.resume(now)
	i.check = check{}
	i.poof = poof{}
}

// setHost makes the SRV record point to h, which may be nil.
func (i *instance) setHost(h *host) {
	if old := i.host; old != nil {
		old.leave(i)
	}
	if i.host = h; h != nil {
		h.join(i)
	}
}

// update tells the caller what is new about the instance. reason is why
// something it needs may be missing.
func (i *instance) update(now time.Time, reason string) {
	if i.missing() || i.host == nil || i.host.count() == 0 {
		if i.found && (i.missing() || i.host == nil || !i.host.holding(now)) {
			i.link.drop(i, reason)
		}
		return
	}
	was := i.pub
	addrs := i.host.list()
	if i.found && was.Host == i.host.fqdn && was.Port == i.port &&
		slices.Equal(was.Addrs, addrs) && slices.Equal(was.TXT, i.text) {
		return
	}
	i.pub.Host, i.pub.Port, i.pub.TXT, i.pub.Addrs = i.host.fqdn, i.port, i.text, addrs
	kind := Updated
	if !i.found {
		kind = Found
		i.found = true
		i.host.found++
		i.link.promote(i)
	}
	i.pub = i.snapshot()
	i.link.b.emit(kind, i.pub, "")
}

// snapshot returns a found instance as last told, with its TTLs of now.
func (i *instance) snapshot() Instance {
	s := i.pub
	s.PTRTTL = time.Duration(i.ptr.ttl) * time.Second
	s.TTL = time.Duration(i.host.minTTL(i.srv.ttl)) * time.Second
	return s
}

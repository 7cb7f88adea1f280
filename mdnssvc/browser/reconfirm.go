package browser

import (
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

// checkSteps are the times, from the start of a check, at which something that
// may be gone is asked for. Even steps ask for the SRV record, odd ones for the
// TXT record and the addresses: each question keeps the gaps of RFC 6762 section
// 5.2 (one second, then twice as long), and a neighbour that is alive has six
// chances to be heard in spite of lost packets. PTR is not asked for: every
// neighbour would have to be listed as known in that question, and it goes with
// the SRV record.
var checkSteps = [...]time.Duration{0, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 3 * time.Second, 3500 * time.Millisecond}

// checkTime is how long a check waits for an answer. Section 10.4 allows ten
// seconds; all that is asked for here is sent at once by whoever has it, so what
// has not come half a second after the last question will not come.
const checkTime = 4 * time.Second

// check is the state of asking again for records that may be gone (section
// 10.4). The zero value means that no check is running.
type check struct {
	start time.Time
	step  uint8
}

// newHostCheck returns the check of a host's addresses, which has the odd steps.
func newHostCheck(now time.Time) check { return check{start: now, step: 1} }

func (c *check) next() time.Time {
	if c.start.IsZero() || int(c.step) >= len(checkSteps) {
		return time.Time{}
	}
	return c.start.Add(checkSteps[c.step])
}

// deadline returns when what did not answer is gone.
func (c *check) deadline() time.Time {
	if c.start.IsZero() {
		return time.Time{}
	}
	return c.start.Add(checkTime)
}

// Checks of one thing keep a distance that doubles as long as they keep coming:
// a dead endpoint on a host whose responder lives is found alive every time, and
// asking every time somebody fails to connect would be a storm.
const (
	minCheckGap = 10 * time.Second
	maxCheckGap = 10 * time.Minute
)

type checkLimit struct {
	last time.Time
	gap  time.Duration
}

func (c *checkLimit) allow(now time.Time) bool {
	since := now.Sub(c.last)
	if c.last.IsZero() || since > 2*maxCheckGap {
		*c = checkLimit{last: now, gap: minCheckGap}
		return true
	}
	if since < c.gap {
		return false
	}
	c.last, c.gap = now, min(2*c.gap, maxCheckGap)
	return true
}

// Reconfirm says that an instance seems to be gone, for example because a
// connection to it failed. Its SRV and TXT records and its addresses are asked
// for again; what stays unanswered for four seconds leaves the cache (RFC 6762
// section 10.4), which ends in a Lost event. An answer keeps the instance and
// causes no event. instance is the plain label, as in Instance.Name. Unknown
// instances, and calls that come too often for one instance, are ignored.
func (b *Browser) Reconfirm(now time.Time, link int, instance string) {
	b.now = now
	l := b.links[link]
	if l == nil {
		return
	}
	if i := l.instances[wire.Key(wire.InstanceName(instance, b.cfg.Service, b.cfg.Domain))]; i != nil {
		l.reconfirm(now, i)
	}
}

func (l *link) reconfirm(now time.Time, i *instance) {
	if !i.found || !i.check.start.IsZero() || !i.limit.allow(now) {
		return
	}
	i.check = check{start: now}
	l.enqueue(now, i, askDelay)
	i.schedule()
	if h := i.host; h.check.start.IsZero() && h.limit.allow(now) {
		h.check = newHostCheck(now)
		h.schedule()
	}
}

// question asks for the records of an instance that said goodbye, because
// anybody on the link can say that for it. Its owner, should it be alive, sees
// the goodbye too and announces itself again (RFC 6762 section 6.6), but perhaps
// that packet is lost, or the goodbye was sent to this host alone. The question
// does not hold up a true goodbye: nobody answers, and the records end when their
// second is over. Other hosts heard it as well, hence the random delay.
func (l *link) question(now time.Time, i *instance) {
	if !i.found || !i.check.start.IsZero() {
		return
	}
	l.checkSoon(now, i, &i.check)
}

// checkSoon begins a check anew, whose first question is on its way before the second after a goodbye is over.
func (l *link) checkSoon(now time.Time, s subject, c *check) {
	*c = check{start: now}
	l.enqueue(now, s, l.b.between(minFirst, maxFirst))
}

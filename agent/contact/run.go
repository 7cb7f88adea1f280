package contact

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/peer"
)

const (
	// lookEvery is the time between two askings of a place that answers.
	lookEvery = 10 * time.Minute
	// firstRetry is when a place that leads nowhere is asked again; the time doubles
	// up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// spread varies a time by a tenth, so that what was found together is not asked
// together for ever.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// retry is when to ask again after so many times in vain, at least one.
func retry(times int) time.Duration {
	d := firstRetry
	for i := 1; i < times && d < lastRetry; i++ {
		d *= 2
	}
	return spread(min(d, lastRetry))
}

// take carries out what was said.
func (c *Contacts) take(orders []order, touched map[peer.ClusterID]struct{}) {
	now := time.Now()
	for _, o := range orders {
		switch {
		case o.lead != nil:
			c.set(*o.lead, now)
		case o.drop != nil:
			c.drop(o.key, *o.drop)
		}
		if e := c.leads[o.key]; o.ask && e != nil {
			c.askNow(e, now)
		}
	}
	for id := range touched {
		for e := range c.byID[id] {
			c.touch(e, now)
		}
	}
}

// set adds or changes a lead.
func (c *Contacts) set(l Lead, now time.Time) {
	e := c.leads[l.Key]
	switch {
	case e == nil && !c.room(l.Key):
	case e == nil:
		e = &entry{key: l.Key, state: new(State)}
		c.leads[l.Key] = e
		c.count[sideOf(l.Key)]++
		c.begin(e, l, now)
	case e.state.Lead.equal(l):
	case e.state.Lead.samePlace(l) && e.state.Lead.sameExpectation(l):
		c.describe(e, l)
	default:
		c.begin(e, l, now)
	}
}

// room reports whether there is room for one more lead.
func (c *Contacts) room(k peer.Key) bool {
	if c.count[sideOf(k)] < c.cfg.Limit {
		return true
	}
	if c.refused.Add(1) == 1 {
		c.cfg.Logger.Warn("clusters are said to be at more places than there is room for; what does not fit is left out",
			"limit", c.cfg.Limit, "source", k.Source, "domain", k.Domain)
	}
	return false
}

// describe takes in what a lead says that has nothing to do with where it leads.
func (c *Contacts) describe(e *entry, l Lead) {
	l.Addrs = e.state.Lead.Addrs // in the order in which they were tried
	next := *e.state
	next.Lead = l
	c.publish(e, next, e.due)
	c.tell(e, l.ID, e.described(l), e.why)
}

// begin has a lead looked at that is new, or leads elsewhere than before. What was
// found before stays until there is an answer, unless the lead is about somebody
// else now.
func (c *Contacts) begin(e *entry, l Lead, now time.Time) {
	c.stop(e)
	old := e.state.Lead
	next := State{Lead: l, Reason: Asking, Message: l.where() + " was not asked yet"}
	same := old.Key == l.Key && old.URL == l.URL && old.sameExpectation(l)
	if same {
		// The host has other addresses. Who it is does not change by that.
		next = *e.state
		next.Lead, next.Failures = l, 0
	} else {
		e.before = holder{}
	}
	e.vain, e.fresh = 0, true
	switch {
	case l.ID == c.cfg.Self && l.Fingerprint == c.cfg.SelfKey:
		v := ourselves(l)
		next.Reason, next.Message = v.reason, v.message
		c.tell(e, l.ID, nil, recorder.Absence{Reason: v.message, Said: true})
		c.publish(e, next, time.Time{})
		return
	case l.isSaid() && !(same && e.proved):
		e.proved = false
		c.tell(e, l.ID, l.sighting(), recorder.Absence{})
	case e.want != nil && !old.sameExpectation(l) && !l.allows(e.want):
		c.tell(e, l.ID, nil, recorder.Absence{Reason: "another cluster is said to be at " + l.where() + " now", Expired: true})
	default:
		c.tell(e, l.ID, e.described(l), e.why)
	}
	if l.isAsked() {
		c.publish(e, next, now)
		return
	}
	c.publish(e, next, time.Time{})
	c.consult(e, now)
}

// drop ends a lead if there is one.
func (c *Contacts) drop(k peer.Key, why recorder.Absence) {
	e := c.leads[k]
	if e == nil {
		return
	}
	c.stop(e)
	c.schedule.plan(e, time.Time{})
	c.tell(e, "", nil, why)
	c.index(e, "")
	delete(c.leads, k)
	c.count[sideOf(k)]--
	c.views.remove(k)
	c.changed(k)
}

// stop gives up an attempt that is under way: how it ends does not count.
func (c *Contacts) stop(e *entry) {
	if e.attempt != nil {
		e.attempt.cancel()
		e.attempt, e.waiting = nil, false
	}
}

// askNow has a lead asked now, or once more if that is under way.
func (c *Contacts) askNow(e *entry, now time.Time) {
	switch {
	case !e.state.Lead.isAsked():
	case e.attempt != nil:
		e.waiting = true
	default:
		e.fresh = true
		c.plan(e, now)
	}
}

// dispatch starts what is due, as far as there is room.
func (c *Contacts) dispatch(ctx context.Context) {
	now := time.Now()
	for e := c.schedule.take(now); e != nil; e = c.schedule.take(now) {
		e.due, e.fresh = time.Time{}, false
		if e.state.Lead.isAsked() {
			c.start(ctx, e)
			continue
		}
		// The recorder checks it, and may have to be told of it again.
		e.vain++
		c.consult(e, now)
		c.remind(e)
	}
}

// start has the place of a lead asked.
func (c *Contacts) start(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{entry: e, cancel: cancel}
	e.attempt = a
	c.schedule.start(a)
	l, before := e.state.Lead, e.before
	c.attempts.Go(func() {
		res, err := c.whoIsThere(ctx, l, before)
		c.outcomes <- outcome{a, res, err}
	})
}

// settle takes in how an attempt ended.
func (c *Contacts) settle(o outcome) {
	c.schedule.done(o.attempt)
	o.attempt.cancel()
	e, now := o.attempt.entry, time.Now()
	if e.attempt != o.attempt {
		return // it was dropped, or leads elsewhere now
	}
	e.attempt = nil
	l, who := e.state.Lead, o.result.Identity
	v := judge(l, holder{c.cfg.Self, c.cfg.SelfKey}, c.known(who.ClusterID), o.result, o.err)
	next := State{Lead: l, Reason: v.reason, Message: v.message, Failures: e.state.Failures + 1}
	if o.err == nil {
		next.ID, next.ClusterName, next.Namespace, next.Fingerprint = who.ClusterID, who.ClusterName, who.GuestNamespace, o.result.Fingerprint
	}
	switch v.effect {
	case gives:
		e.proved = true
		if v.reason == "" {
			e.before = holder{who.ClusterID, o.result.Fingerprint}
		}
		c.tell(e, l.ID, l.answered(o.result), recorder.Absence{})
	case takes:
		e.proved = false
		c.tell(e, l.ID, nil, recorder.Absence{Reason: v.message, Expired: true})
	}
	if v.reason == "" && c.cfg.Proved != nil {
		c.cfg.Proved(who.ClusterID, o.result)
	}
	e.there, _ = c.look(e)
	c.remind(e)
	c.publish(e, next, c.conclude(e, &next, now))
}

// conclude returns when a lead that was just asked is to be asked again.
func (c *Contacts) conclude(e *entry, s *State, now time.Time) time.Time {
	switch {
	case s.Reason != "" && s.Reason != Ourselves:
		e.vain = 0
		return c.afterWait(e, now, retry(s.Failures))
	case s.Reason == "" && !e.there:
		e.vain++
		s.Failures, e.since = 0, now
		return c.afterWait(e, now, retry(e.vain))
	}
	s.Failures, e.vain, e.since = 0, 0, now
	return c.afterWait(e, now, spread(lookEvery))
}

// afterWait is in a while, or now if somebody waits for it.
func (c *Contacts) afterWait(e *entry, now time.Time, wait time.Duration) time.Time {
	if e.waiting {
		e.waiting, e.fresh = false, true
		return now
	}
	return now.Add(wait)
}

// touch looks at a lead to a cluster of which the recorder's view has changed.
func (c *Contacts) touch(e *entry, now time.Time) {
	if !e.state.Lead.isAsked() {
		c.consult(e, now)
		return
	}
	was := e.there
	e.there, _ = c.look(e)
	if e.attempt != nil || e.fresh {
		return // it is asked now in any case
	}
	switch reason := e.state.Reason; {
	case e.lost:
		c.plan(e, earlier(e.due, now.Add(retry(e.vain+1))))
	case e.there == was || reason == Ourselves:
	case reason == "" && e.there:
		e.vain = 0
		c.plan(e, e.since.Add(spread(lookEvery)))
	case reason == "" || e.there:
		// It has left, or has come back from somewhere.
		c.plan(e, earlier(e.due, now.Add(retry(1))))
	}
}

// consult takes over what the recorder knows about a lead that is not asked.
func (c *Contacts) consult(e *entry, now time.Time) {
	if e.want == nil {
		return // it is ourselves
	}
	p, ok := c.cfg.Known(e.about)
	there, sees := c.look(e)
	v := judgeKnown(e.state.Lead, p, ok, there, sees)
	next := *e.state
	next.Reason, next.Message, next.Failures = v.reason, v.message, p.Failures
	if there {
		next.ID, next.ClusterName, next.Namespace, next.Fingerprint = p.ID, p.Name, p.Namespace, p.Fingerprint
	}
	due := e.due
	switch e.there = there; {
	case there && !e.lost:
		e.vain, due = 0, time.Time{}
	case due.IsZero():
		due = now.Add(retry(e.vain + 1))
	}
	c.publish(e, next, due)
}

// plan sets when a lead is asked again.
func (c *Contacts) plan(e *entry, due time.Time) { c.publish(e, *e.state, due) }

// publish sets what is known about a lead, and when it is asked again.
func (c *Contacts) publish(e *entry, next State, due time.Time) {
	c.schedule.plan(e, due)
	next.Next = due
	old := e.state
	e.state = &next
	c.views.put(e.key, e.state)
	if old.sameNews(e.state) && old.Lead.Key == next.Lead.Key {
		return
	}
	c.log(old, e.state)
	c.changed(e.key)
}

func (c *Contacts) changed(k peer.Key) {
	if c.cfg.Changed != nil {
		c.cfg.Changed(k)
	}
}

// log says that a lead leads somewhere, or no longer does.
func (c *Contacts) log(old, s *State) {
	if s.Reason == Asking || s.Reason == old.Reason && s.ID == old.ID && s.Fingerprint == old.Fingerprint {
		return
	}
	level := slog.LevelDebug
	if sideOf(s.Lead.Key) == persons {
		level = slog.LevelInfo
	}
	attrs := []any{"place", s.Lead.where(), "by", cmp.Or(s.Lead.Key.Domain, s.Lead.Key.Instance)}
	if s.Reason == "" {
		c.cfg.Logger.Log(context.Background(), level, "a place leads to a cluster", append(attrs, "cluster", s.ClusterName, "id", s.ID)...)
		return
	}
	c.cfg.Logger.Log(context.Background(), level, "a place leads to no cluster that can be used", append(attrs, "reason", s.Reason, "detail", s.Message)...)
}

package registry

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"liqo.io/agent/discovery/journal"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// machine is the registry without goroutines, locks and clocks: events come in as
// calls of its methods with the time, and what follows from them is published,
// queued for the store, or planned. One goroutine at a time may use it.
type machine struct {
	cfg      *Config
	views    *views
	journal  *journal.Journal
	jobs     jobs
	interval time.Duration
	settled  time.Time     // see Registry.Settled; never changed
	phase    time.Duration // see together

	clusters map[peer.ClusterID]*cluster
	seen     map[peer.Key]*sighting
	held     map[peer.ClusterID]bool

	// outside is what was announced on links about clusters for which there was no room, as much as there is room
	// for; freed, that there may be some now. Nobody says it again, unlike what peers call and what candidates are.
	outside map[peer.Key]*peer.Sighting
	freed   bool

	candidates map[peer.Key]*candidate
	about      map[peer.ClusterID]map[*candidate]struct{}
	given      int  // of candidates, those of persons
	full       bool // a candidate was left out, which was logged
	// touched are clusters whose candidates are to be looked at, because the view of
	// the cluster changed.
	touched []peer.ClusterID

	// Counts may be read at any time.
	sightings, refused, checksAnswered, checksFailed atomic.Uint64
}

// outcome is how a probe ended.
type outcome struct {
	probe  *probe
	result client.Result
	err    error
}

func newMachine(cfg *Config, views *views, now time.Time) *machine {
	return &machine{
		cfg: cfg, views: views, journal: journal.New(cfg.Store, cfg.Logger),
		jobs: newJobs(cfg.Checkers, cfg.Lookups), interval: cfg.Interval, phase: rand.N(time.Minute), settled: now.Add(failuresUntilLost * cfg.Interval),
		clusters: make(map[peer.ClusterID]*cluster), seen: make(map[peer.Key]*sighting), held: make(map[peer.ClusterID]bool),
		outside: make(map[peer.Key]*peer.Sighting), candidates: make(map[peer.Key]*candidate), about: make(map[peer.ClusterID]map[*candidate]struct{}),
	}
}

// resume begins again where an earlier run ended.
func (m *machine) resume(now time.Time) {
	again := func(j *job) {
		if j.Abandon() {
			m.jobs.plan(j, now)
		}
	}
	for _, e := range m.clusters {
		for _, c := range e.claims {
			again(&c.job)
		}
	}
	for _, e := range m.candidates {
		again(&e.job)
	}
}

// spread varies a time by a tenth, so that what was found together is not probed
// together for ever.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// together moves the time of a regular check by up to a thirtieth of the interval to where others begin: with many peers, to wake
// up for each of them takes more than the checks do. Other agents begin theirs at other times.
func (m *machine) together(due time.Time) time.Time {
	return due.Add(-(time.Duration(due.UnixNano()) + m.phase) % (m.interval / 30))
}

// backoff is first, doubled with every failure after the first, and most at most.
func backoff(first time.Duration, failures int, most time.Duration) time.Duration {
	d := first
	for i := 1; i < failures && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}

// earlier returns the earlier of two times; a zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// remember restores a peer from an earlier run.
func (m *machine) remember(p peer.Peer, now time.Time) {
	e := m.cluster(p.ID)
	c := m.claim(e, cmp.Or(e.known, p.Fingerprint))
	c.verified = true
	c.identity = peer.Identity{ClusterID: p.ID, ClusterName: p.Name, GuestNamespace: p.Namespace}
	c.url, c.addr, c.seenAt = p.URL, addrOf(p.URL), p.LastSeen
	e.known, e.published = c.key, true
	switch p.Phase {
	case peer.PhasePresent:
		// It keeps the phase it had until a check says otherwise, so that a
		// restart of the agent is no event for anybody.
	case peer.PhaseUnreachable:
		c.failures, c.failure = 1, cmp.Or(p.Reason, "did not answer before the agent restarted")
	default:
		c.absence = Absence{Reason: cmp.Or(p.Reason, "not seen since the agent started"), Evidence: Withdrawn}
	}
	if c.absence.Evidence == NoEvidence {
		c.unheard = true
		m.jobs.plan(&c.job, now)
		m.recall(c, m.cfg.Seen[p.ID])
	}
	view := p.Clone()
	view.Conflict, view.Fingerprint, view.Failures = nil, c.key, c.failures
	view.Phase, view.Reason = c.phase()
	e.view = &view
	m.views.publish(e.view, e.known)
}

// recall restores what domains and persons said of a cluster in an earlier run, so that
// it can be taken back. It counts for nothing else before it is said again: neither where
// the cluster is looked for nor whether it is joined. Who was announced on a link, too,
// stays as long as its endpoint answers: that nobody has heard of it yet is no absence.
func (m *machine) recall(c *claim, seen []peer.Sighting) {
	if slices.ContainsFunc(seen, func(s peer.Sighting) bool { return s.Source == peer.LAN }) {
		return
	}
	for _, s := range seen {
		if s.Source == peer.IncomingPeering || m.seen[s.Key()] != nil {
			continue
		}
		m.seen[s.Key()] = &sighting{Sighting: &s, claim: c, recalled: true}
		c.sightings = append(c.sightings, m.seen[s.Key()])
	}
}

// joined reports whether there is a peering with a cluster.
func (m *machine) joined(id peer.ClusterID) bool { return m.cfg.Joined != nil && m.cfg.Joined(id) }

// repeats reports whether a source says again what it said before, which changes
// nothing.
func (m *machine) repeats(s *peer.Sighting) bool {
	old := m.seen[s.Key()]
	if old == nil || !old.Equal(*s) {
		return false
	}
	m.sightings.Add(1)
	return true
}

// see takes in that a source sees a cluster with a key. What s points to must not
// change any more.
func (m *machine) see(s *peer.Sighting, now time.Time) {
	if s.ClusterID == m.cfg.Self && s.Fingerprint == m.cfg.SelfKey || m.repeats(s) {
		return
	}
	m.sightings.Add(1)
	key := s.Key()
	old := m.seen[key]
	if old != nil && (old.claim.id != s.ClusterID || old.claim.key != s.Fingerprint) {
		// The instance now speaks for somebody else. Anybody can say so in a
		// packet: it takes the endpoint's silence as well.
		m.unsee(key, Absence{Reason: "its name is used by another cluster", Evidence: Expired}, now)
		old = nil
	}
	if !m.fits(s, true) {
		m.refused.Add(1)
		m.keepOutside(s)
		return
	}
	delete(m.outside, key)
	e := m.cluster(s.ClusterID)
	c := m.claim(e, s.Fingerprint)
	m.seen[key] = c.renew(old, s)
	m.checkNow(c, now)
	m.update(e, now)
}

// fits reports whether there is room for whom a source sees, and makes some if it can, see evict.
func (m *machine) fits(s *peer.Sighting, seen bool) bool {
	return m.clusters[s.ClusterID] != nil || len(m.clusters) < m.cfg.Limit || m.evict(seen)
}

// keepOutside keeps an announcement until there is room for its cluster.
func (m *machine) keepOutside(s *peer.Sighting) {
	if key := s.Key(); s.Source == peer.LAN && (m.outside[key] != nil || len(m.outside) < m.cfg.Limit) {
		m.outside[key] = s
	}
}

// letIn sees who had no room, if there may be some now. Who is announced goes for nobody who waits: they would take
// turns, and bogus neighbours would get the place of each true one that does not answer for a while.
func (m *machine) letIn(now time.Time) {
	if !m.freed {
		return
	}
	m.freed = false
	for key, s := range m.outside {
		if !m.fits(s, false) {
			return
		}
		delete(m.outside, key)
		m.see(s, now)
	}
}

// unsee takes in that a source no longer sees whom it saw.
func (m *machine) unsee(k peer.Key, why Absence, now time.Time) {
	delete(m.outside, k)
	s := m.seen[k]
	if s == nil {
		return
	}
	c := s.claim
	delete(m.seen, k)
	c.end(s, why)
	m.forgetCalls(c, why)
	if len(c.sightings) == 0 {
		if c.absence.Evidence == Withdrawn && (c.held || k.Source != peer.LAN && m.joined(c.id)) {
			// It said goodbye to those who look around, or a list has left it out. Whether it
			// is there for those who depend on it, its endpoint knows. After a start, that it
			// is joined is known before it is held.
			c.absence.Evidence = Expired
		}
		if c.absence.Evidence == Withdrawn || !c.verified {
			c.job.Again = false
			m.jobs.plan(&c.job, time.Time{})
		} else {
			m.checkNow(c, now)
		}
		if c.verified && c.absence.Evidence == Expired && k.Source == peer.LAN {
			// If another now speaks under its name, the owner of the name speaks up.
			m.cfg.Reconfirm(k.Link, k.Instance)
		}
	}
	m.update(m.clusters[c.id], now)
}

// forgetCalls takes back that a peer called us once nothing else sees it: where
// it called from says nothing about whether it is still there. If it is, it calls
// again.
func (m *machine) forgetCalls(c *claim, why Absence) {
	for _, s := range c.sightings {
		if s.Source != peer.IncomingPeering {
			return
		}
	}
	for len(c.sightings) > 0 {
		s := c.sightings[0]
		delete(m.seen, s.Key())
		c.end(s, why)
	}
}

// checkNow has a claim checked as soon as there is a checker for it.
func (m *machine) checkNow(c *claim, now time.Time) {
	if c.job.Probing() {
		c.job.Again = true
		return
	}
	m.jobs.plan(&c.job, now)
}

// hold takes in whether somebody depends on a cluster.
func (m *machine) hold(id peer.ClusterID, hold bool, now time.Time) {
	if m.held[id] == hold {
		return
	}
	if hold {
		m.held[id] = true
	} else {
		delete(m.held, id)
	}
	e := m.clusters[id]
	if e == nil {
		return
	}
	c := e.claimOf(e.known)
	if c == nil {
		return
	}
	c.held = hold
	switch {
	case len(c.sightings) > 0:
	case hold:
		m.checkNow(c, now)
	case c.unheard && now.Before(m.settled): // it stays like the others of an earlier run
	case c.absence.Evidence != Withdrawn:
		c.absence = Absence{Reason: "nothing announces it, and nobody depends on it any more", Evidence: Withdrawn}
		m.jobs.plan(&c.job, time.Time{})
	}
	m.update(e, now)
}

// take returns the next probe to make now, nil when there is none.
func (m *machine) take(now time.Time) *probe {
	for j := m.jobs.Take(now); j != nil; j = m.jobs.Take(now) {
		c, e := j.Of.claim, j.Of.candidate
		switch {
		case c != nil:
			c.looked = append(c.looked[:0], c.fresh...)
			return &probe{Probe: m.jobs.Start(j), target: c.target()}
		case e.place().probed():
			return &probe{Probe: m.jobs.Start(j), place: e.place(), last: e.last}
		}
		// It is checked like any other sighting, but was left out for want of room.
		m.jobs.Pass(j)
		e.vain++
		m.renew(e, now)
		m.consult(e, now)
	}
	return nil
}

// settle takes in how a probe ended.
func (m *machine) settle(o outcome, now time.Time) {
	switch of := o.probe.Of; {
	case !m.jobs.Done(o.probe.Probe): // its candidate was dropped, or leads elsewhere now
	case of.claim != nil:
		if o.err == nil {
			m.checksAnswered.Add(1)
		} else {
			m.checksFailed.Add(1)
		}
		m.checked(of.claim, o.result, o.err, now)
	default:
		m.probed(of.candidate, o.result, o.err, now)
	}
}

// checked takes in how a check of a claim ended.
func (m *machine) checked(c *claim, res client.Result, err error, now time.Time) {
	e := m.clusters[c.id]
	if e == nil || e.claimOf(c.key) != c {
		return // dropped, or its cluster forgotten, meanwhile
	}
	again := c.job.Again
	if err == nil && res.Fingerprint != c.key {
		c = m.follow(e, c, res.Fingerprint, now)
	}
	detour := c.settle(res, err, now)
	switch {
	case err != nil:
		for _, s := range c.sightings {
			if s.Source == peer.LAN {
				m.cfg.Reconfirm(s.Link, s.Instance)
			}
		}
	case e.known.IsZero():
		e.known = c.key
	case e.known != c.key && m.succession(res, e.known):
		m.succeed(e, c, now)
	case e.known != c.key:
		e.contradict(c.key, res.Addr, now)
	}
	if c.key == e.known {
		c.held = m.held[c.id]
		if err == nil && m.cfg.Proved != nil && c.id != m.cfg.Self {
			m.cfg.Proved(c.id, res)
		}
	}
	next := c.nextCheck(now, m.interval)
	switch {
	case again:
		next = now
	case detour:
		next = now.Add(secondLook)
	case err == nil && !next.IsZero():
		next = m.together(next)
	}
	if !c.job.Probing() {
		m.jobs.plan(&c.job, next)
	}
	m.update(e, now)
}

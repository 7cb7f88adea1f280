package registry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// obey carries out what was said.
func (m *machine) obey(orders []order, holds map[peer.ClusterID]bool, now time.Time) {
	for _, o := range orders {
		switch {
		case o.set != nil:
			m.set(*o.set, now)
		case o.drop != nil:
			m.drop(o.key, *o.drop, now)
		}
	}
	for id, hold := range holds {
		m.hold(id, hold, now)
	}
}

// set adds or changes a candidate.
func (m *machine) set(c Candidate, now time.Time) {
	e := m.candidates[c.Key()]
	switch {
	case e == nil && !m.room(c):
	case e == nil:
		e = &candidate{key: c.Key(), status: new(CandidateStatus)}
		e.job.Of.candidate = e
		m.candidates[e.key] = e
		if c.given() {
			m.given++
		}
		m.inherit(e, now)
		m.begin(e, c, now)
		if e.seen != nil && e.seen.URL == c.URL {
			e.last = holder{e.seen.ClusterID, e.seen.Fingerprint}
		}
	case e.place().equal(c):
	case e.place().samePlace(c) && e.place().sameExpectation(c):
		m.describe(e, c, now)
	default:
		m.begin(e, c, now)
	}
}

// inherit has a new candidate begin with the sighting that it was in an earlier run, if
// it was one.
func (m *machine) inherit(e *candidate, now time.Time) {
	s := m.seen[e.key]
	if s == nil {
		return
	}
	s.recalled = false
	e.seen, e.proved = s.Sighting, true
	m.index(e, s.ClusterID)
	m.update(m.clusters[s.claim.id], now)
}

// room reports whether there is room for one more candidate.
func (m *machine) room(c Candidate) bool {
	count := len(m.candidates) - m.given
	if c.given() {
		count = m.given
	}
	if count < m.cfg.Limit {
		return true
	}
	if !m.full {
		m.cfg.Logger.Warn("more candidates than the limit allows; the rest is ignored",
			"limit", m.cfg.Limit, "source", c.Source, "domain", c.Domain)
	}
	m.full = true
	m.refused.Add(1)
	return false
}

// describe takes in what a candidate says that has nothing to do with its place.
func (m *machine) describe(e *candidate, c Candidate, now time.Time) {
	c.Addrs = e.place().Addrs // in the order in which they were tried
	next := *e.status
	next.Candidate = c
	m.publish(e, next, e.job.Due())
	m.identify(e, c.ClusterID, e.described(c), Absence{}, now)
}

// begin has a candidate looked at that is new, or leads elsewhere than before. What
// was found before stays until there is an answer, unless the candidate is about
// somebody else now.
func (m *machine) begin(e *candidate, c Candidate, now time.Time) {
	e.job.Stop()
	old := *e.place()
	next := CandidateStatus{Candidate: c, Reason: NotProbed, Message: c.where() + " has not been checked yet"}
	same := old.Key() == c.Key() && old.URL == c.URL && old.sameExpectation(c)
	if same {
		// The host has other addresses. Who it is does not change by that.
		next = *e.status
		next.Candidate, next.Failures = c, 0
	} else {
		e.last = holder{}
	}
	e.vain, e.job.First = 0, true
	switch {
	case c.ClusterID == m.cfg.Self && c.Fingerprint == m.cfg.SelfKey:
		v := ourselves(c)
		next.Reason, next.Message = v.reason, v.message
		m.identify(e, c.ClusterID, nil, Absence{Reason: v.message, Evidence: Withdrawn}, now)
		m.publish(e, next, time.Time{})
		return
	case c.identified() && !(same && e.proved):
		e.proved = false
		m.identify(e, c.ClusterID, (*peer.Sighting)(&c), Absence{}, now)
	case e.seen != nil && !old.sameExpectation(c) && !c.allows(e.seen):
		m.identify(e, c.ClusterID, nil, Absence{Reason: c.where() + " is listed for another cluster now", Evidence: Expired}, now)
	default:
		m.identify(e, c.ClusterID, e.described(c), Absence{}, now)
	}
	if c.probed() {
		m.publish(e, next, now)
		return
	}
	m.publish(e, next, time.Time{})
	m.consult(e, now)
}

// identify takes in who is seen at a candidate from now on, nil for nobody, and why
// nobody is. Without anybody it is about whom it expects, "" for nobody in particular.
func (m *machine) identify(e *candidate, expects peer.ClusterID, seen *peer.Sighting, why Absence, now time.Time) {
	if seen != nil && e.seen != nil && seen.Equal(*e.seen) {
		seen = e.seen
	}
	before := e.seen
	e.seen = seen
	switch {
	case seen == before:
	case seen != nil:
		m.see(seen, now)
	default:
		m.unsee(e.key, why, now)
	}
	if seen != nil {
		expects = seen.ClusterID
	}
	m.index(e, expects)
}

// index keeps machine.about.
func (m *machine) index(e *candidate, about peer.ClusterID) {
	if e.about == about {
		return
	}
	if all := m.about[e.about]; len(all) > 1 {
		delete(all, e)
	} else {
		delete(m.about, e.about)
	}
	if e.about = about; about == "" {
		return
	}
	if m.about[about] == nil {
		m.about[about] = make(map[*candidate]struct{})
	}
	m.about[about][e] = struct{}{}
}

// lost reports whether the sighting that a candidate is was left out or forgotten,
// because there was no room.
func (m *machine) lost(e *candidate) bool { return e.seen != nil && m.seen[e.key] == nil }

// around reports whether the cluster that a candidate is about is there, with the key
// that it leads to. One that only is said may have been succeeded by another one: then
// its sighting belongs to that.
func (m *machine) around(e *candidate) bool {
	p := m.views.peer(e.about)
	if p == nil || p.Phase != peer.PhasePresent {
		return false
	}
	return e.seen == nil || p.Fingerprint == e.seen.Fingerprint || !e.proved && m.carries(e)
}

// carries reports whether the sighting that a candidate is belongs to the known holder
// of the cluster ID.
func (m *machine) carries(e *candidate) bool {
	s := m.seen[e.key]
	return s != nil && s.claim.key == m.known(s.claim.id)
}

// drop ends a candidate if there is one, or the sighting that it was in an earlier run.
func (m *machine) drop(k peer.Key, why Absence, now time.Time) {
	e := m.candidates[k]
	if e == nil {
		m.unsee(k, why, now)
		return
	}
	e.job.Stop()
	m.jobs.plan(&e.job, time.Time{})
	m.identify(e, "", nil, why, now)
	delete(m.candidates, k)
	if e.place().given() {
		m.given--
	}
	m.views.publishCandidate(k, nil)
	m.candidateChanged(k)
}

// renew sees again whom a candidate leads to if there was no room.
func (m *machine) renew(e *candidate, now time.Time) {
	if m.lost(e) {
		m.see(e.seen, now)
	}
}

// probed takes in how a probe of a candidate ended. Who answered is seen there from now
// on, and was checked by that.
func (m *machine) probed(e *candidate, res client.Result, err error, now time.Time) {
	c, who := *e.place(), res.Identity
	v := judge(c, holder{m.cfg.Self, m.cfg.SelfKey}, m.known(who.ClusterID), res, err)
	next := CandidateStatus{Candidate: c, Reason: v.reason, Message: v.message, Failures: e.status.Failures + 1}
	switch {
	case err != nil:
		next.Cause = err.Error()
	case v.reason == OtherKey:
		next.Cause = fmt.Sprintf("it shows key %s", res.Fingerprint)
	}
	if err == nil {
		next.ID, next.ClusterName, next.Namespace, next.Fingerprint = who.ClusterID, who.ClusterName, who.GuestNamespace, res.Fingerprint
	}
	switch v.effect {
	case gives:
		e.proved = true
		if v.reason == "" {
			e.last = holder{who.ClusterID, res.Fingerprint}
		}
		m.identify(e, c.ClusterID, c.answered(res), Absence{}, now)
		m.renew(e, now)
		m.confirm(e, res, now)
	case takes:
		e.proved = false
		m.identify(e, c.ClusterID, nil, Absence{Reason: v.message, Evidence: Expired}, now)
	default:
		m.renew(e, now)
	}
	e.present = m.around(e)
	m.publish(e, next, m.conclude(e, &next, now))
}

// confirm takes the answer to a probe of a candidate for a check of the claim that it
// belongs to, unless that needs none.
func (m *machine) confirm(e *candidate, res client.Result, now time.Time) {
	s := m.seen[e.key]
	if s == nil || s.claim.job.Probing() {
		return
	}
	if phase, _ := s.claim.phase(); phase != peer.PhasePresent {
		s.claim.job.Again, s.claim.looked = false, s.claim.looked[:0]
		m.checked(s.claim, res, nil, now)
	}
}

// conclude returns when a candidate that was just probed is to be probed again.
func (m *machine) conclude(e *candidate, s *CandidateStatus, now time.Time) time.Time {
	wait := lookEvery
	switch {
	case s.Reason != "" && s.Reason != ThisCluster:
		e.vain = 0
		wait = backoff(firstRetry, s.Failures, lastRetry)
	case s.Reason == "" && !e.present:
		e.vain++
		s.Failures, e.since = 0, now
		wait = backoff(firstRetry, e.vain, lastRetry)
	default:
		s.Failures, e.vain, e.since = 0, 0, now
	}
	return now.Add(spread(wait))
}

// flush looks at the candidates of the clusters whose views changed.
func (m *machine) flush(now time.Time) {
	for len(m.touched) > 0 {
		id := m.touched[0]
		m.touched = m.touched[1:]
		for e := range m.about[id] {
			m.touch(e, now)
		}
	}
	m.touched = nil
}

// touch looks at a candidate for a cluster whose view changed.
func (m *machine) touch(e *candidate, now time.Time) {
	if !e.place().probed() {
		m.consult(e, now)
		return
	}
	was := e.present
	e.present = m.around(e)
	if e.job.Probing() || e.job.First {
		return // it is probed now in any case
	}
	switch reason := e.status.Reason; {
	case m.lost(e):
		m.plan(e, earlier(e.job.Due(), now.Add(spread(backoff(firstRetry, e.vain+1, lastRetry)))))
	case e.present == was || reason == ThisCluster:
	case reason == "" && e.present:
		e.vain = 0
		m.plan(e, e.since.Add(spread(lookEvery)))
	case reason == "" || e.present:
		// It has left, or has come back from somewhere.
		m.plan(e, earlier(e.job.Due(), now.Add(spread(firstRetry))))
	}
}

// consult takes over what checks say about a candidate that is not probed.
func (m *machine) consult(e *candidate, now time.Time) {
	if e.seen == nil {
		return // it is ourselves
	}
	next := *e.status
	p := m.views.peer(e.about)
	e.present = m.around(e)
	v := judgeKnown(*e.place(), p, m.known(e.about), e.present, m.carries(e))
	next.Reason, next.Message, next.Failures = v.reason, v.message, 0
	if p != nil {
		next.Failures = p.Failures
	}
	if e.present {
		next.ID, next.ClusterName, next.Namespace, next.Fingerprint = p.ID, p.Name, p.Namespace, p.Fingerprint
	}
	due := e.job.Due()
	switch {
	case !m.lost(e):
		e.vain, due = 0, time.Time{}
	case due.IsZero():
		due = now.Add(spread(backoff(firstRetry, e.vain+1, lastRetry)))
	}
	m.publish(e, next, due)
}

// plan sets when a candidate is probed again.
func (m *machine) plan(e *candidate, due time.Time) { m.publish(e, *e.status, due) }

// publish sets what is known about a candidate, and when it is probed again.
func (m *machine) publish(e *candidate, next CandidateStatus, due time.Time) {
	m.jobs.plan(&e.job, due)
	next.Next = due
	old := e.status
	e.status = &next
	m.views.publishCandidate(e.key, e.status)
	if old.sameNews(e.status) {
		return
	}
	m.logCandidate(old, e.status)
	m.candidateChanged(e.key)
}

func (m *machine) candidateChanged(k peer.Key) {
	if m.cfg.CandidateChanged != nil {
		m.cfg.CandidateChanged(k)
	}
}

// logCandidate logs that a cluster answers at a candidate's address, or none does any
// more.
func (m *machine) logCandidate(old, s *CandidateStatus) {
	if s.Reason == NotProbed || s.Reason == old.Reason && s.ID == old.ID && s.Fingerprint == old.Fingerprint {
		return
	}
	level := slog.LevelDebug
	if s.Candidate.given() {
		level = slog.LevelInfo
	}
	attrs := []any{"place", s.Candidate.where(), "by", cmp.Or(s.Candidate.Domain, s.Candidate.Instance)}
	if s.Reason == "" {
		m.cfg.Logger.Log(context.Background(), level, "a cluster answers at a listed address", append(attrs, "cluster", s.ClusterName, "id", s.ID)...)
		return
	}
	m.cfg.Logger.Log(context.Background(), level, "no usable cluster answers at a listed address", append(attrs, "reason", s.Reason, "detail", s.Message)...)
}

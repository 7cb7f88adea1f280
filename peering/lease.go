package peering

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/plan"
)

const (
	// offerGrace is how long an offer stands at least from when its provider could
	// renew it: after an absence of its own, and after one of our API server.
	offerGrace = 10 * time.Minute
	// longestLife bounds the life that a provider can give an offer.
	longestLife = 30 * 24 * time.Hour
)

// offerLease is how long an offer stands. It is measured with our own monotonic clock,
// from when the offer was seen to change: the clocks of two edge boxes disagree by
// years.
type offerLease struct {
	of   offerTerm
	ends time.Time // zero: never
}

// offerTerm tells renewals of an offer apart.
type offerTerm struct {
	uid        types.UID
	generation int64
	made, ends int64
}

// see takes in the offer as it is.
func (l *offerLease) see(adv *api.Advertisement, now time.Time) {
	of := offerTerm{adv.UID, adv.Generation, adv.Spec.Timestamp.UnixNano(), adv.Spec.TimeToLive.UnixNano()}
	if l.of == of {
		return
	}
	*l = offerLease{of: of}
	if life := min(adv.Spec.TimeToLive.Sub(adv.Spec.Timestamp.Time), longestLife); life > 0 {
		l.ends = now.Add(life)
	}
}

// extend gives the provider the time to renew it from now on.
func (l *offerLease) extend(now time.Time) {
	if least := now.Add(offerGrace); !l.ends.IsZero() && l.ends.Before(least) {
		l.ends = least
	}
}

// left returns whether the offer ended, and else how long it stands; 0 for always.
func (l *offerLease) left(now time.Time) (expired bool, left time.Duration) {
	if l.ends.IsZero() {
		return false, 0
	}
	left = l.ends.Sub(now)
	return left <= 0, max(left, 0)
}

// share adds what is known about our use of the peer, and keeps what it is to know
// from now on.
func (m *peerState) share(obs *plan.Observed, now time.Time) {
	obs.Draining = since(m.draining, now)
	obs.Node, obs.NodeKnown = m.node, m.nodeKnown || obs.NodeKnown
	if m.listen(obs, now) {
		m.lease.extend(now)
	}
	if !obs.RequestsKnown {
		return
	}
	if obs.Advertisement == nil {
		m.lease = offerLease{}
		return
	}
	m.lease.see(obs.Advertisement, now)
	obs.OfferExpired, obs.OfferLeft = m.lease.left(now)
}

// listen finds out how long the peer has not answered, and reports whether it
// answers again. A look at its state that was answered counts as much as a check.
func (m *peerState) listen(obs *plan.Observed, now time.Time) (returned bool) {
	seen, was := obs.Remote, m.quiet
	down := seen.State != nil && !seen.State.Kubernetes
	answered := !down && seen.State != nil && seen.At.After(m.quiet)
	switch {
	case obs.Reachable() && !down:
		m.quiet = time.Time{}
	case m.quiet.IsZero():
		m.quiet = now
	case answered && seen.Err == nil:
		obs.Quiet = 0 // whatever the checks say
		return false
	case answered:
		m.quiet = seen.Tried // it answered meanwhile, and does not any more
	}
	obs.Quiet = since(m.quiet, now)
	return !was.IsZero() && m.quiet.IsZero()
}

// reconnected gives all providers the time to renew their offers.
func (m *peerStates) reconnected(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		p.lease.extend(now)
	}
}

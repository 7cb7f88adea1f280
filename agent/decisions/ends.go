package decisions

import (
	"context"
	"maps"
	"slices"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/trust"
)

// Trust by a certificate of a fleet ends with the certificate: it is suspended, and
// nothing of it is taken back, so that a newer certificate brings it back as it was.

// endOf returns when what vouches for a pin ends: the certificate of a fleet, or the
// certificate of the authority that made it. It is zero if nothing of the kind does,
// or while the authority is not known.
func (p policy) endOf(pin peer.Pin, authority peer.Fingerprint) time.Time {
	if pin.Method != peer.TrustFleet {
		return time.Time{}
	}
	var renewed time.Time // an authority may have several certificates
	for _, ca := range p.Fleet {
		if peer.FingerprintOf(ca.RawSubjectPublicKeyInfo) == authority && ca.NotAfter.After(renewed) {
			renewed = ca.NotAfter
		}
	}
	// Older agents did not keep the end of the peer's certificate.
	if end := pin.NotAfter; !end.IsZero() && (renewed.IsZero() || end.Before(renewed)) {
		return end
	}
	return renewed
}

// renew records a fleet certificate that expires later than the one that the peer showed
// before. It does so even if the new one has expired or the clock is wrong: its expiry
// date is kept, and decides.
func (s *Store) renew(id peer.ClusterID, shown trust.Shown) {
	p := s.currentPolicy()
	c, err := shown.CertifiedOnce(p.Fleet, id)
	if err != nil {
		if s.noting(s.cfg.Now()) {
			s.cfg.Logger.Warn("a peer shows a newer fleet certificate, which is not valid", "peer", id, "key", shown.Fingerprint, "error", err)
		}
		return
	}
	s.follow(context.Background(), id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Pin.Method != peer.TrustFleet || r.Pin.Fingerprint != shown.Fingerprint || !c.NotAfter.After(r.Pin.NotAfter) {
			return decision{}, nil
		}
		r.Pin.NotBefore, r.Pin.NotAfter, r.Pin.By, r.Pin.Basis = c.NotBefore.UTC(), c.NotAfter.UTC(), text.Sentence(c.By), c.Authority
		if !r.suspended() {
			return decision{events: s.lapse(id, r, p)}, nil
		}
		if end := p.endOf(r.Pin.Pin, r.Pin.Basis); s.cfg.Now().Before(end) || !s.cfg.ClockTrusted(id) {
			return decision{events: s.resume(r, end)}, nil
		}
		return decision{}, nil
	})
}

// lapse suspends or resumes the trust in a key, depending on the time, and returns the
// entries of the history. If the clock cannot be trusted, it changes nothing.
func (s *Store) lapse(id peer.ClusterID, r *record, p policy) []peer.Event {
	end := p.endOf(r.Pin.Pin, r.Pin.Basis)
	now := s.now()
	switch ended := !end.IsZero() && !now.Before(end); {
	case ended == r.suspended() || !s.cfg.ClockTrusted(id):
		return nil
	case ended:
		r.Pin.Suspended = now
		s.cfg.Logger.Warn("the fleet certificate of a peer expired; the peering is suspended until the peer shows a newer one",
			"peer", id, "key", r.Pin.Fingerprint, "ended", end)
		return []peer.Event{s.event(id, peer.EventSuspended, "key %s: the certificate by %s ended on %s", r.Pin.Fingerprint, r.Pin.By, text.Time(end))}
	}
	return s.resume(r, end)
}

// resume ends the suspension of a pin that is good until end.
func (s *Store) resume(r *record, end time.Time) []peer.Event {
	r.Pin.Suspended = time.Time{}
	return []peer.Event{s.event(r.Pin.ID, peer.EventResumed, "key %s: the certificate by %s ends on %s", r.Pin.Fingerprint, r.Pin.By, text.Time(end))}
}

// Lapse suspends the trust in all keys whose certificates have ended, and ends that
// where it is not so any more. It returns when the next one ends, zero for none. It is
// to be called then, and now and then, because clocks are set.
func (s *Store) Lapse(ctx context.Context) (next time.Time) {
	p, now := s.currentPolicy(), s.now()
	s.mu.RLock()
	records := maps.Clone(s.records)
	s.mu.RUnlock()
	for _, id := range slices.Sorted(maps.Keys(records)) {
		r := records[id]
		end := p.endOf(r.Pin.Pin, r.Pin.Basis)
		if end.After(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
		if ended := !end.IsZero() && !now.Before(end); ended == r.suspended() {
			continue
		}
		s.follow(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
			return decision{events: s.lapse(id, r, p)}, nil
		})
	}
	return next
}

// Trusted reports whether the key of a cluster is trusted now, and the cluster is not blocked. It may be called at any time.
func (s *Store) Trusted(id peer.ClusterID) bool {
	r := s.record(id)
	return r.pinned() && !r.distrusted() && !r.suspended() && !r.blocked()
}

// Remembers reports whether anything was decided about a cluster. It may be called at any time.
func (s *Store) Remembers(id peer.ClusterID) bool { return s.record(id) != (record{}) }

// Partner reports whether there is a peering with a cluster whose key is trusted.
func (s *Store) Partner(id peer.ClusterID) bool {
	r := s.record(id)
	return r.pinned() && !r.blocked() && (r.Peering.Joined || r.Peering.Served)
}

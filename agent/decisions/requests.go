package decisions

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// Request is a cluster that waits for a person to let it in.
type Request struct {
	ID              peer.ClusterID
	Name, Namespace string // as it calls itself
	Fingerprint     peer.Fingerprint
	Code            string     // the verification code of our key and its
	Source          netip.Addr // where the ask came from; invalid when the key is trusted
	URL             string     // where it says that it is; "" when it does not
	Since           time.Time  // zero when the key is trusted
	// Trusted: its key is trusted, and only its PeeringRequest waits.
	Trusted bool
}

// request returns what is needed to notify a peer whose key is trusted: its key, and the
// URL of its last request.
func (s *Store) request(id peer.ClusterID, r record) Request {
	now := s.cfg.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	w, _ := s.queue.get(id, now)
	return Request{ID: id, Name: w.name, Fingerprint: r.Pin.Fingerprint, URL: w.url, Trusted: true}
}

// Requests returns those who wait for a person, longest first.
func (s *Store) Requests() []Request {
	now, self := s.cfg.Now(), s.cfg.SelfKey()
	s.mu.Lock()
	s.queue.expire(now)
	var all []Request
	for id, w := range s.queue.asks {
		all = append(all, Request{ID: id, Name: w.name, Namespace: w.namespace, Fingerprint: w.fingerprint,
			Source: w.address, URL: w.url, Since: w.since})
	}
	for id, r := range s.records {
		// One that is accepted, and not for Liqo, waits where Liqo may peer clusters.
		accept := acceptOf(id, r, s.policy, "")
		if r.pinned() && r.Peering.Request == string(api.RequestPending) && (accept.Phase == api.RequestPending || accept.Phase == api.RequestAccepted && s.policy.ByLiqo && !accept.ByLiqo) {
			all = append(all, Request{ID: id, Fingerprint: r.Pin.Fingerprint, Trusted: true})
		}
	}
	s.mu.Unlock()
	for i := range all {
		r := &all[i]
		r.Code = trust.Code(self, r.Fingerprint)
		if r.Trusted {
			seen, _ := s.cfg.Peer(r.ID)
			r.Name, r.Namespace, r.URL = seen.Name, seen.Namespace, seen.URL
		}
	}
	slices.SortFunc(all, func(a, b Request) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

package ledger

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

// request is how a peer whose key is trusted is told something, wherever it asked
// from the last time.
func (l *Ledger) request(id peer.ClusterID, r record) Request {
	now := l.cfg.Now()
	l.mu.RLock()
	defer l.mu.RUnlock()
	w, _ := l.queue.get(id, now)
	return Request{ID: id, Name: w.name, Fingerprint: r.Pin.Fingerprint, URL: w.url, Trusted: true}
}

// Requests returns those who wait for a person, longest first.
func (l *Ledger) Requests() []Request {
	now, self := l.cfg.Now(), l.cfg.SelfKey()
	l.mu.Lock()
	l.queue.expire(now)
	var all []Request
	for id, w := range l.queue.asks {
		all = append(all, Request{ID: id, Name: w.name, Namespace: w.namespace, Fingerprint: w.fingerprint,
			Source: w.address, URL: w.url, Since: w.since})
	}
	for id, r := range l.records {
		if r.pinned() && r.Peering.Request == string(api.RequestPending) && acceptOf(id, r, l.policy, "").Phase == api.RequestPending {
			all = append(all, Request{ID: id, Fingerprint: r.Pin.Fingerprint, Trusted: true})
		}
	}
	l.mu.Unlock()
	for i := range all {
		r := &all[i]
		r.Code = trust.Code(self, r.Fingerprint)
		if r.Trusted {
			seen, _ := l.cfg.Peer(r.ID)
			r.Name, r.Namespace, r.URL = seen.Name, seen.Namespace, seen.URL
		}
	}
	slices.SortFunc(all, func(a, b Request) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

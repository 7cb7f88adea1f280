package agent

import (
	"context"
	"errors"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// lapseEvery is how often is looked for certificates that have ended: clocks are set,
// and peers tell theirs.
const lapseEvery = 15 * time.Second

// followCertificates has trust suspended when the certificate that it rests on ends.
func (s *session) followCertificates(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := lapseEvery
		if next := s.ledger.Lapse(ctx); !next.IsZero() {
			// The clock on the wall may be slower than the timer.
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		timer.Reset(wait)
	}
}

// clockTrusted reports whether our clock can be believed for a decision about a peer.
func (s *session) clockTrusted(about peer.ClusterID) bool {
	return s.checkClock(about) == nil
}

// checkClock says why our clock cannot be believed.
func (s *session) checkClock(about peer.ClusterID) error {
	return s.clock.Check(about, s.joined)
}

// joined reports whether there is a peering with a cluster whose key is trusted.
func (s *session) joined(id peer.ClusterID) bool {
	return s.built.Load() && s.ledger.Partner(id)
}

// check has an endpoint checked. The ledger is told of a key that took the place of the
// trusted one before anybody else is, so that the two are never seen to differ.
func (s *session) check(ctx context.Context, t endpoint.Target) (endpoint.Result, error) {
	res, err := s.client.Identify(ctx, t)
	if err == nil && t.ID != "" {
		if pin := s.ledger.Pin(t.ID); pin != nil && pin.Fingerprint != res.Fingerprint {
			s.ledger.Proved(ctx, t.ID, res.Shown)
		}
	}
	return res, err
}

// outward calls the peers' endpoints. While trust in a peer is suspended, nothing is
// sent to it; also what was decided about it before, and cannot be decided anew while
// there is no API server.
type outward session

// Exchange implements remote.Caller.
func (o *outward) Exchange(ctx context.Context, t endpoint.Target, r endpoint.Request) (endpoint.Response, error) {
	if pin := o.ledger.Pin(t.ID); pin != nil && !pin.Suspended.IsZero() {
		return endpoint.Response{}, errors.New("trust in the peer is suspended, because its certificate of the fleet has ended: nothing is sent to it")
	}
	return o.client.Exchange(ctx, t, r)
}

// proved is told of every check that proved the key that a cluster is known by.
func (s *session) proved(id peer.ClusterID, res endpoint.Result) {
	if pin := s.ledger.Pin(id); pin != nil && pin.Fingerprint == res.Fingerprint {
		s.clock.Heard(id, res.Date)
	}
	s.proofs.put(id, res)
}

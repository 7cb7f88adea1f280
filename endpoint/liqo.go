package endpoint

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// A consumer makes as many calls in a minute at most (package liqo). Each may have this cluster
	// sign a certificate.
	liqoRate, liqoBurst = 1. / 3, 20 // a second, of one peer
	// A consumer makes one call after the other, and another one when it was started again meanwhile.
	liqoPerPeer, liqoInAll = 2, 32
)

// LiqoExchange answers one call of the exchange by which Liqo peers two clusters, and may wait a
// moment for that. The caller's key is trusted; whether it may consume this cluster, it finds
// out. The error is a *wire.Refused, or says what is wrong with the body.
type LiqoExchange func(ctx context.Context, id peer.ClusterID, from netip.Addr, body []byte) (any, error)

// serveLiqo answers PathLiqo.
func (s *Server) serveLiqo(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	body, no := s.knownCall(w, r, c, caller)
	if no != nil {
		return no
	}
	if wait := s.limits.liqoRate.Take(caller.ID, s.limits.now()); wait > 0 {
		return refusal.TooOften(wait, "from your cluster for Liqo")
	}
	if !s.limits.liqo.Take(caller.ID) {
		return refusal.TooMany("calls for Liqo")
	}
	defer s.limits.liqo.Release(caller.ID)
	ctx, cancel := s.allow(w, r, s.times.call)
	defer cancel()
	answer, err := s.cfg.Liqo(ctx, caller.ID, caller.Source, body)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused) && refused.Retry > 0:
		return &refusal.Refusal{
			Status: http.StatusServiceUnavailable, Counted: refusal.Failed, Reason: refused.Reason, Retry: max(refused.Retry, time.Second), Text: refused.Message,
		}
	case errors.As(err, &refused):
		return &refusal.Refusal{Status: http.StatusForbidden, Counted: refusal.Liqo, Reason: refused.Reason, Text: refused.Message}
	case err != nil:
		return refusal.BadBody("the call for Liqo cannot be used: " + text.Sentence(err.Error()))
	}
	return reply(w, answer)
}

package endpoint

import (
	"net/http"
	"net/netip"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
)

const (
	// A doctor asks once and a person who mends a firewall asks again. More would make
	// a port scanner of us, if only of the caller's own address.
	reachRate, reachBurst    = 0.1, 5 // a second, of one peer
	reachPerPeer, reachInAll = 1, 8
)

// serveReach answers PathReach. The address tried is that of the caller's own
// connection: nobody can have us connect to anybody else.
func (s *Server) serveReach(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	body, no := s.knownCall(w, r, c, caller)
	if no != nil {
		return no
	}
	var greeting wire.Greeting
	if no := decodeCall(body, &greeting, &greeting, caller.ID); no != nil {
		return no
	}
	if greeting.Port == 0 || !caller.Source.IsValid() {
		return refusal.BadBody("the greeting must say the port that is to be called back")
	}
	if wait := s.limits.reachRate.Take(caller.ID, s.limits.now()); wait > 0 {
		return refusal.TooOften(wait, "from your cluster to be called back")
	}
	if !s.limits.reach.Take(caller.ID) {
		return refusal.TooMany("calls back")
	}
	defer s.limits.reach.Release(caller.ID)
	ctx, cancel := s.allow(w, r, s.times.call)
	defer cancel()
	return reply(w, s.cfg.Reach(ctx, caller, netip.AddrPortFrom(caller.Source, greeting.Port)))
}

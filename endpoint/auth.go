package endpoint

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// verifyClient refuses a client certificate that no cluster key can have
// issued. None at all is fine: /ids is for anyone. It is
// tls.Config.VerifyConnection.
func (s *Server) verifyClient(state tls.ConnectionState) error {
	// The certificates of a resumed session were verified when it began: the
	// server itself has sealed them into the ticket then.
	if len(state.PeerCertificates) == 0 || state.DidResume {
		return nil
	}
	// Nobody who has a processor waits for the network, so there will be one.
	s.guard.Handshakes <- struct{}{}
	defer func() { <-s.guard.Handshakes }()
	_, err := trust.Verify(state.PeerCertificates, time.Time{})
	return err
}

// proof is what the client certificates of a connection prove. It is found out
// when it first matters and is the same as long as the connection lives.
type proof struct {
	id      peer.ClusterID
	shown   trust.Shown
	problem string // why the certificates name nobody; "" when they do
}

func (s *Server) proofOf(r *http.Request, c *conn) *proof {
	if c.proof == nil {
		c.proof = newProof(r.TLS)
	}
	return c.proof
}

func newProof(state *tls.ConnectionState) *proof {
	const advice = "; show the client certificate that the cluster key issued"
	if len(state.PeerCertificates) == 0 {
		return &proof{problem: "this needs a client certificate" + advice}
	}
	shown, err := trust.Verify(state.PeerCertificates, time.Time{})
	if err != nil {
		return &proof{problem: fmt.Sprintf("the client certificate cannot be used: %v%s", err, advice)}
	}
	// The ID ends up in paths and in the name of the user that the API server
	// sees, so its form is checked here whoever else does.
	id, err := peer.ParseClusterID(string(shown.ID))
	if err != nil {
		return &proof{problem: "the client certificate names no cluster ID (a URI liqo:cluster:<id>)" + advice}
	}
	return &proof{id: id, shown: shown}
}

// admit finds out who sent r and whether it may send anything now. A caller that
// it returns without a refusal is known or a stranger. What a known caller asks
// about its namespaces here is limited elsewhere.
func (s *Server) admit(r *http.Request, c *conn) (Caller, *refusal.Refusal) {
	p := s.proofOf(r, c)
	if p.problem != "" {
		if wait := s.limits.call(c.Source()); wait > 0 {
			return Caller{}, refusal.TooOften(wait, "from your address")
		}
		return Caller{}, &refusal.Refusal{
			Status: http.StatusUnauthorized, Counted: refusal.NoCertificate, Reason: wire.ReasonNoCertificate, Text: p.problem,
		}
	}
	caller := s.rate(c, p)
	if caller.Access == Known {
		if s.isForGuests(r) {
			return caller, nil
		}
		if wait := s.limits.known(caller.ID); wait > 0 {
			return Caller{}, refusal.TooOften(wait, "from your cluster")
		}
		return caller, nil
	}
	if wait := s.limits.call(c.Source()); wait > 0 {
		return Caller{}, refusal.TooOften(wait, "from your address")
	}
	switch caller.Access {
	case Stranger:
		return caller, nil
	case Suspended:
		return Caller{}, &refusal.Refusal{
			Status: http.StatusForbidden, Counted: refusal.Suspended, Reason: wire.ReasonCertificateEnded,
			Text: "your certificate of the fleet has ended; make a new one with `liqo-agent fleet sign`, put it in place and run `liqo-agent config reload` at your cluster",
		}
	}
	return Caller{}, &refusal.Refusal{
		Status: http.StatusForbidden, Counted: refusal.Blocked, Reason: wire.ReasonBlocked,
		Text: "this cluster has blocked yours; only a person there can change that, with `liqo-agent peers unblock`",
	}
}

// rate asks how far the caller may go, and gives its connection the rank that
// goes with that.
func (s *Server) rate(c *conn, p *proof) Caller {
	caller := Caller{ID: p.id, Source: c.Source(), Shown: p.shown, Access: s.cfg.Peers.Admit(p.id, p.shown)}
	if caller.Access == Known {
		s.guard.Rank(c.Conn, p.id)
	} else {
		s.guard.Rank(c.Conn, "")
	}
	return caller
}

// admitAnyone limits requests for what is for anyone. Who only comes once is not
// looked at; the connection of a known caller that keeps it, as one for regular
// checks, gets its rank.
func (s *Server) admitAnyone(r *http.Request, c *conn) *refusal.Refusal {
	if s.cfg.Peers != nil && c.requests.Load() > 1 && len(r.TLS.PeerCertificates) > 0 {
		if p := s.proofOf(r, c); p.problem == "" && s.rate(c, p).Access == Known {
			if wait := s.limits.known(p.id); wait > 0 {
				return refusal.TooOften(wait, "from your cluster")
			}
			return nil
		}
	}
	if wait := s.limits.request(c.Source()); wait > 0 {
		return refusal.TooOften(wait, "from your address")
	}
	return nil
}

// needsKnown refuses a caller that is not known.
func needsKnown(caller Caller) *refusal.Refusal {
	if caller.Access == Known {
		return nil
	}
	return &refusal.Refusal{
		Status: http.StatusForbidden, Counted: refusal.NotTrusted, Reason: wire.ReasonNotTrusted,
		Text: "this cluster does not trust your key yet; ask to be let in (" + wire.PathAsk +
			"), and have somebody there run `liqo-agent peers accept " + string(caller.ID) + "`",
	}
}

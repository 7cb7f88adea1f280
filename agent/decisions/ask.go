package decisions

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Ask answers a request for access. The caller has proved to hold its key; its other
// claims are not verified.
func (s *Store) Ask(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	if c.ID == "" || c.Shown.Fingerprint.IsZero() || a.Identity.ClusterID != c.ID {
		return refused(wire.ReasonNotPermitted, "The cluster ID in the request is not that of the certificate.")
	}
	if c.ID == s.cfg.Self() {
		return refused(wire.ReasonOtherKey, "The provider has the same cluster ID. One of the two is a copy of the other and needs an ID of its own.")
	}
	answer := s.answer(ctx, c, a)
	// A request without a final answer keeps its place in the queue.
	decided := answer.Reason != wire.ReasonAsksPerson && answer.Reason != wire.ReasonBadToken && answer.Reason != wire.ReasonBusy
	if decided && s.leaveQueue(c.ID, c.Shown.Fingerprint) {
		s.cfg.Changed(c.ID)
	}
	return answer
}

func (s *Store) answer(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	switch s.Admit(c.ID, c.Shown) {
	case endpoint.Known:
		return s.askedByKnown(ctx, c, a)
	case endpoint.Blocked:
		return blockedAnswer
	case endpoint.Suspended:
		return endedAnswer
	}
	r := s.record(c.ID)
	switch {
	case r.pinned():
		s.refuseKey(ctx, c)
		return otherKeyAnswer
	case r.distrusted():
		return refused(wire.ReasonNotTrusted, "A person at the provider marked the key of this cluster as not trusted.")
	}
	p := s.currentPolicy()
	// The host name in a caller's certificate proves nothing: we did not call it there.
	shown := c.Shown
	shown.Name = ""
	if pin, vouched := s.vouched(c.ID, shown, p); vouched {
		return s.pinAndAdmit(ctx, c, a, pin)
	}
	switch fixed := p.static[c.ID]; {
	case !fixed.fingerprint.IsZero(): // and it is another
		return otherKeyAnswer
	case fixed.accept == "never":
		return refused(ReasonStatic, `The configuration of the provider says accept = "never" for this cluster.`)
	}
	if a.Token != "" {
		return s.askedByBearer(ctx, c, a)
	}
	if setting := p.opens(); setting != "" {
		if seen, known := s.cfg.Peer(c.ID); known && !seen.Fingerprint.IsZero() && seen.Fingerprint != c.Shown.Fingerprint && !c.Shown.Succeeds(seen.Fingerprint) {
			return otherKeyAnswer
		}
		if !s.room(peer.TrustOpen) {
			return busy("The provider trusts as many unknown clusters as it can remember.")
		}
		return s.pinAndAdmit(ctx, c, a, s.open(c.ID, c.Shown, setting))
	}
	switch {
	case r.Peering.Rejected == c.Shown.Fingerprint || c.Shown.Succeeds(r.Peering.Rejected):
		return refused(ReasonRejected, "A person at the provider rejected the request.")
	case p.Accept == "none":
		return refused(wire.ReasonPolicyNone, "The provider accepts no cluster (trust.accept is none).")
	case p.Accept == "trusted":
		return wire.Answer{Auth: api.AuthEmptyRefused, Reason: wire.ReasonNotTrusted,
			Message: "The provider accepts only clusters whose key it trusts (trust.accept is trusted). Ask there for an invite, or to be trusted."}
	}
	return s.enqueue(ctx, c, a)
}

// opens returns the setting that accepts any cluster, "" for none.
func (p policy) opens() string {
	switch {
	case p.AllowEmptyToken:
		return "trust.allow_empty_token"
	case p.Accept == "all":
		return `trust.accept = "all"`
	}
	return ""
}

var (
	blockedAnswer  = refused(wire.ReasonBlocked, "The provider has blocked this cluster.")
	otherKeyAnswer = refused(wire.ReasonOtherKey, "The provider knows this cluster ID with another key. If this cluster was reinstalled, a person there has to trust its new key: liqo-agent peers trust")
	endedAnswer    = refused(wire.ReasonCertificateEnded, "The provider trusts the key of this cluster by a fleet certificate, which has expired. Create a new one with: liqo-agent fleet sign")
	storeAnswer    = busy("The provider cannot store anything at the moment.")
	// unsetClockAnswer: whether an invite has expired cannot be told by a clock of before it was made.
	unsetClockAnswer = busy("The clock of the provider is behind the time at which the invite was made, so it is not known whether the invite has expired.")
	spentAnswer      = badToken("The invite was used already. Ask at the provider for another one.")
)

func refused(reason, message string) wire.Answer {
	return wire.Answer{Auth: api.AuthRefused, Reason: reason, Message: message}
}

func badToken(message string) wire.Answer { return refused(wire.ReasonBadToken, message) }

// busy is not a decision: the cluster may ask again.
func busy(message string) wire.Answer {
	return wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonBusy, Message: message + " The agent tries again later."}
}

// pinAndAdmit trusts a key that asks, and answers it.
func (s *Store) pinAndAdmit(ctx context.Context, c endpoint.Caller, a wire.Ask, pin state.Pin) wire.Answer {
	if err := s.rule(ctx, c.ID, s.trustUnlessDecided(pin)); err != nil {
		s.cfg.Logger.Warn("cannot store the trust in a peer", "peer", c.ID, "error", err)
		return storeAnswer
	}
	switch s.Admit(c.ID, c.Shown) {
	case endpoint.Known:
		return s.askedByKnown(ctx, c, a)
	case endpoint.Blocked:
		return blockedAnswer
	case endpoint.Suspended:
		return endedAnswer
	}
	return otherKeyAnswer // somebody decided meanwhile
}

// askedByKnown answers a caller whose key is trusted.
func (s *Store) askedByKnown(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	var byToken wire.Answer
	if a.Token != "" {
		// Its key is trusted in any case. A valid token makes its requests accepted,
		// too; a spent one may be its own, if the answer was lost.
		byToken = s.askedByBearer(ctx, c, a)
	}
	var verdict wire.Answer
	err := s.rule(ctx, c.ID, func(id peer.ClusterID, r *record) (decision, error) {
		accept := acceptOf(id, *r, s.currentPolicy(), string(id))
		if accept.Phase == api.RequestRefused {
			r.asked = time.Time{}
			verdict = refused(accept.Reason, accept.Message)
			return decision{}, nil
		}
		if accept.Phase != api.RequestAccepted && (byToken == storeAnswer || byToken == unsetClockAnswer) {
			verdict = byToken // it keeps a token for as long as the answer is not final
			return decision{}, nil
		}
		if r.asked = s.cfg.Now(); a.Fresh {
			r.Peering.Ended, r.Peering.Request = "", ""
		}
		verdict = wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "The provider trusts the key of this cluster. " + accept.Message}
		return decision{}, nil
	})
	if err != nil {
		s.cfg.Logger.Warn("cannot store the request of a peer to start again", "peer", c.ID, "error", err)
		return storeAnswer
	}
	return verdict
}

// askedByBearer answers a caller with a token.
func (s *Store) askedByBearer(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	now := s.cfg.Now()
	// A valid token is accepted even if others at the same address guess wrong ones.
	wrong := func() wire.Answer {
		if s.guesses.tooMany(c, now) {
			if s.guesses.warn.AllowN(now, 1) {
				s.cfg.Logger.Warn("a cluster or its address sent too many wrong tokens of invites and has to wait", "source", c.Source, "peer", c.ID)
			}
			return busy("Too many wrong tokens came from this cluster or its address.")
		}
		s.guesses.wrong(c, now)
		return badToken("The provider does not know this token. Ask there for an invite.")
	}
	id, hash, err := trust.ParseWire(a.Token)
	if err != nil {
		return wrong()
	}
	invite, found, err := s.cfg.Database.Invite(ctx, id)
	if err != nil {
		s.cfg.Logger.Warn("cannot read an invite", "invite", id, "error", err)
		return storeAnswer
	}
	if same := subtle.ConstantTimeCompare(invite.SecretHash[:], hash[:]) == 1; !found || !same {
		return wrong()
	}
	switch {
	case !invite.RevokedAt.IsZero():
		return badToken("The invite was revoked. Ask at the provider for another one.")
	case !invite.UsedAt.IsZero():
		return spentAnswer
	case !invite.Live(now):
		return badToken("The invite has expired. Ask at the provider for another one.")
	case now.Add(clockSet).Before(invite.CreatedAt):
		return unsetClockAnswer
	}
	return s.useInvite(ctx, c, invite)
}

// clockSet is by how much a clock may be set back after an invite was made, and still be believed.
const clockSet = 10 * time.Minute

// errDecided: a decision about the peer was made while its invite was used.
var errDecided = errors.New("another decision about the peer was made meanwhile")

// useInvite accepts the bearer of an invite.
func (s *Store) useInvite(ctx context.Context, c endpoint.Caller, invite state.Invite) wire.Answer {
	err := s.rule(ctx, c.ID, func(id peer.ClusterID, r *record) (decision, error) {
		d := decision{invite: invite.ID}
		switch {
		case r.blocked() || r.distrusted() || r.pinned() && r.Pin.Fingerprint != c.Shown.Fingerprint:
			return decision{}, errDecided
		case !r.pinned():
			d.events = append(d.events, s.trust(r, state.Pin{Pin: peer.Pin{ID: id, Fingerprint: c.Shown.Fingerprint,
				Method: peer.TrustInvite, By: invite.CreatedBy, At: s.now(), Detail: "it showed invite " + invite.ID}}))
		}
		s.letIn(r)
		r.asked = s.cfg.Now()
		d.events = append(d.events,
			s.event(id, peer.EventInviteUsed, "invite %s of %s, from %s", invite.ID, invite.CreatedBy, c.Source),
			s.event(id, peer.EventAccepted, "by invite %s: its requests are accepted from now on", invite.ID))
		return d, nil
	})
	switch {
	case errors.Is(err, state.ErrInviteVoid):
		return spentAnswer
	case errors.Is(err, errDecided):
		return otherKeyAnswer
	case err != nil:
		s.cfg.Logger.Warn("cannot store the use of an invite", "invite", invite.ID, "error", err)
		return storeAnswer
	}
	return wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted, Message: "The provider trusts the key of this cluster, by invite."}
}

// acceptFrom accepts the requests of a peer from now on by a decision, and returns the
// event if that is a change.
func (s *Store) acceptFrom(id peer.ClusterID, r *record, now time.Time, by string) []peer.Event {
	s.mu.RLock()
	w, waits := s.queue.get(id, now)
	s.mu.RUnlock()
	if waits && w.fingerprint == r.Pin.Fingerprint {
		r.asked = now // it did, and its PeeringRequest is next
	}
	was := r.Ruling
	if s.letIn(r); r.Ruling == was {
		return nil
	}
	return []peer.Event{s.event(id, peer.EventAccepted, "by %s: its requests are accepted from now on", by)}
}

// letIn has the requests of a peer accepted.
func (s *Store) letIn(r *record) {
	r.Preferences.AutoAccept = state.Yes
	r.Preferences.ByLiqo = s.currentPolicy().ByLiqo
	r.Peering.Rejected, r.Peering.Ended = peer.Fingerprint{}, ""
}

// enqueue queues a request for a decision of a person.
func (s *Store) enqueue(ctx context.Context, c endpoint.Caller, a wire.Ask) wire.Answer {
	w := waiting{fingerprint: c.Shown.Fingerprint, address: c.Source, url: claimedURL(c.Source, a.Greeting)}
	if name, err := peer.ParseClusterName(a.Identity.ClusterName); err == nil {
		w.name = name
	}
	if namespace, err := peer.ParseNamespace(a.Identity.GuestNamespace); err == nil {
		w.namespace = namespace
	}
	now := s.cfg.Now()
	s.mu.Lock()
	outcome := s.queue.put(c.ID, c.Shown, w, now)
	note := outcome == queuedNew && s.noise.worthNoting(now)
	s.mu.Unlock()
	switch outcome {
	case queuedFull:
		return busy("Too many clusters wait for a decision at the provider.")
	case queuedOther:
		return refused(wire.ReasonOtherKey, "Another key with this cluster ID waits for a decision at the provider. A person there has to decide about that one first: liqo-agent peers requests")
	case queuedNew:
		s.cfg.Logger.Info("a cluster asks for access", "peer", c.ID, "name", w.name, "key", w.fingerprint, "source", c.Source)
		s.cfg.Changed(c.ID)
	}
	if note {
		s.note(ctx, c.ID, s.event(c.ID, peer.EventRequested, "requests access from %s with key %s", c.Source, w.fingerprint))
	}
	return wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonAsksPerson,
		Message: "A person at the provider has to decide: liqo-agent peers accept " + reference(c.ID, record{}, w.name)}
}

// note adds an event without a decision to the history. It logs an error.
func (s *Store) note(ctx context.Context, id peer.ClusterID, e peer.Event) {
	err := s.rule(ctx, id, func(peer.ClusterID, *record) (decision, error) {
		return decision{events: []peer.Event{e}}, nil
	})
	if err != nil {
		s.cfg.Logger.Debug("cannot write the history", "peer", id, "error", err)
	}
}

// claimedURL is where a caller says that it can be called.
func claimedURL(source netip.Addr, g wire.Greeting) string {
	if u, err := peer.ParseURL(g.URL); err == nil {
		return u.String()
	}
	if g.Port != 0 && source.IsValid() {
		return fmt.Sprintf("https://%s", netip.AddrPortFrom(source.Unmap().WithZone(""), g.Port))
	}
	return ""
}

// leaveQueue takes a key's ask off the queue.
func (s *Store) leaveQueue(id peer.ClusterID, fp peer.Fingerprint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.asks[id].fingerprint == fp && s.queue.drop(id)
}

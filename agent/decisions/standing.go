package decisions

import (
	"maps"
	"slices"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// The reasons of decisions about requests that are not those of an
// wire.Answer.
const (
	// ReasonRejected: a person rejected it.
	ReasonRejected = "RejectedByPerson"
	// ReasonAccepted: a person accepted it.
	ReasonAccepted = "AcceptedByPerson"
	// ReasonStatic: a [[peer]] entry accepts it, or never does.
	ReasonStatic = "StaticPeer"
	// ReasonPolicy: trust.accept accepts it.
	ReasonPolicy = "Policy"
)

// Policy implements peering.Decisions.
func (s *Store) Policy(id peer.ClusterID) plan.Policy {
	seen, _ := s.cfg.Peer(id)
	now := s.cfg.Now()
	s.mu.RLock()
	r, p := s.records[id], s.policy
	ask, waits := s.queue.get(id, now)
	s.mu.RUnlock()

	key := r.Pin.Fingerprint
	if !r.pinned() {
		if key = seen.Fingerprint; key.IsZero() && waits {
			key = ask.fingerprint
		}
	}
	out := plan.Policy{
		Distrusted: r.distrusted(),
		Blocked:    r.blocked(),
		Asks:       api.RequestedResources{CPU: api.RequestedAmount(r.Preferences.CPU), Memory: api.RequestedAmount(r.Preferences.Memory)},
		Generation: r.generation,
		Accept:     acceptOf(id, r, p, reference(id, r, seen.Name)),
		Token:      r.token,
		Asked:      r.pinned() && !r.blocked() && r.expects(now),
		Ended:      r.Peering.Ended,
		Code:       trust.Code(s.cfg.SelfKey(), key),
		LastServed: r.Peering.Served,
		LastJoined: r.Peering.Joined,
		JoinStamp:  r.Peering.JoinStamp,
		TrustStamp: r.Peering.TrustStamp,
		Forgotten:  r.Peering.Forgotten,
	}
	if r.pinned() {
		pin := r.Pin.Pin
		pin.NotAfter = p.endOf(pin, r.Pin.Basis)
		out.Pin, out.Former = &pin, r.formerKeys()
	} else if waits {
		out.Ask = &plan.Ask{Name: ask.name, Namespace: ask.namespace, Fingerprint: ask.fingerprint,
			Code: trust.Code(s.cfg.SelfKey(), ask.fingerprint), From: ask.address.String(), Until: ask.last.Add(waitingFor)}
	}
	out.Connect, out.ConnectReason = connectOf(id, r, p, seen)
	out.NotAutojoined = unjoined(id, r, p, seen)
	return out
}

// connectOf decides whether to consume the resources of a peer, and why. seen is what the
// registry knows about it.
func connectOf(id peer.ClusterID, r record, p policy, seen peer.Peer) (plan.Tristate, string) {
	fixed := p.static[id]
	switch {
	case r.blocked():
		return plan.No, "it is blocked"
	case fixed.connect == "never":
		return plan.No, `the configuration says connect = "never" for it`
	case r.Peering.HungUp:
		return plan.No, "its ForeignCluster was deleted; that holds until it was away and returned, or somebody connects again"
	case r.Peering.EndedByPeer != "":
		return plan.No, "its side ended it: " + r.Peering.EndedByPeer
	case r.Peering.Once:
		return plan.Yes, "somebody connected it once"
	case r.Preferences.AutoConnect == state.Yes:
		return plan.Yes, "auto-connect is remembered"
	case r.Preferences.AutoConnect == state.No:
		return plan.No, "that it was disconnected is remembered"
	case fixed.connect == "auto":
		return plan.Yes, `the configuration says connect = "auto" for it`
	}
	switch r.Pin.Method {
	case peer.TrustFleet, peer.TrustStatic, peer.TrustRoots:
		if yes, why := p.joins(seen, p.Autojoin, "discovery.autojoin"); yes {
			return plan.Yes, why + ", and the configuration trusts it (" + string(r.Pin.Method) + ")"
		}
	case peer.TrustOpen:
		if p.AutojoinUntrusted {
			if yes, why := p.joins(seen, true, "discovery.autojoin_untrusted"); yes {
				return plan.Yes, why
			}
		} else if yes, why := p.joins(seen, p.Autojoin, "discovery.autojoin"); yes {
			return plan.Yes, why + ", and the configuration trusts whoever comes first"
		}
	}
	if r.Peering.Forgotten {
		return plan.No, ""
	}
	return plan.Unset, ""
}

// joins reports whether a peer that may be is joined by itself, and why: one source
// that sees it has to say so. general is the setting called name, for all sources
// that have none of their own.
func (p policy) joins(seen peer.Peer, general bool, name string) (bool, string) {
	if seen.Source == "" {
		// Nothing was ever seen of it, so nothing stands against it. Who was seen and is
		// not now stays as it is until a source says where it is.
		return general, name + " is on"
	}
	for _, source := range seen.Sources {
		switch source {
		case peer.WAN:
			for _, domain := range seen.Domains {
				if own, set := p.Domains[domain]; set && own {
					return true, "autojoin is on for the search domain " + domain
				} else if !set && general {
					return true, name + " is on"
				}
			}
		case peer.LAN:
			for _, link := range seen.Links {
				if general && !p.Strange[link] {
					return true, name + " is on"
				}
			}
		default:
			if general {
				return true, name + " is on"
			}
		}
	}
	return false, ""
}

// The reasons why autojoin does not join a peer.
const (
	// ReasonNobodyVouches: neither a person nor the configuration trusts its key.
	ReasonNobodyVouches = "KeyNotTrusted"
	// ReasonOnlyPeople: only people trust its key, not the configuration.
	ReasonOnlyPeople = "TrustedByPerson"
	// ReasonDecidedOtherwise: a person or the configuration forbids it.
	ReasonDecidedOtherwise = "DecidedOtherwise"
)

// unjoined returns why autojoin does not join a peer, although it is on where the peer is
// seen.
func unjoined(id peer.ClusterID, r record, p policy, seen peer.Peer) plan.NotAutojoined {
	on, setting := p.joins(seen, p.Autojoin && p.AutojoinSet, "discovery.autojoin")
	wish, why := connectOf(id, r, p, seen)
	if seen.Source == "" || !on || wish == plan.Yes {
		return plan.NotAutojoined{}
	}
	not := func(reason, why string) plan.NotAutojoined {
		return plan.NotAutojoined{Reason: reason, Message: setting + ", but " + why +
			" Join it with: liqo-agent peers connect " + reference(id, r, seen.Name)}
	}
	switch {
	case wish == plan.No && why != "":
		return not(ReasonDecidedOtherwise, why+".")
	case r.distrusted():
		return not(ReasonDecidedOtherwise, "a person marked its key as not trusted.")
	case !r.pinned():
		return not(ReasonNobodyVouches, "nobody vouches for its key. Only those are joined by themselves whose key the configuration trusts: "+
			"by trust.fleet_ca, a [[peer]] entry, or a public certificate for its host name.")
	}
	return not(ReasonOnlyPeople, "its key is trusted by a person's word, which joins nobody by itself.")
}

// acceptOf decides about a peer's requests. Both sides read the message, so it
// says provider and consumer; people here read the other one. ref is how a person at ours names the peer.
func acceptOf(id peer.ClusterID, r record, p policy, ref string) plan.AcceptDecision {
	fixed := p.static[id]
	accepted := func(reason, message, here string) plan.AcceptDecision {
		return plan.AcceptDecision{Phase: api.RequestAccepted, Reason: reason, Message: message, Here: here, ByLiqo: true}
	}
	pending := func(reason, message, here string) plan.AcceptDecision {
		return plan.AcceptDecision{Phase: api.RequestPending, Reason: reason, Message: message, Here: here}
	}
	refused := func(reason, message, here string) plan.AcceptDecision {
		return plan.AcceptDecision{Phase: api.RequestRefused, Reason: reason, Message: message, Here: here}
	}
	switch {
	case r.blocked():
		return refused(wire.ReasonBlocked, "The provider has blocked this cluster. To unblock it, run there: liqo-agent peers unblock "+ref,
			"It is blocked. To unblock it: liqo-agent peers unblock "+ref)
	case r.distrusted():
		return refused(wire.ReasonNotTrusted, "A person at the provider marked the key of this cluster as not trusted. To trust it, run there: liqo-agent peers trust "+ref,
			"Its key is marked as not trusted. To trust it: liqo-agent peers trust "+ref)
	case !r.pinned():
		return refused(wire.ReasonNotTrusted, "The provider does not trust the key of this cluster. To trust it, run there: liqo-agent peers accept "+ref,
			"Its key is not trusted. To trust it: liqo-agent peers accept "+ref)
	case fixed.accept == "never":
		return refused(ReasonStatic, `The configuration of the provider says accept = "never" for this cluster.`, `The configuration says accept = "never" for it.`)
	case r.Peering.Rejected == r.Pin.Fingerprint:
		return refused(ReasonRejected, "A person at the provider rejected the request. To accept it, run there: liqo-agent peers accept "+ref,
			"It was rejected. To accept it: liqo-agent peers accept "+ref)
	case r.Preferences.AutoAccept == state.No:
		return pending(wire.ReasonAsksPerson, "A person at the provider rejected an earlier request, and has to decide again: liqo-agent peers accept "+ref,
			"You rejected an earlier request. To accept this one: liqo-agent peers accept "+ref)
	case r.Preferences.AutoAccept == state.Yes:
		byPerson := accepted(ReasonAccepted, "A person at the provider accepted this cluster.", "It was accepted.")
		byPerson.ByLiqo = r.Preferences.ByLiqo
		return byPerson
	case fixed.accept == "auto":
		return accepted(ReasonStatic, "The configuration of the provider accepts this cluster.", "The configuration accepts it.")
	}
	switch p.Accept {
	case "all", "trusted":
		return accepted(ReasonPolicy, "The provider accepts every cluster whose key it trusts.", "Every cluster with a trusted key is accepted (trust.accept).")
	case "none":
		return refused(wire.ReasonPolicyNone, "The provider accepts no cluster (trust.accept is none).", "No cluster is accepted (trust.accept is none).")
	}
	return pending(wire.ReasonAsksPerson, "A person at the provider has to decide: liqo-agent peers accept "+ref,
		"Decide with: liqo-agent peers accept "+ref+", or: liqo-agent peers reject "+ref)
}

// Preferences returns what people decided about a peer.
func (s *Store) Preferences(id peer.ClusterID) state.Preferences { return s.record(id).Preferences }

// Pin returns the key that is trusted to be a peer's, nil for none.
func (s *Store) Pin(id peer.ClusterID) *peer.Pin {
	r := s.record(id)
	if !r.pinned() {
		return nil
	}
	return &r.Pin.Pin
}

// Pins returns all trusted keys, sorted by cluster ID.
func (s *Store) Pins() []peer.Pin {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var pins []peer.Pin
	for _, id := range slices.Sorted(maps.Keys(s.records)) {
		if r := s.records[id]; r.pinned() {
			pins = append(pins, r.Pin.Pin)
		}
	}
	return pins
}

// Wanted returns the peers that must be looked after even when nothing is seen
// of them, sorted: those trusted, wished for, joined or served.
func (s *Store) Wanted() []peer.ClusterID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	wanted := make(map[peer.ClusterID]struct{}, len(s.records))
	for id, r := range s.records {
		if wish, _ := connectOf(id, r, s.policy, peer.Peer{}); r.pinned() || wish == plan.Yes || r.Peering.Joined || r.Peering.Served || r.Preferences.URL != "" {
			wanted[id] = struct{}{}
		}
	}
	for id, fixed := range s.policy.static {
		if wish, _ := connectOf(id, s.records[id], s.policy, peer.Peer{}); wish == plan.Yes || fixed.url != "" {
			wanted[id] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(wanted))
}

package decisions

import (
	"context"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// JoinEdited implements peering.Decisions. The edit counts like a decision on the command
// line. An edit that a block or the configuration forbids is recorded without effect.
func (s *Store) JoinEdited(ctx context.Context, id peer.ClusterID, join bool, by, stamp string) error {
	ref := s.reference(id)
	by = or(by, "kubectl")
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.JoinStamp == stamp {
			return decision{}, nil
		}
		var d decision
		if !join {
			d = s.disconnect(id, r, by)
		} else if err := s.mayConnect(id, r, ref); err != nil {
			d.events = append(d.events, s.event(id, peer.EventDisconnect, "%s set join = true, which is undone: %v", by, err))
		} else {
			d = s.connect(id, r, false, by)
		}
		r.Peering.JoinStamp = stamp
		return d, nil
	})
}

// TrustEdited implements peering.Decisions. Trust in a peer whose status shows no key has
// no effect: nobody can have compared the key.
func (s *Store) TrustEdited(ctx context.Context, id peer.ClusterID, mode api.TrustMode, shown peer.Fingerprint, by, stamp string) error {
	by = or(by, "kubectl")
	err := s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.TrustStamp == stamp {
			return decision{}, nil
		}
		r.Peering.TrustStamp = stamp
		switch {
		case mode == api.TrustUntrusted:
			return s.distrust(r, id, shown, by), nil
		case mode == api.TrustTrusted && shown.IsZero():
			return decision{events: []peer.Event{s.event(id, peer.EventDistrusted, "%s set trustMode = Trusted, which is undone: the status shows no key yet", by)}}, nil
		case mode == api.TrustTrusted:
			events, err := s.trustByPerson(r, id, shown, peer.TrustPerson, by, "")
			if err != nil {
				events = []peer.Event{s.event(id, peer.EventDistrusted, "%s set trustMode = Trusted, which is undone: %v", by, err)}
			}
			return decision{events: events}, nil
		}
		return s.undecideTrust(r, id, by), nil
	})
	if err == nil && s.record(id).distrusted() {
		s.leave(id)
	}
	return err
}

// Decided implements peering.Decisions. It has no effect if a block or the configuration
// forbids the decision, or if the key is not the trusted one.
func (s *Store) Decided(ctx context.Context, id peer.ClusterID, accept bool, shown peer.Fingerprint, by string) error {
	by = or(by, "kubectl")
	now := s.cfg.Now()
	err := s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		was := r.Ruling
		switch {
		case !r.pinned() || !shown.IsZero() && shown != r.Pin.Fingerprint || r.blocked() || s.currentPolicy().static[id].accept == "never":
			return decision{}, nil
		case !accept:
			r.reject(r.Pin.Fingerprint)
			if r.Ruling == was {
				return decision{}, nil
			}
			return decision{events: []peer.Event{s.event(id, peer.EventRejected, "by %s: requests with key %s are refused", by, r.Pin.Fingerprint)}}, nil
		}
		return decision{events: s.acceptFrom(id, r, now, by)}, nil
	})
	if err == nil && s.record(id).pinned() {
		s.leave(id)
	}
	return err
}

// undecideTrust withdraws a decision of a person about a key.
func (s *Store) undecideTrust(r *record, id peer.ClusterID, by string) decision {
	if !r.pinned() && !r.distrusted() {
		return decision{}
	}
	fp := r.Pin.Fingerprint
	if r.distrusted() {
		fp = r.Distrust.Fingerprint
	}
	r.Pin, r.Distrust, r.token = state.Pin{}, state.Distrust{}, ""
	d := decision{events: []peer.Event{s.event(id, peer.EventDistrusted, "by %s: nothing is decided about key %s any more", by, orNone(fp))}}
	more, _ := s.byPolicy(id, r)
	d.events = append(d.events, more.events...)
	return d
}

// HungUp implements peering.Decisions.
func (s *Store) HungUp(ctx context.Context, id peer.ClusterID, by string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.HungUp {
			return decision{}, nil
		}
		r.Peering.HungUp, r.Peering.Once, r.token = true, false, ""
		return decision{events: []peer.Event{s.event(id, peer.EventDisconnect, "by %s, who deleted its ForeignCluster", or(by, "a person"))}}, nil
	})
}

// Forgot implements peering.Decisions.
func (s *Store) Forgot(ctx context.Context, id peer.ClusterID) error {
	return s.rule(ctx, id, func(_ peer.ClusterID, r *record) (decision, error) {
		if !r.Peering.Forgotten {
			return decision{}, nil
		}
		// The stamps stay when something was decided since.
		r.Peering.Forgotten = false
		if r.Ruling == (state.Ruling{Peering: state.Peering{JoinStamp: r.Peering.JoinStamp, TrustStamp: r.Peering.TrustStamp}}) {
			r.Ruling = state.Ruling{}
		}
		return decision{}, nil
	})
}

// EndedByProvider implements peering.Decisions.
func (s *Store) EndedByProvider(ctx context.Context, id peer.ClusterID, generation uint64, reason string) error {
	reason = or(reason, "it gave no reason")
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.EndedByPeer != "" || r.generation != generation {
			return decision{}, nil
		}
		r.Peering.EndedByPeer, r.Peering.Once, r.token = reason, false, ""
		return decision{events: []peer.Event{s.event(id, peer.EventDisconnect, "by its side: %s", reason)}}, nil
	})
}

// EndedHere implements peering.Decisions.
func (s *Store) EndedHere(ctx context.Context, id peer.ClusterID, reason string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		return s.endServing(id, r, or(reason, "A person decided so."), "with kubectl"), nil
	})
}

// Replaced implements peering.Decisions.
func (s *Store) Replaced(ctx context.Context, id peer.ClusterID, object string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, _ *record) (decision, error) {
		return decision{events: []peer.Event{s.event(id, peer.EventReplaced, "somebody wrote ForeignCluster %s for it; the agent's own is deleted", object)}}, nil
	})
}

// Joined implements peering.Decisions.
func (s *Store) Joined(ctx context.Context, id peer.ClusterID, joined bool, why string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.Joined == joined {
			return decision{}, nil
		}
		kind := peer.EventJoined
		if r.Peering.Joined = joined; !joined {
			kind, r.Peering.Once = peer.EventUnjoined, false
		}
		return decision{events: []peer.Event{s.event(id, kind, "%s", why)}}, nil
	})
}

// NodeName returns the name of the virtual node of a peer, "" if it never had one.
func (s *Store) NodeName(id peer.ClusterID) string { return s.record(id).Peering.NodeName }

// NameNode stores the name of the virtual node of a peer. It reports false if the node of
// another peer has that name.
func (s *Store) NameNode(ctx context.Context, id peer.ClusterID, name string) (bool, error) {
	free := false
	err := s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if free = !s.namesNode(name, id); free {
			r.Peering.NodeName = name
		}
		return decision{}, nil
	})
	return free && err == nil, err
}

// namesNode reports whether the node of a peer other than that one has a name.
func (s *Store) namesNode(name string, but peer.ClusterID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, r := range s.records {
		if id != but && r.Peering.NodeName == name {
			return true
		}
	}
	return false
}

// Served implements peering.Decisions.
func (s *Store) Served(ctx context.Context, id peer.ClusterID, served bool, why string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.Served == served {
			return decision{}, nil
		}
		kind := peer.EventServed
		if r.Peering.Served = served; served {
			r.Peering.Ended = ""
		} else {
			kind, r.Peering.Request = peer.EventUnserved, ""
		}
		return decision{events: []peer.Event{s.event(id, kind, "%s", why)}}, nil
	})
}

// Requested implements peering.Decisions.
func (s *Store) Requested(ctx context.Context, id peer.ClusterID, phase api.RequestPhase, reason string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if r.Peering.Request == string(phase) {
			return decision{}, nil
		}
		var d decision
		if r.Peering.Request == "" {
			d.events = append(d.events, s.event(id, peer.EventRequested, "its PeeringRequest is here"))
		}
		switch r.Peering.Request = string(phase); phase {
		case api.RequestAccepted:
			d.events = append(d.events, s.event(id, peer.EventAccepted, "its PeeringRequest: %s", reason))
		case api.RequestRefused:
			d.events = append(d.events, s.event(id, peer.EventRejected, "its PeeringRequest: %s", reason))
		}
		return d, nil
	})
}

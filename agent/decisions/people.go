package decisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// The decisions of people. by says who decides, for people: "user alice",
// "kubectl". Each returns after it is on the disk; when it returns an error,
// nothing has changed. Errors are for the person who decides.

// Trust pins a key as that of a peer. A zero fp means the key that the peer
// shows; it is an error when it shows none, or several are shown in its name.
// A key that is given explicitly is pinned whether or not it is shown now, so
// that a peer can be trusted before it is there.
func (s *Store) Trust(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	fp, err := s.keyFor(id, fp, "trust")
	if err != nil {
		return err
	}
	return s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		e, err := s.trustByPerson(r, id, fp, peer.TrustPerson, by, "")
		return decision{events: e}, err
	})
}

// trustByPerson pins a key by a person's decision. There is no event when a
// person pinned it before.
func (s *Store) trustByPerson(r *record, id peer.ClusterID, fp peer.Fingerprint, m peer.TrustMethod, by, detail string) ([]peer.Event, error) {
	unchanged := r.Pin.Fingerprint == fp
	if fixed := s.currentPolicy().static[id].fingerprint; !fixed.IsZero() && fixed != fp && !(unchanged && r.Pin.Basis == fixed) {
		return nil, fmt.Errorf("the configuration names another key for %s: set fingerprint = %q in its [[peer]] entry, or remove the fingerprint there, and reload", id, fp)
	}
	if id == s.cfg.Self() {
		return nil, fmt.Errorf("%s is this cluster itself", id)
	}
	if unchanged && (r.Pin.Method == peer.TrustPerson || r.Pin.Method == peer.TrustInvite) {
		return nil, nil
	}
	if old := r.Pin.Fingerprint; r.pinned() && !unchanged {
		detail = "in place of " + old.String()
	}
	pin := state.Pin{Pin: peer.Pin{ID: id, Fingerprint: fp, Method: m, By: or(by, "a person"), At: s.now(), Detail: detail}}
	if unchanged && r.Pin.Method != peer.TrustFleet {
		pin.Basis = r.Pin.Basis
	}
	return []peer.Event{s.trust(r, pin)}, nil
}

// keyFor returns the key that a person means who names none.
func (s *Store) keyFor(id peer.ClusterID, given peer.Fingerprint, verb string) (peer.Fingerprint, error) {
	if !given.IsZero() {
		return given, nil
	}
	shown := s.shownKeys(id)
	ref := s.reference(id)
	switch len(shown) {
	case 0:
		return peer.Fingerprint{}, fmt.Errorf("no key of %s is known yet: wait until it is seen, or name the key with --fingerprint", ref)
	case 1:
		return shown[0], nil
	}
	var list []string
	for _, fp := range shown {
		list = append(list, fmt.Sprintf("%s (code %s)", fp, trust.Code(s.cfg.SelfKey(), fp)))
	}
	return peer.Fingerprint{}, fmt.Errorf("%d keys are shown in the name of %s: %s: compare the codes with the one that its side shows, then say which with: liqo-agent peers %s %s --fingerprint KEY",
		len(shown), ref, strings.Join(list, ", "), verb, ref)
}

// shownKeys returns the keys that are shown in the name of a peer now: by its
// endpoint, by others that claim to be it, and in requests.
func (s *Store) shownKeys(id peer.ClusterID) []peer.Fingerprint {
	seen, _ := s.cfg.Peer(id)
	now := s.cfg.Now()
	s.mu.RLock()
	w, waits := s.queue.get(id, now)
	r := s.records[id]
	keys := []peer.Fingerprint{seen.Fingerprint, r.refused}
	s.mu.RUnlock()
	if seen.Conflict != nil {
		keys = append(keys, seen.Conflict.Fingerprint)
	}
	if waits {
		keys = append(keys, w.fingerprint)
	}
	var distinct []peer.Fingerprint
	for _, k := range keys {
		if !k.IsZero() && !slices.Contains(distinct, k) && !r.wasTrusted(k) {
			distinct = append(distinct, k)
		}
	}
	return distinct
}

// Distrust says that the key of a peer is not to be trusted, whatever the
// configuration says about it, until a person trusts one.
func (s *Store) Distrust(ctx context.Context, id peer.ClusterID, by string) error {
	seen, _ := s.cfg.Peer(id)
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		return s.distrust(r, id, seen.Fingerprint, by), nil
	})
}

func (s *Store) distrust(r *record, id peer.ClusterID, shown peer.Fingerprint, by string) decision {
	if r.distrusted() {
		return decision{}
	}
	fp := r.Pin.Fingerprint
	if !r.pinned() {
		fp = shown
	}
	r.Pin, r.token = state.Pin{}, ""
	r.Distrust = state.Distrust{Fingerprint: fp, By: or(by, "a person"), At: s.now()}
	return decision{events: []peer.Event{s.event(id, peer.EventDistrusted, "key %s, by %s", orNone(fp), by)}}
}

func orNone(fp peer.Fingerprint) string { return or(fp.String(), "unknown") }

// Connect makes us consume a peer's resources. It is remembered unless once:
// then it ends with this peering. Whatever ended an earlier one is over. It is
// an error when the peer is blocked or the configuration forbids it.
func (s *Store) Connect(ctx context.Context, id peer.ClusterID, once bool, by string) error {
	ref := s.reference(id)
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		if err := s.mayConnect(id, r, ref); err != nil {
			return decision{}, err
		}
		return s.connect(id, r, once, by), nil
	})
}

func (s *Store) mayConnect(id peer.ClusterID, r *record, ref string) error {
	switch {
	case id == s.cfg.Self():
		return fmt.Errorf("%s is this cluster itself", id)
	case r.blocked():
		return fmt.Errorf("%s is blocked: unblock it first with: liqo-agent peers unblock %s", ref, ref)
	case s.currentPolicy().static[id].connect == "never":
		return fmt.Errorf(`the configuration says connect = "never" for %s: change its [[peer]] entry and reload, then connect`, ref)
	}
	return nil
}

func (s *Store) connect(id peer.ClusterID, r *record, once bool, by string) decision {
	r.generation++
	r.Peering.HungUp, r.Peering.EndedByPeer, r.Peering.Forgotten = false, "", false
	how := ""
	if r.Peering.Once = once; once {
		how = ", once"
	} else {
		r.Preferences.AutoConnect = state.Yes
	}
	return decision{events: []peer.Event{s.event(id, peer.EventConnect, "by %s%s", by, how)}}
}

// Disconnect makes us stop consuming a peer's resources, and remembers that.
func (s *Store) Disconnect(ctx context.Context, id peer.ClusterID, by string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) { return s.disconnect(id, r, by), nil })
}

func (s *Store) disconnect(id peer.ClusterID, r *record, by string) decision {
	was := *r
	r.Preferences.AutoConnect, r.token = state.No, ""
	r.Peering.Once, r.Peering.HungUp, r.Peering.EndedByPeer, r.Peering.Forgotten = false, false, "", false
	if *r == was {
		return decision{}
	}
	return decision{events: []peer.Event{s.event(id, peer.EventDisconnect, "by %s", by)}}
}

// DisconnectIncoming ends the peer's consuming our resources. Its next request
// waits for a person. reason is a sentence that the peer's side is shown; "" is
// a general one.
func (s *Store) DisconnectIncoming(ctx context.Context, id peer.ClusterID, by, reason string) error {
	return s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		return s.endServing(id, r, or(reason, "A person decided so."), "by "+or(by, "a person")), nil
	})
}

func (s *Store) endServing(id peer.ClusterID, r *record, reason, detail string) decision {
	was := r.Ruling
	r.Preferences.AutoAccept = state.No
	r.Peering.Ended, r.Peering.Request, r.asked = text.Sentence(reason), "", time.Time{}
	if r.Ruling == was {
		return decision{}
	}
	return decision{events: []peer.Event{s.event(id, peer.EventRejected, "%s: its peering was ended: %s", detail, reason)}}
}

// Accept lets a peer in, now and from now on, also before it has asked: its key
// is trusted and its requests are accepted. A zero fp means the trusted key, or
// the one that asks or is shown.
func (s *Store) Accept(ctx context.Context, id peer.ClusterID, fp peer.Fingerprint, by string) error {
	given := !fp.IsZero()
	if !given && !s.record(id).pinned() {
		var err error
		if fp, err = s.keyFor(id, fp, "accept"); err != nil {
			return err
		}
	}
	now, ref := s.cfg.Now(), s.reference(id)
	err := s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		switch {
		case r.blocked():
			return decision{}, fmt.Errorf("%s is blocked: unblock it first with: liqo-agent peers unblock %s", ref, ref)
		case s.currentPolicy().static[id].accept == "never":
			return decision{}, fmt.Errorf(`the configuration says accept = "never" for %s: change its [[peer]] entry and reload, then accept`, ref)
		}
		var d decision
		switch {
		case r.Pin.Fingerprint == fp || !given && r.pinned():
		case fp.IsZero():
			return decision{}, fmt.Errorf("the key of %s was marked as not trusted a moment ago: try again", ref)
		default:
			var err error
			if d.events, err = s.trustByPerson(r, id, fp, peer.TrustPerson, by, ""); err != nil {
				return decision{}, err
			}
		}
		d.events = append(d.events, s.acceptFrom(id, r, now, or(by, "a person"))...)
		return d, nil
	})
	if err == nil {
		s.leave(id)
	}
	return err
}

// leave takes the ask of a cluster off the queue.
func (s *Store) leave(id peer.ClusterID) {
	s.mu.Lock()
	left := s.queue.drop(id)
	s.mu.Unlock()
	if left {
		s.cfg.Changed(id)
	}
}

// Reject refuses the ask of a stranger that waits, or the requests of a trusted
// peer, until somebody accepts. It is an error when there is neither.
func (s *Store) Reject(ctx context.Context, id peer.ClusterID, by string) error {
	now, ref := s.cfg.Now(), s.reference(id)
	err := s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) {
		s.mu.RLock()
		w, waits := s.queue.get(id, now)
		s.mu.RUnlock()
		fp := r.Pin.Fingerprint
		if !r.pinned() {
			if fp = w.fingerprint; !waits {
				return decision{}, fmt.Errorf("no request of %s waits for a decision: to refuse it for good, use: liqo-agent peers block %s", ref, ref)
			}
		}
		was := r.Ruling
		if r.reject(fp); r.Ruling == was {
			return decision{}, nil
		}
		return decision{events: []peer.Event{s.event(id, peer.EventRejected, "by %s: requests with key %s are refused", or(by, "a person"), fp)}}, nil
	})
	if err == nil {
		s.leave(id)
	}
	return err
}

// reject refuses requests with a key.
func (r *record) reject(fp peer.Fingerprint) {
	r.Peering.Rejected, r.asked = fp, time.Time{}
	if r.Preferences.AutoAccept == state.Yes {
		r.Preferences.AutoAccept = state.No
	}
}

// Block refuses a peer in both directions until it is unblocked. Until then, a public
// certificate for the host name that vouched for the peer, or that a person gave for it,
// makes no other cluster trusted, and clusters that were trusted by it no longer are.
func (s *Store) Block(ctx context.Context, id peer.ClusterID, by string) error {
	if id == s.cfg.Self() {
		return fmt.Errorf("%s is this cluster itself", id)
	}
	err := s.rule(ctx, id, func(id peer.ClusterID, r *record) (decision, error) { return s.block(id, r, by), nil })
	if err != nil {
		return err
	}
	s.leave(id)
	// Clusters that were trusted by the same host names no longer are.
	for _, other := range s.trustedByHosts() {
		err = errors.Join(err, s.rule(ctx, other, s.byPolicy))
	}
	return err
}

// trustedByHosts returns the clusters that are trusted by a public certificate.
func (s *Store) trustedByHosts() []peer.ClusterID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var ids []peer.ClusterID
	for id, r := range s.records {
		if r.Pin.Method == peer.TrustRoots {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *Store) block(id peer.ClusterID, r *record, by string) decision {
	if r.blocked() {
		return decision{}
	}
	r.Preferences.Blocked, r.Preferences.BlockedHosts, r.token = state.Yes, s.hostsOf(id, r), ""
	r.Peering.Once, r.asked = false, time.Time{}
	with := ""
	if hosts := r.Preferences.Hosts(); len(hosts) > 0 {
		with = ", and with it whoever has a public certificate for " + strings.Join(hosts, ", ")
	}
	return decision{events: []peer.Event{s.event(id, peer.EventBlocked, "by %s%s", or(by, "a person"), with)}}
}

// Unblock ends a block. Earlier decisions about the key of the peer apply again, but
// peerings do not come back until a person decides so.
func (s *Store) Unblock(ctx context.Context, id peer.ClusterID, by string) error {
	return s.opening(ctx, id, func(id peer.ClusterID, r *record) (decision, error) { return s.unblock(id, r, by), nil })
}

func (s *Store) unblock(id peer.ClusterID, r *record, by string) decision {
	if !r.blocked() {
		return decision{}
	}
	r.Preferences.Blocked, r.Preferences.BlockedHosts = state.Undecided, ""
	r.Preferences.AutoConnect, r.Preferences.AutoAccept, r.Peering.Once = state.No, state.No, false
	return decision{events: []peer.Event{s.event(id, peer.EventUnblocked, "by %s", or(by, "a person"))}}
}

// Forget deletes everything that is stored about a peer, with its history. The
// configuration applies to it again at once. Wishes in objects of the API server from
// before do not count, even if the API server is away now. The caller ends the peering
// first.
func (s *Store) Forget(ctx context.Context, id peer.ClusterID, by string) error {
	if _, err := peer.ParseClusterID(string(id)); err != nil {
		return err
	}
	err := func() error {
		s.deciding.Lock()
		defer s.deciding.Unlock()
		r := s.record(id)
		kept := state.Peering{Forgotten: true, JoinStamp: r.Peering.JoinStamp, TrustStamp: r.Peering.TrustStamp}
		if err := s.cfg.Database.Apply(ctx, state.Change{
			Forget: []peer.ClusterID{id}, Kept: map[peer.ClusterID]state.Peering{id: kept},
			Events: []peer.Event{s.event(id, peer.EventForgotten, "by %s", or(by, "a person"))},
		}); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		// A later connection starts from the beginning.
		s.records[id] = record{Ruling: state.Ruling{Peering: kept}, generation: r.generation}
		s.queue.drop(id)
		return nil
	}()
	if err != nil {
		return err
	}
	err = s.rule(ctx, id, s.byPolicy)
	s.cfg.Changed(id)
	if err != nil {
		return errors.Join(fmt.Errorf("%s is forgotten, but the settings of the configuration about it could not be stored: reload the configuration", id), err)
	}
	return nil
}

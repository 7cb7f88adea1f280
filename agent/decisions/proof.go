package decisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Admit returns the access level of a caller. shown is what its certificates prove. It
// follows a key that is a proven successor of the trusted one, and records a fleet
// certificate that expires later.
func (s *Store) Admit(id peer.ClusterID, shown trust.Shown) endpoint.AccessLevel {
	r := s.record(id)
	switch {
	case r.blocked():
		return endpoint.Blocked
	case !r.pinned() || shown.Fingerprint.IsZero():
		return endpoint.Stranger
	}
	if r = s.follows(id, r, shown); r.Pin.Fingerprint != shown.Fingerprint {
		return endpoint.Stranger
	}
	if r.suspended() {
		return endpoint.Suspended
	}
	return endpoint.Known
}

// follows records a successor of the trusted key, or a newer fleet certificate, and
// returns the record of the peer after that.
func (s *Store) follows(id peer.ClusterID, r record, shown trust.Shown) record {
	if r.Pin.Fingerprint != shown.Fingerprint && shown.Succeeds(r.Pin.Fingerprint) {
		s.rotated(id, shown)
		r = s.record(id)
	}
	if r.Pin.Fingerprint == shown.Fingerprint && r.Pin.Method == peer.TrustFleet && shown.FleetEnd().After(r.Pin.NotAfter) {
		s.renew(id, shown)
		r = s.record(id)
	}
	return r
}

// formerKeys are the keys that the trusted key replaced in this run, the newest first. It
// is replaced, never changed.
type formerKeys struct {
	keys []peer.Fingerprint
	at   time.Time // when the last one was followed from
}

const (
	// maxFormer is how many former keys of a peer are known.
	maxFormer = 8
	// lateAfter is how long after a rotation calls with the former key may still be on
	// their way.
	lateAfter = time.Minute
)

// wasTrusted reports whether a key is a former one of the peer's.
func (r record) wasTrusted(key peer.Fingerprint) bool { return slices.Contains(r.formerKeys(), key) }

func (r record) formerKeys() []peer.Fingerprint {
	if r.former == nil {
		return nil
	}
	return r.former.keys
}

// rotated moves the pin of a peer to a key that proves to have taken its place.
func (s *Store) rotated(id peer.ClusterID, shown trust.Shown) {
	s.follow(context.Background(), id, func(id peer.ClusterID, r *record) (decision, error) {
		old := r.Pin.Fingerprint
		if !r.pinned() || !shown.Succeeds(old) {
			return decision{}, nil
		}
		keys := append([]peer.Fingerprint{old}, r.formerKeys()...)
		r.former = &formerKeys{keys: keys[:min(len(keys), maxFormer)], at: s.cfg.Now()}
		r.Pin.Fingerprint = shown.Fingerprint
		r.Pin.Detail = "followed the key's rotation from " + old.String()
		if r.Peering.Rejected == old {
			r.Peering.Rejected = shown.Fingerprint
		}
		return decision{events: []peer.Event{s.event(id, peer.EventKeyRotated, "%s -> %s: the old key certified the new one", old, shown.Fingerprint)}}, nil
	})
}

// Proved handles a key that the endpoint of a peer proved in a check. If the
// configuration vouches for the key, it is trusted from now on; a successor of the trusted
// key and a newer fleet certificate are followed; else nothing happens.
func (s *Store) Proved(ctx context.Context, id peer.ClusterID, shown trust.Shown) {
	r := s.record(id)
	switch {
	case shown.Fingerprint.IsZero() || id == s.cfg.Self():
		return
	case r.pinned():
		s.follows(id, r, shown)
		return
	case r.blocked() || r.distrusted():
		return
	}
	p := s.currentPolicy()
	pin, vouched := s.vouched(id, shown, p)
	if !vouched && p.AutojoinUntrusted {
		pin, vouched = s.open(id, shown, "discovery.autojoin_untrusted"), true
	}
	if !vouched || !s.room(pin.Method) {
		return
	}
	if err := s.rule(ctx, id, s.trustUnlessDecided(pin)); err != nil {
		s.cfg.Logger.Warn("the configuration vouches for the key of a peer, but that cannot be stored; it is tried again at the next check", "peer", id, "error", err)
	}
}

// vouched returns the pin that the configuration, or the system's authorities,
// give to a key.
func (s *Store) vouched(id peer.ClusterID, shown trust.Shown, p policy) (state.Pin, bool) {
	if fixed := p.static[id].fingerprint; !fixed.IsZero() {
		// The configuration names the key. No other way to trust applies but the
		// key's own succession.
		if fixed != shown.Fingerprint && !shown.Succeeds(fixed) {
			return state.Pin{}, false
		}
		pin := s.staticPin(id, fixed)
		if fixed != shown.Fingerprint {
			pin.Fingerprint, pin.Detail = shown.Fingerprint, "followed the key's rotation from "+fixed.String()
		}
		return pin, true
	}
	if c, ok := s.certified(id, shown, p); ok {
		return state.Pin{
			Pin: peer.Pin{ID: id, Fingerprint: shown.Fingerprint, Method: peer.TrustFleet, By: text.Sentence(c.By), At: s.now(),
				NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC()},
			Basis: c.Authority,
		}, true
	}
	if shown.Name == "" {
		return state.Pin{}, false
	}
	if other, blocked := s.blockedHost(id, shown.Name); blocked {
		if s.noting(s.cfg.Now()) {
			s.cfg.Logger.Info("the public certificate of a host makes no cluster trusted, because the host is blocked together with a cluster",
				"peer", id, "host", shown.Name, "blocked", other)
		}
		return state.Pin{}, false
	}
	pin := state.Pin{Pin: peer.Pin{ID: id, Fingerprint: shown.Fingerprint, Method: peer.TrustRoots, By: "system roots", At: s.now(), Host: shown.Name}}
	why := ", which a person named"
	switch domain := p.domainOf(shown.Name); {
	case p.named(id, s.record(id), shown.Name):
	case domain != "":
		pin.Domain, why = domain, ", in the search domain "+domain
	case p.Search == nil:
		// Which one it is shows when it is known where is looked.
		pin.Domain, why = anyDomain, ""
	}
	pin.Detail = text.Sentence("the public certificate of " + shown.Name + why)
	return pin, true
}

// anyDomain is the root, as the Domain of a pin: it is not known by which one the host
// counts, or it was not asked, by an older agent.
const anyDomain = "."

// named reports whether a person named a host for a peer, on the command line or in
// the configuration.
func (p policy) named(id peer.ClusterID, r record, host string) bool {
	return host != "" && (peer.HostName(r.Preferences.URL) == host || peer.HostName(p.static[id].url) == host)
}

// domainOf returns a search domain that a host name lies in, "" for none.
func (p policy) domainOf(host string) string {
	for _, domain := range p.Search {
		if peer.InDomain(host, domain) {
			return domain
		}
	}
	return ""
}

// blockedHost returns another cluster than that of the ID with which a host name was
// blocked.
func (s *Store) blockedHost(id peer.ClusterID, host string) (peer.ClusterID, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for other, r := range s.records {
		if other != id && r.blocked() && slices.Contains(r.Preferences.Hosts(), host) {
			return other, true
		}
	}
	return "", false
}

// hostsOf returns the host names that a block of a peer includes: the one that vouched for
// it, and those that a person gave for it. Host names from other sources prove nothing,
// and may belong to another cluster.
func (s *Store) hostsOf(id peer.ClusterID, r *record) string {
	hosts := []string{r.Pin.Host, peer.HostName(r.Preferences.URL), peer.HostName(s.currentPolicy().static[id].url)}
	slices.Sort(hosts)
	return state.JoinHosts(slices.DeleteFunc(slices.Compact(hosts), func(h string) bool { return h == "" }))
}

// certified returns the certification of a key by a fleet CA, false for none.
func (s *Store) certified(id peer.ClusterID, shown trust.Shown, p policy) (trust.Certification, bool) {
	now := s.cfg.Now()
	c, err := shown.Certified(p.Fleet, id, now)
	if err != nil && !errors.Is(err, trust.ErrNoFleetCertificate) && s.noting(now) {
		s.cfg.Logger.Warn("a peer is not trusted although it shows a fleet certificate", "peer", id, "key", shown.Fingerprint, "error", err)
	}
	return c, err == nil
}

func (s *Store) staticPin(id peer.ClusterID, fp peer.Fingerprint) state.Pin {
	return state.Pin{Pin: peer.Pin{ID: id, Fingerprint: fp, Method: peer.TrustStatic, By: "configuration", At: s.now()}, Basis: fp}
}

// open returns the pin of an untrusted key that a setting permits.
func (s *Store) open(id peer.ClusterID, shown trust.Shown, setting string) state.Pin {
	return state.Pin{Pin: peer.Pin{ID: id, Fingerprint: shown.Fingerprint, Method: peer.TrustOpen,
		By: "configuration", At: s.now(), Detail: setting + ": the first key is trusted"}}
}

// room reports whether another key may be trusted by this method.
func (s *Store) room(m peer.TrustMethod) bool {
	return m != peer.TrustOpen && m != peer.TrustRoots || s.unvouched() < maxUnvouched
}

// trustUnlessDecided pins a key if the peer has none, and no decision forbids it.
func (s *Store) trustUnlessDecided(pin state.Pin) func(peer.ClusterID, *record) (decision, error) {
	return func(id peer.ClusterID, r *record) (decision, error) {
		if r.pinned() || r.distrusted() || r.blocked() {
			return decision{}, nil
		}
		return decision{events: []peer.Event{s.trust(r, pin)}}, nil
	}
}

// trust pins a key, and returns the entry of the history.
func (s *Store) trust(r *record, pin state.Pin) peer.Event {
	if pin.Basis.IsZero() {
		pin.Basis = pin.Fingerprint
	}
	r.Pin, r.Distrust, r.refused, r.former = pin, state.Distrust{}, peer.Fingerprint{}, nil
	why := ""
	if pin.Detail != "" {
		why = ": " + pin.Detail
	}
	return s.event(pin.ID, peer.EventTrusted, "key %s, %s, by %s%s", pin.Fingerprint, pin.Method, pin.By, why)
}

// byPolicy brings the pin of a peer in line with the configuration.
func (s *Store) byPolicy(id peer.ClusterID, r *record) (decision, error) {
	p := s.currentPolicy()
	fixed := p.static[id].fingerprint
	var d decision
	void := func(why string) {
		d.events = append(d.events, s.event(id, peer.EventDistrusted, "key %s, by configuration: %s", r.Pin.Fingerprint, why))
		r.Pin = state.Pin{}
	}
	_, blocked := s.blockedHost(id, r.Pin.Host)
	switch {
	case r.Pin.Method == peer.TrustStatic && fixed.IsZero():
		void("it does not name the key any more")
	case r.Pin.Method == peer.TrustFleet && !p.knowsAuthority(r.Pin.Basis):
		void("trust.fleet_ca no longer has the authority that certified it")
	case r.Pin.Method == peer.TrustRoots && blocked:
		void("its host, " + r.Pin.Host + ", is blocked together with another cluster")
	case r.Pin.Method == peer.TrustRoots && !p.stillNames(id, *r):
		void("its host, " + or(r.Pin.Host, "of which the name was not kept") + ", is in no search domain, and nobody named it")
	}
	stands := r.Pin.Fingerprint == fixed || r.Pin.Basis == fixed
	if !fixed.IsZero() && !stands && !r.distrusted() {
		if r.pinned() {
			void("it names another key")
		}
		d.events = append(d.events, s.trust(r, s.staticPin(id, fixed)))
	}
	d.events = append(d.events, s.lapse(id, r, p)...)
	return d, nil
}

// stillNames reports whether the host name that vouched for a key still counts: a
// person named the host, or it lies in a search domain, or it is not known yet which
// ones there are.
func (p policy) stillNames(id peer.ClusterID, r record) bool {
	return p.Search == nil || r.Pin.Domain == "" || p.named(id, r, r.Pin.Host) || p.domainOf(r.Pin.Host) != ""
}

// knowsAuthority reports whether an authority with that key is one of the fleet, or may be.
func (p policy) knowsAuthority(key peer.Fingerprint) bool {
	if p.FleetUnknown {
		return true
	}
	for _, authority := range p.Fleet {
		if peer.FingerprintOf(authority.RawSubjectPublicKeyInfo) == key {
			return true
		}
	}
	return false
}

// Returned handles the return of a peer after an absence: that its ForeignCluster was
// deleted before no longer counts.
func (s *Store) Returned(id peer.ClusterID) {
	if !s.record(id).Peering.HungUp {
		return
	}
	seen, _ := s.cfg.Peer(id)
	s.follow(context.Background(), id, func(id peer.ClusterID, r *record) (decision, error) {
		if !r.Peering.HungUp {
			return decision{}, nil
		}
		r.Peering.HungUp = false
		var d decision
		if wish, why := connectOf(id, *r, s.currentPolicy(), seen); wish == plan.Yes {
			d.events = append(d.events, s.event(id, peer.EventConnect, "it returned, and %s", why))
		}
		return d, nil
	})
}

// refuseKey records that a caller showed another key than the trusted one.
func (s *Store) refuseKey(ctx context.Context, c endpoint.Caller) {
	now := s.cfg.Now()
	err := s.rule(ctx, c.ID, func(id peer.ClusterID, r *record) (decision, error) {
		former := r.wasTrusted(c.Shown.Fingerprint)
		if !r.pinned() || former && now.Sub(r.former.at) < lateAfter ||
			r.refused == c.Shown.Fingerprint && now.Sub(r.at) < noteAgain || !s.noting(now) {
			return decision{}, nil
		}
		r.refused, r.at = c.Shown.Fingerprint, now
		detail := fmt.Sprintf("key %s, shown by %s, is not the trusted one, %s", c.Shown.Fingerprint, c.Source, r.Pin.Fingerprint)
		what := "a caller uses the ID of a trusted peer with another key; if the peer was reinstalled, trust its key with: liqo-agent peers trust " + string(id)
		if former {
			detail += ", which took its place"
			what = "a caller uses the ID of a trusted peer with its former key: it may be a copy of its disk, or an attacker; do not trust that key"
		}
		s.cfg.Logger.Warn(what, "peer", id, "key", c.Shown.Fingerprint, "trusted", r.Pin.Fingerprint, "source", c.Source)
		return decision{events: []peer.Event{s.event(id, peer.EventKeyRefused, "%s", detail)}}, nil
	})
	if err != nil {
		s.cfg.Logger.Debug("a refused key cannot be stored", "peer", c.ID, "error", err)
	}
}

// noting reports whether an event of a stranger is recorded in the history.
func (s *Store) noting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noise.worthNoting(now)
}

package peering

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offer"
)

// sight is what it takes to look at a cluster, with or without an API server.
type sight struct {
	cfg    *Config
	memory *memory
	book   *offer.Book
	remote syncer
	places *places
}

// observe gathers everything that the decision about one cluster depends on, and keeps
// what the next one is to know. It is for who decides; s is nil while there is no
// connection to the API server.
func (v *sight) observe(s *session, id peer.ClusterID) Observed {
	now := v.cfg.Now()
	obs := v.gather(s, id, now, v.book.Offer)
	v.memory.with(id, func(m *memo) { m.fill(&obs, now) })
	return obs
}

// peek is observe for who only reads: how often somebody asks how things stand starts
// and moves no clock.
func (v *sight) peek(s *session, id peer.ClusterID) Observed {
	now := v.cfg.Now()
	obs := v.gather(s, id, now, v.book.Peek)
	m := v.memory.get(id)
	m.fill(&obs, now)
	return obs
}

// offered is Offer or Peek of an offer.Book.
type offered func(self, id peer.ClusterID, prior offer.Prior, now time.Time) *api.AdvertisementSpec

func (v *sight) gather(s *session, id peer.ClusterID, now time.Time, offered offered) Observed {
	obs := Observed{
		ID: id, Settled: v.cfg.Registry.Settled(), LostAfter: v.cfg.LostAfter(),
		Self: v.cfg.Greeting(), Standing: v.cfg.Ledger.Standing(id), Namespace: v.cfg.Namespace,
		Remote: v.remote.Get(id),
	}
	if p, known := v.cfg.Registry.Peer(id); known {
		obs.Peer = &p
	}
	obs.Sharing, obs.UseKnown = v.cfg.SharingSettings(), v.cfg.Sharing == nil
	if s != nil {
		s.objects(&obs)
	}
	v.offers(&obs, now, offered)
	return obs
}

// offers adds what is offered to a cluster that we may let in as a consumer.
func (v *sight) offers(obs *Observed, now time.Time, offered offered) {
	obs.NotSharing = !obs.Sharing.Enable
	if obs.NotSharing || obs.Request == nil || obs.Standing.Accept.Phase != api.RequestAccepted {
		return
	}
	prior := offer.Prior{Unknown: obs.Standing.LastServed && obs.Remote.State == nil}
	if state := obs.Remote.State; state != nil && state.Advertisement != nil {
		spec := state.Advertisement.Spec
		prior.Spec = &spec
	}
	obs.Offer, obs.WhyNoOffer = offered(obs.Self.Identity.ClusterID, obs.ID, prior, now), v.book.Why()
}

// noteReach begins and ends the absence of a peer while nobody decides about it.
func (v *sight) noteReach(id peer.ClusterID) {
	if p, known := v.cfg.Registry.Peer(id); known {
		obs := Observed{ID: id, Peer: &p, Standing: v.cfg.Ledger.Standing(id), Remote: v.remote.Get(id)}
		v.memory.reached(id, obs.Reachable(), v.cfg.Now())
	}
}

// objects adds what the API server has.
func (s *session) objects(obs *Observed) {
	obs.RequestsKnown = true // a session begins after the first list of every kind
	name := string(obs.ID)
	obs.Request, obs.Advertisement = s.requests.get(name), s.offers.get(name)
	if obs.Advertisement != nil {
		obs.OfferFits = s.ration.fits(s.offers.all(), obs.ID, obs.Sharing.MaxAccepted)
	}
	for _, fc := range s.foreign.about(obs.ID) {
		obs.Objects = append(obs.Objects, &fc.ForeignCluster)
		if place, asked := s.places.at(fc, s.cfg.Now()); asked {
			if obs.Places == nil {
				obs.Places = make(map[string]Place)
			}
			obs.Places[fc.Name] = place
		}
		if owners := fc.owners; owners != (Owners{}) {
			if obs.Owners == nil {
				obs.Owners = make(map[string]Owners)
			}
			// What an earlier run or connection told the ledger is the same edit.
			if baseStamp(obs.Standing.JoinStamp) == owners.Join.Stamp {
				owners.Join.Stamp = obs.Standing.JoinStamp
			}
			if baseStamp(obs.Standing.TrustStamp) == owners.TrustMode.Stamp {
				owners.TrustMode.Stamp = obs.Standing.TrustStamp
			}
			obs.Owners[fc.Name] = owners
		}
	}
	if found := s.secrets.get(SecretName(obs.ID)); found != nil {
		obs.Secret = readSecret(obs.ID, found)
	}
	obs.Access = readAccess(obs.ID, s.users, s.roles.get(accessPrefix+name), s.bindings.get(accessPrefix+name))
}

// fill adds what only the memory of this process knows, and keeps what it is to
// know from now on.
func (m *memo) fill(obs *Observed, now time.Time) {
	m.reached(obs.Reachable(), now)
	obs.Away = since(m.away, now)
	m.share(obs, now)
	obs.TearingDown, obs.Hosting = since(m.tearing, now), m.hosting
	if obs.Standing.Anew != m.anew {
		m.anew, m.anewSince = obs.Standing.Anew, now
	}
	obs.AnewSince, obs.Begun = m.anewSince, m.begun
	if obs.Request == nil {
		obs.RequestDeleted = m.request.by
	} else {
		m.request.saw(obs.Request.UID, now) // the watch may not have told yet
		obs.RequestSeen = m.request.seen
	}
	if obs.Advertisement == nil {
		obs.OfferDeleted = m.offer.by
	} else {
		m.offer.saw(obs.Advertisement.UID, now)
	}
}

// reached notes whether the peer is there.
func (m *memo) reached(there bool, now time.Time) {
	if there {
		m.away = time.Time{}
	} else if m.away.IsZero() {
		m.away = now
	}
}

// since is the time that passed, at least a nanosecond unless t is zero.
func since(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(now.Sub(t), 1)
}

package peering

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

// observer gathers what is known about a cluster, with or without an API server.
type observer struct {
	cfg       *Config
	peers     *peerStates
	allocator *offer.Allocator
	remote    syncer
	urls      *urlProbes
}

// observe gathers everything that the decision about one cluster depends on, and keeps
// what the next one is to know. It is for who decides; s is nil while there is no
// connection to the API server.
func (v *observer) observe(s *session, id peer.ClusterID) plan.Observed {
	now := v.cfg.Now()
	obs := v.gather(s, id, now, v.allocator.Offer)
	v.peers.with(id, func(m *peerState) { m.fill(&obs, now) })
	return obs
}

// peek is observe for who only reads: how often somebody asks how things stand starts
// and moves no clock.
func (v *observer) peek(s *session, id peer.ClusterID) plan.Observed {
	now := v.cfg.Now()
	obs := v.gather(s, id, now, v.allocator.Peek)
	m := v.peers.get(id)
	m.fill(&obs, now)
	return obs
}

// offered is Offer or Peek of an offer.Allocator.
type offered func(self, id peer.ClusterID, prior offer.Prior, now time.Time) *api.AdvertisementSpec

func (v *observer) gather(s *session, id peer.ClusterID, now time.Time, offered offered) plan.Observed {
	obs := plan.Observed{
		ID: id, Settled: v.cfg.Registry.Settled(), LostAfter: v.cfg.LostAfter(),
		Self: v.cfg.Greeting(), Policy: v.cfg.Decisions.Policy(id), Namespace: v.cfg.Namespace,
		Remote: v.remote.Get(id),
	}
	if p, known := v.cfg.Registry.Peer(id); known {
		obs.Peer = &p
	}
	obs.Sharing, obs.NodeKnown = v.cfg.SharingSettings(), v.cfg.Sharing == nil
	if v.cfg.Sharing != nil {
		obs.Network = v.cfg.Sharing.Network(id)
	}
	obs.Engine = engine.State{Setting: engine.OnlyBuiltin}
	if v.cfg.Liqo != nil {
		found, known := v.cfg.Liqo.Installed()
		obs.Engine = engine.State{Setting: v.cfg.Engine(), Liqo: found, Unknown: !known}
		obs.Liqo.Consuming, obs.Liqo.Serving = v.cfg.Liqo.Status(id)
	}
	if s != nil {
		s.objects(&obs)
	}
	v.offers(&obs, now, offered)
	return obs
}

// offers adds what is offered to a cluster that we may let in as a consumer.
func (v *observer) offers(obs *plan.Observed, now time.Time, offered offered) {
	obs.NotSharing = !obs.Sharing.Enable
	if obs.NotSharing || obs.Request == nil || obs.Policy.Accept.Phase != api.RequestAccepted || obs.Request.Spec.Engine == api.EngineLiqo {
		return
	}
	prior := offer.Prior{Asked: obs.Request.Spec.Resources, Unknown: obs.Policy.LastServed && obs.Remote.State == nil}
	if state := obs.Remote.State; state != nil && state.Advertisement != nil {
		spec := state.Advertisement.Spec
		prior.Spec = &spec
	}
	obs.Offer, obs.WhyNoOffer = offered(obs.Self.Identity.ClusterID, obs.ID, prior, now), v.allocator.Why()
}

// noteReach begins and ends the absence of a peer while nobody decides about it.
func (v *observer) noteReach(id peer.ClusterID) {
	if p, known := v.cfg.Registry.Peer(id); known {
		obs := plan.Observed{ID: id, Peer: &p, Policy: v.cfg.Decisions.Policy(id), Remote: v.remote.Get(id)}
		v.peers.reached(id, obs.Reachable(), v.cfg.Now())
	}
}

// objects adds what the API server has.
func (s *session) objects(obs *plan.Observed) {
	obs.RequestsKnown = true // a session begins after the first list of every kind
	name := string(obs.ID)
	obs.Request, obs.Advertisement = s.requests.Get(name), s.offers.Get(name)
	if obs.Advertisement != nil {
		// One that is accepted has its place. To count the others takes a look at all of them.
		obs.OfferFits = obs.Advertisement.Status.AdvertisementStatus == api.AdvertisementAccepted || s.quota.fits(s.offers.All(), obs.ID, obs.Sharing.MaxAccepted)
	}
	for _, fc := range s.foreign.About(obs.ID) {
		obs.Objects = append(obs.Objects, &fc.ForeignCluster)
		if probe, asked := s.urls.at(fc, s.cfg.Now()); asked {
			if obs.URLs == nil {
				obs.URLs = make(map[string]discovered.Probe)
			}
			obs.URLs[fc.Name] = probe
		}
		if owners := fc.Owners; owners != (fields.Owners{}) {
			if obs.Owners == nil {
				obs.Owners = make(map[string]fields.Owners)
			}
			// What an earlier run or connection told the decision store is the same edit.
			owners.Join, owners.TrustMode = owners.Join.Recorded(obs.Policy.JoinStamp), owners.TrustMode.Recorded(obs.Policy.TrustStamp)
			obs.Owners[fc.Name] = owners
		}
	}
	obs.Secret, obs.Access = s.access.Secret(obs.ID), s.access.Access(obs.ID, s.users)
}

// fill adds what only the memory of this process knows, and keeps what it is to
// know from now on.
func (m *peerState) fill(obs *plan.Observed, now time.Time) {
	m.reached(obs.Reachable(), now)
	obs.Away = since(m.away, now)
	m.share(obs, now)
	obs.TearingDown, obs.Hosting = since(m.tearingDown, now), m.hosting
	if obs.Policy.Generation != m.generation {
		if !m.generationSince.IsZero() {
			m.anew = now
		}
		m.generation, m.generationSince = obs.Policy.Generation, now
	}
	obs.GenerationSince, obs.ObservedGeneration = m.generationSince, m.observedGeneration
	if obs.Request == nil {
		obs.RequestDeleted = m.request.By
	} else {
		m.request.Observed(obs.Request.UID, now) // the watch may not have told yet
		obs.RequestSeen = m.request.Seen
	}
	switch {
	case obs.Advertisement == nil && m.offer.At.Before(m.anew):
		// It was an offer from before somebody decided anew: that it went says nothing about
		// what the provider thinks of that.
	case obs.Advertisement == nil:
		obs.OfferDeleted = m.offer.By
	default:
		m.offer.Observed(obs.Advertisement.UID, now)
	}
}

// reached notes whether the peer is there.
func (m *peerState) reached(there bool, now time.Time) {
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

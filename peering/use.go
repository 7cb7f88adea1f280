package peering

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// provide says how our use of a cluster is to stand, and takes in how it stands.
func (s *session) provide(obs *Observed) {
	if s.cfg.Sharing == nil {
		return
	}
	obs.Use = s.cfg.Sharing.Provide(weigh(*obs, s.cfg.Now()).provision())
	obs.UseKnown = true
	s.memory.with(obs.ID, func(m *memo) { m.use, m.useKnown = obs.Use, true })
}

// errNoRoom: another offer was accepted at the same moment, and no more may be.
var errNoRoom = errors.New("as many offers are accepted as may be")

// writeOffer writes the status of an Advertisement. Before one is accepted by
// policy its place is taken, so that there are never too many.
func (s *session) writeOffer(ctx context.Context, id peer.ClusterID, object applied, a Action) error {
	accepts := a.Advertisement.AdvertisementStatus == api.AdvertisementAccepted
	if !accepts {
		s.ration.give(id)
	} else if !s.ration.take(s.offers.all(), id, a.UID, s.cfg.SharingSettings().MaxAccepted) {
		return errNoRoom
	}
	object.Status = a.Advertisement
	written, err := applyKind(ctx, s.client, s.offers.kind, "status", object, ManagerAdvertisement, true)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		s.ration.give(id) // it was not written; after other failures it may have been
		return err
	case err != nil:
		return err
	}
	s.offers.wrote(written)
	return nil
}

// offerChanged has the clusters looked at that a changed Advertisement matters
// for.
func (s *session) offerChanged() func(before, after *api.Advertisement, restored bool) {
	track := tracking(s, advertisementKind().about, func(m *memo) *trail { return &m.offer })
	return func(before, after *api.Advertisement, restored bool) {
		track(before, after, restored)
		s.offerMoved(before, after)
	}
}

// offerMoved has those looked at that wait for room, if an offer gave up its place
// or its turn.
func (s *session) offerMoved(before, after *api.Advertisement) {
	if before == nil || after != nil && after.UID == before.UID && holdsPlace(after) == holdsPlace(before) && waits(after) == waits(before) {
		return
	}
	for _, adv := range s.offers.all() {
		if adv.Status.Reason == ReasonTooMany {
			s.queue.Add(peer.ClusterID(adv.Name))
		}
	}
}

// holdsPlace reports whether an offer counts for sharing.max_accepted.
func holdsPlace(adv *api.Advertisement) bool {
	return adv.Status.AdvertisementStatus == api.AdvertisementAccepted
}

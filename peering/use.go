package peering

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/liqo"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/deletion"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
)

// provide hands on the desired state of a provider's node, and takes in its state.
func (s *session) provide(obs *plan.Observed) {
	if s.cfg.Sharing == nil {
		return
	}
	obs.Node = s.cfg.Sharing.Provide(obs.NodeSpec(s.cfg.Now()))
	obs.NodeKnown = !obs.Node.Unknown
	s.peers.with(obs.ID, func(m *peerState) { m.node, m.nodeKnown = obs.Node, obs.NodeKnown })
}

// drive hands on the desired state of the two clusters in Liqo, and takes in its state.
func (s *session) drive(obs *plan.Observed) {
	if s.cfg.Liqo == nil || obs.Engine.Liqo == nil && obs.Liqo.None() {
		return
	}
	spec, target := obs.LiqoSpec(s.cfg.Now())
	desired := liqo.Desired{Serve: spec.Serve, Cut: spec.Cut}
	if spec.Consume != nil {
		desired.Consume = &liqo.Consumption{Wanted: *spec.Consume, Gone: spec.Gone, Target: target, Asks: obs.Policy.Asks.Amounts()}
	}
	obs.Liqo.Consuming, obs.Liqo.Serving = s.cfg.Liqo.Drive(obs.ID, desired)
}

// errNoRoom: another offer was accepted at the same moment, and no more may be.
var errNoRoom = errors.New("as many offers are accepted as may be")

// writeOffer writes the status of an Advertisement. Before one is accepted by
// policy its place is taken, so that there are never too many.
func (s *session) writeOffer(ctx context.Context, id peer.ClusterID, object objects.Applied, a plan.Action) error {
	accepts := a.Advertisement.AdvertisementStatus == api.AdvertisementAccepted
	if !accepts {
		s.quota.release(id)
	} else if !s.quota.reserve(s.offers.All(), id, a.UID, s.cfg.SharingSettings().MaxAccepted) {
		return errNoRoom
	}
	object.Status = a.Advertisement
	written, err := objects.Apply(ctx, s.client, s.offers.Kind, "status", object, fields.ManagerAdvertisement, true)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		s.quota.release(id) // it was not written; after other failures it may have been
		return err
	case err != nil:
		return err
	}
	s.offers.Wrote(written)
	return nil
}

// offerChanged has the clusters looked at that a changed Advertisement matters
// for.
func (s *session) offerChanged() func(before, after *api.Advertisement, restored bool) {
	track := tracking(s, advertisementKind(), func(m *peerState) *deletion.Tracker { return &m.offer })
	return func(before, after *api.Advertisement, restored bool) {
		track(before, after, restored)
		s.offerMoved(before, after)
	}
}

// offerMoved has those looked at that wait for room, if an offer gave up its place
// or its turn.
func (s *session) offerMoved(before, after *api.Advertisement) {
	if before == nil || after != nil && after.UID == before.UID && holdsPlace(after) == holdsPlace(before) && plan.Waits(after) == plan.Waits(before) {
		return
	}
	for _, adv := range s.offers.All() {
		if adv.Status.Reason == reason.TooMany {
			s.queue.Add(peer.ClusterID(adv.Name))
		}
	}
}

// holdsPlace reports whether an offer counts for sharing.max_accepted.
func holdsPlace(adv *api.Advertisement) bool {
	return adv.Status.AdvertisementStatus == api.AdvertisementAccepted
}

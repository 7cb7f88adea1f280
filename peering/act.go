package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/deletion"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
)

// decisionsTimeout bounds a call of the decision store, which writes to a disk.
const decisionsTimeout = 10 * time.Second

// act carries out the actions of one decision in order, up to the first that
// fails.
func (s *session) act(ctx context.Context, id peer.ClusterID, actions []plan.Action) error {
	written := make(map[string]string) // the newest version of each ForeignCluster, by name
	for _, a := range actions {
		var err error
		switch a.Kind {
		case plan.Create, plan.UpdateSpec, plan.Identify, plan.UpdateStatus, plan.ApplyIntent, plan.AddFinalizer, plan.RemoveFinalizer, plan.UpdatePeering, plan.RequestRef, plan.AdvertisementRef, plan.Delete:
			err = s.writeForeign(ctx, a, written)
		case plan.RecordJoinEdited, plan.RecordTrustEdited, plan.RecordDecided, plan.RecordHungUp, plan.RecordForgot, plan.RecordEndedByProvider, plan.RecordEndedHere, plan.RecordJoined, plan.RecordServed, plan.RecordRequested:
			err = s.record(ctx, id, a)
		case plan.ObserveGeneration:
			s.peers.with(id, func(m *peerState) { m.observedGeneration = a.Generation })
		default:
			err = s.writeOwn(ctx, id, a)
		}
		if err != nil {
			return err
		}
		s.cfg.Logger.Debug("carried out an action", "action", a.Kind, "cluster", id, "name", a.Name)
	}
	return nil
}

// writeForeign carries out an action on a ForeignCluster.
func (s *session) writeForeign(ctx context.Context, a plan.Action, written map[string]string) error {
	if a.UID == "" {
		a.UID = s.foreign.UID(a.Name) // of what the Create before it made
	}
	if a.ResourceVersion != "" && written[a.Name] != "" {
		a.ResourceVersion = written[a.Name]
	}
	if a.Kind == plan.Delete {
		if err := objects.Remove(ctx, s.client, s.foreign.Kind, a.Name, a.UID, a.ResourceVersion); err != nil {
			return err
		}
		s.foreign.Deleted(a.Name, a.UID)
		if a.Heir != "" {
			s.cfg.Logger.Info("somebody created a ForeignCluster for a cluster that already had one; theirs counts, and the agent's is deleted",
				"cluster", a.Name, "foreigncluster", a.Heir)
			if err := s.cfg.Decisions.Replaced(ctx, peer.ClusterID(a.Name), a.Heir); err != nil {
				s.cfg.Logger.Warn("cannot record in the history that a ForeignCluster was replaced", "cluster", a.Name, "error", err)
			}
		}
		return nil
	}
	before := s.foreign.Get(a.Name)
	fc, err := foreign.Send(ctx, s.client, a, before)
	if err != nil {
		return err
	}
	if a.Kind == plan.UpdateStatus || a.Kind == plan.UpdatePeering {
		var was *api.ForeignCluster
		if before != nil {
			was = &before.ForeignCluster
		}
		s.events.Record(was, &fc.ForeignCluster)
	}
	written[a.Name] = fc.ResourceVersion
	s.foreign.Wrote(fc)
	if fc.DeletionTimestamp != nil {
		s.foreign.Deleted(fc.Name, fc.UID) // unless something else holds it
	}
	if kept := s.foreign.Get(fc.Name); kept != nil && kept.UID == fc.UID {
		fc = kept // its owners have stamps that the answer alone does not tell
	}
	if a.Kind != plan.ApplyIntent && before != nil && before.UID == fc.UID && foreign.Edited(before, fc) {
		// What is left to do was decided without that, and may overrule it.
		return foreign.Conflict(a.Name, errors.New("somebody edited the object meanwhile"))
	}
	return nil
}

// writeOwn carries out an action on another object about a peer.
func (s *session) writeOwn(ctx context.Context, id peer.ClusterID, a plan.Action) error {
	name := string(id)
	object := objects.Applied{Metadata: objects.Meta{Name: name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	switch a.Kind {
	case plan.SetRequestStatus:
		object.Status = a.Request
		written, err := objects.Apply(ctx, s.client, s.requests.Kind, "status", object, fields.ManagerPeeringRequest, true)
		if err != nil {
			return err
		}
		s.requests.Wrote(written)
		return nil
	case plan.SetAdvertisementStatus:
		return s.writeOffer(ctx, id, object, a)
	case plan.DeleteRequest:
		return s.deleteRequest(ctx, id, a.UID, a.ResourceVersion, plan.DeletedByUs)
	case plan.DeleteAdvertisement:
		return s.deleteOffer(ctx, id, a.UID, a.ResourceVersion, plan.DeletedByUs)
	case plan.ApplySecret:
		return s.access.PutSecret(ctx, id, *a.Secret)
	case plan.DeleteSecret:
		return s.access.RemoveSecret(ctx, id)
	case plan.ApplyAccess:
		return s.access.Grant(ctx, id, s.users, a.Access.Request, a.Access.Advertisement)
	case plan.DeleteAccess:
		return s.access.Revoke(ctx, id)
	}
	return fmt.Errorf("unknown kind of action %q about cluster %s", a.Kind, id)
}

// deleteRequest deletes a peer's PeeringRequest for by, who is noted before.
func (s *session) deleteRequest(ctx context.Context, id peer.ClusterID, uid types.UID, version string, by plan.Deleter) error {
	return removeNoted(ctx, s, s.requests, id, uid, version, by, func(m *peerState) *deletion.Tracker { return &m.request })
}

// deleteOffer deletes a peer's Advertisement for by, who is noted before.
func (s *session) deleteOffer(ctx context.Context, id peer.ClusterID, uid types.UID, version string, by plan.Deleter) error {
	return removeNoted(ctx, s, s.offers, id, uid, version, by, func(m *peerState) *deletion.Tracker { return &m.offer })
}

func removeNoted[T kube.Object](ctx context.Context, s *session, st *objects.Store[T], id peer.ClusterID, uid types.UID, version string, by plan.Deleter, trackerOf func(*peerState) *deletion.Tracker) error {
	var n deletion.Pending
	s.peers.with(id, func(m *peerState) { n = trackerOf(m).Begin(by, s.cfg.Now()) })
	err := objects.Remove(ctx, s.client, st.Kind, string(id), uid, version)
	came := deletion.Taken
	if err != nil {
		came = deletion.Unknown
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			came = deletion.OutcomeOf(int(status.Status().Code))
		}
	}
	s.peers.with(id, func(m *peerState) { trackerOf(m).Resolve(n, came) })
	if err != nil {
		return err
	}
	st.Deleted(string(id), uid)
	return nil
}

// record carries out an action on the decision store.
func (s *session) record(ctx context.Context, id peer.ClusterID, a plan.Action) error {
	ctx, cancel := context.WithTimeout(ctx, decisionsTimeout)
	defer cancel()
	var err error
	switch t, decisions := a.Record, s.cfg.Decisions; a.Kind {
	case plan.RecordJoinEdited:
		err = decisions.JoinEdited(ctx, id, t.On, t.By, t.Stamp)
	case plan.RecordTrustEdited:
		err = decisions.TrustEdited(ctx, id, t.Mode, t.Shown, t.By, t.Stamp)
	case plan.RecordDecided:
		err = decisions.Decided(ctx, id, t.On, t.Shown, t.By)
	case plan.RecordHungUp:
		err = decisions.HungUp(ctx, id, t.By)
	case plan.RecordForgot:
		err = decisions.Forgot(ctx, id)
	case plan.RecordEndedByProvider:
		err = decisions.EndedByProvider(ctx, id, t.Generation, t.Reason)
	case plan.RecordEndedHere:
		err = decisions.EndedHere(ctx, id, t.Reason)
	case plan.RecordJoined:
		err = decisions.Joined(ctx, id, t.On, t.Reason)
	case plan.RecordServed:
		err = decisions.Served(ctx, id, t.On, t.Reason)
	case plan.RecordRequested:
		err = decisions.Requested(ctx, id, t.Phase, t.Reason)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.Kind, err)
	}
	return nil
}

package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
)

// decisionsTimeout bounds a call of the decision store, which writes to a disk.
const decisionsTimeout = 10 * time.Second

// errMadeByOthers: the object came into being while the agent was about to
// create it.
var errMadeByOthers = errors.New("somebody else created it at the same moment")

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
	fc, err := send(ctx, s.client, a, before)
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
	if a.Kind != plan.ApplyIntent && before != nil && before.UID == fc.UID && edited(before, fc) {
		// What is left to do was decided without that, and may overrule it.
		return conflict(a.Name, errors.New("somebody edited the object meanwhile"))
	}
	return nil
}

// edited reports whether somebody deleted an object or set what people set in it,
// between two states of it.
func edited(before, after *foreignCluster) bool {
	return before.owners.Join != after.owners.Join || before.owners.TrustMode != after.owners.TrustMode ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

// send sends an action on a ForeignCluster, but for Delete, and returns the
// object as it is then. found is the object as it is known.
func send(ctx context.Context, c *kube.Client, a plan.Action, found *foreignCluster) (*foreignCluster, error) {
	object := objects.Applied{Metadata: objects.Meta{Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	subresource, manager, force := "", plan.ManagerDiscovery, true
	switch a.Kind {
	case plan.Create:
		return create(ctx, c, a)
	case plan.UpdateSpec:
		object.Metadata.Labels, object.Spec = a.Spec.Labels, a.Spec
	case plan.Identify:
		// What somebody sets at the same moment stays theirs.
		object.Spec, force = a.Identity, false
	case plan.UpdateStatus:
		subresource, object.Status = "status", a.Status
	case plan.ApplyIntent:
		manager, object.Spec = plan.ManagerIntent, a.Intent
	case plan.AddFinalizer:
		manager, object.Metadata.Finalizers = plan.ManagerForeignCluster, []string{api.FinalizerPeering}
	case plan.RemoveFinalizer:
		return removeFinalizer(ctx, c, found, a)
	case plan.UpdatePeering:
		subresource, manager, object.Status = "status", plan.ManagerForeignCluster, a.Peering
	case plan.RequestRef:
		subresource, manager = "status", plan.ManagerPeeringRequest
		if a.Ref != nil {
			object.Status = map[string]any{"incoming": map[string]any{"peeringRequest": a.Ref}}
		}
	case plan.AdvertisementRef:
		subresource, manager = "status", plan.ManagerAdvertisement
		if a.Ref != nil {
			object.Status = map[string]any{"outgoing": map[string]any{"advertisement": a.Ref}}
		}
	default:
		return nil, fmt.Errorf("unknown kind of action %q on ForeignCluster %s", a.Kind, a.Name)
	}
	fc, err := objects.Apply(ctx, c, foreignClusterKind(), subresource, object, manager, force)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind, err)
	}
	return fc, nil
}

// create applies an object that does not exist yet. Server-side apply would
// merge into one that somebody else made a moment ago; such an object keeps what
// its author wrote, and what was merged into it is taken back.
func create(ctx context.Context, c *kube.Client, a plan.Action) (*foreignCluster, error) {
	object := objects.Applied{Metadata: objects.Meta{Name: a.Name, Labels: a.Spec.Labels}, Spec: a.Spec}
	made, err := objects.Apply(ctx, c, foreignClusterKind(), "", object, plan.ManagerDiscovery, false)
	if err != nil || !slices.ContainsFunc(made.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != plan.ManagerDiscovery
	}) {
		return made, err
	}
	object = objects.Applied{Metadata: objects.Meta{Name: a.Name, UID: made.UID}}
	if _, err := objects.Apply(ctx, c, foreignClusterKind(), "", object, plan.ManagerDiscovery, true); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("create ForeignCluster %s: %w", a.Name, errMadeByOthers)
}

// removeFinalizer takes our finalizer from an object, whoever put it there: what
// several managers applied stays until the last of them gives it up, and then
// nobody could delete the object.
func removeFinalizer(ctx context.Context, c *kube.Client, found *foreignCluster, a plan.Action) (*foreignCluster, error) {
	if found == nil || found.UID != a.UID {
		return nil, conflict(a.Name, errors.New("the object was replaced"))
	}
	rest := slices.DeleteFunc(slices.Clone(found.Finalizers), func(f string) bool { return f == api.FinalizerPeering })
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": found.UID, "resourceVersion": found.ResourceVersion, "finalizers": append([]string{}, rest...),
	}})
	if err != nil {
		return nil, err
	}
	out := &foreignCluster{}
	if err := c.Patch(ctx, foreignClusterKind().Object(a.Name), plan.ManagerForeignCluster, types.MergePatchType, text, out); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind, err)
	}
	return out, nil
}

// conflict is what the API server would say about an object that is not the one
// that was looked at.
func conflict(name string, err error) error {
	return apierrors.NewConflict(api.GroupVersion.WithResource(api.PluralForeignClusters).GroupResource(), name, err)
}

// writeOwn carries out an action on another object about a peer.
func (s *session) writeOwn(ctx context.Context, id peer.ClusterID, a plan.Action) error {
	name := string(id)
	object := objects.Applied{Metadata: objects.Meta{Name: name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	switch a.Kind {
	case plan.SetRequestStatus:
		object.Status = a.Request
		written, err := objects.Apply(ctx, s.client, s.requests.Kind, "status", object, plan.ManagerPeeringRequest, true)
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
	return removeNoted(ctx, s, s.requests, id, uid, version, by, func(m *peerState) *deletionTracker { return &m.request })
}

// deleteOffer deletes a peer's Advertisement for by, who is noted before.
func (s *session) deleteOffer(ctx context.Context, id peer.ClusterID, uid types.UID, version string, by plan.Deleter) error {
	return removeNoted(ctx, s, s.offers, id, uid, version, by, func(m *peerState) *deletionTracker { return &m.offer })
}

func removeNoted[T kube.Object](ctx context.Context, s *session, st *objects.Store[T], id peer.ClusterID, uid types.UID, version string, by plan.Deleter, trackerOf func(*peerState) *deletionTracker) error {
	var n pendingDeletion
	s.peers.with(id, func(m *peerState) { n = trackerOf(m).begin(by, s.cfg.Now()) })
	err := objects.Remove(ctx, s.client, st.Kind, string(id), uid, version)
	came := deletionTaken
	if err != nil {
		came = deletionUnknown
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			came = outcomeOf(int(status.Status().Code))
		}
	}
	s.peers.with(id, func(m *peerState) { trackerOf(m).resolve(n, came) })
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

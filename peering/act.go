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
)

// ledgerTimeout bounds a call of the ledger, which writes to a disk.
const ledgerTimeout = 10 * time.Second

// errMadeByOthers: the object came into being while the agent was about to
// create it.
var errMadeByOthers = errors.New("somebody else created it at the same moment")

// act carries out the actions of one decision in order, up to the first that
// fails.
func (s *session) act(ctx context.Context, id peer.ClusterID, actions []Action) error {
	written := make(map[string]string) // the newest version of each ForeignCluster, by name
	for _, a := range actions {
		var err error
		switch a.Kind {
		case Create, UpdateSpec, Identify, UpdateStatus, ApplyIntent, AddFinalizer, RemoveFinalizer, UpdatePeering, RequestRef, AdvertisementRef, Delete:
			err = s.writeForeign(ctx, a, written)
		case TellJoinEdited, TellTrustEdited, TellDecided, TellHungUp, TellForgot, TellEndedByProvider, TellEndedHere, TellJoined, TellServed, TellRequested:
			err = s.tell(ctx, id, a)
		case Begin:
			s.memory.with(id, func(m *memo) { m.begun = a.Anew })
		default:
			err = s.writeOwn(ctx, id, a)
		}
		if err != nil {
			return err
		}
		s.cfg.Logger.Debug("did what was decided", "action", a.Kind, "cluster", id, "name", a.Name)
	}
	return nil
}

// writeForeign carries out an action on a ForeignCluster.
func (s *session) writeForeign(ctx context.Context, a Action, written map[string]string) error {
	if a.UID == "" {
		a.UID = s.foreign.uid(a.Name) // of what the Create before it made
	}
	if a.ResourceVersion != "" && written[a.Name] != "" {
		a.ResourceVersion = written[a.Name]
	}
	if a.Kind == Delete {
		if err := remove(ctx, s.client, s.foreign.kind, a.Name, a.UID, a.ResourceVersion); err != nil {
			return err
		}
		s.foreign.deleted(a.Name, a.UID)
		if a.Heir != "" {
			s.cfg.Logger.Info("somebody wrote a ForeignCluster for a cluster that had one of the agent's own; theirs counts now, and the agent's is deleted",
				"cluster", a.Name, "foreigncluster", a.Heir)
			if err := s.cfg.Ledger.Replaced(ctx, peer.ClusterID(a.Name), a.Heir); err != nil {
				s.cfg.Logger.Warn("that a ForeignCluster was replaced is missing in the history", "cluster", a.Name, "error", err)
			}
		}
		return nil
	}
	before := s.foreign.get(a.Name)
	fc, err := s.client.write(ctx, a, before)
	if err != nil {
		return err
	}
	if a.Kind == UpdateStatus || a.Kind == UpdatePeering {
		s.events.announce(before, fc)
	}
	written[a.Name] = fc.ResourceVersion
	s.foreign.wrote(fc)
	if fc.DeletionTimestamp != nil {
		s.foreign.deleted(fc.Name, fc.UID) // unless something else holds it
	}
	if kept := s.foreign.get(fc.Name); kept != nil && kept.UID == fc.UID {
		fc = kept // its owners have stamps that the answer alone does not tell
	}
	if a.Kind != ApplyIntent && before != nil && before.UID == fc.UID && edited(before, fc) {
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

// write sends an action on a ForeignCluster, but for Delete, and returns the
// object as it is then. found is the object as it is known.
func (c *client) write(ctx context.Context, a Action, found *foreignCluster) (*foreignCluster, error) {
	object := applied{Metadata: appliedMeta{Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	subresource, manager, force := "", ManagerDiscovery, true
	switch a.Kind {
	case Create:
		return c.create(ctx, a)
	case UpdateSpec:
		object.Metadata.Labels, object.Spec = a.Spec.Labels, a.Spec
	case Identify:
		// What somebody sets at the same moment stays theirs.
		object.Spec, force = a.Identity, false
	case UpdateStatus:
		subresource, object.Status = "status", a.Status
	case ApplyIntent:
		manager, object.Spec = ManagerIntent, a.Intent
	case AddFinalizer:
		manager, object.Metadata.Finalizers = ManagerForeignCluster, []string{api.FinalizerPeering}
	case RemoveFinalizer:
		return c.removeFinalizer(ctx, found, a)
	case UpdatePeering:
		subresource, manager, object.Status = "status", ManagerForeignCluster, a.Peering
	case RequestRef:
		subresource, manager = "status", ManagerPeeringRequest
		if a.Ref != nil {
			object.Status = map[string]any{"incoming": map[string]any{"peeringRequest": a.Ref}}
		}
	case AdvertisementRef:
		subresource, manager = "status", ManagerAdvertisement
		if a.Ref != nil {
			object.Status = map[string]any{"outgoing": map[string]any{"advertisement": a.Ref}}
		}
	default:
		return nil, fmt.Errorf("unknown kind of action %q on ForeignCluster %s", a.Kind, a.Name)
	}
	fc, err := applyKind(ctx, c, foreignClusterKind(), subresource, object, manager, force)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind, err)
	}
	return fc, nil
}

// create applies an object that does not exist yet. Server-side apply would
// merge into one that somebody else made a moment ago; such an object keeps what
// its author wrote, and what was merged into it is taken back.
func (c *client) create(ctx context.Context, a Action) (*foreignCluster, error) {
	object := applied{Metadata: appliedMeta{Name: a.Name, Labels: a.Spec.Labels}, Spec: a.Spec}
	made, err := applyKind(ctx, c, foreignClusterKind(), "", object, ManagerDiscovery, false)
	if err != nil || !slices.ContainsFunc(made.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != ManagerDiscovery
	}) {
		return made, err
	}
	object = applied{Metadata: appliedMeta{Name: a.Name, UID: made.UID}}
	if _, err := applyKind(ctx, c, foreignClusterKind(), "", object, ManagerDiscovery, true); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("create ForeignCluster %s: %w", a.Name, errMadeByOthers)
}

// removeFinalizer takes our finalizer from an object, whoever put it there: what
// several managers applied stays until the last of them gives it up, and then
// nobody could delete the object.
func (c *client) removeFinalizer(ctx context.Context, found *foreignCluster, a Action) (*foreignCluster, error) {
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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err = kube.Body(c.rest.Patch(types.MergePatchType).AbsPath(foreignClusterKind().object(a.Name)).
		Param("fieldManager", ManagerForeignCluster).Body(text).MaxRetries(0).Do(ctx))
	out := &foreignCluster{}
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: ForeignCluster %s: %w", a.Kind, a.Name, err)
	}
	return out, nil
}

// conflict is what the API server would say about an object that is not the one
// that was looked at.
func conflict(name string, err error) error {
	return apierrors.NewConflict(api.GroupVersion.WithResource(api.PluralForeignClusters).GroupResource(), name, err)
}

// writeOwn carries out an action on another object about a peer.
func (s *session) writeOwn(ctx context.Context, id peer.ClusterID, a Action) error {
	name := string(id)
	object := applied{Metadata: appliedMeta{Name: name, UID: a.UID, ResourceVersion: a.ResourceVersion}}
	switch a.Kind {
	case SetRequestStatus:
		object.Status = a.Request
		written, err := applyKind(ctx, s.client, s.requests.kind, "status", object, ManagerPeeringRequest, true)
		if err != nil {
			return err
		}
		s.requests.wrote(written)
		return nil
	case SetAdvertisementStatus:
		return s.writeOffer(ctx, id, object, a)
	case DeleteRequest:
		return s.deleteRequest(ctx, id, a.UID, a.ResourceVersion, DeletedByUs)
	case DeleteAdvertisement:
		return s.deleteOffer(ctx, id, a.UID, a.ResourceVersion, DeletedByUs)
	case ApplySecret:
		wanted := wantedSecret(id, s.cfg.Namespace, *a.Secret)
		return putOwn(ctx, s.client, s.secrets, wanted, func(found *secret) bool { return found.shows(wanted) })
	case DeleteSecret:
		return removeOwn(ctx, s.client, s.secrets, SecretName(id))
	case ApplyAccess:
		return s.writeAccess(ctx, id, a.Access.Request, a.Access.Advertisement)
	case DeleteAccess:
		return s.removeAccess(ctx, id)
	}
	return fmt.Errorf("unknown kind of action %q about cluster %s", a.Kind, id)
}

// deleteRequest deletes a peer's PeeringRequest for by, who is noted before.
func (s *session) deleteRequest(ctx context.Context, id peer.ClusterID, uid types.UID, version string, by Deleter) error {
	return removeNoted(ctx, s, s.requests, id, uid, version, by, func(m *memo) *trail { return &m.request })
}

// deleteOffer deletes a peer's Advertisement for by, who is noted before.
func (s *session) deleteOffer(ctx context.Context, id peer.ClusterID, uid types.UID, version string, by Deleter) error {
	return removeNoted(ctx, s, s.offers, id, uid, version, by, func(m *memo) *trail { return &m.offer })
}

func removeNoted[T object](ctx context.Context, s *session, st *store[T], id peer.ClusterID, uid types.UID, version string, by Deleter, trailOf func(*memo) *trail) error {
	var n note
	s.memory.with(id, func(m *memo) { n = trailOf(m).deleting(by, s.cfg.Now()) })
	err := remove(ctx, s.client, st.kind, string(id), uid, version)
	came := deletionTaken
	if err != nil {
		came = deletionUnknown
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			came = outcomeOf(int(status.Status().Code))
		}
	}
	s.memory.with(id, func(m *memo) { trailOf(m).ended(n, came) })
	if err != nil {
		return err
	}
	st.deleted(string(id), uid)
	return nil
}

// tell tells the ledger.
func (s *session) tell(ctx context.Context, id peer.ClusterID, a Action) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var err error
	switch t, ledger := a.Tell, s.cfg.Ledger; a.Kind {
	case TellJoinEdited:
		err = ledger.JoinEdited(ctx, id, t.On, t.By, t.Stamp)
	case TellTrustEdited:
		err = ledger.TrustEdited(ctx, id, t.Mode, t.Shown, t.By, t.Stamp)
	case TellDecided:
		err = ledger.Decided(ctx, id, t.On, t.Shown, t.By)
	case TellHungUp:
		err = ledger.HungUp(ctx, id, t.By)
	case TellForgot:
		err = ledger.Forgot(ctx, id)
	case TellEndedByProvider:
		err = ledger.EndedByProvider(ctx, id, t.Reason)
	case TellEndedHere:
		err = ledger.EndedHere(ctx, id, t.Reason)
	case TellJoined:
		err = ledger.Joined(ctx, id, t.On, t.Reason)
	case TellServed:
		err = ledger.Served(ctx, id, t.On, t.Reason)
	case TellRequested:
		err = ledger.Requested(ctx, id, t.Phase, t.Reason)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.Kind, err)
	}
	return nil
}

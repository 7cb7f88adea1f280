package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
)

// Manager owns the roles that let peers reach their own objects, and the Secrets with
// their certificates. The field managers of the other objects about peers are in package
// plan.
const Manager = "liqo-agent-access"

// Objects are what the agent keeps about peers in one API server for itself: the Secret
// with the identity of each, and the role and the binding by which it reaches its own
// PeeringRequest and Advertisement. Nobody else is to write them.
type Objects struct {
	client    *kube.Client
	namespace string
	secrets   *objects.Store[*secret]
	roles     *objects.Store[*clusterRole]
	bindings  *objects.Store[*clusterRoleBinding]
}

// New returns Objects that follow nothing yet, with the Secrets in a namespace. changed is
// told of each cluster that a changed object is or was about, and failed why a list or
// watch failed. Neither may block.
func New(client *kube.Client, namespace string, changed func(peer.ClusterID), failed func(error)) *Objects {
	return &Objects{
		client: client, namespace: namespace,
		secrets: newStore(secretKind(namespace), changed, failed), roles: newStore(roleKind(), changed, failed), bindings: newStore(bindingKind(), changed, failed),
	}
}

func newStore[T kube.Object](k objects.Kind[T], changed func(peer.ClusterID), failed func(error)) *objects.Store[T] {
	return objects.NewStore(k, func(before, after T, _ bool) {
		for _, id := range k.Concerned(before, after) {
			changed(id)
		}
	}, failed)
}

// Follow keeps up to date what is known until ctx ends.
func (o *Objects) Follow(ctx context.Context) {
	var following sync.WaitGroup
	following.Go(func() { o.secrets.Follow(ctx, o.client) })
	following.Go(func() { o.roles.Follow(ctx, o.client) })
	following.Go(func() { o.bindings.Follow(ctx, o.client) })
	following.Wait()
}

// Listed returns what tells when everything was listed once.
func (o *Objects) Listed() []conn.Listed {
	return []conn.Listed{
		{Kind: "Secrets in namespace " + o.namespace, Synced: o.secrets.Synced()},
		{Kind: "ClusterRoles", Synced: o.roles.Synced()},
		{Kind: "ClusterRoleBindings", Synced: o.bindings.Synced()},
	}
}

// IDs returns every cluster that some object is about; one may be there several times.
func (o *Objects) IDs() []peer.ClusterID {
	return slices.Concat(o.secrets.IDs(), o.roles.IDs(), o.bindings.IDs())
}

// Secret returns the identity of a peer that its Secret holds, nil when there is none.
func (o *Objects) Secret(id peer.ClusterID) *plan.Secret {
	found := o.secrets.Get(plan.SecretName(id))
	if found == nil {
		return nil
	}
	identity := *found.identity
	return &identity
}

// Access returns what a peer may do, nil when there is nothing about that.
func (o *Objects) Access(id peer.ClusterID, users api.PeerUsers) *plan.Access {
	name := api.PeerRolePrefix + string(id)
	return readAccess(id, users, o.roles.Get(name), o.bindings.Get(name))
}

// PutSecret makes the Secret with the identity of a peer as it is to be.
func (o *Objects) PutSecret(ctx context.Context, id peer.ClusterID, identity plan.Secret) error {
	wanted := wantedSecret(id, o.namespace, identity)
	return put(ctx, o.client, o.secrets, wanted, func(found *secret) bool { return found.shows(wanted) })
}

// RemoveSecret deletes the Secret of a peer.
func (o *Objects) RemoveSecret(ctx context.Context, id peer.ClusterID) error {
	return remove(ctx, o.client, o.secrets, plan.SecretName(id))
}

// peerVerbs are what a peer does with an object of its own. Server-side apply,
// which creates and changes, is a patch; where the object does not exist it is
// asked whether the user may create one of that name.
var peerVerbs = []string{"get", "create", "patch", "delete"}

// accessRules are the rules for a peer that may reach its PeeringRequest, its
// Advertisement, or both.
func accessRules(id peer.ClusterID, request, advertisement bool) []policyRule {
	var rules []policyRule
	own := func(group, plural string) {
		rules = append(rules, policyRule{
			APIGroups: []string{group}, Resources: []string{plural}, ResourceNames: []string{string(id)}, Verbs: peerVerbs,
		})
	}
	if request {
		own(api.GroupVersion.Group, api.PluralPeeringRequests)
	}
	if advertisement {
		own(api.SharingGroupVersion.Group, api.PluralAdvertisements)
	}
	return rules
}

// wantedRole is the role of a peer.
func wantedRole(id peer.ClusterID, request, advertisement bool) *clusterRole {
	return &clusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: gvkRole.GroupVersion().String(), Kind: gvkRole.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: api.PeerRolePrefix + string(id), Labels: peerLabels(id)},
		Rules:      accessRules(id, request, advertisement),
	}
}

// wantedBinding gives a peer its role.
func wantedBinding(id peer.ClusterID, users api.PeerUsers) *clusterRoleBinding {
	var subjects []subject
	for _, name := range users.Names(string(id)) {
		subjects = append(subjects, subject{APIGroup: rbacGroup, Kind: "User", Name: name})
	}
	return &clusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: gvkBinding.GroupVersion().String(), Kind: gvkBinding.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: api.PeerRolePrefix + string(id), Labels: peerLabels(id)},
		RoleRef:    roleRef{APIGroup: rbacGroup, Kind: gvkRole.Kind, Name: api.PeerRolePrefix + string(id)},
		Subjects:   subjects,
	}
}

// peerLabels are the labels of the objects that the agent keeps for a peer.
func peerLabels(id peer.ClusterID) map[string]string {
	return map[string]string{api.LabelManagedBy: api.ManagedByAgent, api.LabelClusterID: string(id)}
}

func hasLabels(o metav1.Object, wanted map[string]string) bool {
	for key, value := range wanted {
		if o.GetLabels()[key] != value {
			return false
		}
	}
	return true
}

// grants reports whether r gives exactly what wanted does.
func (r *clusterRole) grants(wanted *clusterRole) bool {
	return hasLabels(r, wanted.Labels) && len(r.AggregationRule) == 0 && slices.EqualFunc(r.Rules, wanted.Rules, policyRule.equal)
}

func (r policyRule) equal(o policyRule) bool {
	return slices.Equal(r.APIGroups, o.APIGroups) && slices.Equal(r.Resources, o.Resources) && slices.Equal(r.ResourceNames, o.ResourceNames) &&
		slices.Equal(r.Verbs, o.Verbs) && slices.Equal(r.NonResourceURLs, o.NonResourceURLs)
}

// gives reports whether b gives exactly the role that wanted does to whom wanted
// does.
func (b *clusterRoleBinding) gives(wanted *clusterRoleBinding) bool {
	return hasLabels(b, wanted.Labels) && b.RoleRef == wanted.RoleRef && slices.Equal(b.Subjects, wanted.Subjects)
}

// readAccess returns what a peer may do according to the RBAC objects found.
func readAccess(id peer.ClusterID, users api.PeerUsers, role *clusterRole, binding *clusterRoleBinding) *plan.Access {
	if role == nil && binding == nil {
		return nil
	}
	out := &plan.Access{}
	if role != nil {
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				out.Request = out.Request || resource == api.PluralPeeringRequests
				out.Advertisement = out.Advertisement || resource == api.PluralAdvertisements
			}
		}
		out.Intact = binding != nil && (out.Request || out.Advertisement) &&
			role.grants(wantedRole(id, out.Request, out.Advertisement)) && binding.gives(wantedBinding(id, users))
	}
	return out
}

// ErrReplaced: an object could not be corrected and was deleted, to be made
// anew at the next look.
var ErrReplaced = errors.New("somebody changed it in a way that cannot be corrected; it was deleted and is made anew")

// Grant makes the role and the binding of a peer as they are to be.
func (o *Objects) Grant(ctx context.Context, id peer.ClusterID, users api.PeerUsers, request, advertisement bool) error {
	if !request && !advertisement {
		return o.Revoke(ctx, id)
	}
	role := wantedRole(id, request, advertisement)
	if found := o.roles.Get(role.Name); found == nil || !found.grants(role) {
		if err := put(ctx, o.client, o.roles, role, func(r *clusterRole) bool { return r.grants(role) }); err != nil {
			return err
		}
	}
	binding := wantedBinding(id, users)
	if found := o.bindings.Get(binding.Name); found != nil && found.gives(binding) {
		return nil
	}
	return put(ctx, o.client, o.bindings, binding, func(b *clusterRoleBinding) bool { return b.gives(binding) })
}

// Revoke takes everything from a peer, the binding first.
func (o *Objects) Revoke(ctx context.Context, id peer.ClusterID) error {
	name := api.PeerRolePrefix + string(id)
	if err := remove(ctx, o.client, o.bindings, name); err != nil {
		return err
	}
	return remove(ctx, o.client, o.roles, name)
}

// put applies an object that nobody but the agent is to write. What others
// wrote to it where server-side apply leaves it alone, or where nothing can be
// changed any more, cannot be taken back by applying: then the object is deleted,
// and ErrReplaced returned.
func put[T kube.Object](ctx context.Context, c *kube.Client, st *objects.Store[T], wanted T, right func(T) bool) error {
	name := wanted.GetName()
	found := st.Kind.Fresh()
	err := c.Apply(ctx, st.Kind.Object(name), Manager, true, wanted, found)
	switch {
	case err == nil && right(found):
		st.Wrote(found)
		return nil
	case apierrors.IsInvalid(err):
		// It may be there without the labels by which it would be watched.
		found = st.Kind.Fresh()
		if missing := c.Get(ctx, st.Kind.Object(name), found); missing != nil {
			return err
		}
	case err != nil:
		return err
	}
	uid := found.GetUID()
	if err := objects.Remove(ctx, c, st.Kind, name, uid, ""); err != nil {
		return err
	}
	st.Deleted(name, uid)
	return fmt.Errorf("%s %s: %w", st.Kind.GVK.Kind, name, ErrReplaced)
}

// remove deletes the object of that name, if there is one.
func remove[T kube.Object](ctx context.Context, c *kube.Client, st *objects.Store[T], name string) error {
	uid := st.UID(name)
	if uid == "" {
		return nil
	}
	if err := objects.Remove(ctx, c, st.Kind, name, uid, ""); err != nil {
		return err
	}
	st.Deleted(name, uid)
	return nil
}

// MayReach asks the API server, as the peer, for its PeeringRequest, and reports
// whether that is allowed, whether or not there is one.
func MayReach(ctx context.Context, c *kube.Client, id peer.ClusterID, users api.PeerUsers) (bool, error) {
	err := c.GetAs(ctx, api.Collection(api.GroupVersion, api.PluralPeeringRequests)+"/"+string(id), users.Name(string(id)), api.PeerGroup, nil)
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	}
	return false, fmt.Errorf("ask the API server as %s: %w", users.Name(string(id)), err)
}

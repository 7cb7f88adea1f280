package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/sharing/workload"
)

const (
	// showTimeout is how long the API server may take to show what it took.
	showTimeout = 5 * time.Second
	// repairPause is the least time between two writes of one object, so that somebody
	// who insists on another value does not keep us busy.
	repairPause = time.Second
)

const namespacesPath = "/api/v1/namespaces/"

func quotaPath(namespace string) string {
	return namespacesPath + namespace + "/resourcequotas/" + QuotaName
}

func policyPath(namespace string) string {
	return "/apis/networking.k8s.io/v1/namespaces/" + namespace + "/networkpolicies/" + PolicyName
}

func rolePath(namespace string) string {
	return rbacPath + "namespaces/" + namespace + "/roles/" + RoleName
}

func bindingPath(namespace string) string {
	return rbacPath + "namespaces/" + namespace + "/rolebindings/" + RoleName
}

func podPath(pod *guestPod) string {
	return namespacesPath + pod.Namespace + "/pods/" + pod.Name
}

// reconcileTenant makes the namespaces of an admitted consumer what they are to be.
func (s *session) reconcileTenant(ctx context.Context, st standing) (time.Duration, error) {
	var again time.Duration
	errs := []error{s.placeClaims(ctx, st.tenant.id)}
	for _, guest := range s.guests(st.tenant.id) {
		if guest.DeletionTimestamp != nil {
			continue // by whomever: it is respected
		}
		wait, err := s.reconcileNamespace(ctx, st, guest)
		again = work.Sooner(again, wait)
		if err != nil && !s.leaving(guest, err) {
			errs = append(errs, err)
		}
	}
	wait, err := s.reconcileSlices(ctx, st)
	errs = append(errs, err, s.takeRights(ctx, st.tenant.id))
	return work.Sooner(again, wait), errors.Join(errs...)
}

// reconcileSlices makes the endpoints of a consumer what they are to be, now that its network
// has these addresses, and packets pass or do not. While neither is known they stay.
func (s *session) reconcileSlices(ctx context.Context, st standing) (again time.Duration, err error) {
	if !s.servicesKnown() || len(st.network) == 0 && !st.down {
		return 0, nil
	}
	var errs []error
	for _, slice := range s.slices.All() {
		guest := s.namespaces.Get("", slice.Namespace)
		if origin(slice) != st.tenant.id || guest == nil || owner(guest) != st.tenant.id || guest.DeletionTimestamp != nil {
			continue
		}
		service := s.services.Get(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
		endpoints, changed := workload.Reachable(slice.Endpoints, st.network, service != nil && service.publish, st.down)
		if !changed {
			continue
		}
		path := slicesGroup + "namespaces/" + slice.Namespace + "/" + resourceSlices + "/" + slice.Name
		patch, err := json.Marshal(map[string]any{
			// What was not seen yet is not undone.
			"metadata":  map[string]any{"uid": slice.UID, "resourceVersion": slice.ResourceVersion},
			"endpoints": append([]discoveryv1.Endpoint{}, endpoints...),
		})
		if err == nil {
			err = ifThere(s.client.Patch(ctx, path, Manager, types.MergePatchType, patch, nil))
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

// leaving is whether a namespace is being deleted, or is no longer what it was, so
// that failing with err to change it means nothing. What is deleted in it may be seen, and
// made again, before its own deletion is seen, which then err alone says.
func (s *session) leaving(guest *corev1.Namespace, err error) bool {
	now := s.namespaces.Get("", guest.Name)
	return now == nil || now.UID != guest.UID || now.DeletionTimestamp != nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// reconcileNamespace makes one namespace what it is to be. The RoleBinding comes last: nobody
// may do anything where the rest is not.
func (s *session) reconcileNamespace(ctx context.Context, st standing, guest *corev1.Namespace) (again time.Duration, err error) {
	id := st.tenant.id
	origin := guest.Labels[workload.LabelOriginNamespace]
	// All of ours, because what an apply leaves out is taken away.
	wanted := namespaceFor(guest.Name, id, origin, st.settings).Labels
	if !covers(guest.Labels, wanted) {
		// With the UID, so that no other namespace is changed, nor made.
		patch := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: guest.Name, UID: guest.UID, Labels: wanted}}
		wait, err := ensure(ctx, s, s.namespaces, namespacesPath+guest.Name, "", patch, func(found, _ *corev1.Namespace) bool { return covers(found.Labels, wanted) })
		if wait > 0 || err != nil {
			return wait, err
		}
	}
	granted := s.grantsFor(st, guest)
	if st.offer != nil { // else the last one stands
		wait, err := ensure(ctx, s, s.quotas, quotaPath(guest.Name), guest.Name, quotaFor(guest, id, origin, st.offer, st.settings, granted.services, granted.claims), sameQuota)
		if wait > 0 || err != nil {
			return wait, err
		}
	}
	if err := s.policiesKnown(); err != nil {
		return 0, err
	}
	if err := s.unretain(ctx, guest); err != nil {
		return 0, err
	}
	policy, same := s.policyOf(st, guest)
	wait, err := ensure(ctx, s, s.policies, policyPath(guest.Name), guest.Name, policy, same)
	if wait > 0 || err != nil {
		return wait, err
	}
	if wait, err = ensure(ctx, s, s.roles, rolePath(guest.Name), guest.Name, roleFor(guest.Name, id, granted), sameRole); wait > 0 || err != nil {
		return wait, err
	}
	binding := bindingFor(guest.Name, id, s.host.cfg.Users().Names(string(id)))
	wait, err = ensure(ctx, s, s.bindings, bindingPath(guest.Name), guest.Name, binding, sameBinding)
	if apierrors.IsInvalid(err) { // it cannot be given another role, only be made anew
		if err = s.deleteBinding(ctx, guest.Name); err == nil {
			s.forgetRepair(bindingPath(guest.Name))
			wait, err = ensure(ctx, s, s.bindings, bindingPath(guest.Name), guest.Name, binding, sameBinding)
		}
	}
	return wait, err
}

// grantsFor returns the rights of a consumer in one of its namespaces. What it has stays while it is not known whether it is
// to have that: after a start, Services, claims and the offer are known one after the other.
func (s *session) grantsFor(st standing, guest *corev1.Namespace) grants {
	out := s.granted
	out.services = s.servicesKnown() || !s.servicesRefused() && s.gives(guest, resourceServices)
	out.claims = s.mayClaim(st, guest) || (st.offer == nil || !s.claimsKnown()) && !s.claimsRefused() && s.gives(guest, resourceClaims)
	return out
}

// gives reports whether the Role in a namespace lets the consumer make objects of a resource.
func (s *session) gives(guest *corev1.Namespace, resource string) bool {
	role := s.roles.Get(guest.Name, RoleName)
	return role != nil && slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "create")
	})
}

// policyOf returns the NetworkPolicy that a namespace is to have, and whether one that is there does. While it is not known
// which addresses the consumer has here, or whether its pods are answered for names, that stays as it is.
func (s *session) policyOf(st standing, guest *corev1.Namespace) (wanted *networkingv1.NetworkPolicy, same func(found, wanted *networkingv1.NetworkPolicy) bool) {
	network, unknown := st.network, len(st.network) == 0 && !st.down
	if unknown {
		network = networkOf(s.policies.Get(guest.Name, PolicyName))
	}
	with := func(clusterDNS bool) *networkingv1.NetworkPolicy {
		return policyFor(guest.Name, st.tenant.id, network, clusterDNS, st.settings)
	}
	wanted = with(len(st.servers) == 0 || s.asksClusterDNS(guest.Name))
	if !unknown && !st.unnamed {
		return wanted, samePolicy
	}
	return wanted, func(found, wanted *networkingv1.NetworkPolicy) bool {
		return samePolicy(found, wanted) || samePolicy(found, with(false))
	}
}

// asksClusterDNS reports whether a pod in a namespace asks the DNS of this cluster.
func (s *session) asksClusterDNS(namespace string) bool {
	return slices.ContainsFunc(s.pods.All(), func(p *guestPod) bool { return p.Namespace == namespace && p.clusterDNS && !p.ended() })
}

// ensure applies an object unless the cache shows that it is as it is to be. It returns
// how long to wait if it was written a moment ago.
func ensure[T kube.Object](ctx context.Context, s *session, cache *kube.Cache[T], path, namespace string, wanted T, same func(found, wanted T) bool) (time.Duration, error) {
	if found := cache.Get(namespace, wanted.GetName()); !kube.IsNil(found) && same(found, wanted) {
		return 0, nil
	}
	if wait := s.repair(path); wait > 0 {
		return wait, nil
	}
	_, err := cache.Apply(ctx, s.client, path, Manager, true, wanted)
	return 0, err
}

// repair notes that an object is about to be written, and returns how long that is
// to wait.
func (s *session) repair(path string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.host.cfg.Now()
	for other, at := range s.repaired {
		if now.Sub(at) >= repairPause {
			delete(s.repaired, other)
		}
	}
	if at, recently := s.repaired[path]; recently {
		return max(repairPause-now.Sub(at), time.Millisecond)
	}
	s.repaired[path] = now
	return 0
}

func (s *session) forgetRepair(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.repaired, path)
}

// deleteBinding deletes the RoleBinding in a namespace, whoever made it.
func (s *session) deleteBinding(ctx context.Context, namespace string) error {
	var there rbacv1.RoleBinding
	err := s.client.Get(ctx, bindingPath(namespace), &there)
	if err == nil {
		err = s.client.Delete(ctx, bindingPath(namespace), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &there.UID}})
	}
	return ifThere(err)
}

// ifThere is err, unless that says that what was to be deleted is not there (any
// more).
func ifThere(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

// otherNames is how many names are tried where the obvious one is somebody else's.
const otherNames = 3

// Namespace returns the guest namespace that stands for the namespace origin of a
// consumer, after it was made if needed. It returns when pods can be created there, and
// the API server goes by the consumer's rights, at most after some seconds.
func (h *Host) Namespace(ctx context.Context, id peer.ClusterID, origin string) (string, error) {
	if wrong := validation.IsDNS1123Label(origin); len(wrong) > 0 {
		return "", refuse(ReasonBadName, "%q is not a valid namespace name: %s", text.Excerpt(origin), wrong[0])
	}
	if _, err := h.admitted(id); err != nil {
		return "", err
	}
	_, release, err := h.take(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	st, err := h.admitted(id)
	switch {
	case err != nil:
		return "", err
	case st.offer == nil:
		return "", nothingOffered(id)
	}
	s := st.session
	guests := s.guests(id)
	guest, leaving := standIn(guests, origin)
	if guest == nil {
		if leaving != nil {
			return "", terminating(leaving.Name)
		}
		if len(guests) >= st.settings.MaxNamespaces {
			return "", refuse(ReasonTooManyNamespaces, "%s has %d namespaces here, and the limit is %d; free one first", id, len(guests), st.settings.MaxNamespaces).after(retryUsedUp)
		}
		if guest, err = s.make(ctx, st, origin); err != nil {
			return "", err
		}
		h.cfg.Logger.Info("created a namespace for a consumer", "peer", id, "name", st.name, "namespace", guest.Name, "stands-for", origin)
	}
	if err := s.complete(ctx, st, guest); err != nil {
		return "", err
	}
	return guest.Name, nil
}

// standIn returns the namespace that stands for origin, or one that did and is
// being deleted.
func standIn(guests []*corev1.Namespace, origin string) (guest, leaving *corev1.Namespace) {
	for _, ns := range guests {
		switch {
		case ns.Labels[workload.LabelOriginNamespace] != origin:
		case ns.DeletionTimestamp != nil:
			leaving = ns
		default:
			return ns, nil
		}
	}
	return nil, leaving
}

// make makes the namespace that is to stand for origin. Where the name is taken by
// somebody else it takes another one.
func (s *session) make(ctx context.Context, st standing, origin string) (*corev1.Namespace, error) {
	id := st.tenant.id
	name := workload.Namespace(st.settings.Prefix, id, origin)
	for i := range otherNames + 1 {
		if i > 0 {
			name = workload.Hashed(workload.Namespace(st.settings.Prefix, id, origin), fmt.Sprintf("%s/%s/%d", id, origin, i))
		}
		var made corev1.Namespace
		// Not applied: that would take over what is there.
		err := s.client.Create(ctx, "/api/v1/namespaces", namespaceFor(name, id, origin, st.settings), &made)
		if apierrors.IsAlreadyExists(err) {
			made = corev1.Namespace{}
			if err = s.client.Get(ctx, namespacesPath+name, &made); apierrors.IsNotFound(err) {
				return nil, terminating(name)
			}
			if err == nil && (owner(&made) != id || made.Labels[workload.LabelOriginNamespace] != origin) {
				continue
			}
			if err == nil && made.DeletionTimestamp != nil {
				return nil, terminating(name)
			}
		}
		if err != nil {
			return nil, err
		}
		s.namespaces.Wrote(&made)
		guest := s.namespaces.Get("", name)
		if guest == nil || guest.UID != made.UID {
			return nil, terminating(name) // somebody deleted it already
		}
		return guest, nil
	}
	return nil, refuse(ReasonBadName, "all names for the namespace %q are taken here", origin)
}

// complete reconciles a namespace and waits until pods can be created there, and the API server goes by
// the consumer's rights.
func (s *session) complete(ctx context.Context, st standing, guest *corev1.Namespace) error {
	for {
		wait, err := s.reconcileNamespace(ctx, st, guest)
		if err != nil {
			if s.leaving(guest, err) {
				return terminating(guest.Name)
			}
			return slow(guest.Name, err)
		}
		if wait == 0 {
			break
		}
		if err := work.Sleep(ctx, wait); err != nil {
			return slow(guest.Name, err)
		}
	}
	rights := s.rights(guest.Name)
	s.mu.Lock()
	ready := rights != "" && s.ready[guest.UID] == rights
	s.mu.Unlock()
	if ready {
		return nil
	}
	over := func() bool { return s.leaving(guest, nil) || s.host.Owns(st.tenant.id, guest.Name) != nil }
	// The API server refuses every pod until the quota was counted and the default ServiceAccount
	// made, and the consumer everything until it goes by the Role and the RoleBinding.
	err := s.await(ctx, func() bool {
		quota := s.quotas.Get(guest.Name, QuotaName)
		return quota != nil && counted(quota) || over()
	})
	if err == nil {
		err = poll(ctx, func(ctx context.Context) (bool, error) {
			err := s.client.Get(ctx, namespacesPath+guest.Name+"/serviceaccounts/default", nil)
			return err == nil || over(), ifThere(err)
		})
	}
	if err == nil {
		err = poll(ctx, func(ctx context.Context) (bool, error) {
			if over() {
				return true, nil
			}
			if rights == "" || s.rights(guest.Name) != rights {
				// Whoever puts them right waits for us to end.
				return false, refuse(ReasonNotReady, "the rights in namespace %s are not as they are to be; try again", guest.Name).after(retryNotReady)
			}
			return s.rightsCount(ctx, st.tenant.id, guest)
		})
	}
	switch {
	case s.leaving(guest, err):
		return terminating(guest.Name)
	case err != nil:
		return slow(guest.Name, err)
	}
	if _, err := s.host.place(st.tenant.id, guest.Name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.ready {
		if len(s.ready) > maxReady {
			delete(s.ready, uid) // it is only asked once more
		}
	}
	s.ready[guest.UID] = rights
	return nil
}

// maxReady bounds what is remembered of namespaces that are ready.
const maxReady = 10_000

// rights returns the versions of the Role and the RoleBinding in a namespace, "" if one is missing.
func (s *session) rights(namespace string) string {
	role, binding := s.roles.Get(namespace, RoleName), s.bindings.Get(namespace, RoleName)
	if role == nil || binding == nil {
		return ""
	}
	return role.ResourceVersion + " " + binding.ResourceVersion
}

// rightsCount reports whether the API server goes by the Role and the RoleBinding in a namespace, of which it
// learns by watches of its own. A consumer that it refuses before takes that for the last word. The agent asks
// as itself: what it asked as the consumer would wait behind the consumer's own requests. If its own rights are
// too old to ask, those of the consumer are taken to count.
func (s *session) rightsCount(ctx context.Context, id peer.ClusterID, guest *corev1.Namespace) (bool, error) {
	for _, resource := range []string{"pods", resourceServices, resourceClaims} {
		if !s.gives(guest, resource) {
			continue
		}
		allowed, err := s.client.UserMay(ctx, authorizationv1.SubjectAccessReviewSpec{
			User: s.host.cfg.Users().Name(string(id)), Groups: []string{api.PeerGroup, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: guest.Name, Verb: "create", Resource: resource},
		})
		switch {
		case apierrors.IsForbidden(err):
			return true, nil
		case err != nil || !allowed:
			return false, err
		}
	}
	return true, nil
}

// poll asks until that is done or fails, for some seconds. What has not ended then is errSlow.
func poll(ctx context.Context, done func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		switch ok, err := done(limited); {
		case ok:
			return nil
		case err != nil && limited.Err() == nil:
			return err
		}
		if work.Sleep(limited, wait) != nil {
			return cmp.Or(ctx.Err(), errSlow)
		}
	}
}

// slow is err, or a Refused if that says that the API server takes its time, or more of it than the caller has.
func slow(name string, err error) error {
	if errors.Is(err, errSlow) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsNotFound(err) {
		return refuse(ReasonNotReady, "namespace %s is not ready yet (%v); try again", name, err).after(retryNotReady)
	}
	return err
}

// Release gives back the guest namespace that stands for origin, with everything in
// it. One with claims stays. That there is none is no error; that it is gone when Release
// returns is not promised.
func (h *Host) Release(ctx context.Context, id peer.ClusterID, origin string) error {
	if _, err := h.admitted(id); err != nil {
		return err
	}
	_, release, err := h.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	st, err := h.admitted(id)
	if err != nil {
		return err
	}
	for _, guest := range st.session.guests(id) {
		if guest.Labels[workload.LabelOriginNamespace] != origin || guest.DeletionTimestamp != nil || st.session.hasData(guest) {
			continue
		}
		if err := st.session.deleteNamespace(ctx, guest); err != nil {
			return slow(guest.Name, err)
		}
		h.cfg.Logger.Info("a consumer gave a namespace back", "peer", id, "name", st.name, "namespace", guest.Name, "stands-for", origin)
	}
	return nil
}

package host

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

const (
	// maxGrace is how long a pod of an evicted consumer may take to end, in seconds.
	maxGrace = 30
	// forceAfter is when pods that are still there are taken out of the API server,
	// whether or not their node, which may be down, has said that they ended.
	forceAfter = 2 * maxGrace * time.Second
	// stuckAfter is when it is logged what a namespace waits for.
	stuckAfter = 2 * time.Minute
)

// evict takes away what a consumer has here: first its rights, so that it can do nothing
// more, then all namespaces but those with claims, which are kept for a while. Nothing is deleted of which the API
// server does not say that it is the object that we know.
func (s *session) evict(ctx context.Context, st standing) (time.Duration, error) {
	h, id := s.host, st.tenant.id
	rights := s.takeRights(ctx, id)
	guests, again, err := s.retain(ctx, st, s.guests(id))
	h.mu.Lock()
	started := st.tenant.evicted
	if len(guests) > 0 && started.IsZero() {
		started = h.cfg.Now()
		st.tenant.evicted = started
		h.cfg.Logger.Info("removing the namespaces of a consumer", "peer", id, "name", st.name, "namespaces", len(guests))
	} else if len(guests) == 0 && !started.IsZero() {
		st.tenant.evicted, st.tenant.stuck = time.Time{}, false
		h.cfg.Logger.Info("the namespaces of a consumer are removed", "peer", id, "name", st.name)
	}
	h.mu.Unlock()
	errs := []error{rights, err}
	if len(guests) == 0 {
		return again, errors.Join(errs...)
	}
	for _, guest := range guests {
		if guest.DeletionTimestamp == nil {
			errs = append(errs, s.deleteNamespace(ctx, guest))
		}
	}
	took := h.cfg.Now().Sub(started)
	errs = append(errs, s.endPods(ctx, guests, took >= forceAfter))
	if took < forceAfter {
		return work.Sooner(again, forceAfter-took), errors.Join(errs...)
	}
	if took < stuckAfter {
		return work.Sooner(again, stuckAfter-took), errors.Join(errs...)
	}
	h.mu.Lock()
	told := st.tenant.stuck
	st.tenant.stuck = true
	h.mu.Unlock()
	if !told {
		h.cfg.Logger.Warn("namespaces of a consumer are not removed", "peer", id, "namespaces", stuck(guests))
	}
	return work.Sooner(again, retryMax), errors.Join(errs...)
}

// deleteNamespace deletes a namespace, as long as it has those labels, and waits
// until that is seen.
func (s *session) deleteNamespace(ctx context.Context, guest *corev1.Namespace) error {
	for id := owner(guest); ; {
		err := ifThere(s.client.Delete(ctx, namespacesPath+guest.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &guest.UID, ResourceVersion: &guest.ResourceVersion},
		}))
		if err == nil {
			err = s.await(ctx, func() bool { return s.namespaces.Get("", guest.Name) != guest })
		}
		if err != nil {
			return err
		}
		now := s.namespaces.Get("", guest.Name)
		if now == nil || now.UID != guest.UID || now.DeletionTimestamp != nil || owner(now) != id {
			return nil
		}
		guest = now // somebody else changed it meanwhile
	}
}

// endPods sees to it that pods begin to end, which those of a namespace do only
// seconds after it, and take no longer than maxGrace; or are gone now with force.
func (s *session) endPods(ctx context.Context, guests []*corev1.Namespace, force bool) error {
	names := make(map[string]bool, len(guests))
	for _, guest := range guests {
		names[guest.Name] = true
	}
	var errs []error
	for _, pod := range s.pods.All() {
		if !names[pod.Namespace] {
			continue
		}
		grace := min(pod.grace, maxGrace)
		if force {
			grace = 0
		}
		if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds <= grace && !force {
			continue
		}
		errs = append(errs, ifThere(s.client.Delete(ctx, podPath(pod), metav1.DeleteOptions{
			GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})))
	}
	return errors.Join(errs...)
}

// takeRights deletes the RoleBindings of a consumer that is not admitted, and those
// that are left where a namespace is not its own any more.
func (s *session) takeRights(ctx context.Context, id peer.ClusterID) error {
	s.host.mu.Lock()
	n := s.host.tenants[id]
	admitted := n != nil && n.admitted
	s.host.mu.Unlock()
	var errs []error
	for _, binding := range s.bindings.All() {
		if binding.Name != RoleName || owner(binding) != id || binding.DeletionTimestamp != nil {
			continue // others are somebody else's, whatever their labels say
		}
		if guest := s.namespaces.Get("", binding.Namespace); admitted && guest != nil && owner(guest) == id {
			continue
		}
		path := rbacPath + "namespaces/" + binding.Namespace + "/rolebindings/" + binding.Name
		err := ifThere(s.client.Delete(ctx, path, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}}))
		if err == nil {
			s.bindings.Deleted(binding.Namespace, binding.Name, binding.UID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stuck says what namespaces wait for, in the API server's words.
func stuck(guests []*corev1.Namespace) string {
	var out []string
	for _, guest := range guests {
		text := guest.Name
		for _, c := range guest.Status.Conditions {
			if c.Status == corev1.ConditionTrue && c.Message != "" {
				text += ": " + c.Message
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

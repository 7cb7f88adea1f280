package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

// annotationRetained on a guest namespace is since when it is there only for the claims in it:
// its consumer is not admitted any more.
const annotationRetained = "liqo.io/retained-since"

// unsure ends it if the clock could not be believed then.
const unsure = "?"

// clockAgain is how often to look whether the clock can be believed.
const clockAgain = time.Hour

// retainedSince returns since when a namespace is only kept for its claims; false for others.
func retainedSince(guest *corev1.Namespace) (time.Time, bool) {
	since, err := time.Parse(time.RFC3339, strings.TrimSuffix(guest.Annotations[annotationRetained], unsure))
	return since, err == nil && guest.DeletionTimestamp == nil
}

// hasData reports whether a namespace has claims, or may have some. While they cannot be read,
// the quota says it, if nobody has deleted that.
func (s *session) hasData(guest *corev1.Namespace) bool {
	if s.claims.HasSynced() {
		return slices.ContainsFunc(s.claims.All(), func(c *guestClaim) bool { return c.Namespace == guest.Name })
	}
	quota := s.quotas.Get(guest.Name, QuotaName)
	if quota == nil {
		return true
	}
	used := quota.Status.Used[corev1.ResourcePersistentVolumeClaims]
	return used.Sign() > 0
}

// retain keeps those of a consumer's namespaces that have claims, and takes away everything else
// in them, until they were kept for as long as the settings say. It returns the others, which
// are to go, and when to look again. A clock that cannot be believed removes nothing: while it cannot, only
// the time counts that this process has seen pass.
func (s *session) retain(ctx context.Context, st standing, guests []*corev1.Namespace) (others []*corev1.Namespace, again time.Duration, err error) {
	var errs []error
	trusted, now := s.host.cfg.ClockTrusted(st.tenant.id), s.host.cfg.Now()
	seen := s.host.kept(st.tenant)
	for _, guest := range guests {
		if guest.DeletionTimestamp != nil || !s.hasData(guest) {
			others = append(others, guest)
			continue
		}
		since, marked := retainedSince(guest)
		if !marked || trusted && strings.HasSuffix(guest.Annotations[annotationRetained], unsure) {
			since = now.Add(-seen)
			text := since.UTC().Format(time.RFC3339)
			if !trusted {
				text += unsure
			}
			errs = append(errs, s.mark(ctx, guest, text))
		}
		if !marked {
			s.host.cfg.Logger.Info("keeping the claims of a consumer", "peer", st.tenant.id, "name", st.name, "namespace", guest.Name, "for", st.settings.StorageKeep)
		}
		left := st.settings.StorageKeep - seen
		if trusted {
			left = min(left, st.settings.StorageKeep-now.Sub(since))
		}
		if left <= 0 {
			s.host.cfg.Logger.Warn("removing the claims of a consumer, which were kept for as long as sharing.storage_keep says", "peer", st.tenant.id, "name", st.name, "namespace", guest.Name)
			others = append(others, guest)
			continue
		}
		if !trusted {
			left = min(left, clockAgain)
		}
		again = work.Sooner(again, left)
		errs = append(errs, s.empty(ctx, st.tenant.id, guest))
	}
	return others, again, errors.Join(errs...)
}

// kept returns for how long the claims of a consumer are only kept, as far as this process has seen it.
func (h *Host) kept(n *tenant) time.Duration {
	elapsed := h.cfg.Elapsed()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.parted == nil {
		n.parted = &elapsed
	}
	return elapsed - *n.parted
}

// Discard removes the namespaces of a consumer that are only kept for their claims.
func (h *Host) Discard(ctx context.Context, id peer.ClusterID) error {
	n, release, err := h.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	h.mu.Lock()
	s := h.session
	ready := s != nil && !s.ended && !n.admitted
	h.mu.Unlock()
	if !ready {
		return refuse(ReasonNotReady, "this cluster's API server cannot be reached now, or %s is admitted", id)
	}
	var errs []error
	for _, guest := range s.guests(id) {
		if _, kept := retainedSince(guest); kept {
			errs = append(errs, s.deleteNamespace(ctx, guest))
		}
	}
	return errors.Join(errs...)
}

// mark says on a namespace since when it is only kept; with nil, that it is not.
func (s *session) mark(ctx context.Context, guest *corev1.Namespace, since any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": guest.UID, "annotations": map[string]any{annotationRetained: since}}})
	if err != nil {
		return err
	}
	var now corev1.Namespace
	if err := s.client.Patch(ctx, namespacesPath+guest.Name, Manager, types.MergePatchType, patch, &now); err != nil {
		return ifThere(err)
	}
	s.namespaces.Wrote(&now)
	return nil
}

// unretain says on a namespace of an admitted consumer that it is not only kept.
func (s *session) unretain(ctx context.Context, guest *corev1.Namespace) error {
	if _, there := guest.Annotations[annotationRetained]; !there {
		return nil
	}
	return s.mark(ctx, guest, nil)
}

// empty takes away what a consumer has in a namespace besides claims.
func (s *session) empty(ctx context.Context, id peer.ClusterID, guest *corev1.Namespace) error {
	errs := []error{s.endPods(ctx, []*corev1.Namespace{guest}, false)}
	for resource, cache := range map[string]*kube.Cache[*guestObject]{
		resourceConfigMaps: s.configMaps, resourceSecrets: s.secrets, resourceServices: s.services, resourceSlices: s.slices,
	} {
		group := "/api/v1/"
		if resource == resourceSlices {
			group = slicesGroup
		}
		for _, o := range cache.All() {
			if o.Namespace != guest.Name || origin(o) != id {
				continue
			}
			err := ifThere(s.client.Delete(ctx, group+"namespaces/"+o.Namespace+"/"+resource+"/"+o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}))
			if err == nil {
				cache.Deleted(o.Namespace, o.Name, o.UID)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

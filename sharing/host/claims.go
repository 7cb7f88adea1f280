package host

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

const (
	resourceClaims = "persistentvolumeclaims"

	// maxClaims is how many claims a consumer may have in all its namespaces together.
	maxClaims = 100
)

// guestClaim is what matters of a PersistentVolumeClaim of a consumer.
type guestClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		StorageClassName string                            `json:"storageClassName"`
		VolumeName       string                            `json:"volumeName"`
		Resources        corev1.VolumeResourceRequirements `json:"resources"`
	} `json:"spec"`
	Status struct {
		Phase     corev1.PersistentVolumeClaimPhase `json:"phase,omitempty"`
		Allocated corev1.ResourceList               `json:"allocatedResources,omitempty"`
	} `json:"status"`
}

// DeepCopyObject implements runtime.Object.
func (c *guestClaim) DeepCopyObject() runtime.Object {
	out := *c
	out.ObjectMeta = *c.ObjectMeta.DeepCopy()
	out.Spec.Resources, out.Status.Allocated = *c.Spec.Resources.DeepCopy(), c.Status.Allocated.DeepCopy()
	return &out
}

// size returns how many bytes count of the claim, as for a quota: what it asks for, or what it has asked
// for if it asks for less since, while it grew.
func (c *guestClaim) size() int64 {
	return max(c.Spec.Resources.Requests.Storage().Value(), c.Status.Allocated.Storage().Value())
}

func (s *session) makeClaimCaches() {
	s.claims = kube.NewCache(kube.Kind[*guestClaim]{
		Fresh: func() *guestClaim { return new(guestClaim) }, Trim: func(c *guestClaim) { slim(c) }, Changed: s.countClaim,
	})
	s.classes = kube.NewCache(kube.Kind[*storageclass.Class]{
		Fresh: func() *storageclass.Class { return new(storageclass.Class) }, Trim: func(c *storageclass.Class) { slim(c) },
	})
}

// claimsKnown reports whether the claims of guests, and the classes for them, are known. Until
// then, and for ever if the agent may not read them, guests make none.
func (s *session) claimsKnown() bool { return s.claims.HasSynced() && s.classes.HasSynced() }

// claimsRefused reports whether the agent may not read them.
func (s *session) claimsRefused() bool {
	return !s.claimsKnown() && (apierrors.IsForbidden(s.claims.Failure()) || apierrors.IsForbidden(s.classes.Failure()))
}

// mayClaim reports whether a consumer may have claims in a namespace: storage is offered, or it
// has some there.
func (s *session) mayClaim(st standing, guest *corev1.Namespace) bool {
	return s.claimsKnown() && (st.offer.Storage().Sign() > 0 || s.hasData(guest))
}

// countClaim takes in a claim that changed.
func (s *session) countClaim(before, after *guestClaim) {
	if before != nil && (after == nil || origin(after) != origin(before)) {
		s.count(origin(before), func(a *account) { a.dropClaim(keyOf(before.Namespace, before.Name)) })
	}
	if after != nil {
		s.count(origin(after), func(a *account) { a.putClaim(keyOf(after.Namespace, after.Name), after.size()) })
		if s.placeable(after) {
			s.host.look(s, origin(after))
		}
	}
}

// class returns the storage class for guests' claims, or why there is none.
func (s *session) class(name string) (*storageclass.Class, *Refused) {
	return GuestClass(name, s.classes.All())
}

// StorageProblem returns why claims of consumers cannot be kept as they should, in a sentence without
// its end; "" if they can, or no storage is offered, or that is not known yet.
func (h *Host) StorageProblem() string {
	settings := h.cfg.Settings()
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	switch {
	case settings.Storage == 0 || s == nil:
		return ""
	case !s.claimsKnown():
		if err := cmp.Or(s.claims.Failure(), s.classes.Failure()); apierrors.IsForbidden(err) {
			return "the agent may not read PersistentVolumeClaims and StorageClasses; run `liqo-agent rbac --apply`"
		}
		return ""
	}
	return ClassProblem(settings.GuestStorageClass, s.classes.All())
}

// Stored returns how the use of this cluster stands of those who have claims here.
func (h *Host) Stored() map[peer.ClusterID]spec.TenantStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[peer.ClusterID]spec.TenantStatus)
	if h.session == nil {
		return out
	}
	for id, n := range h.tenants {
		if status := h.standsLocked(n); status.Claims > 0 {
			out[id] = status
		}
	}
	return out
}

// claim takes a claim that a consumer wants to apply, and returns what may be written.
func (h *Host) claim(name string, body []byte, in workload.Guest, st standing) ([]byte, *Refused) {
	clean, size, no := workload.AdmitClaim(body, name, in)
	switch {
	case no != nil:
		return nil, refusedBy(no)
	case st.session.claimsRefused():
		return nil, refuse(ReasonNoStorage, "the agent of this cluster may not read PersistentVolumeClaims and StorageClasses; run `liqo-agent rbac --apply` there").after(retryUsedUp)
	case !st.session.claimsKnown():
		return nil, refuse(ReasonNotReady, "this cluster does not know yet which PersistentVolumeClaims %s has; try again later", in.Cluster).after(retryNotReady)
	}
	if _, r := st.session.class(st.settings.GuestStorageClass); r != nil {
		return nil, r
	}
	if r := st.session.expandable(in.Namespace, name, size); r != nil {
		return nil, r
	}
	if r := h.reserveClaim(st, keyOf(in.Namespace, name), size); r != nil {
		return nil, r
	}
	return clean, nil
}

// expandable refuses a claim that is there and is to have more bytes, if its class cannot do that.
func (s *session) expandable(namespace, name string, size int64) *Refused {
	claim := s.claims.Get(namespace, name)
	if claim == nil || size <= claim.Spec.Resources.Requests.Storage().Value() {
		return nil
	}
	if class := s.classes.Get("", claim.Spec.StorageClassName); class == nil || !class.AllowVolumeExpansion {
		return refuse(ReasonNoExpansion, "the storage class %s of this cluster cannot expand claims; make a larger claim, and copy the data", text.Excerpt(claim.Spec.StorageClassName))
	}
	return nil
}

// reserveClaim makes room for a claim of so many bytes, or says why there is none: in the offer to
// the consumer, and in what all consumers may have together, of whom some may have been offered
// more before there were others.
func (h *Host) reserveClaim(st standing, key string, size int64) *Refused {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := st.settings.Storage
	for _, n := range h.tenants {
		if n != st.tenant {
			left -= n.account.claimed()
		}
	}
	offered := st.offer[corev1.ResourceStorage]
	return st.tenant.account.reserveClaim(key, size, offered.Value(), max(left, 0))
}

// reserveClaim makes room for a claim of so many bytes within an offer, and within what all
// others leave.
func (a *account) reserveClaim(key string, size, offer, left int64) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	mine := a.claims[key]
	if mine == nil {
		mine = &object{}
	}
	var used int64
	for _, c := range a.claims {
		used += c.is.most(c.pending).bytes
	}
	grows := max(size-mine.is.most(mine.pending).bytes, 0)
	quantity := func(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }
	switch {
	case grows > 0 && offer == 0:
		return refuse(ReasonNoStorage, "this cluster offers no storage; set sharing.storage there, or use another node").after(retryUsedUp)
	case grows > max(offer-used, 0):
		return refuse(ReasonOfferUsedUp, "the offer is used up: storage of the offer (%s asked for, %s of %s left)", quantity(size), quantity(max(offer-used, 0)), quantity(offer)).after(retryUsedUp)
	case grows > max(left-used, 0):
		return refuse(ReasonOfferUsedUp, "the storage for all consumers of this cluster is used up (%s asked for, %s left)", quantity(size), quantity(max(left-used, 0))).after(retryUsedUp)
	case a.claims[key] == nil && len(a.claims) >= maxClaims:
		return refuse(ReasonTooManyObjects, "this consumer has %d PersistentVolumeClaims here, and the limit is %d; delete some", len(a.claims), maxClaims).after(retryUsedUp)
	}
	mine.pending, mine.until = mine.pending.most(weight{bytes: size}), a.now().Add(reservation)
	a.claims[key] = mine
	return nil
}

// claimed returns how many bytes the claims ask for, or may soon.
func (a *account) claimed() (bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	for _, c := range a.claims {
		bytes += c.is.most(c.pending).bytes
	}
	return bytes
}

// storage returns how many claims there are, and how many bytes they ask for.
func (a *account) storage() (claims int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		if c.there {
			claims++
			bytes += c.is.bytes
		}
	}
	return claims, bytes
}

// hasClaim reports whether there is a claim, or was let through a moment ago.
func (a *account) hasClaim(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	return a.claims[key] != nil
}

// putClaim counts a claim as it is.
func (a *account) putClaim(key string, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims.put(key, weight{bytes: size})
}

// dropClaim counts a claim no more.
func (a *account) dropClaim(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims.drop(key)
}

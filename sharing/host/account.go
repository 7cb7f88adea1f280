package host

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

const (
	// defaultPods is how many pods an offer is of that does not say.
	defaultPods = 110
	// podsPerSlot is how many pods a consumer may have here for each that it was
	// offered: those that have ended are still kept by the API server.
	podsPerSlot = 5
	// bytesPerPod is how long the documents of these pods may be on average. We list
	// all of them when we start.
	bytesPerPod = 16 << 10
	// maxObjects bounds the ConfigMaps and Secrets of a consumer, all of which we list too,
	// and maxObjectBytes these with its Services and EndpointSlices.
	maxObjects     = 500
	maxObjectBytes = 8 << 20
	// maxServices and maxSlices bound the Services of a consumer, and its EndpointSlices
	// without those that Kubernetes makes.
	maxServices = 250
	maxSlices   = 600
	// maxServicePorts bounds the ports of all Services of a consumer, and maxEndpointPorts the
	// ports of each of its endpoints, all together. kube-proxy has some rules for each of these, and
	// for each pod that a Service selects as many as the Service has ports, and goes through all
	// with a change of one: 100 ports everywhere would be millions.
	maxServicePorts  = 600
	maxEndpointPorts = 10_000
	// reservation is how long something counts that was let through and not seen.
	reservation = 30 * time.Second
	// maxSeen bounds what is remembered of pods that come and go while one of the
	// same name is being created.
	maxSeen = 16
)

// Names of limits in a list of amounts, as a ResourceQuota calls them.
const (
	limitsCPU    = corev1.ResourceLimitsCPU
	limitsMemory = corev1.ResourceLimitsMemory
)

// amountsOf returns what a pod counts for: what it asks for, pods, and its limits.
func amountsOf(pod *corev1.Pod) corev1.ResourceList {
	pod = pod.DeepCopy()
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			askForLimits(&containers[i].Resources)
		}
	}
	if pod.Spec.Resources != nil {
		askForLimits(pod.Spec.Resources)
	}
	out, limits := workload.Requests(pod), workload.Limits(pod)
	for name, as := range map[corev1.ResourceName]corev1.ResourceName{corev1.ResourceCPU: limitsCPU, corev1.ResourceMemory: limitsMemory} {
		if q, limited := limits[name]; limited {
			out[as] = q
		}
	}
	return out
}

// askForLimits does what the API server will do: who has a limit and does not say
// how much is asked for asks for that.
func askForLimits(r *corev1.ResourceRequirements) {
	for name, q := range r.Limits {
		if _, said := r.Requests[name]; said {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = q
	}
}

// account counts what one consumer has in all its namespaces. Its methods may be
// called from any goroutine.
//
// There is at most one pod of a name at any time, whatever is on its way to the API
// server: a name counts for the most of what it may stand for. So a request that is
// repeated, because its answer was lost, needs no room of its own.
type account struct {
	now func() time.Time

	mu      sync.Mutex
	slots   map[string]*slot // by namespace/name
	objects ledger           // by resource/namespace/name
	claims  ledger           // by namespace/name, in the bytes of storage that they ask for
}

// slot is the name of a pod.
type slot struct {
	pod      *guestPod // as it was seen last, nil if there is none
	reserved []*reserved
	extended []*extension
}

// reserved is room for a pod that was let through.
type reserved struct {
	amounts corev1.ResourceList
	size    int64 // in bytes
	until   time.Time
	uid     types.UID   // "" while it is not known
	seen    []types.UID // of pods of that name that came or went meanwhile
}

func newAccount(now func() time.Time) *account {
	return &account{now: now, slots: make(map[string]*slot), objects: make(ledger), claims: make(ledger)}
}

// amounts returns the most that the name may stand for.
func (s *slot) amounts() corev1.ResourceList {
	if len(s.reserved) == 0 {
		if s.pod == nil || s.pod.ended() {
			return nil
		}
		return s.pod.amounts
	}
	out := corev1.ResourceList{}
	if s.pod != nil && !s.pod.ended() {
		most(out, s.pod.amounts)
	}
	for _, r := range s.reserved {
		most(out, r.amounts)
	}
	return out
}

// size returns the most bytes that the name may stand for.
func (s *slot) size() (size int64) {
	if s.pod != nil {
		size = s.pod.size
	}
	for _, r := range s.reserved {
		size = max(size, r.size)
	}
	for _, e := range s.extended {
		size += e.size
	}
	return size
}

// most raises amounts to those of other, where they are more.
func most(amounts, other corev1.ResourceList) {
	for name, q := range other {
		if have := amounts[name]; q.Cmp(have) > 0 {
			amounts[name] = q
		}
	}
}

// sameAmounts is whether two lists are of the same amounts, whatever their notation.
func sameAmounts(a, b corev1.ResourceList) bool {
	for name, q := range a {
		if other, there := b[name]; !there || q.Cmp(other) != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

// sweep drops what was reserved for too long. The caller holds the lock.
func (a *account) sweep() {
	now := a.now()
	for key, s := range a.slots {
		s.reserved = slices.DeleteFunc(s.reserved, func(r *reserved) bool { return !now.Before(r.until) })
		s.extended = slices.DeleteFunc(s.extended, func(e *extension) bool { return !now.Before(e.until) })
		a.tidy(key, s)
	}
	a.objects.sweep(now)
	a.claims.sweep(now)
}

func (a *account) tidy(key string, s *slot) {
	if s.pod == nil && len(s.reserved) == 0 && len(s.extended) == 0 {
		delete(a.slots, key)
	}
}

// reserve makes room for a pod of so many bytes in an offer, or says why there is
// none. Only the resources of more are looked at.
func (a *account) reserve(key string, more, offer corev1.ResourceList, size int64) (*reserved, *Refused) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	mine := a.slots[key]
	if mine == nil {
		mine = &slot{}
	}
	used := corev1.ResourceList{}
	var bytes int64
	for _, s := range a.slots {
		workload.Add(used, s.amounts())
		bytes += s.size()
	}
	before := mine.amounts()
	added := corev1.ResourceList{} // what the name may stand for now and did not
	for name, q := range more {
		if q.Cmp(before[name]) > 0 {
			q = q.DeepCopy()
			q.Sub(before[name])
			added[name] = q
		}
	}
	if exceeded := workload.Exceeded(used, added, offer); len(exceeded) > 0 {
		return nil, usedUp(exceeded, used, more, offer)
	}
	limit := podsPerSlot * offer.Pods().Value()
	if a.slots[key] == nil && int64(len(a.slots)) >= limit {
		return nil, refuse(ReasonTooManyPods, "this consumer has %d pods here, including those that have ended, and the limit is %d; delete some", len(a.slots), limit).after(retryUsedUp)
	}
	if grows := max(size-mine.size(), 0); grows > 0 && bytes+grows > bytesPerPod*limit {
		return nil, refuse(ReasonTooManyPods, "the pods of this consumer, including those that have ended, have %d bytes of JSON here, and %d more exceed the limit of %d; delete some, or move long texts into ConfigMaps", bytes, grows, bytesPerPod*limit).after(retryUsedUp)
	}
	r := &reserved{amounts: more, size: size, until: a.now().Add(reservation)}
	mine.reserved = append(mine.reserved, r)
	a.slots[key] = mine
	return r, nil
}

// usedUp says which resources are short.
func usedUp(exceeded []corev1.ResourceName, used, more, offer corev1.ResourceList) *Refused {
	var missing, short []string
	for _, name := range exceeded {
		asked := more[name]
		hard, offered := offer[name]
		if !offered {
			missing = append(missing, fmt.Sprintf("%s (%s asked for)", text.Excerpt(string(name)), &asked))
			continue
		}
		left := hard.DeepCopy()
		left.Sub(used[name])
		if left.Sign() < 0 {
			left.Set(0)
		}
		short = append(short, fmt.Sprintf("%s of %s (%s asked for, %s of %s left)", plainly(name), "the offer", &asked, &left, &hard))
	}
	if len(missing) > 0 {
		return refuse(ReasonNotOffered, "the offer has no %s", strings.Join(missing, ", "))
	}
	return refuse(ReasonOfferUsedUp, "the offer is used up: %s", strings.Join(short, ", ")).after(retryUsedUp)
}

// settle takes in the answer of the API server: the pod that was created, without a
// UID if that is not known, or nil when there is none for certain. A reservation for
// a pod that was not seen yet lasts from then.
func (a *account) settle(key string, r *reserved, created *guestPod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slots[key]
	if s == nil {
		s = &slot{}
	}
	over := created == nil || slices.Contains(r.seen, created.UID) || s.pod != nil && s.pod.UID == created.UID
	if over {
		s.reserved = slices.DeleteFunc(s.reserved, func(other *reserved) bool { return other == r })
		a.tidy(key, s)
		return
	}
	r.until = a.now().Add(reservation)
	if !slices.Contains(s.reserved, r) { // the answer took longer than that
		s.reserved = append(s.reserved, r)
		a.slots[key] = s
	}
	if created.UID == "" {
		return
	}
	r.uid, r.seen = created.UID, nil
	if created.amounts != nil { // the API server may have added to what was asked for
		r.amounts = created.amounts
	}
}

// put counts a pod as it is.
func (a *account) put(pod *guestPod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(pod)
}

func (a *account) putLocked(pod *guestPod) {
	key := keyOf(pod.Namespace, pod.Name)
	s := a.slots[key]
	if s == nil {
		s = &slot{}
		a.slots[key] = s
	}
	s.pod = pod
	s.note(pod.UID)
}

// drop counts a pod no more.
func (a *account) drop(pod *guestPod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := keyOf(pod.Namespace, pod.Name)
	s := a.slots[key]
	if s == nil {
		return
	}
	if s.pod != nil && s.pod.UID == pod.UID {
		s.pod = nil
	}
	s.note(pod.UID)
	a.tidy(key, s)
}

// note ends the reservation for a pod that was seen.
func (s *slot) note(uid types.UID) {
	s.reserved = slices.DeleteFunc(s.reserved, func(r *reserved) bool { return r.uid != "" && r.uid == uid })
	for _, r := range s.reserved {
		if r.uid == "" && !slices.Contains(r.seen, uid) {
			r.seen = append(r.seen, uid)
			if len(r.seen) > maxSeen {
				r.seen = slices.Delete(r.seen, 0, 1)
			}
		}
	}
}

// replace counts what is there anew. What is reserved stays.
func (a *account) replace(pods []*guestPod, objects, claims map[string]weight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, s := range a.slots {
		s.pod = nil
		a.tidy(key, s)
	}
	a.objects.replace(objects)
	a.claims.replace(claims)
	for _, pod := range pods {
		a.putLocked(pod)
	}
}

// totals returns how many pods there are that have not ended, and what they ask
// for.
func (a *account) totals() (pods int, used corev1.ResourceList) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used = corev1.ResourceList{}
	for _, s := range a.slots {
		if s.pod != nil && !s.pod.ended() {
			pods++
			workload.Add(used, s.pod.amounts)
		}
	}
	delete(used, limitsCPU)
	delete(used, limitsMemory)
	return pods, used
}

// empty is whether nothing counts.
func (a *account) empty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	return len(a.slots) == 0 && len(a.objects) == 0 && len(a.claims) == 0
}

func keyOf(parts ...string) string { return strings.Join(parts, "/") }

// plainly is how people call a resource.
func plainly(name corev1.ResourceName) string {
	switch name {
	case limitsCPU:
		return "cpu (limits)"
	case limitsMemory:
		return "memory (limits)"
	}
	return text.Excerpt(string(name))
}

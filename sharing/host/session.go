package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

const (
	workers = 4
	// retryFirst and retryMax bound the pause after something failed.
	retryFirst = 100 * time.Millisecond
	retryMax   = 30 * time.Second
	// tellPause is the least time between two calls of Changed because of pods.
	tellPause = time.Second
	// listPatience is how long the first lists may take until that is logged.
	listPatience = 15 * time.Second

	resourceConfigMaps = "configmaps"
	resourceSecrets    = "secrets"
	resourceServices   = "services"
	resourceSlices     = "endpointslices"

	slicesGroup = "/apis/discovery.k8s.io/v1/"
)

// session is one connection to the API server.
type session struct {
	host   *Host
	client *kube.Client
	ended  bool // guarded by Host.mu

	namespaces *kube.Cache[*corev1.Namespace]
	quotas     *kube.Cache[*corev1.ResourceQuota]
	policies   *kube.Cache[*networkingv1.NetworkPolicy]
	roles      *kube.Cache[*rbacv1.Role]
	bindings   *kube.Cache[*rbacv1.RoleBinding]
	pods       *kube.Cache[*guestPod]
	configMaps *kube.Cache[*guestObject]
	secrets    *kube.Cache[*guestObject]
	services   *kube.Cache[*guestObject]
	slices     *kube.Cache[*guestObject]
	claims     *kube.Cache[*guestClaim]
	classes    *kube.Cache[*storageclass.Class] // all

	queue *work.Queue[peer.ClusterID]

	// granted are the rights that the agent may give to consumers, as long as its session lasts: metrics and ephemeral
	// containers. They are set before anything is reconciled.
	granted grants

	// noServices is closed once the API server refuses to tell of Services or EndpointSlices.
	noServices     chan struct{}
	refuseServices sync.Once

	mu       sync.Mutex
	woken    chan struct{}        // closed, and replaced, when something may be other than it was
	repaired map[string]time.Time // when an object was written last, by path
	ready    map[types.UID]string // namespaces in which pods can be created, with the versions of Role and RoleBinding that counted then
}

// Run keeps guest namespaces as they are to be until ctx ends, and then returns nil.
// It is to run while there is a connection to the local API server, once at a time,
// and may be called again after it returned. An error means that there is no client
// for local.
func (h *Host) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return fmt.Errorf("namespaces of consumers: %w", err)
	}
	defer client.Close()
	s := newSession(h, client)
	var group sync.WaitGroup
	s.follow(ctx, &group)
	if s.filled(ctx) {
		h.adopt(s)
		group.Go(func() { s.work(ctx) })
		<-ctx.Done()
		h.mu.Lock()
		s.ended = true
		h.mu.Unlock()
	}
	group.Wait()
	return nil
}

func newSession(h *Host, client *kube.Client) *session {
	s := &session{
		host: h, client: client,
		queue: work.New(work.Config[peer.ClusterID]{
			Backoff: work.Backoff{First: retryFirst, Max: retryMax},
			Observe: func(id peer.ClusterID, a work.Attempt) { h.complain(id, a.Err, a.Next) },
		}),
		noServices: make(chan struct{}), woken: make(chan struct{}),
		repaired: make(map[string]time.Time), ready: make(map[types.UID]string),
	}
	s.makeCaches()
	return s
}

// follow fills the caches until ctx ends.
func (s *session) follow(ctx context.Context, group *sync.WaitGroup) {
	guests := workload.LabelOriginCluster
	group.Go(func() {
		s.namespaces.Follow(ctx, s.client, kube.Query{Path: "/api/v1/namespaces", Labels: selector})
	})
	group.Go(func() {
		s.quotas.Follow(ctx, s.client, kube.Query{Path: "/api/v1/resourcequotas", Labels: selector})
	})
	group.Go(func() {
		s.policies.Follow(ctx, s.client, kube.Query{Path: "/apis/networking.k8s.io/v1/networkpolicies", Labels: selector})
	})
	group.Go(func() {
		s.roles.Follow(ctx, s.client, kube.Query{Path: rbacPath + "roles", Labels: selector})
	})
	group.Go(func() {
		s.bindings.Follow(ctx, s.client, kube.Query{Path: rbacPath + "rolebindings", Labels: selector})
	})
	group.Go(func() { s.pods.Follow(ctx, s.client, kube.Query{Path: "/api/v1/pods", Labels: guests}) })
	group.Go(func() {
		s.configMaps.Follow(ctx, s.client, kube.Query{Path: "/api/v1/" + resourceConfigMaps, Labels: guests})
	})
	group.Go(func() {
		s.secrets.Follow(ctx, s.client, kube.Query{Path: "/api/v1/" + resourceSecrets, Labels: guests})
	})
	group.Go(func() {
		s.services.Follow(ctx, s.client, kube.Query{Path: "/api/v1/" + resourceServices, Labels: guests})
	})
	group.Go(func() {
		// Kubernetes' own, of the Services of guests, have the label of the guest too.
		s.slices.Follow(ctx, s.client, kube.Query{Path: slicesGroup + resourceSlices, Labels: guests + "," + api.LabelSliceManager + "=" + api.ManagedByAgent})
	})
	group.Go(func() {
		s.claims.Follow(ctx, s.client, kube.Query{Path: "/api/v1/" + resourceClaims, Labels: guests})
	})
	group.Go(func() { s.classes.Follow(ctx, s.client, kube.Query{Path: storageclass.Path}) })
	group.Go(func() { s.allow(ctx, s.recountServices, s.services.Synced(), s.slices.Synced()) })
	group.Go(func() { s.allow(ctx, s.recountClaims, s.claims.Synced(), s.classes.Synced()) })
}

// servicesKnown reports whether the Services and EndpointSlices of guests are known. Until then,
// and for ever if the agent may not read them, guests have none.
func (s *session) servicesKnown() bool { return s.services.HasSynced() && s.slices.HasSynced() }

// servicesRefused reports whether the agent may not read them.
func (s *session) servicesRefused() bool {
	select {
	case <-s.noServices:
		return !s.servicesKnown()
	default:
		return false
	}
}

// cannotRead is told why Services or EndpointSlices cannot be listed or watched.
func (s *session) cannotRead(err error) {
	if apierrors.IsForbidden(err) {
		s.refuseServices.Do(func() { close(s.noServices) })
	}
}

// allow recounts what consumers have, and has all of them looked at, once that can be known.
func (s *session) allow(ctx context.Context, recount func(), known ...<-chan struct{}) {
	for _, synced := range known {
		select {
		case <-synced:
		case <-ctx.Done():
			return
		}
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if s.host.session != s {
		return // it begins with them
	}
	recount()
	for id := range s.host.tenants {
		s.queue.Add(id)
	}
}

// recountServices counts the Services and EndpointSlices of all consumers. Host.mu is held.
func (s *session) recountServices() {
	for resource, all := range map[string][]*guestObject{resourceServices: s.services.All(), resourceSlices: s.slices.All()} {
		for _, o := range all {
			if id := origin(o); id != "" {
				s.host.tenantLocked(id).account.putObject(keyOf(resource, o.Namespace, o.Name), o.weight)
			}
		}
	}
}

// recountClaims counts the claims of all consumers. Host.mu is held.
func (s *session) recountClaims() {
	for _, c := range s.claims.All() {
		if id := origin(c); id != "" {
			s.host.tenantLocked(id).account.putClaim(keyOf(c.Namespace, c.Name), c.size())
		}
	}
}

// filled waits until all caches are filled, and is false when ctx ended before.
func (s *session) filled(ctx context.Context) bool {
	patience := time.NewTimer(listPatience)
	defer patience.Stop()
	for _, synced := range []<-chan struct{}{
		s.namespaces.Synced(), s.quotas.Synced(), s.roles.Synced(), s.bindings.Synced(),
		s.pods.Synced(), s.configMaps.Synced(), s.secrets.Synced(),
	} {
		for waiting := true; waiting; {
			select {
			case <-synced:
				waiting = false
			case <-patience.C:
				s.host.cfg.Logger.Warn("the namespaces of consumers cannot be read yet, so consumers are not served; trying again", "error", whyUnread(s.failure()))
			case <-ctx.Done():
				return false
			}
		}
	}
	if err := s.askGrants(ctx); err != nil {
		return false
	}
	// Without network policies nobody is let in, but who is not admitted any more has to go.
	unread := time.NewTimer(listPatience)
	defer unread.Stop()
	select {
	case <-s.policies.Synced():
	case <-unread.C:
		s.host.cfg.Logger.Warn("network policies cannot be read, so consumers get no namespaces; run `sudo liqo-agent rbac --apply` if the agent lacks the permission", "error", whyUnread(s.policies.Failure()))
	case <-ctx.Done():
		return false
	}
	// Else consumers would lose their rights to Services until these are known.
	late := time.NewTimer(listPatience)
	defer late.Stop()
	for _, synced := range []<-chan struct{}{s.services.Synced(), s.slices.Synced()} {
		select {
		case <-synced:
		case <-s.noServices:
		case <-late.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// askGrants finds out whether the agent may let consumers read what their pods use, and add ephemeral containers: it has to
// have these rights itself. It asks until there is an answer, and fails when ctx ends.
func (s *session) askGrants(ctx context.Context) error {
	for pause := retryFirst; ; pause = min(2*pause, retryMax) {
		metrics, err := s.client.May(ctx, kube.Access{Verb: "list", Group: metricsGroup, Resource: "pods"})
		ephemeral, also := s.client.May(ctx, kube.Access{Verb: "patch", Resource: "pods", Subresource: "ephemeralcontainers"})
		if err == nil && also == nil {
			s.granted = grants{metrics: metrics, ephemeral: ephemeral}
			if !ephemeral {
				s.host.cfg.Logger.Warn("consumers cannot use kubectl debug here, because the agent may not let them; run `liqo-agent rbac --apply` again, and restart the agent")
			}
			return nil
		}
		if err := work.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// policiesKnown returns why nobody can be let in yet: the network policies that are there are
// not known.
func (s *session) policiesKnown() error {
	if !s.policies.HasSynced() {
		return fmt.Errorf("read network policies: %w", whyUnread(s.policies.Failure()))
	}
	return nil
}

// whyUnread is why a list is not there: how the last attempt failed, or none has ended.
func whyUnread(failure error) error {
	return cmp.Or(failure, errors.New("the API server has not answered yet"))
}

// failure returns why what is known may be old, nil if it is not.
func (s *session) failure() error {
	return cmp.Or(s.namespaces.Failure(), s.pods.Failure(), s.quotas.Failure(), s.roles.Failure(), s.bindings.Failure(), s.configMaps.Failure(), s.secrets.Failure())
}

// adopt makes a session with filled caches the one that counts.
func (h *Host) adopt(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session = s
	pods := make(map[peer.ClusterID][]*guestPod)
	for _, pod := range s.pods.All() {
		pods[origin(pod)] = append(pods[origin(pod)], pod)
	}
	objects := make(map[peer.ClusterID]map[string]weight)
	for resource, all := range map[string][]*guestObject{
		resourceConfigMaps: s.configMaps.All(), resourceSecrets: s.secrets.All(), resourceServices: s.services.All(), resourceSlices: s.slices.All(),
	} {
		for _, o := range all {
			if objects[origin(o)] == nil {
				objects[origin(o)] = make(map[string]weight)
			}
			objects[origin(o)][keyOf(resource, o.Namespace, o.Name)] = o.weight
		}
	}
	claims := make(map[peer.ClusterID]map[string]weight)
	for _, c := range s.claims.All() {
		if claims[origin(c)] == nil {
			claims[origin(c)] = make(map[string]weight)
		}
		claims[origin(c)][keyOf(c.Namespace, c.Name)] = weight{bytes: c.size()}
	}
	for id := range pods {
		h.spoken(id)
	}
	for id := range claims {
		h.spoken(id)
	}
	for id := range objects {
		h.spoken(id)
	}
	for _, ns := range s.namespaces.All() {
		h.spoken(owner(ns))
	}
	for _, quota := range s.quotas.All() {
		h.spoken(owner(quota)) // whose namespace may have lost its labels
	}
	for id, n := range h.tenants {
		n.account.replace(pods[id], objects[id], claims[id])
		s.queue.Add(id)
	}
}

// spoken notes that a consumer, if it is one, has something here. The caller holds
// the lock.
func (h *Host) spoken(id peer.ClusterID) {
	if id != "" {
		h.tenantLocked(id)
	}
}

// guests returns the namespaces of a consumer, oldest first.
func (s *session) guests(id peer.ClusterID) []*corev1.Namespace {
	var out []*corev1.Namespace
	for _, ns := range s.namespaces.All() {
		if owner(ns) == id {
			out = append(out, ns)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Namespace) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// tell returns what a cache calls with every change of something that the agent made
// for consumers.
func tell[T kube.Object](s *session) func(before, after T) {
	return func(before, after T) {
		s.wake()
		for _, o := range []T{before, after} {
			if kube.IsNil(o) {
				continue
			}
			if id := owner(o); id != "" {
				s.host.look(s, id)
			}
		}
	}
}

// look has a worker look at a consumer, if s is the session that counts.
func (h *Host) look(s *session, id peer.ClusterID) {
	if h.account(s, id) != nil {
		s.queue.Add(id)
	}
}

// account returns the account of a consumer, nil if s is not the session that counts.
func (h *Host) account(s *session, id peer.ClusterID) *account {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s {
		return nil
	}
	return h.tenantLocked(id).account
}

// count changes the account of a consumer, if it is one, and has a worker look at it
// after that: one that looked before would not tell.
func (s *session) count(id peer.ClusterID, change func(*account)) {
	if id == "" {
		return
	}
	if a := s.host.account(s, id); a != nil {
		change(a)
		s.queue.AddAfter(id, tellPause)
	}
}

// countPod takes in a pod that changed.
func (s *session) countPod(before, after *guestPod) {
	if before != nil && (after == nil || after.UID != before.UID || origin(after) != origin(before)) {
		s.count(origin(before), func(a *account) { a.drop(before) })
	}
	if after != nil {
		s.count(origin(after), func(a *account) { a.put(after) })
	}
}

// countObject takes in a ConfigMap or Secret that changed.
func (s *session) countObject(resource string, before, after *guestObject) {
	if before != nil && (after == nil || origin(after) != origin(before)) {
		s.count(origin(before), func(a *account) { a.dropObject(keyOf(resource, before.Namespace, before.Name)) })
	}
	if after != nil {
		s.count(origin(after), func(a *account) { a.putObject(keyOf(resource, after.Namespace, after.Name), after.weight) })
	}
}

// wake lets everyone look again who waits in await.
func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.woken)
	s.woken = make(chan struct{})
}

// errSlow: the API server took something, but what depends on it does not happen.
var errSlow = errors.New("the API server does not show it in time")

// await waits until a condition on the caches holds, for some seconds.
func (s *session) await(ctx context.Context, condition func() bool) error {
	timer := time.NewTimer(showTimeout)
	defer timer.Stop()
	for {
		s.mu.Lock()
		woken := s.woken
		s.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-woken:
		case <-timer.C:
			return errSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// work reconciles consumers until ctx ends.
func (s *session) work(ctx context.Context) {
	s.queue.Run(ctx, workers, func(ctx context.Context, id peer.ClusterID) work.Outcome {
		return work.Result(s.reconcile(ctx, id))
	})
}

// complain logs what is wrong with a consumer's namespaces, when that is something
// else than last time.
func (h *Host) complain(id peer.ClusterID, err error, again time.Duration) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.mu.Lock()
	n := h.tenants[id]
	known := n == nil || n.trouble == text
	if n != nil {
		n.trouble = text
	}
	h.mu.Unlock()
	if err != nil && !known {
		h.cfg.Logger.Warn("the namespaces of a consumer cannot be reconciled; trying again", "peer", id, "error", err, "in", again)
	}
}

// reconcile brings what a consumer has nearer to how it is to stand, and returns
// when to look again if nothing happens before.
func (s *session) reconcile(ctx context.Context, id peer.ClusterID) (again time.Duration, err error) {
	n, release, err := s.host.take(ctx, id)
	if err != nil {
		return 0, nil // it was forgotten, or everything ends
	}
	defer release()
	h, settings := s.host, s.host.cfg.Settings()
	h.mu.Lock()
	st := n.standing(s, settings)
	said, admitted := n.said, n.admitted
	h.mu.Unlock()
	lost, failed := s.reclaim(ctx, id, settings)
	switch {
	case !said: // unknown is not evicted
	case !admitted:
		again, err = s.evict(ctx, st)
	default:
		again, err = s.reconcileTenant(ctx, st)
	}
	again, err = work.Sooner(work.Sooner(again, lost), h.report(n)), errors.Join(failed, err)
	if said && !admitted && len(s.guests(id)) == 0 && lost == 0 && failed == nil {
		h.forget(n)
	}
	return again, err
}

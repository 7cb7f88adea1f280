package offload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// workers is how many pods of one provider are reconciled concurrently. A worker mostly
// waits for an API server.
const workers = 8

// Limits of what is kept of one provider's answers: pods and events in all of its
// namespaces together. A hundred pods need about a hundredth of that.
const (
	maxKept   = 20_000
	maxTheirs = 32 << 20 // bytes of memory that these take
	maxListed = 64 << 20 // bytes of text of one list; no endpoint passes on more
	maxTold   = 4 << 20  // bytes of text of one object
	maxSwept  = 2000     // objects of one kind, besides pods and events, in one of its namespaces
	maxQueued = 20_000   // keys in a queue that it can fill with names of its choice
)

// limits are those of pods and events that differ in tests.
type limits struct {
	objects      int
	bytes, list  int64
	object, keys int
}

const (
	// retryFirst and retryMax bound the backoff after a failure; refusedFirst and
	// refusedMax the one after a refusal, when only a change at the provider helps, which
	// is mostly noticed by itself.
	retryFirst   = 100 * time.Millisecond
	retryMax     = 30 * time.Second
	refusedFirst = 2 * time.Second
	refusedMax   = 5 * time.Minute
	// patience is after how many failures in a row a warning is logged.
	patience = 6
)

// controller reconciles the pods of one provider. It lives as long as one connection to
// the local API server.
type controller struct {
	s      *session
	id     peer.ClusterID
	node   string
	remote Remote
	cancel context.CancelFunc
	done   chan struct{}

	provider atomic.Pointer[Provider]
	pods     *kube.Cache[*corev1.Pod] // bound to the node
	bounds   *kube.Bounds             // of what the provider says
	index    *index
	queue    *work.Queue[key]
	events   *work.Queue[key] // its own, so that events do not delay pods
	pace     pace             // of status writes
	running  sync.WaitGroup
	// expelled: the last that is known is that the provider no longer admits this cluster.
	expelled    atomic.Bool
	addressless atomic.Bool // it was logged that pods cannot get their addresses

	mu      sync.Mutex
	remotes map[string]*remoteNamespace // by local namespace
	states  map[key]podState
	refused map[key]refused
	// services are those that are to be at the provider, with what is wrong with them.
	services map[key]*workload.Refusal
	denied   map[string]*workload.Refusal // why there is no remote namespace, by local namespace
	held     time.Time                    // nothing is sent to the provider before
	tokens   map[types.UID]bool           // owners of pods, of which it was said that they have no token
}

// refused is the backoff of a pod that the provider refuses.
type refused struct {
	times int
	until time.Time // no attempt before
}

func newController(s *session, p Provider) *controller {
	var pc *controller
	pc = &controller{
		s: s, id: p.ID, node: p.Node, remote: p.Remote,
		done:    make(chan struct{}),
		index:   newIndex(func(pod *corev1.Pod) bool { return pc.refusal(pod, "") == nil }),
		remotes: make(map[string]*remoteNamespace),
		states:  make(map[key]podState),
		refused: make(map[key]refused), services: make(map[key]*workload.Refusal),
		denied: make(map[string]*workload.Refusal), tokens: make(map[types.UID]bool),
		pace: newPace(),
		bounds: &kube.Bounds{
			Objects: s.o.cfg.limits.objects, Bytes: s.o.cfg.limits.bytes, List: s.o.cfg.limits.list, Object: s.o.cfg.limits.object,
			Changed: func() { s.o.cfg.Exceeded(p.ID) },
		},
	}
	queues := work.Config[key]{Backoff: work.Backoff{First: retryFirst, Max: retryMax}, Observe: pc.attempted}
	pc.queue, pc.events = work.New(queues), work.New(queues)
	pc.provider.Store(&p)
	pc.expelled.Store(p.Expelled)
	pc.pods = kube.NewCache(kube.Kind[*corev1.Pod]{
		Fresh:   func() *corev1.Pod { return &corev1.Pod{} },
		Trim:    func(pod *corev1.Pod) { pod.ManagedFields = nil },
		Changed: pc.podChanged,
	})
	return pc
}

// run works until ctx ends.
func (pc *controller) run(ctx context.Context) {
	defer pc.s.release(pc, "")
	defer pc.running.Wait()
	pc.running.Go(func() {
		pc.pods.Follow(ctx, pc.s.local, kube.Query{Path: "/api/v1/pods", Fields: "spec.nodeName=" + pc.node})
	})
	select {
	case <-ctx.Done():
		return
	case <-pc.pods.Synced():
	}
	pc.enqueueAll()
	pc.running.Go(func() { pc.queue.Run(ctx, workers, pc.process) })
	pc.running.Go(func() { pc.events.Run(ctx, 1, pc.process) })
	<-ctx.Done()
}

// set takes over a new state of the provider.
func (pc *controller) set(p Provider) {
	before := *pc.provider.Load()
	if before == p {
		return
	}
	pc.provider.Store(&p)
	if same := p; before.Network.Alike(p.Network) {
		if same.Network = before.Network; same == before { // only pods at other providers came or went
			for _, rn := range pc.remoteNamespaces() {
				pc.enqueueServices(rn)
			}
			return
		}
	}
	if p.Expelled != before.Expelled {
		pc.expelled.Store(p.Expelled)
	}
	if p.Reachable && !before.Reachable {
		for _, rn := range pc.remoteNamespaces() {
			rn.renew()
		}
	}
	pc.queue.ForgetFailures()
	pc.events.ForgetFailures()
	pc.mu.Lock()
	clear(pc.refused)
	pc.mu.Unlock()
	pc.enqueueAll()
}

// enqueueAll enqueues everything.
func (pc *controller) enqueueAll() {
	for _, k := range pc.index.in("") {
		pc.queue.Add(k)
	}
	for _, ns := range pc.index.namespaces() {
		pc.queue.Add(key{kind: aNamespace, namespace: ns})
	}
	for _, ns := range pc.s.namespaces.All() {
		if pc.record(ns) != "" {
			pc.queue.Add(key{kind: aNamespace, namespace: ns.Name})
		}
	}
	for _, rn := range pc.remoteNamespaces() {
		pc.queue.Add(key{kind: aNamespace, namespace: rn.origin})
		pc.enqueueServices(rn)
		for _, remote := range rn.pods.All() {
			pc.queue.Add(key{aPod, rn.origin, remote.Name})
		}
	}
}

// podChanged handles a change of a local pod.
func (pc *controller) podChanged(before, after *corev1.Pod) {
	for _, ref := range pc.index.change(before, after) {
		pc.queue.Add(ref)
	}
	pod := after
	if pod == nil {
		pod = before
		pc.queue.Add(key{kind: aNamespace, namespace: pod.Namespace})
	}
	if before == nil && after != nil && pc.pods.HasSynced() {
		pc.remember(podKey(after), func(m *podState) {
			*m = m.about(after, nil)
			m.unsent = true
		})
	}
	pc.queue.Add(podKey(pod))
	if before == nil || after == nil || before.Status.Phase != after.Status.Phase || isRefused(before) != isRefused(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		pc.s.o.cfg.Changed(pc.id)
	}
}

// remoteChanged handles a change of a pod at the provider.
func (pc *controller) remoteChanged(origin string, before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	switch {
	case pc.queue.Len() < pc.s.o.cfg.limits.keys || pc.pods.Get(origin, pod.Name) != nil:
		pc.queue.Add(key{aPod, origin, pod.Name})
	default: // it invents names
		pc.queue.AddAfter(key{kind: strays, namespace: origin}, strayPause)
	}
	if after == nil || before != nil && !terminal(before) && terminal(after) {
		pc.tryRefused()
	}
}

// maxHold bounds how long a provider can make us wait.
const maxHold = time.Minute

// hold stops sending to the provider for a while, as it asked. Deletions there and local
// writes go on.
func (pc *controller) hold(pause time.Duration) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if until := pc.s.o.cfg.Now().Add(pause); until.After(pc.held) {
		pc.held = until
	}
}

// holds returns for how long nothing is to be sent.
func (pc *controller) holds() time.Duration {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return max(0, pc.held.Sub(pc.s.o.cfg.Now()))
}

// strayPause is the delay of strays while the queue is full.
const strayPause = 10 * time.Second

// reconcileStrays enqueues the pods of a provider's namespace that have no local pod.
func (pc *controller) reconcileStrays(origin string) {
	rn := pc.remoteNamespace(origin)
	if rn == nil {
		return
	}
	for _, remote := range rn.pods.All() {
		if pc.pods.Get(origin, remote.Name) == nil {
			pc.queue.Add(key{aPod, origin, remote.Name})
		}
	}
}

// tryRefused enqueues some of the refused pods: there may be room for a few.
func (pc *controller) tryRefused() {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	some := 0
	for k, r := range pc.refused {
		if some++; some > 4 {
			return
		}
		r.until = time.Time{}
		pc.refused[k] = r
		pc.queue.Add(k)
	}
}

// process reconciles what a key names.
func (pc *controller) process(ctx context.Context, k key) work.Outcome {
	outcome := work.Result(pc.reconcile(ctx, k))
	if k.kind == aNamespace {
		return outcome.AtMost(maxAsk)
	}
	return outcome
}

// attempted logs and counts a failed reconcile.
func (pc *controller) attempted(k key, a work.Attempt) {
	if a.Err == nil {
		return
	}
	pc.s.o.retries.Add(1)
	log := pc.s.o.cfg.Logger.Debug
	if a.Failures == patience {
		log = pc.s.o.cfg.Logger.Warn
	}
	log("offloading makes no progress; trying again", "cluster", pc.id, "what", k.kind, "namespace", k.namespace, "name", k.name,
		"in", a.Next.Round(time.Millisecond), "error", a.Err)
}

// reconcile reconciles what a key names, and returns after how long to do so again; 0: when
// something changes.
func (pc *controller) reconcile(ctx context.Context, k key) (again time.Duration, err error) {
	switch k.kind {
	case aPod:
		return pc.reconcilePod(ctx, k)
	case aNamespace:
		return pc.reconcileNamespace(ctx, k.namespace)
	case aSweep:
		return pc.sweep(ctx, k.namespace)
	case aService:
		return pc.reconcileService(ctx, k)
	case strays:
		pc.reconcileStrays(k.namespace)
		return 0, nil
	case anEvent:
		return pc.reconcileEvent(ctx, k)
	case aToken:
		return pc.reconcileTokens(ctx, k)
	default:
		return pc.reconcileReference(ctx, k)
	}
}

// remoteNamespace returns the provider's namespace for a local one; nil while it is not
// open.
func (pc *controller) remoteNamespace(origin string) *remoteNamespace {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.remotes[origin]
}

func (pc *controller) remoteNamespaces() []*remoteNamespace {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	var out []*remoteNamespace
	for _, rn := range pc.remotes {
		out = append(out, rn)
	}
	return out
}

// remember changes the state of a pod, and drops an empty state.
func (pc *controller) remember(k key, change func(*podState)) podState {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	m := pc.states[k]
	change(&m)
	pc.states[k] = m
	if m.local == "" && m.removing == "" {
		delete(pc.states, k)
	}
	return m
}

// count returns the counts of the node.
func (pc *controller) count() Counts {
	var c Counts
	for _, pod := range pc.pods.All() {
		c.Bound++
		switch pod.Status.Phase {
		case corev1.PodRunning:
			c.Running++
		case corev1.PodPending, "":
			c.Pending++
		}
		if isRefused(pod) {
			c.Refused++
		}
		if pod.DeletionTimestamp != nil {
			c.Ending++
		}
	}
	return c
}

// isRefused reports whether a pod's status says that it is not offloadable or refused.
func isRefused(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil {
			return w.Reason == workload.ReasonNotOffloadable || w.Reason == workload.ReasonRefusedByProvider
		}
	}
	return false
}

// find returns where a pod runs.
func (pc *controller) find(namespace, name string) (Place, bool) {
	local, rn := pc.pods.Get(namespace, name), pc.remoteNamespace(namespace)
	if local == nil || rn == nil {
		return Place{}, false
	}
	place := Place{ID: pc.id, Node: pc.node, Namespace: rn.name, Name: name}
	if !rn.known() {
		return place, ran(&local.Status)
	}
	remote := rn.pod(name)
	if remote == nil || !workload.IsCopy(local, remote) {
		return Place{}, false
	}
	place.UID = remote.UID
	return place, true
}

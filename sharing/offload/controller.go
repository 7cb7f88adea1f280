package offload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// workers is how many pods of one provider are worked on at the same time. Most of
// the time of each is spent waiting for an API server.
const workers = 8

// What is kept of one provider at most, whatever it says: pods and events in all of
// its namespaces together. Ours is a hundredth of that with a hundred pods.
const (
	maxKept   = 20_000
	maxTheirs = 32 << 20 // bytes of memory that these take
	maxListed = 64 << 20 // bytes of text of one list; no endpoint passes on more
	maxTold   = 4 << 20  // bytes of text of one object
	maxSwept  = 2000     // ConfigMaps and Secrets in one of its namespaces
	maxQueued = 20_000   // keys in a queue that it can fill by names of its own choice
)

const (
	// retryFirst and retryMax bound the pause before something that failed is tried
	// again; refusedFirst and refusedMax the one after the provider said no, when only a
	// change there can help, and that is mostly noticed by itself.
	retryFirst   = 100 * time.Millisecond
	retryMax     = 30 * time.Second
	refusedFirst = 2 * time.Second
	refusedMax   = 5 * time.Minute
	// patience is how often something fails until it is worth a line in the log.
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
	events   *work.Queue[key] // which must not keep pods waiting
	pace     pace             // of writing statuses
	running  sync.WaitGroup
	// expelled: the provider said last that it does not let this cluster in any more.
	expelled atomic.Bool

	mu      sync.Mutex
	remotes map[string]*remoteNamespace // by namespace here
	states  map[key]podState
	refused map[key]refused
	denied  map[string]*workload.Refusal // why there is no remote namespace, by namespace here
	held    time.Time                    // nothing is sent to the provider before
}

// refused is how a pod fares that the provider does not let in.
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
		refused: make(map[key]refused),
		denied:  make(map[string]*workload.Refusal),
		pace:    newPace(),
		bounds: &kube.Bounds{
			Objects: maxKept, Bytes: maxTheirs, List: maxListed, Object: maxTold,
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

// set takes in how the provider stands.
func (pc *controller) set(p Provider) {
	before := *pc.provider.Load()
	if before == p {
		return
	}
	pc.provider.Store(&p)
	if p.Expelled {
		pc.expelled.Store(true)
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

// enqueueAll has everything looked at.
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
		for _, remote := range rn.pods.All() {
			pc.queue.Add(key{aPod, rn.origin, remote.Name})
		}
	}
}

// podChanged takes in a change of a pod here.
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

// remoteChanged takes in a change of a pod at the provider.
func (pc *controller) remoteChanged(origin string, before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	switch {
	case pc.queue.Len() < maxQueued || pc.pods.Get(origin, pod.Name) != nil:
		pc.queue.Add(key{aPod, origin, pod.Name})
	default: // it makes up names
		pc.queue.AddAfter(key{kind: strays, namespace: origin}, strayPause)
	}
	if after == nil || before != nil && !terminal(before) && terminal(after) {
		pc.tryRefused()
	}
}

// maxHold bounds how long a provider can have us wait.
const maxHold = time.Minute

// hold has nothing sent to the provider for a while, as it asked for. What is deleted
// there, and what is done here, does not wait.
func (pc *controller) hold(pause time.Duration) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if until := pc.s.o.cfg.Now().Add(pause); until.After(pc.held) {
		pc.held = until
	}
}

// holds returns how long nothing is to be sent yet.
func (pc *controller) holds() time.Duration {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return max(0, pc.held.Sub(pc.s.o.cfg.Now()))
}

// strayPause is how long strays wait that are too many at a time.
const strayPause = 10 * time.Second

// reconcileStrays has the pods looked at that a namespace of the provider's has and ours
// has not.
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

// tryRefused has some of the refused pods tried again: there is room for a few.
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

// process looks at what a key names.
func (pc *controller) process(ctx context.Context, k key) work.Outcome {
	outcome := work.Result(pc.reconcile(ctx, k))
	if k.kind == aNamespace {
		return outcome.AtMost(maxAsk)
	}
	return outcome
}

// attempted takes in how that ended.
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

// reconcile looks at what a key names, and returns after how long it is to be looked at
// again; 0 for not before something changes.
func (pc *controller) reconcile(ctx context.Context, k key) (again time.Duration, err error) {
	switch k.kind {
	case aPod:
		return pc.reconcilePod(ctx, k)
	case aNamespace:
		return pc.reconcileNamespace(ctx, k.namespace)
	case aSweep:
		return 0, pc.sweep(ctx, k.namespace)
	case strays:
		pc.reconcileStrays(k.namespace)
		return 0, nil
	case anEvent:
		return pc.reconcileEvent(ctx, k)
	default:
		return pc.reconcileReference(ctx, k)
	}
}

// remoteNamespace returns what the provider has for a namespace of ours; nil while it is not
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

// remember changes the state of a pod. An empty one is forgotten.
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

// isRefused reports whether a pod shows that it is not to run at the provider.
func isRefused(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if w := pod.Status.ContainerStatuses[i].State.Waiting; w != nil {
			return w.Reason == workload.ReasonNotOffloadable || w.Reason == workload.ReasonRefusedByProvider
		}
	}
	return false
}

// find says where a pod runs.
func (pc *controller) find(namespace, name string) (Place, bool) {
	local, rn := pc.pods.Get(namespace, name), pc.remoteNamespace(namespace)
	if local == nil || rn == nil {
		return Place{}, false
	}
	place := Place{ID: pc.id, Node: pc.node, Remote: pc.remote, Namespace: rn.name, Name: name, Reachable: pc.provider.Load().Reachable}
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

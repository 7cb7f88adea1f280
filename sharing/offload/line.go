package offload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"liqo.io/agent/kube"
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

// patience is how often something fails until it is worth a line in the log.
const patience = 6

// line is the work for one provider while there is a connection to the local API
// server.
type line struct {
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
	queue    workqueue.TypedDelayingInterface[key]
	events   workqueue.TypedDelayingInterface[key] // which must not keep pods waiting
	retry    backoff
	pace     pace // of writing statuses
	running  sync.WaitGroup
	// expelled: the provider said last that it does not let this cluster in any more.
	expelled atomic.Bool

	mu      sync.Mutex
	spaces  map[string]*space // by namespace here
	memos   map[key]memo
	refused map[key]refused
	denied  map[string]*workload.Refusal // why there is no space, by namespace here
	held    time.Time                    // nothing is sent to the provider before
}

// refused is how a pod fares that the provider does not let in.
type refused struct {
	times int
	until time.Time // no attempt before
}

func newLine(s *session, p Provider) *line {
	var l *line
	l = &line{
		s: s, id: p.ID, node: p.Node, remote: p.Remote,
		done:    make(chan struct{}),
		index:   newIndex(func(pod *corev1.Pod) bool { return l.refusal(pod, "") == nil }),
		queue:   workqueue.NewTypedDelayingQueue[key](),
		events:  workqueue.NewTypedDelayingQueue[key](),
		spaces:  make(map[string]*space),
		memos:   make(map[key]memo),
		refused: make(map[key]refused),
		denied:  make(map[string]*workload.Refusal),
		pace:    newPace(),
		bounds: &kube.Bounds{
			Objects: maxKept, Bytes: maxTheirs, List: maxListed, Object: maxTold,
			Changed: func() { s.o.cfg.Exceeded(p.ID) },
		},
	}
	l.provider.Store(&p)
	l.pods = kube.NewCache(kube.Kind[*corev1.Pod]{
		Fresh:   func() *corev1.Pod { return &corev1.Pod{} },
		Trim:    func(pod *corev1.Pod) { pod.ManagedFields = nil },
		Changed: l.podChanged,
	})
	return l
}

// run works until ctx ends.
func (l *line) run(ctx context.Context) {
	defer l.s.release(l, "")
	defer l.running.Wait()
	defer l.events.ShutDown()
	defer l.queue.ShutDown()
	l.running.Go(func() {
		l.pods.Follow(ctx, l.s.local, kube.Query{Path: "/api/v1/pods", Fields: "spec.nodeName=" + l.node})
	})
	select {
	case <-ctx.Done():
		return
	case <-l.pods.Synced():
	}
	l.enqueueAll()
	for range workers {
		l.running.Go(func() { l.work(ctx, l.queue) })
	}
	l.running.Go(func() { l.work(ctx, l.events) })
	<-ctx.Done()
}

// set takes in how the provider stands.
func (l *line) set(p Provider) {
	before := *l.provider.Load()
	if before == p {
		return
	}
	l.provider.Store(&p)
	if p.Reachable && !before.Reachable {
		for _, sp := range l.allSpaces() {
			sp.renew()
		}
	}
	l.retry.reset()
	l.mu.Lock()
	clear(l.refused)
	l.mu.Unlock()
	l.enqueueAll()
}

// enqueueAll has everything looked at.
func (l *line) enqueueAll() {
	for _, k := range l.index.in("") {
		l.queue.Add(k)
	}
	for _, ns := range l.index.namespaces() {
		l.queue.Add(key{kind: aNamespace, namespace: ns})
	}
	for _, ns := range l.s.namespaces.All() {
		if l.record(ns) != "" {
			l.queue.Add(key{kind: aNamespace, namespace: ns.Name})
		}
	}
	for _, sp := range l.allSpaces() {
		l.queue.Add(key{kind: aNamespace, namespace: sp.origin})
		for _, theirs := range sp.pods.All() {
			l.queue.Add(key{aPod, sp.origin, theirs.Name})
		}
	}
}

// podChanged takes in a change of a pod here.
func (l *line) podChanged(before, after *corev1.Pod) {
	for _, ref := range l.index.change(before, after) {
		l.queue.Add(ref)
	}
	pod := after
	if pod == nil {
		pod = before
		l.queue.Add(key{kind: aNamespace, namespace: pod.Namespace})
	}
	l.queue.Add(podKey(pod))
	if before == nil || after == nil || before.Status.Phase != after.Status.Phase || isRefused(before) != isRefused(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		l.s.o.cfg.Changed(l.id)
	}
}

// remoteChanged takes in a change of a pod at the provider.
func (l *line) remoteChanged(origin string, before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	switch {
	case l.queue.Len() < maxQueued || l.pods.Get(origin, pod.Name) != nil:
		l.queue.Add(key{aPod, origin, pod.Name})
	default: // it makes up names
		l.queue.AddAfter(key{kind: strays, namespace: origin}, strayPause)
	}
	if after == nil || before != nil && !terminal(before) && terminal(after) {
		l.tryRefused()
	}
}

// maxHold bounds how long a provider can have us wait.
const maxHold = time.Minute

// hold has nothing sent to the provider for a while, as it asked for. What is deleted
// there, and what is done here, does not wait.
func (l *line) hold(pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := l.s.o.cfg.Now().Add(pause); until.After(l.held) {
		l.held = until
	}
}

// holds returns how long nothing is to be sent yet.
func (l *line) holds() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.held.Sub(l.s.o.cfg.Now()))
}

// strayPause is how long strays wait that are too many at a time.
const strayPause = 10 * time.Second

// lookAtStrays has the pods looked at that a namespace of the provider's has and ours
// has not.
func (l *line) lookAtStrays(origin string) {
	sp := l.space(origin)
	if sp == nil {
		return
	}
	for _, theirs := range sp.pods.All() {
		if l.pods.Get(origin, theirs.Name) == nil {
			l.queue.Add(key{aPod, origin, theirs.Name})
		}
	}
}

// tryRefused has some of the refused pods tried again: there is room for a few.
func (l *line) tryRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := 0
	for k, r := range l.refused {
		if some++; some > 4 {
			return
		}
		r.until = time.Time{}
		l.refused[k] = r
		l.queue.Add(k)
	}
}

func (l *line) work(ctx context.Context, queue workqueue.TypedDelayingInterface[key]) {
	for {
		k, down := queue.Get()
		if down {
			return
		}
		if ctx.Err() == nil {
			l.process(ctx, queue, k)
		}
		queue.Done(k)
	}
}

// process looks at what a key names and decides when to look again.
func (l *line) process(ctx context.Context, queue workqueue.TypedDelayingInterface[key], k key) {
	again, err := l.look(ctx, k)
	if err == nil {
		l.retry.forget(k)
		if again > 0 {
			queue.AddAfter(k, again)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	most := retryMax
	if k.kind == aNamespace {
		most = maxAsk
	}
	l.s.o.retries.Add(1)
	pause := max(l.retry.next(k, retryFirst, most), kube.Retry(err))
	log := l.s.o.cfg.Logger.Debug
	if l.retry.count(k) == patience {
		log = l.s.o.cfg.Logger.Warn
	}
	log("offloading does not get on, trying again", "cluster", l.id, "what", k.kind, "namespace", k.namespace, "name", k.name,
		"in", pause.Round(time.Millisecond), "error", err)
	queue.AddAfter(k, pause)
}

func (l *line) look(ctx context.Context, k key) (again time.Duration, err error) {
	switch k.kind {
	case aPod:
		return l.pod(ctx, k)
	case aNamespace:
		return l.tend(ctx, k.namespace)
	case aSweep:
		return 0, l.sweep(ctx, k.namespace)
	case strays:
		l.lookAtStrays(k.namespace)
		return 0, nil
	case anEvent:
		return l.event(ctx, k)
	default:
		return l.reference(ctx, k)
	}
}

// space returns what the provider has for a namespace of ours; nil while it is not
// open.
func (l *line) space(origin string) *space {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spaces[origin]
}

func (l *line) allSpaces() []*space {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*space
	for _, sp := range l.spaces {
		out = append(out, sp)
	}
	return out
}

// remember changes the memo of a pod. An empty one is forgotten.
func (l *line) remember(k key, change func(*memo)) memo {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memos[k]
	change(&m)
	l.memos[k] = m
	if m.mine == "" && m.removing == "" {
		delete(l.memos, k)
	}
	return m
}

// count returns the counts of the node.
func (l *line) count() Counts {
	var c Counts
	for _, pod := range l.pods.All() {
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
func (l *line) find(namespace, name string) (Place, bool) {
	mine, sp := l.pods.Get(namespace, name), l.space(namespace)
	if mine == nil || sp == nil {
		return Place{}, false
	}
	place := Place{ID: l.id, Node: l.node, Remote: l.remote, Namespace: sp.name, Name: name, Reachable: l.provider.Load().Reachable}
	if !sp.known() {
		return place, ran(&mine.Status)
	}
	theirs := sp.pod(name)
	if theirs == nil || !workload.IsCopy(mine, theirs) {
		return Place{}, false
	}
	place.UID = theirs.UID
	return place, true
}

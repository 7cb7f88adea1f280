package offload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
	"liqo.io/agent/throttle"
)

const (
	// keepNamespace is how long a remote namespace without pods is kept.
	keepNamespace = time.Minute
	// trustNamespace is how long the provider's answer about a namespace is not doubted.
	trustNamespace = 2 * time.Second
	// maxAsk bounds the backoff after the provider gave no namespace.
	maxAsk = 5 * time.Second
)

// A record is the annotation of a local namespace that names the remote one. It is written
// before the first pod is sent, and removed after the remote namespace was released, so an
// agent that was killed forgets nothing there.

func isRecord(annotation string) bool {
	return strings.HasPrefix(annotation, workload.AnnotationPlacePrefix)
}

// record returns the recorded remote namespace of a local one, "" for none.
func (pc *controller) record(ns *metadata) string {
	if ns == nil {
		return ""
	}
	return ns.Annotations[workload.AnnotationPlacePrefix+string(pc.id)]
}

// remoteNamespace is a provider's namespace for a local one.
type remoteNamespace struct {
	origin, name string
	client       *kube.Client
	pods         *kube.Cache[*workload.Copy]
	events       *kube.Cache[*workload.EventCopy] // that were not repeated yet
	stop         context.CancelFunc
	opened       time.Time
	writes       atomic.Uint64 // of copies

	mu      sync.Mutex
	busy    int       // pods being created
	leaving bool      // it is being released
	doubted bool      // it may be gone, or no longer ours
	stale   bool      // it is to be listed again
	idle    time.Time // since when no local pod needs it
	copies  map[key]*copied
	posted  map[string]*posted // pods with events
}

// known reports whether its pods were listed completely.
func (rn *remoteNamespace) known() bool { return rn.pods.HasSynced() }

// enter begins the creation of a pod, which keeps the namespace until leave. It returns
// false if the namespace is being released.
func (rn *remoteNamespace) enter() bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.leaving {
		return false
	}
	rn.busy++
	return true
}

func (rn *remoteNamespace) leave() {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.busy--
}

// doubt makes the controller ask the provider for the namespace again.
func (pc *controller) doubt(rn *remoteNamespace) {
	rn.mu.Lock()
	rn.doubted = true
	rn.mu.Unlock()
	pc.queue.Add(key{kind: aNamespace, namespace: rn.origin})
}

// renew makes the next reconcile list the remote namespace again: a reflector that was cut
// off retries with a backoff.
func (rn *remoteNamespace) renew() {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.stale = true
}

func (rn *remoteNamespace) isStale() bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return rn.stale
}

// namespaceChanged handles a change of a local namespace.
func (pc *controller) namespaceChanged(before, after *metadata) {
	ns := after
	if ns == nil {
		ns = before
	}
	rn := pc.remoteNamespace(ns.Name)
	if rn != nil || pc.record(ns) != "" {
		pc.queue.Add(key{kind: aNamespace, namespace: ns.Name})
	}
	if rn != nil && (before == nil || after == nil || before.Labels[workload.LabelEnabled] != after.Labels[workload.LabelEnabled]) {
		pc.enqueueServices(rn)
	}
	if before == nil || after == nil || mayHaveTokens(before) != mayHaveTokens(after) {
		pc.tokensChanged(ns.Name)
	}
}

// reconcileNamespace opens the remote namespace of a local one that has pods for it, and
// releases it when there are none.
func (pc *controller) reconcileNamespace(ctx context.Context, origin string) (again time.Duration, err error) {
	p := pc.provider.Load()
	if p.Gone || !p.Reachable {
		return 0, nil // enqueued again when that changes
	}
	rn, local := pc.remoteNamespace(origin), pc.s.namespaces.Get("", origin)
	if rn != nil && rn.isStale() {
		pc.shut(rn)
		if err := pc.open(ctx, origin, rn.name); err != nil {
			return 0, err
		}
		rn = pc.remoteNamespace(origin)
	}
	record, needed := pc.record(local), pc.index.needs(origin)
	switch {
	case rn == nil && needed:
		return 0, pc.claim(ctx, origin, record, nil)
	case rn == nil && record != "":
		return keepNamespace, pc.open(ctx, origin, record)
	case rn == nil:
		pc.deny(origin, nil) // the next pod asks anew
		return 0, nil
	case needed:
		rn.mu.Lock()
		rn.idle = time.Time{}
		doubted := rn.doubted
		rn.mu.Unlock()
		if !doubted {
			return 0, nil
		}
		if rest := trustNamespace - pc.s.o.cfg.Now().Sub(rn.opened); rest > 0 {
			return rest, nil
		}
		return 0, pc.claim(ctx, origin, record, rn)
	}
	return pc.giveBack(ctx, rn, local)
}

// claim asks the provider for its namespace, and opens it in place of a doubted one, if any.
func (pc *controller) claim(ctx context.Context, origin, record string, old *remoteNamespace) error {
	name, err := pc.remote.Namespace(ctx, origin)
	if err != nil {
		pc.expelled.Store(expels(err))
		err = fmt.Errorf("ask %s for a namespace for %s: %w", pc.id, origin, err)
		pc.deny(origin, err)
		return err
	}
	pc.expelled.Store(false)
	pc.deny(origin, nil)
	if name == "" || strings.ContainsAny(name, "/?#%") {
		return fmt.Errorf("%s answered with the invalid namespace name %q for %s", pc.id, name, origin)
	}
	if name != record {
		if err := pc.writeRecord(ctx, origin, &name); err != nil {
			return err
		}
	}
	if old != nil {
		// It may be a new one of the same name, without anything that we sent.
		pc.shut(old)
	}
	return pc.open(ctx, origin, name)
}

// expels reports whether an error says that the provider no longer admits this cluster, so
// nothing of ours is left there.
func expels(err error) bool {
	var said interface{ NotAdmitted() bool }
	return errors.As(err, &said) && said.NotAdmitted()
}

// deny makes the pods of a namespace show why the provider gives no namespace; nil: it does.
// The first failures are not shown: a namespace that is being deleted is there again some
// seconds later.
func (pc *controller) deny(origin string, err error) {
	var why *workload.Refusal
	if err != nil {
		if pc.queue.Failures(key{kind: aNamespace, namespace: origin}) < patience {
			return
		}
		why = &workload.Refusal{Reason: workload.ReasonRefusedByProvider, Message: "The provider gives no namespace to the pod: " + words(err)}
	}
	if expels(err) {
		for _, k := range pc.index.in(origin) {
			pc.queue.Add(k)
		}
	}
	pc.mu.Lock()
	before := pc.denied[origin]
	pc.denied[origin] = why
	if why == nil {
		delete(pc.denied, origin)
	}
	pc.mu.Unlock()
	if (before == nil) != (why == nil) {
		for _, k := range pc.index.in(origin) {
			pc.queue.Add(k)
		}
	}
}

// writeRecord records the remote namespace of a local one; nil removes the record.
func (pc *controller) writeRecord(ctx context.Context, origin string, name *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{workload.AnnotationPlacePrefix + string(pc.id): name}}})
	if err != nil {
		return err
	}
	return pc.s.local.Patch(ctx, "/api/v1/namespaces/"+origin, manager, types.MergePatchType, patch, nil)
}

// dropRecords removes the records of a provider that is forgotten.
func (pc *controller) dropRecords(ctx context.Context) {
	for _, ns := range pc.s.namespaces.All() {
		if pc.record(ns) == "" || pc.index.needs(ns.Name) || pc.s.o.cfg.Holds(pc.id, ns.Name) {
			continue
		}
		if err := pc.writeRecord(ctx, ns.Name, nil); err != nil && ctx.Err() == nil {
			pc.s.o.cfg.Logger.Debug("a namespace still refers to a forgotten provider", "namespace", ns.Name, "cluster", pc.id, "error", err)
		}
	}
}

// open starts the caches of a remote namespace.
func (pc *controller) open(ctx context.Context, origin, name string) error {
	rn := &remoteNamespace{origin: origin, name: name, opened: pc.s.o.cfg.Now(), copies: make(map[key]*copied), posted: make(map[string]*posted)}
	client, err := kube.New(&rest.Config{Host: "https://provider", Transport: &gate{next: pc.remote, denied: func() { pc.doubt(rn) }, later: pc.hold}})
	if err != nil {
		return err
	}
	rn.client = client
	rn.pods = kube.NewCache(kube.Kind[*workload.Copy]{
		Fresh:   func() *workload.Copy { return &workload.Copy{} },
		Bounds:  pc.bounds,
		Changed: func(before, after *workload.Copy) { pc.remoteChanged(origin, podOf(before), podOf(after)) },
	})
	rn.events = kube.NewCache(kube.Kind[*workload.EventCopy]{
		Fresh:  func() *workload.EventCopy { return &workload.EventCopy{} },
		Bounds: pc.bounds,
		Keep: func(e *workload.EventCopy) bool {
			return e.InvolvedObject.Kind == "Pod" && pc.pods.Get(origin, e.InvolvedObject.Name) != nil
		},
		Changed: func(_, after *workload.EventCopy) {
			if after != nil && pc.events.Len() < pc.s.o.cfg.limits.keys {
				pc.events.Add(key{anEvent, origin, after.Name})
			}
		},
	})
	path := "/api/v1/namespaces/" + name
	ctx, rn.stop = context.WithCancel(ctx)
	pc.mu.Lock()
	pc.remotes[origin] = rn
	pc.mu.Unlock()
	pc.running.Go(func() { rn.pods.Follow(ctx, client, kube.Query{Path: path + "/pods"}) })
	pc.running.Go(func() { rn.events.Follow(ctx, client, kube.Query{Path: path + "/events"}) })
	pc.running.Go(func() {
		select {
		case <-ctx.Done():
		case <-rn.pods.Synced():
			for _, k := range pc.index.in(origin) {
				pc.queue.Add(k)
			}
			// Of a pod that was looked at before all were listed, it was not known yet that it has no local one.
			pc.queue.Add(key{kind: strays, namespace: origin})
			pc.queue.Add(key{kind: aSweep, namespace: origin})
			for _, what := range []kind{aService, aSlice} {
				pc.s.bundle(pc, key{kind: what, namespace: origin})
			}
			pc.enqueueServices(rn)
			pc.queue.Add(key{kind: aNamespace, namespace: origin})
		}
	})
	return nil
}

// pod returns a pod of the remote namespace by name, nil for none.
func (rn *remoteNamespace) pod(name string) *corev1.Pod { return podOf(rn.pods.Get(rn.name, name)) }

func podOf(c *workload.Copy) *corev1.Pod {
	if c == nil {
		return nil
	}
	return &c.Pod
}

// shut stops the caches of a remote namespace.
func (pc *controller) shut(rn *remoteNamespace) {
	rn.stop()
	pc.mu.Lock()
	delete(pc.remotes, rn.origin)
	maps.DeleteFunc(pc.services, func(ref key, _ *workload.Refusal) bool { return ref.namespace == rn.origin })
	// Nobody says any more of pods without a local one that they are gone.
	maps.DeleteFunc(pc.states, func(k key, m podState) bool { return k.namespace == rn.origin && m.local == "" })
	pc.mu.Unlock()
	pc.s.release(pc, rn.origin)
}

// giveBack releases a remote namespace that no local pod has needed for keepNamespace, or at
// once if the local namespace is gone. One with claims stays.
func (pc *controller) giveBack(ctx context.Context, rn *remoteNamespace, local *metadata) (again time.Duration, err error) {
	if pc.s.o.cfg.Holds(pc.id, rn.origin) {
		return keepNamespace, nil
	}
	now := pc.s.o.cfg.Now()
	rn.mu.Lock()
	if rn.idle.IsZero() {
		rn.idle = now
	}
	rest := keepNamespace - now.Sub(rn.idle)
	if local == nil || local.DeletionTimestamp != nil {
		rest = 0
	}
	busy := rn.busy > 0
	rn.leaving = rest <= 0 && !busy
	rn.mu.Unlock()
	switch {
	case rest > 0:
		return rest, nil
	case busy:
		return time.Second, nil
	}
	stay := func() {
		rn.mu.Lock()
		defer rn.mu.Unlock()
		rn.leaving = false
	}
	// From here on no pod is created in it. One that came just before keeps it.
	if pc.index.needs(rn.origin) {
		stay()
		return time.Nanosecond, nil
	}
	if err := pc.remote.Release(ctx, rn.origin); err != nil {
		stay()
		return 0, fmt.Errorf("give namespace %s back to %s: %w", rn.name, pc.id, err)
	}
	pc.shut(rn)
	if pc.record(local) != "" {
		if err := pc.writeRecord(ctx, rn.origin, nil); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	if pc.index.needs(rn.origin) {
		return time.Nanosecond, nil
	}
	return 0, nil
}

// gate watches the answers of the provider.
type gate struct {
	next   http.RoundTripper
	denied func()              // pods may not be listed, or not yet
	later  func(time.Duration) // the provider asks to send nothing for that long
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := g.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") &&
		(answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusServiceUnavailable) {
		g.denied()
	}
	if err == nil && answer.StatusCode == http.StatusTooManyRequests && (r.Method == http.MethodPost || r.Method == http.MethodPatch) {
		if wait := throttle.RetryAfter(answer.Header.Get("Retry-After")); wait > 0 {
			g.later(min(wait, maxHold))
		}
	}
	return answer, err
}

package offload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
)

const (
	// keepSpace is how long a provider's namespace is kept without pods in it.
	keepSpace = time.Minute
	// trustSpace is how long a provider is not asked again for a namespace that it
	// has just named.
	trustSpace = 2 * time.Second
	// maxAsk bounds the pause before it is asked again after it gave none.
	maxAsk = 5 * time.Second
)

// recordPrefix is that of the annotations of namespaces here which say where their
// pods are: "offload.liqo.io/<provider's ID>: <the namespace there>". One is written
// before the first pod is sent there, and taken away after the provider's namespace
// was given back, so that nothing is forgotten there by an agent that was killed.
const recordPrefix = "offload.liqo.io/"

func isRecord(annotation string) bool { return strings.HasPrefix(annotation, recordPrefix) }

// record returns the provider's namespace for one of ours that was recorded.
func (l *line) record(ns *metadata) string {
	if ns == nil {
		return ""
	}
	return ns.Annotations[recordPrefix+string(l.id)]
}

// space is a provider's namespace that stands for one of ours.
type space struct {
	origin, name string
	client       *kube.Client
	pods         *kube.Cache[*workload.Copy]
	events       *kube.Cache[*workload.EventCopy] // that were not repeated here yet
	stop         context.CancelFunc
	opened       time.Time

	mu      sync.Mutex
	busy    int       // pods being created
	leaving bool      // it is being given back
	doubted bool      // it may not be there, or not ours, any more
	stale   bool      // it is to be listed afresh
	idle    time.Time // since when nothing here needs it
	copies  map[key]*copied
	posted  map[string]*posted // pods with events
}

// known reports whether the list of its pods was complete once.
func (sp *space) known() bool {
	select {
	case <-sp.pods.Synced():
		return true
	default:
		return false
	}
}

// enter begins the creation of a pod, which keeps the space until leave. It is
// false when the space is being given back.
func (sp *space) enter() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.leaving {
		return false
	}
	sp.busy++
	return true
}

func (sp *space) leave() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.busy--
}

// doubt has the provider asked for the space again.
func (l *line) doubt(sp *space) {
	sp.mu.Lock()
	sp.doubted = true
	sp.mu.Unlock()
	l.queue.Add(key{kind: aNamespace, namespace: sp.origin})
}

// renew has the pods of a space listed afresh at once: a reflector that was cut off
// tries again only now and then.
func (sp *space) renew() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.stale = true
}

func (sp *space) isStale() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.stale
}

// namespaceChanged takes in a change of a namespace here.
func (l *line) namespaceChanged(before, after *metadata) {
	ns := after
	if ns == nil {
		ns = before
	}
	if l.space(ns.Name) != nil || l.record(ns) != "" {
		l.queue.Add(key{kind: aNamespace, namespace: ns.Name})
	}
}

// tend opens the provider's namespace for one of ours when there are pods for it,
// and gives it back when there are none.
func (l *line) tend(ctx context.Context, origin string) (again time.Duration, err error) {
	p := l.provider.Load()
	if p.Gone || !p.Reachable {
		return 0, nil // it is looked at again when that changes
	}
	sp, local := l.space(origin), l.s.namespaces.Get("", origin)
	if sp != nil && sp.isStale() {
		l.shut(sp)
		if err := l.open(ctx, origin, sp.name); err != nil {
			return 0, err
		}
		sp = l.space(origin)
	}
	record, needed := l.record(local), l.index.needs(origin)
	switch {
	case sp == nil && needed:
		return 0, l.claim(ctx, origin, record, nil)
	case sp == nil && record != "":
		return keepSpace, l.open(ctx, origin, record)
	case sp == nil:
		return 0, nil
	case needed:
		sp.mu.Lock()
		sp.idle = time.Time{}
		doubted := sp.doubted
		sp.mu.Unlock()
		if !doubted {
			return 0, nil
		}
		if rest := trustSpace - l.s.o.cfg.Now().Sub(sp.opened); rest > 0 {
			return rest, nil
		}
		return 0, l.claim(ctx, origin, record, sp)
	}
	return l.giveBack(ctx, sp, local)
}

// claim asks the provider for its namespace and opens it, in place of one that is
// doubted, if any.
func (l *line) claim(ctx context.Context, origin, record string, old *space) error {
	name, err := l.remote.Namespace(ctx, origin)
	if err != nil {
		l.expelled.Store(expels(err))
		err = fmt.Errorf("ask %s for a namespace for %s: %w", l.id, origin, err)
		l.deny(origin, err)
		return err
	}
	l.expelled.Store(false)
	l.deny(origin, nil)
	if name == "" || strings.ContainsAny(name, "/?#%") {
		return fmt.Errorf("%s names %q as its namespace for %s", l.id, name, origin)
	}
	if name != record {
		if err := l.writeRecord(ctx, origin, &name); err != nil {
			return err
		}
	}
	if old != nil {
		// It may be another one of the same name, without anything that we sent.
		l.shut(old)
	}
	return l.open(ctx, origin, name)
}

// expels reports whether an error says that the provider does not let this cluster in
// any more, and so that it has taken back what there was.
func expels(err error) bool {
	var said interface{ NotAdmitted() bool }
	return errors.As(err, &said) && said.NotAdmitted()
}

// deny has the pods of a namespace show why the provider has no place for them; nil:
// it has. Some failures are not worth that: one that is just going is there again
// some seconds later.
func (l *line) deny(origin string, err error) {
	var why *workload.Refusal
	if err != nil {
		if l.retry.count(key{kind: aNamespace, namespace: origin}) < patience {
			return
		}
		why = &workload.Refusal{Reason: workload.ReasonRefusedByProvider, Message: "The provider gives no namespace to the pod: " + words(err)}
	}
	if expels(err) {
		for _, k := range l.index.in(origin) {
			l.queue.Add(k)
		}
	}
	l.mu.Lock()
	before := l.denied[origin]
	l.denied[origin] = why
	if why == nil {
		delete(l.denied, origin)
	}
	l.mu.Unlock()
	if (before == nil) != (why == nil) {
		for _, k := range l.index.in(origin) {
			l.queue.Add(k)
		}
	}
}

// writeRecord notes where the pods of a namespace here are; nil: nowhere.
func (l *line) writeRecord(ctx context.Context, origin string, name *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{recordPrefix + string(l.id): name}}})
	if err != nil {
		return err
	}
	return l.s.local.Patch(ctx, "/api/v1/namespaces/"+origin, manager, types.MergePatchType, patch, nil)
}

// dropRecords takes the records of a provider away that is forgotten.
func (l *line) dropRecords(ctx context.Context) {
	for _, ns := range l.s.namespaces.All() {
		if l.record(ns) == "" || l.index.needs(ns.Name) {
			continue
		}
		if err := l.writeRecord(ctx, ns.Name, nil); err != nil && ctx.Err() == nil {
			l.s.o.cfg.Logger.Debug("a namespace still names a provider that is forgotten", "namespace", ns.Name, "cluster", l.id, "error", err)
		}
	}
}

// open begins to follow a namespace of the provider.
func (l *line) open(ctx context.Context, origin, name string) error {
	sp := &space{origin: origin, name: name, opened: l.s.o.cfg.Now(), copies: make(map[key]*copied), posted: make(map[string]*posted)}
	client, err := kube.New(&rest.Config{Host: "https://provider", Transport: &gate{next: l.remote, denied: func() { l.doubt(sp) }, later: l.hold}})
	if err != nil {
		return err
	}
	sp.client = client
	sp.pods = kube.NewCache(kube.Kind[*workload.Copy]{
		Fresh:   func() *workload.Copy { return &workload.Copy{} },
		Bounds:  l.bounds,
		Changed: func(before, after *workload.Copy) { l.remoteChanged(origin, podOf(before), podOf(after)) },
	})
	sp.events = kube.NewCache(kube.Kind[*workload.EventCopy]{
		Fresh:  func() *workload.EventCopy { return &workload.EventCopy{} },
		Bounds: l.bounds,
		Keep: func(e *workload.EventCopy) bool {
			return e.InvolvedObject.Kind == "Pod" && l.pods.Get(origin, e.InvolvedObject.Name) != nil
		},
		Changed: func(_, after *workload.EventCopy) {
			if after != nil && l.events.Len() < maxQueued {
				l.events.Add(key{anEvent, origin, after.Name})
			}
		},
	})
	path := "/api/v1/namespaces/" + name
	ctx, sp.stop = context.WithCancel(ctx)
	l.mu.Lock()
	l.spaces[origin] = sp
	l.mu.Unlock()
	l.running.Go(func() { sp.pods.Follow(ctx, client, kube.Query{Path: path + "/pods"}) })
	l.running.Go(func() { sp.events.Follow(ctx, client, kube.Query{Path: path + "/events"}) })
	l.running.Go(func() {
		select {
		case <-ctx.Done():
		case <-sp.pods.Synced():
			for _, k := range l.index.in(origin) {
				l.queue.Add(k)
			}
			l.queue.Add(key{kind: aSweep, namespace: origin})
			l.queue.Add(key{kind: aNamespace, namespace: origin})
		}
	})
	return nil
}

// pod returns a pod of the space, nil when there is none of that name.
func (sp *space) pod(name string) *corev1.Pod { return podOf(sp.pods.Get(sp.name, name)) }

func podOf(c *workload.Copy) *corev1.Pod {
	if c == nil {
		return nil
	}
	return &c.Pod
}

// shut ends following a namespace.
func (l *line) shut(sp *space) {
	sp.stop()
	l.mu.Lock()
	delete(l.spaces, sp.origin)
	l.mu.Unlock()
	l.s.release(l, sp.origin)
}

// giveBack gives a namespace back to the provider once nothing here has needed it
// for a while, or at once when ours does not exist any more.
func (l *line) giveBack(ctx context.Context, sp *space, local *metadata) (again time.Duration, err error) {
	now := l.s.o.cfg.Now()
	sp.mu.Lock()
	if sp.idle.IsZero() {
		sp.idle = now
	}
	rest := keepSpace - now.Sub(sp.idle)
	if local == nil || local.DeletionTimestamp != nil {
		rest = 0
	}
	busy := sp.busy > 0
	sp.leaving = rest <= 0 && !busy
	sp.mu.Unlock()
	switch {
	case rest > 0:
		return rest, nil
	case busy:
		return time.Second, nil
	}
	stay := func() {
		sp.mu.Lock()
		defer sp.mu.Unlock()
		sp.leaving = false
	}
	// From here on no pod is created in it; one that came just before counts.
	if l.index.needs(sp.origin) {
		stay()
		return time.Nanosecond, nil
	}
	if err := l.remote.Release(ctx, sp.origin); err != nil {
		stay()
		return 0, fmt.Errorf("give namespace %s back to %s: %w", sp.name, l.id, err)
	}
	l.shut(sp)
	if l.record(local) != "" {
		if err := l.writeRecord(ctx, sp.origin, nil); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	if l.index.needs(sp.origin) {
		return time.Nanosecond, nil
	}
	return 0, nil
}

// gate watches what the provider answers.
type gate struct {
	next   http.RoundTripper
	denied func()              // pods are not to be listed
	later  func(time.Duration) // nothing is to be sent before
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := g.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") &&
		(answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusNotFound) {
		g.denied()
	}
	if err == nil && answer.StatusCode == http.StatusTooManyRequests && (r.Method == http.MethodPost || r.Method == http.MethodPatch) {
		if n, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && n > 0 {
			g.later(min(time.Duration(min(n, math.MaxInt32))*time.Second, maxHold))
		}
	}
	return answer, err
}

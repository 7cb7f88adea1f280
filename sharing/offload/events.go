package offload

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/sharing/workload"
)

// maxEvents is how many events about one pod are repeated here in a minute.
const maxEvents = 20

// posted is what was repeated of the events about one pod.
type posted struct {
	since time.Time
	count int // since then
	names map[string]int32
}

// event repeats an event of the provider here.
func (l *line) event(ctx context.Context, k key) (again time.Duration, err error) {
	sp := l.space(k.namespace)
	if sp == nil {
		return 0, nil
	}
	theirs := sp.events.Get(sp.name, k.name)
	if theirs == nil {
		return 0, nil
	}
	name := theirs.InvolvedObject.Name
	mine := l.pods.Get(k.namespace, name)
	if mine == nil {
		sp.forget(name)
		sp.events.Forget(theirs)
		return 0, nil
	}
	l.mu.Lock()
	made := l.memos[key{aPod, k.namespace, name}]
	l.mu.Unlock()
	if made.mine != mine.UID || made.made != theirs.InvolvedObject.UID || made.made == "" {
		return 0, nil // about another pod of that name, or looked at again with the pod
	}
	now := l.s.o.cfg.Now()
	if wait := l.pace.events.Wait(struct{}{}, now); wait > 0 {
		return wait, nil
	}
	out, ok := workload.Event(&theirs.Event, mine)
	if !ok || !sp.post(name, out, now) {
		sp.events.Forget(theirs)
		return 0, nil
	}
	l.pace.events.Owe(struct{}{}, 1, now)
	err = l.s.local.Apply(ctx, "/api/v1/namespaces/"+out.Namespace+"/events/"+out.Name, manager, true, out, nil)
	if err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		sp.events.Forget(theirs)
		return 0, nil // forbidden: the namespace is going
	}
	sp.unpost(name, out)
	return 0, err
}

// eventsOf has the events about a pod looked at again, which came before it was
// known whose they are.
func (l *line) eventsOf(sp *space, theirs *corev1.Pod) {
	for _, e := range sp.events.All() {
		if e.InvolvedObject.UID == theirs.UID {
			l.events.Add(key{anEvent, sp.origin, e.Name})
		}
	}
}

// post reports whether an event about a pod is to be written, and notes that it is.
func (sp *space) post(pod string, e *corev1.Event, now time.Time) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	p := sp.posted[pod]
	if p == nil {
		p = &posted{since: now, names: make(map[string]int32)}
		sp.posted[pod] = p
	}
	if count, there := p.names[e.Name]; there && count == e.Count {
		return false
	}
	if now.Sub(p.since) >= time.Minute {
		p.since, p.count = now, 0
	}
	if p.count >= maxEvents {
		return false
	}
	if len(p.names) >= 10*maxEvents {
		clear(p.names)
	}
	p.count++
	p.names[e.Name] = e.Count
	return true
}

// unpost takes back that an event was written.
func (sp *space) unpost(pod string, e *corev1.Event) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if p := sp.posted[pod]; p != nil {
		delete(p.names, e.Name)
	}
}

// forget forgets what was repeated about a pod.
func (sp *space) forget(pod string) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	delete(sp.posted, pod)
}

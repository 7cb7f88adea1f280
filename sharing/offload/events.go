package offload

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/sharing/workload"
)

// maxEvents is how many events about one pod are repeated in a minute. A kubelet says 25 things about a pod at once, and then one in
// five minutes (client-go's EventSourceObjectSpamFilter): what it said only once must not be what is left out.
const maxEvents = 30

// posted are the repeated events about one pod.
type posted struct {
	since time.Time
	count int // since then
	names map[string]int32
}

// reconcileEvent repeats an event of the provider in the local cluster.
func (pc *controller) reconcileEvent(ctx context.Context, k key) (again time.Duration, err error) {
	rn := pc.remoteNamespace(k.namespace)
	if rn == nil {
		return 0, nil
	}
	remote := rn.events.Get(rn.name, k.name)
	if remote == nil {
		return 0, nil
	}
	name := remote.InvolvedObject.Name
	local := pc.pods.Get(k.namespace, name)
	if local == nil {
		rn.forget(name)
		rn.events.Forget(remote)
		return 0, nil
	}
	pc.mu.Lock()
	made := pc.states[key{aPod, k.namespace, name}]
	pc.mu.Unlock()
	if made.local != local.UID || made.made != remote.InvolvedObject.UID || made.made == "" {
		return 0, nil // about an earlier pod of that name, or enqueued again with the pod
	}
	now := pc.s.o.cfg.Now()
	if wait := pc.pace.events.Wait(struct{}{}, now); wait > 0 {
		return wait, nil
	}
	in := workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: rn.name, Node: pc.node, Network: pc.provider.Load().Network, Claim: pc.claimNames()}
	out, ok := workload.Event(&remote.Event, local, rn.pod(name), in)
	if !ok || !rn.post(name, out, now) {
		rn.events.Forget(remote)
		return 0, nil
	}
	pc.pace.events.Owe(struct{}{}, 1, now)
	err = pc.s.local.Apply(ctx, "/api/v1/namespaces/"+out.Namespace+"/events/"+out.Name, manager, true, out, nil)
	if err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		rn.events.Forget(remote)
		return 0, nil // forbidden: the namespace is being deleted
	}
	rn.unpost(name, out)
	return 0, err
}

// eventsOf enqueues the events about a copy that arrived before the copy was known.
func (pc *controller) eventsOf(rn *remoteNamespace, remote *corev1.Pod) {
	for _, e := range rn.events.All() {
		if e.InvolvedObject.UID == remote.UID {
			pc.events.Add(key{anEvent, rn.origin, e.Name})
		}
	}
}

// post reports whether to write an event about a pod, and notes it as written.
func (rn *remoteNamespace) post(pod string, e *corev1.Event, now time.Time) bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	p := rn.posted[pod]
	if p == nil {
		p = &posted{since: now, names: make(map[string]int32)}
		rn.posted[pod] = p
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

// unpost undoes post after a failed write.
func (rn *remoteNamespace) unpost(pod string, e *corev1.Event) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if p := rn.posted[pod]; p != nil {
		delete(p.names, e.Name)
		p.count--
	}
}

// forget drops the memory of repeated events about a pod.
func (rn *remoteNamespace) forget(pod string) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	delete(rn.posted, pod)
}

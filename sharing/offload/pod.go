package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/sharing/workload"
)

const (
	// manager is the field manager of all writes, local and at providers.
	manager = "liqo-agent-offload"
	// unseen is after how long a created copy that is not in the list of the provider's pods
	// is read by name.
	unseen = 15 * time.Second
	// feedEvery is how often ConfigMaps and Secrets are sent again for a copy that lacks
	// them.
	feedEvery = 30 * time.Second
)

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// reconcilePod reconciles one pod.
func (pc *controller) reconcilePod(ctx context.Context, k key) (again time.Duration, err error) {
	v, rn := pc.observe(k)
	if c := v.copy(); c != nil && starved(c) {
		pc.feed(k, v, rn)
	}
	pc.enqueueTokens(k, v, rn)
	return pc.act(ctx, k, v, rn, plan(v))
}

// starved reports whether a copy cannot start because a ConfigMap or Secret is missing at
// the provider.
func starved(remote *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{remote.Status.InitContainerStatuses, remote.Status.ContainerStatuses, remote.Status.EphemeralContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
				return true
			}
		}
	}
	return false
}

// feed sends the references of a pod again: somebody removed them at the provider.
func (pc *controller) feed(k key, v view, rn *remoteNamespace) {
	fed := false
	pc.remember(k, func(m *podState) {
		if fed = v.now.Sub(m.fed) >= feedEvery; fed {
			m.fed = v.now
		}
	})
	if !fed || !v.asked() {
		return
	}
	for ref := range references(v.local) {
		c := rn.hold(ref)
		c.version = ""
		rn.letGo(ref, c)
		pc.queue.Add(ref)
	}
	pc.resendTokens(k, rn)
}

// observe collects what is known about a pod.
func (pc *controller) observe(k key) (view, *remoteNamespace) {
	p, rn := pc.provider.Load(), pc.remoteNamespace(k.namespace)
	v := view{
		local:     pc.pods.Get(k.namespace, k.name),
		reachable: p.Reachable, gone: p.Gone, expelled: pc.expelled.Load(),
		origin: workload.Origin{Cluster: pc.s.o.cfg.Self(), Node: pc.node, Network: p.Network, Claim: pc.claimNames(), Tokens: pc.tokensOf(k.namespace) == ""},
		now:    pc.s.o.cfg.Now(),
	}
	pc.mu.Lock()
	v.denied = pc.denied[k.namespace]
	pc.mu.Unlock()
	if rn != nil {
		v.origin.Namespace = rn.name
		if v.known = rn.known(); v.known {
			v.remote = rn.pod(k.name)
		}
	} else {
		v.never = pc.record(pc.s.namespaces.Get("", k.namespace)) == ""
	}
	fresh := false
	v.state = pc.remember(k, func(m *podState) {
		before := m.made
		*m = m.about(v.local, v.remote)
		fresh = m.made != before && m.seen
		if v.remote == nil && v.local == nil {
			*m = podState{}
		}
	})
	if v.local == nil {
		pc.forget(k, rn)
		return v, rn
	}
	if fresh {
		pc.eventsOf(rn, v.remote)
	}
	if v.copy() == nil {
		v.refusal = pc.refusal(v.local, v.origin.Namespace)
	}
	if v.refusal == nil {
		v.missing, v.ready = pc.missing(v.local) // of a pod with a copy, too: this follows what it references, which may come later
	}
	if ns := (key{kind: aNamespace, namespace: k.namespace}); rn == nil && v.refusal == nil && v.local.DeletionTimestamp == nil && pc.queue.Failures(ns) == 0 {
		pc.queue.Add(ns) // after a failure it is tried again anyway
	}
	return v, rn
}

// refusal returns why a local pod cannot be sent to the provider's namespace for it. While that
// is not known (""), claims do not matter: they may become known later.
func (pc *controller) refusal(local *corev1.Pod, namespace string) *workload.Refusal {
	in := workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: namespace, Node: pc.node, Claim: pc.claimNames(), Tokens: pc.tokensOf(local.Namespace) == ""}
	if namespace == "" {
		in.Namespace = local.Namespace // in place of the remote one
		if in.Claim != nil {
			in.Claim = func(_, name string) (string, *workload.Refusal) { return name, nil }
		}
	}
	_, why := workload.Translate(local, in)
	return why
}

// claimNames returns what claims are called at the provider; nil if it has none.
func (pc *controller) claimNames() func(namespace, name string) (string, *workload.Refusal) {
	if pc.s.o.cfg.Claim == nil {
		return nil
	}
	return func(namespace, name string) (string, *workload.Refusal) {
		return pc.s.o.cfg.Claim(pc.id, namespace, name)
	}
}

// act carries out a step.
func (pc *controller) act(ctx context.Context, k key, v view, rn *remoteNamespace, s step) (again time.Duration, err error) {
	var paced time.Duration
	if s.status != nil {
		paced, err = pc.write(ctx, k, v.local, s.status)
	}
	if s.warn != nil {
		pc.warn(ctx, k, v.local, s.warn)
	}
	if err != nil && s.verb == finish && !apierrors.IsInvalid(err) {
		return 0, err // the final status is written before the deletion
	}
	var failed error
	switch s.verb {
	case create:
		again, failed = pc.create(ctx, k, v, rn)
	case change:
		if again = pc.holds(); again > 0 {
			break
		}
		failed = rn.client.Patch(ctx, podPath(rn.name, k.name), "", workload.PatchType, s.patch, nil)
		if failed == nil {
			pc.remember(k, func(m *podState) { m.patched = v.remote.ResourceVersion + string(s.patch) })
		}
		if apierrors.IsNotFound(failed) || apierrors.IsConflict(failed) {
			failed = nil // the watch tells soon
		}
	case extend:
		again, failed = pc.extend(ctx, k, v, rn, s)
	case confirm:
		again, failed = pc.confirm(ctx, k, v, rn)
	case remove:
		again, failed = pc.remove(ctx, k, v, rn, s)
	case finish:
		zero := int64(0)
		failed = pc.s.local.Delete(ctx, podPath(k.namespace, k.name),
			metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &v.local.UID}})
		if apierrors.IsNotFound(failed) || apierrors.IsConflict(failed) {
			failed = nil
		}
	}
	return work.Sooner(again, paced), errors.Join(err, failed)
}

// write writes the status of a local pod, unless the pace delays it.
func (pc *controller) write(ctx context.Context, k key, local *corev1.Pod, status *corev1.PodStatus) (again time.Duration, err error) {
	if wait := pc.pace.wait(k, &local.Status, status, pc.s.o.cfg.Now()); wait > 0 {
		return wait, nil
	}
	written, err := pc.patchStatus(ctx, k, local, status)
	if apierrors.IsForbidden(err) && len(status.PodIPs) > 0 {
		// The policy that confines the agent is of before pods had addresses. Without, they run
		// as they did then.
		if pc.addressless.CompareAndSwap(false, true) {
			pc.s.o.cfg.Logger.Warn("pods of a provider cannot get their addresses, so nothing in this cluster reaches them; run `liqo-agent rbac --apply` again", "provider", pc.id, "error", err)
		}
		bare := status.DeepCopy()
		bare.PodIP, bare.PodIPs = "", nil
		if workload.SameStatus(&local.Status, bare) {
			return 0, nil
		}
		written, err = pc.patchStatus(ctx, k, local, bare)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil // a new pod, or none: the watch tells soon
	case err != nil:
		return 0, err
	}
	pc.pods.Wrote(written)
	if claims := workload.Claims(&local.Spec); len(claims) > 0 {
		pc.s.o.cfg.Mounted(k.namespace, claims)
	}
	return 0, nil
}

// patchStatus makes the status of a pod here what it is to be.
func (pc *controller) patchStatus(ctx context.Context, k key, local *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	patch, err := statusPatch(local.UID, &local.Status, status)
	if err != nil {
		return nil, err
	}
	written := &corev1.Pod{}
	return written, pc.s.local.Patch(ctx, podPath(k.namespace, k.name)+"/status", manager, types.StrategicMergePatchType, patch, written)
}

// create creates the copy.
func (pc *controller) create(ctx context.Context, k key, v view, rn *remoteNamespace) (again time.Duration, err error) {
	pc.mu.Lock()
	rest := pc.refused[k].until.Sub(pc.s.o.cfg.Now())
	pc.mu.Unlock()
	if rest = max(rest, pc.holds()); rest > 0 {
		return rest, nil
	}
	if !rn.enter() {
		return retryFirst, nil // it is being released
	}
	defer rn.leave()
	why, err := pc.send(ctx, rn, v)
	if err == nil && why == nil {
		why, err = pc.sendTokens(ctx, rn, v)
	}
	switch {
	case err != nil:
		return 0, err
	case why != nil && (why.Reason == workload.ReasonRefusedByProvider || why.Reason == workload.ReasonNoToken):
		return pc.turnedAway(ctx, k, v, rn, why)
	case why != nil:
		return pc.show(ctx, k, v, why)
	}
	pod, why := workload.Translate(v.local, v.origin)
	if why != nil {
		return pc.show(ctx, k, v, why)
	}
	var made struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	unsent := func(is bool) { pc.remember(k, func(m *podState) { m.unsent = is && m.local == v.local.UID }) }
	unsent(false)
	begun := pc.s.o.cfg.Now()
	err = rn.client.Create(ctx, "/api/v1/namespaces/"+rn.name+"/pods", pod, &made)
	if err == nil {
		pc.s.o.created.Observe(pc.s.o.cfg.Now().Sub(begun))
	}
	switch {
	case err == nil && made.Metadata.UID == "":
		return 0, fmt.Errorf("create pod %s/%s at %s: the answer has no UID", rn.name, k.name, pc.id)
	case err == nil:
		pc.remember(k, func(m *podState) { m.created(v.local.UID, made.Metadata.UID) })
		pc.admitted(k)
		pc.sayTokens(ctx, v)
		return unseen, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		unsent(v.state.unsent)
		pc.doubt(rn)
		return 0, err
	case apierrors.IsAlreadyExists(err):
		// If the pod of that name is ours, the watch tells soon. If it is the provider's own,
		// it cannot be read, and the copy cannot be created.
		if other := rn.client.Get(ctx, "/api/v1/namespaces/"+rn.name+"/pods/"+k.name, nil); refusal(other) {
			err = other
		}
	}
	if refusal(err) {
		unsent(v.state.unsent)
		return pc.turnedAway(ctx, k, v, rn, &workload.Refusal{
			Reason: workload.ReasonRefusedByProvider, Message: "The provider does not let the pod in: " + words(err),
		})
	}
	return 0, err
}

// forget drops the memory of a local pod that does not exist any more.
func (pc *controller) forget(k key, rn *remoteNamespace) {
	pc.admitted(k)
	if rn != nil {
		rn.forget(k.name)
	}
}

// confirm asks the provider whether the copy is really gone.
func (pc *controller) confirm(ctx context.Context, k key, v view, rn *remoteNamespace) (again time.Duration, err error) {
	found := &workload.Copy{}
	err = rn.client.Get(ctx, podPath(rn.name, k.name), found)
	switch {
	case apierrors.IsNotFound(err):
		found = nil
	case err != nil:
		return 0, err
	}
	remote := podOf(found)
	if pc.remember(k, func(m *podState) { m.confirmed(v.local, remote) }).ended {
		return time.Nanosecond, nil
	}
	return unseen, nil // the watch tells before
}

// remove deletes the pod of that name at the provider.
func (pc *controller) remove(ctx context.Context, k key, v view, rn *remoteNamespace, s step) (again time.Duration, err error) {
	if v.remote != nil && v.copy() == nil {
		if lives, err := pc.lives(ctx, k, v.remote); err != nil || lives {
			return unseen, err
		}
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.uid}}
	if s.grace != ownGrace {
		options.GracePeriodSeconds = &s.grace
	}
	err = rn.client.Delete(ctx, podPath(rn.name, k.name), options)
	notThere := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	if err != nil && !notThere {
		return 0, err
	}
	pc.remember(k, func(m *podState) { m.deleted(s.uid, s.grace, notThere) })
	if notThere {
		return retryFirst, nil
	}
	return unseen, nil
}

// lives asks the local API server whether the pod of a copy exists: with several API
// servers, a list may be older than the pod.
func (pc *controller) lives(ctx context.Context, k key, remote *corev1.Pod) (bool, error) {
	local := &corev1.Pod{}
	err := pc.s.local.Get(ctx, podPath(k.namespace, k.name), local)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && workload.IsCopy(local, remote) && local.Spec.NodeName == pc.node, err
}

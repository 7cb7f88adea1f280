package offload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

const (
	// manager is the field manager of what is written here and at providers.
	manager = "liqo-agent-offload"
	// unseen is after which time a copy that was created and does not appear in the
	// list of the provider's pods is asked for.
	unseen = 15 * time.Second
	// feedEvery is how often ConfigMaps and Secrets are sent again for a pod that does
	// not find them.
	feedEvery = 30 * time.Second
	// maxWords bounds what a provider's refusal may say, in bytes.
	maxWords = 1000
)

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// reconcilePod looks at one pod.
func (pc *controller) reconcilePod(ctx context.Context, k key) (again time.Duration, err error) {
	v, rn := pc.observe(k)
	if c := v.copy(); c != nil && starved(c) {
		pc.feed(k, v, rn)
	}
	return pc.act(ctx, k, v, rn, plan(v))
}

// starved reports whether a copy cannot start because the provider has no ConfigMap
// or Secret that it names.
func starved(remote *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{remote.Status.InitContainerStatuses, remote.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
				return true
			}
		}
	}
	return false
}

// feed has what a pod names sent once more: somebody removed it at the provider.
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
		c := rn.copied(ref)
		c.mu.Lock()
		c.version = ""
		c.mu.Unlock()
		pc.queue.Add(ref)
	}
}

// observe collects what is known about a pod.
func (pc *controller) observe(k key) (view, *remoteNamespace) {
	p, rn := pc.provider.Load(), pc.remoteNamespace(k.namespace)
	v := view{
		local:     pc.pods.Get(k.namespace, k.name),
		reachable: p.Reachable, gone: p.Gone, expelled: pc.expelled.Load(),
		origin: workload.Origin{Cluster: pc.s.o.cfg.Self(), Node: pc.node},
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
		v.missing, v.ready = pc.missing(v.local)
	}
	if ns := (key{kind: aNamespace, namespace: k.namespace}); rn == nil && v.refusal == nil && v.local.DeletionTimestamp == nil && pc.queue.Failures(ns) == 0 {
		pc.queue.Add(ns) // else it is tried again anyway
	}
	return v, rn
}

// refusal returns why a pod of ours cannot be sent to the provider.
func (pc *controller) refusal(local *corev1.Pod, namespace string) *workload.Refusal {
	if namespace == "" {
		namespace = local.Namespace // whatever it will be
	}
	_, why := workload.Translate(local, workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: namespace, Node: pc.node})
	return why
}

// act takes a step.
func (pc *controller) act(ctx context.Context, k key, v view, rn *remoteNamespace, s step) (again time.Duration, err error) {
	var paced time.Duration
	if s.status != nil {
		paced, err = pc.write(ctx, k, v.local, s.status)
	}
	if s.warn != nil {
		pc.warn(ctx, k, v.local, s.warn)
	}
	if err != nil && s.verb == finish && !apierrors.IsInvalid(err) {
		return 0, err // the last word comes before the end
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
			failed = nil // the list tells soon
		}
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

// write gives a pod here its status, unless that has to wait.
func (pc *controller) write(ctx context.Context, k key, local *corev1.Pod, status *corev1.PodStatus) (again time.Duration, err error) {
	if wait := pc.pace.wait(k, &local.Status, status, pc.s.o.cfg.Now()); wait > 0 {
		return wait, nil
	}
	patch, err := statusPatch(local.UID, &local.Status, status)
	if err != nil {
		return 0, err
	}
	written := &corev1.Pod{}
	err = pc.s.local.Patch(ctx, podPath(k.namespace, k.name)+"/status", manager, types.StrategicMergePatchType, patch, written)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil // another pod, or none: the cache tells soon
	case err != nil:
		return 0, err
	}
	pc.pods.Wrote(written)
	return 0, nil
}

// create has the provider create the copy.
func (pc *controller) create(ctx context.Context, k key, v view, rn *remoteNamespace) (again time.Duration, err error) {
	pc.mu.Lock()
	rest := pc.refused[k].until.Sub(pc.s.o.cfg.Now())
	pc.mu.Unlock()
	if rest = max(rest, pc.holds()); rest > 0 {
		return rest, nil
	}
	if !rn.enter() {
		return retryFirst, nil // it is being given back
	}
	defer rn.leave()
	why, err := pc.send(ctx, rn, v)
	switch {
	case err != nil:
		return 0, err
	case why != nil && why.Reason == workload.ReasonRefusedByProvider:
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
		return unseen, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		unsent(v.state.unsent)
		pc.doubt(rn)
		return 0, err
	case apierrors.IsAlreadyExists(err):
		// If the pod of that name is ours, the list tells soon. If it is the provider's, it
		// cannot be read, and ours cannot run there.
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

// refusal reports whether an API server will go on saying no.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && statusCode(err)/100 == 4 && statusCode(err) != http.StatusTooManyRequests
}

func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// words returns what an API server said, without what the client adds, and before it
// the reason of the provider's agent, if it was that which said no.
func words(err error) string {
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		said = status.Status().Message
		if d := status.Status().Details; d != nil && len(d.Causes) == 1 && d.Causes[0].Message == said && reasonForm.MatchString(string(d.Causes[0].Type)) {
			said = string(d.Causes[0].Type) + ": " + said
		}
	}
	return text.Line(said, maxWords)
}

// reasonForm is what reasons of refusals look like.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z]{0,62}$`)

// turnedAway shows on a pod that the provider does not let it in.
func (pc *controller) turnedAway(ctx context.Context, k key, v view, rn *remoteNamespace, why *workload.Refusal) (again time.Duration, err error) {
	if rn.pods.Len() == 0 {
		// The namespace may be gone, and our rights with it, which is the same no. If so its
		// pods are not to be listed either, which the gate takes in; another error is met again.
		_ = rn.client.Get(ctx, "/api/v1/namespaces/"+rn.name+"/pods", nil)
	}
	pc.mu.Lock()
	times := pc.refused[k].times + 1
	pause := work.Backoff{First: refusedFirst, Max: refusedMax}.Pause(times)
	pc.refused[k] = refused{times: times, until: pc.s.o.cfg.Now().Add(pause)}
	pc.mu.Unlock()
	again, err = pc.show(ctx, k, v, why)
	return work.Sooner(again, pause), err
}

// forget forgets a pod that does not exist here any more.
func (pc *controller) forget(k key, rn *remoteNamespace) {
	pc.admitted(k)
	if rn != nil {
		rn.forget(k.name)
	}
}

// admitted forgets that a pod was turned away.
func (pc *controller) admitted(k key) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	delete(pc.refused, k)
}

// show has a pod show why it waits.
func (pc *controller) show(ctx context.Context, k key, v view, why *workload.Refusal) (again time.Duration, err error) {
	s := v.waiting(why)
	if s.status != nil {
		again, err = pc.write(ctx, k, v.local, s.status)
	}
	pc.warn(ctx, k, v.local, why)
	return again, err
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
	return unseen, nil // the list tells before
}

// remove deletes what has the pod's name at the provider.
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

// lives asks the local API server itself whether the pod that a copy stands for
// exists: a list may be older than the pod when there are several API servers.
func (pc *controller) lives(ctx context.Context, k key, remote *corev1.Pod) (bool, error) {
	local := &corev1.Pod{}
	err := pc.s.local.Get(ctx, podPath(k.namespace, k.name), local)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && workload.IsCopy(local, remote) && local.Spec.NodeName == pc.node, err
}

// warn tells people about a pod in an event, once for each reason.
func (pc *controller) warn(ctx context.Context, k key, local *corev1.Pod, why *workload.Refusal) {
	m := pc.remember(k, func(*podState) {})
	if m.local != local.UID || m.warned == why.Reason {
		return
	}
	pc.remember(k, func(m *podState) { m.warned = why.Reason })
	sum := sha256.Sum256([]byte(string(local.UID) + why.Reason))
	now := metav1.NewTime(pc.s.o.cfg.Now())
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: strings.TrimRight(local.Name[:min(len(local.Name), 200)], ".-") + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: local.Namespace, Name: local.Name, UID: local.UID,
		},
		Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message,
		Source: corev1.EventSource{Component: "liqo-agent"}, ReportingController: "liqo-agent",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := pc.s.local.Create(ctx, "/api/v1/namespaces/"+local.Namespace+"/events", event, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		pc.s.o.cfg.Logger.Debug("an event about a pod cannot be written", "namespace", local.Namespace, "pod", local.Name, "error", err)
	}
}

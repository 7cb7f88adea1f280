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

	"liqo.io/agent/kube"
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

// pod looks at one pod.
func (l *line) pod(ctx context.Context, k key) (again time.Duration, err error) {
	v, sp := l.gather(k)
	if c := v.copy(); c != nil && starved(c) {
		l.feed(k, v, sp)
	}
	return l.do(ctx, k, v, sp, plan(v))
}

// starved reports whether a copy cannot start because the provider has no ConfigMap
// or Secret that it names.
func starved(theirs *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{theirs.Status.InitContainerStatuses, theirs.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
				return true
			}
		}
	}
	return false
}

// feed has what a pod names sent once more: somebody removed it at the provider.
func (l *line) feed(k key, v view, sp *space) {
	fed := false
	l.remember(k, func(m *memo) {
		if fed = v.now.Sub(m.fed) >= feedEvery; fed {
			m.fed = v.now
		}
	})
	if !fed || !v.asked() {
		return
	}
	for ref := range references(v.mine) {
		c := sp.copied(ref)
		c.mu.Lock()
		c.version = ""
		c.mu.Unlock()
		l.queue.Add(ref)
	}
}

// gather collects what is known about a pod.
func (l *line) gather(k key) (view, *space) {
	p, sp := l.provider.Load(), l.space(k.namespace)
	v := view{
		mine:      l.pods.Get(k.namespace, k.name),
		reachable: p.Reachable, gone: p.Gone, expelled: l.expelled.Load(),
		origin: workload.Origin{Cluster: l.s.o.cfg.Self(), Node: l.node},
		now:    l.s.o.cfg.Now(),
	}
	l.mu.Lock()
	v.denied = l.denied[k.namespace]
	l.mu.Unlock()
	if sp != nil {
		v.origin.Namespace = sp.name
		if v.known = sp.known(); v.known {
			v.theirs = sp.pod(k.name)
		}
	} else {
		v.never = l.record(l.s.namespaces.Get("", k.namespace)) == ""
	}
	fresh := false
	v.memo = l.remember(k, func(m *memo) {
		before := m.made
		*m = m.about(v.mine, v.theirs)
		fresh = m.made != before && m.seen
		if v.theirs == nil && v.mine == nil {
			*m = memo{}
		}
	})
	if v.mine == nil {
		l.forget(k, sp)
		return v, sp
	}
	if fresh {
		l.eventsOf(sp, v.theirs)
	}
	v.mine = v.memo.stands(v.mine)
	if v.copy() == nil {
		v.refusal = l.refusal(v.mine, v.origin.Namespace)
		v.missing, v.ready = l.missing(v.mine)
	}
	if ns := (key{kind: aNamespace, namespace: k.namespace}); sp == nil && v.refusal == nil && v.mine.DeletionTimestamp == nil && l.retry.count(ns) == 0 {
		l.queue.Add(ns) // else it is tried again anyway
	}
	return v, sp
}

// refusal returns why a pod of ours cannot be sent to the provider.
func (l *line) refusal(mine *corev1.Pod, namespace string) *workload.Refusal {
	if namespace == "" {
		namespace = mine.Namespace // whatever it will be
	}
	_, why := workload.Translate(mine, workload.Origin{Cluster: l.s.o.cfg.Self(), Namespace: namespace, Node: l.node})
	return why
}

// do takes a step.
func (l *line) do(ctx context.Context, k key, v view, sp *space, s step) (again time.Duration, err error) {
	var paced time.Duration
	if s.status != nil {
		paced, err = l.write(ctx, k, v.mine, s.status)
	}
	if s.warn != nil {
		l.warn(ctx, k, v.mine, s.warn)
	}
	if err != nil && s.verb == finish && !apierrors.IsInvalid(err) {
		return 0, err // the last word comes before the end
	}
	var failed error
	switch s.verb {
	case create:
		again, failed = l.create(ctx, k, v, sp)
	case change:
		if again = l.holds(); again > 0 {
			break
		}
		failed = sp.client.Patch(ctx, podPath(sp.name, k.name), "", workload.PatchType, s.patch, nil)
		if failed == nil {
			l.remember(k, func(m *memo) { m.patched = v.theirs.ResourceVersion + string(s.patch) })
		}
		if apierrors.IsNotFound(failed) || apierrors.IsConflict(failed) {
			failed = nil // the list tells soon
		}
	case confirm:
		again, failed = l.confirm(ctx, k, v, sp)
	case remove:
		again, failed = l.remove(ctx, k, v, sp, s)
	case finish:
		zero := int64(0)
		failed = l.s.local.Delete(ctx, podPath(k.namespace, k.name),
			metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &v.mine.UID}})
		if apierrors.IsNotFound(failed) || apierrors.IsConflict(failed) {
			failed = nil
		}
	}
	return kube.Sooner(again, paced), errors.Join(err, failed)
}

// write gives a pod here its status, unless that has to wait.
func (l *line) write(ctx context.Context, k key, mine *corev1.Pod, status *corev1.PodStatus) (again time.Duration, err error) {
	if wait := l.pace.wait(k, &mine.Status, status, l.s.o.cfg.Now()); wait > 0 {
		return wait, nil
	}
	patch, err := statusPatch(mine.UID, &mine.Status, status)
	if err != nil {
		return 0, err
	}
	var written metadata
	err = l.s.local.Patch(ctx, podPath(k.namespace, k.name)+"/status", manager, types.StrategicMergePatchType, patch, &written)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil // another pod, or none: the cache tells soon
	case err != nil:
		return 0, err
	}
	l.remember(k, func(m *memo) { m.written(mine.UID, written.ResourceVersion, status) })
	return 0, nil
}

// create has the provider create the copy.
func (l *line) create(ctx context.Context, k key, v view, sp *space) (again time.Duration, err error) {
	l.mu.Lock()
	rest := l.refused[k].until.Sub(l.s.o.cfg.Now())
	l.mu.Unlock()
	if rest = max(rest, l.holds()); rest > 0 {
		return rest, nil
	}
	if !sp.enter() {
		return retryFirst, nil // it is being given back
	}
	defer sp.leave()
	why, err := l.send(ctx, sp, v)
	switch {
	case err != nil:
		return 0, err
	case why != nil && why.Reason == workload.ReasonRefusedByProvider:
		return l.turnedAway(ctx, k, v, sp, why)
	case why != nil:
		return l.show(ctx, k, v, why)
	}
	pod, why := workload.Translate(v.mine, v.origin)
	if why != nil {
		return l.show(ctx, k, v, why)
	}
	var made struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	begun := l.s.o.cfg.Now()
	err = sp.client.Create(ctx, "/api/v1/namespaces/"+sp.name+"/pods", pod, &made)
	if err == nil {
		l.s.o.created.Observe(l.s.o.cfg.Now().Sub(begun))
	}
	switch {
	case err == nil && made.Metadata.UID == "":
		return 0, fmt.Errorf("create pod %s/%s at %s: the answer has no UID", sp.name, k.name, l.id)
	case err == nil:
		l.remember(k, func(m *memo) { m.created(v.mine.UID, made.Metadata.UID) })
		l.admitted(k)
		return unseen, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		l.doubt(sp)
		return 0, err
	case apierrors.IsAlreadyExists(err):
		// If the pod of that name is ours, the list tells soon. If it is the provider's, it
		// cannot be read, and ours cannot run there.
		if other := sp.client.Get(ctx, "/api/v1/namespaces/"+sp.name+"/pods/"+k.name, nil); refusal(other) {
			err = other
		}
	}
	if refusal(err) {
		return l.turnedAway(ctx, k, v, sp, &workload.Refusal{
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
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
		if d := status.Status().Details; d != nil && len(d.Causes) == 1 && d.Causes[0].Message == text && reasonForm.MatchString(string(d.Causes[0].Type)) {
			text = string(d.Causes[0].Type) + ": " + text
		}
	}
	if len(text) > maxWords {
		text = text[:maxWords] + "..."
	}
	return text
}

// reasonForm is what reasons of refusals look like.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z]{0,62}$`)

// turnedAway shows on a pod that the provider does not let it in.
func (l *line) turnedAway(ctx context.Context, k key, v view, sp *space, why *workload.Refusal) (again time.Duration, err error) {
	if sp.pods.Len() == 0 {
		// The namespace may be gone, and our rights with it, which is the same no. If so its
		// pods are not to be listed either, which the gate takes in; another error is met again.
		_ = sp.client.Get(ctx, "/api/v1/namespaces/"+sp.name+"/pods", nil)
	}
	l.mu.Lock()
	r := l.refused[k]
	pause := refusedMax
	if r.times < 10 {
		pause = min(pause, refusedFirst<<r.times)
	}
	pause = jitter(pause)
	l.refused[k] = refused{times: r.times + 1, until: l.s.o.cfg.Now().Add(pause)}
	l.mu.Unlock()
	again, err = l.show(ctx, k, v, why)
	return kube.Sooner(again, pause), err
}

// forget forgets a pod that does not exist here any more.
func (l *line) forget(k key, sp *space) {
	l.admitted(k)
	if sp != nil {
		sp.forget(k.name)
	}
}

// admitted forgets that a pod was turned away.
func (l *line) admitted(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, k)
}

// show has a pod show why it waits.
func (l *line) show(ctx context.Context, k key, v view, why *workload.Refusal) (again time.Duration, err error) {
	s := v.waiting(why)
	if s.status != nil {
		again, err = l.write(ctx, k, v.mine, s.status)
	}
	l.warn(ctx, k, v.mine, why)
	return again, err
}

// confirm asks the provider whether the copy is really gone.
func (l *line) confirm(ctx context.Context, k key, v view, sp *space) (again time.Duration, err error) {
	found := &workload.Copy{}
	err = sp.client.Get(ctx, podPath(sp.name, k.name), found)
	switch {
	case apierrors.IsNotFound(err):
		found = nil
	case err != nil:
		return 0, err
	}
	theirs := podOf(found)
	if l.remember(k, func(m *memo) { m.confirmed(v.mine, theirs) }).ended {
		return time.Nanosecond, nil
	}
	return unseen, nil // the list tells before
}

// remove deletes what has the pod's name at the provider.
func (l *line) remove(ctx context.Context, k key, v view, sp *space, s step) (again time.Duration, err error) {
	if v.theirs != nil && v.copy() == nil {
		if lives, err := l.lives(ctx, k, v.theirs); err != nil || lives {
			return unseen, err
		}
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.uid}}
	if s.grace != ownGrace {
		options.GracePeriodSeconds = &s.grace
	}
	err = sp.client.Delete(ctx, podPath(sp.name, k.name), options)
	notThere := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	if err != nil && !notThere {
		return 0, err
	}
	l.remember(k, func(m *memo) { m.deleted(s.uid, s.grace, notThere) })
	if notThere {
		return retryFirst, nil
	}
	return unseen, nil
}

// lives asks the local API server itself whether the pod that a copy stands for
// exists: a list may be older than the pod when there are several API servers.
func (l *line) lives(ctx context.Context, k key, theirs *corev1.Pod) (bool, error) {
	mine := &corev1.Pod{}
	err := l.s.local.Get(ctx, podPath(k.namespace, k.name), mine)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && workload.IsCopy(mine, theirs) && mine.Spec.NodeName == l.node, err
}

// warn tells people about a pod in an event, once for each reason.
func (l *line) warn(ctx context.Context, k key, mine *corev1.Pod, why *workload.Refusal) {
	m := l.remember(k, func(*memo) {})
	if m.mine != mine.UID || m.warned == why.Reason {
		return
	}
	l.remember(k, func(m *memo) { m.warned = why.Reason })
	sum := sha256.Sum256([]byte(string(mine.UID) + why.Reason))
	now := metav1.NewTime(l.s.o.cfg.Now())
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: strings.TrimRight(mine.Name[:min(len(mine.Name), 200)], ".-") + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: mine.Namespace, Name: mine.Name, UID: mine.UID,
		},
		Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message,
		Source: corev1.EventSource{Component: "liqo-agent"}, ReportingController: "liqo-agent",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := l.s.local.Create(ctx, "/api/v1/namespaces/"+mine.Namespace+"/events", event, nil)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		l.s.o.cfg.Logger.Debug("an event about a pod cannot be written", "namespace", mine.Namespace, "pod", mine.Name, "error", err)
	}
}

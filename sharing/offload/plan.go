package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// view is all that is known about a pod when it is looked at.
type view struct {
	local  *corev1.Pod // here; nil: it does not exist here
	remote *corev1.Pod // what has its name at the provider; nil: nothing
	// known: remote comes from a complete list of this connection. Without, it is nil
	// and says nothing.
	known bool
	// never: nothing was ever created in the provider's namespace for local's.
	never bool
	state podState
	// refusal is why local cannot be sent, missing why not yet, and denied why there
	// is no place for it.
	refusal, missing, denied *workload.Refusal
	ready                    bool // missing is known

	reachable, gone bool // the provider
	// expelled: the provider does not let this cluster in any more. Nothing of it is left
	// there for long, and nothing of it can be asked for.
	expelled bool
	origin   workload.Origin
	now      time.Time
}

// verb is what is to be done about a pod.
type verb string

const (
	wait    verb = ""        // nothing, until something changes
	create  verb = "create"  // have the provider create its copy
	change  verb = "change"  // patch the copy
	confirm verb = "confirm" // ask the provider whether the copy is really gone
	remove  verb = "remove"  // delete what has its name at the provider
	finish  verb = "finish"  // delete local at once, which is being deleted
)

// ownGrace as a grace period is that of the pod.
const ownGrace int64 = -1

// step is one step towards what is to be.
type step struct {
	verb  verb
	uid   types.UID // remove
	grace int64     // remove, in seconds; or ownGrace
	patch []byte    // change

	status *corev1.PodStatus // that local is to have; nil: the one it has
	warn   *workload.Refusal // what people are to be told in an event
}

// plan says what to do next about a pod. A step that leaves wait and no status is
// the end: all is as it should be, or has to wait for somebody else.
func plan(v view) step {
	switch {
	case v.local == nil:
		return v.orphan()
	case v.local.DeletionTimestamp != nil:
		return v.ending()
	case v.gone:
		return step{}
	case terminal(v.local):
		if c := v.copy(); v.asked() && c != nil && c.DeletionTimestamp == nil && !terminal(c) {
			return v.remove(c.UID, ownGrace)
		}
		return step{}
	}
	return v.living()
}

// asked reports whether the provider can be asked, and what it has is known.
func (v view) asked() bool { return v.reachable && !v.gone && v.known }

// copy returns what stands for local at the provider.
func (v view) copy() *corev1.Pod {
	if v.local != nil && v.remote != nil && workload.IsCopy(v.local, v.remote) {
		return v.remote
	}
	return nil
}

// remove deletes what is at the provider, unless that was asked for before.
func (v view) remove(uid types.UID, grace int64) step {
	if v.state.removed(uid, grace) {
		return step{}
	}
	return step{verb: remove, uid: uid, grace: grace}
}

// ours reports whether a pod at the provider was created by a consumer.
func ours(remote *corev1.Pod) bool { return remote.Annotations[workload.AnnotationOriginUID] != "" }

// orphan is for what the provider has and we do not.
func (v view) orphan() step {
	if !v.asked() || v.remote == nil || !ours(v.remote) || v.remote.DeletionTimestamp != nil {
		return step{}
	}
	return v.remove(v.remote.UID, ownGrace)
}

// ending is for a pod that is being deleted here.
func (v view) ending() step {
	over := v.local.DeletionGracePeriodSeconds != nil && *v.local.DeletionGracePeriodSeconds == 0
	last := step{verb: finish}
	if over && len(v.local.Finalizers) > 0 {
		// They are what is left, and others'. Without any, the API server was cut off
		// between marking the pod and deleting it, when our request was.
		last.verb = wait
	}
	if v.gone || v.expelled {
		return last
	}
	if !v.asked() {
		if v.never || !v.been() && (v.refusal != nil || v.state.unsent) {
			return last
		}
		return step{}
	}
	grace := remaining(v.local, v.now)
	if c := v.copy(); c != nil {
		s := step{}
		if c.DeletionTimestamp == nil || c.DeletionGracePeriodSeconds != nil && *c.DeletionGracePeriodSeconds > own(v.local) {
			s = v.remove(c.UID, grace)
		}
		s.status = v.mirror(c)
		return s
	}
	if v.state.made != "" && !v.state.seen && !v.state.ended {
		// Created, but not in the list yet, or never, when it is gone before the provider
		// was listed again: then only asking tells that it is.
		if v.state.removed(v.state.made, grace) {
			return step{verb: confirm}
		}
		return v.remove(v.state.made, grace)
	}
	last.status = v.lastStatus()
	return last
}

// lastStatus is what a pod ends with whose copy has ended as was wanted.
func (v view) lastStatus() *corev1.PodStatus {
	if terminal(v.local) {
		return nil
	}
	if v.state.last != nil {
		s := workload.Mirror(v.local, v.state.last, v.origin, v.now)
		if workload.Ended(s.Phase) {
			return v.unlessSame(s)
		}
	}
	if len(v.local.Finalizers) == 0 {
		return nil // nobody would see it
	}
	// Whoever holds it, such as a Job, waits for a last word.
	s := *v.local.Status.DeepCopy()
	s.Phase = corev1.PodFailed
	return v.unlessSame(s)
}

// living is for a pod that is to run.
func (v view) living() step {
	c := v.copy()
	if c == nil && v.refusal != nil && !v.been() {
		return v.waiting(v.refusal)
	}
	if !v.asked() {
		if v.denied != nil && v.reachable && !v.been() {
			return v.waiting(v.denied)
		}
		return step{}
	}
	switch {
	case c != nil && c.DeletionTimestamp != nil:
		// The provider ends it: see podState.about.
		s := workload.Mirror(v.local, c, v.origin, v.now)
		if workload.Ended(s.Phase) {
			return step{}
		}
		return step{status: v.unlessSame(s)}
	case c != nil:
		s := step{status: v.mirror(c)}
		if patch, ok := workload.Change(v.local, c, v.origin); ok && !terminal(c) && v.state.patched != c.ResourceVersion+string(patch) {
			s.verb, s.patch = change, patch
		}
		return s
	case v.remote != nil && !ours(v.remote):
		return v.waiting(&workload.Refusal{
			Reason:  workload.ReasonRefusedByProvider,
			Message: "The provider has a pod of this name in namespace " + v.remote.Namespace + " that the agent did not make. Give the pod another name.",
		})
	case v.remote != nil: // an earlier pod's, which does not exist any more
		return v.remove(v.remote.UID, 0)
	case v.been() && v.state.ended:
		s := workload.DeletedByProvider(v.local, v.state.last, v.origin, v.now)
		return step{status: v.unlessSame(s), warn: &workload.Refusal{Reason: s.Reason, Message: s.Message}}
	case v.been():
		return step{verb: confirm}
	case !v.ready:
		return step{}
	case v.missing != nil:
		return v.waiting(v.missing)
	}
	return step{verb: create}
}

// been reports whether the provider had a copy.
func (v view) been() bool { return v.state.made != "" || ran(&v.local.Status) }

// ran reports whether a status shows that a kubelet had the pod.
func ran(s *corev1.PodStatus) bool {
	if s.StartTime != nil || s.Phase == corev1.PodRunning {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil || list[i].State.Terminated != nil || list[i].ContainerID != "" {
				return true
			}
		}
	}
	return false
}

// waiting has local show why it does not run.
func (v view) waiting(why *workload.Refusal) step {
	return step{status: v.unlessSame(workload.Waiting(v.local, why, v.origin, v.now)), warn: why}
}

func (v view) mirror(c *corev1.Pod) *corev1.PodStatus {
	if terminal(v.local) {
		return nil
	}
	return v.unlessSame(workload.Mirror(v.local, c, v.origin, v.now))
}

func (v view) unlessSame(s corev1.PodStatus) *corev1.PodStatus {
	if workload.SameStatus(&v.local.Status, &s) {
		return nil
	}
	return &s
}

func terminal(pod *corev1.Pod) bool { return workload.Ended(pod.Status.Phase) }

// own returns the grace period that local is deleted with, in seconds.
func own(local *corev1.Pod) int64 {
	if g := local.DeletionGracePeriodSeconds; g != nil {
		return max(*g, 0)
	}
	return 0
}

// remaining returns how much of the grace period of local, which is being deleted,
// is left, in seconds. It is 0 only if local was deleted so; else at least one, so
// that processes are asked to end before they are made to.
func remaining(local *corev1.Pod, now time.Time) int64 {
	whole := own(local)
	if whole == 0 {
		return 0
	}
	left := int64(local.DeletionTimestamp.Sub(now).Round(time.Second) / time.Second)
	return min(max(left, 1), whole)
}

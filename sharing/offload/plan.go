package offload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/workload"
)

// view is everything that is known about a pod.
type view struct {
	local  *corev1.Pod // nil: it does not exist
	remote *corev1.Pod // the pod of its name at the provider; nil: none
	// known: remote comes from a complete list of this connection. Otherwise it is nil
	// and means nothing.
	known bool
	// never: nothing was ever created for the local namespace at the provider.
	never bool
	state podState
	// refusal is why local cannot be sent, missing why not yet, and denied why the
	// provider gives no namespace.
	refusal, missing, denied *workload.Refusal
	ready                    bool // missing is known

	reachable, gone bool // the provider
	// expelled: the provider no longer admits this cluster, and removes what it has there.
	// Its state cannot be read.
	expelled bool
	origin   workload.Origin
	now      time.Time
}

// verb is the kind of a step.
type verb string

const (
	wait    verb = ""        // nothing, until something changes
	create  verb = "create"  // create the copy
	change  verb = "change"  // patch the copy
	extend  verb = "extend"  // add an ephemeral container to the copy
	confirm verb = "confirm" // ask the provider whether the copy is really gone
	remove  verb = "remove"  // delete the pod of its name at the provider
	finish  verb = "finish"  // end the deletion of local with grace period 0
)

// ownGrace stands for the pod's own grace period.
const ownGrace int64 = -1

// step is one step towards the desired state.
type step struct {
	verb  verb
	uid   types.UID // remove
	grace int64     // remove, in seconds; or ownGrace
	patch []byte    // change, extend

	container string            // extend: its name
	why       *workload.Refusal // extend: it cannot be sent

	status *corev1.PodStatus // to write to local; nil: no change
	warn   *workload.Refusal // to report in an event
}

// plan returns the next step for a pod. The zero step means that nothing is left to do, or
// somebody else has to act first.
func plan(v view) step {
	switch {
	case v.local == nil:
		return v.orphan()
	case v.local.DeletionTimestamp != nil:
		return v.ending()
	case v.gone && !terminal(v.local):
		return step{status: v.origin.Network.Withdraw(&v.local.Status)}
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

// asked reports whether the provider can be asked, and its pods are known.
func (v view) asked() bool { return v.reachable && !v.gone && v.known }

// copy returns the copy of local at the provider, nil for none.
func (v view) copy() *corev1.Pod {
	if v.local != nil && v.remote != nil && workload.IsCopy(v.local, v.remote) {
		return v.remote
	}
	return nil
}

// remove deletes a pod at the provider, unless that was requested before.
func (v view) remove(uid types.UID, grace int64) step {
	if v.state.removed(uid, grace) {
		return step{}
	}
	return step{verb: remove, uid: uid, grace: grace}
}

// ours reports whether a pod at the provider was created by a consumer's agent.
func ours(remote *corev1.Pod) bool { return remote.Annotations[workload.AnnotationOriginUID] != "" }

// orphan is for a pod at the provider without a local pod.
func (v view) orphan() step {
	if !v.asked() || v.remote == nil || !ours(v.remote) || v.remote.DeletionTimestamp != nil {
		return step{}
	}
	return v.remove(v.remote.UID, ownGrace)
}

// ending is for a local pod that is being deleted.
func (v view) ending() step {
	over := v.local.DeletionGracePeriodSeconds != nil && *v.local.DeletionGracePeriodSeconds == 0
	last := step{verb: finish}
	if over && len(v.local.Finalizers) > 0 {
		// Only finalizers of others are left. Without any, our request was cut off after the
		// API server marked the pod and before it deleted it.
		last.verb = wait
	}
	if v.gone || v.expelled {
		return last
	}
	if !v.asked() {
		if v.never || !v.been() && (v.refusal != nil || v.state.unsent) {
			return last
		}
		if terminal(v.local) {
			return step{}
		}
		return step{status: v.origin.Network.Unheard(v.local, v.now)}
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
		// It was created, and is not in the list: not yet, or no longer. Only a request to
		// the provider can tell.
		if v.state.removed(v.state.made, grace) {
			return step{verb: confirm}
		}
		return v.remove(v.state.made, grace)
	}
	last.status = v.lastStatus()
	return last
}

// lastStatus is the final status of a pod whose copy was deleted on request.
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
	// The owner of the finalizer, such as a Job, waits for a final phase.
	s := *v.local.Status.DeepCopy()
	s.Phase = corev1.PodFailed
	return v.unlessSame(s)
}

// living is for a local pod that is to run.
func (v view) living() step {
	c := v.copy()
	if c == nil && v.refusal != nil && !v.been() {
		return v.waiting(v.refusal)
	}
	if !v.asked() {
		if v.denied != nil && v.reachable && !v.been() {
			return v.waiting(v.denied)
		}
		if c != nil && v.origin.Network != nil && v.origin.Network.Down != "" {
			return step{status: v.mirror(c)} // it is as it was, but cannot be reached
		}
		return step{status: v.origin.Network.Unheard(v.local, v.now)}
	}
	switch {
	case c != nil && c.DeletionTimestamp != nil:
		// The provider deletes it: see podState.about.
		s := workload.Mirror(v.local, c, v.origin, v.now)
		if workload.Ended(s.Phase) {
			return step{}
		}
		return step{status: v.unlessSame(s)}
	case c != nil:
		s := step{status: v.mirror(c)}
		if patch, ok := workload.Change(v.local, c, v.origin); ok && !terminal(c) && v.state.patched != c.ResourceVersion+string(patch) {
			s.verb, s.patch = change, patch
			return s
		}
		if name, patch, why := workload.Ephemeral(v.local, c, v.state.debug); name != "" && !terminal(c) && v.state.extended != c.ResourceVersion+string(patch) {
			s.verb, s.container, s.patch, s.why = extend, name, patch, why
		}
		return s
	case v.remote != nil && !ours(v.remote):
		return v.waiting(&workload.Refusal{
			Reason:  workload.ReasonRefusedByProvider,
			Message: "The provider has a pod of this name in namespace " + v.remote.Namespace + " that the agent did not make. Give the pod another name.",
		})
	case v.remote != nil: // the copy of an earlier pod, which does not exist any more
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

// been reports whether there was a copy.
func (v view) been() bool { return v.state.made != "" || ran(&v.local.Status) }

// ran reports whether a status shows that a kubelet had started the pod.
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

// waiting writes to local why it does not run.
func (v view) waiting(why *workload.Refusal) step {
	return step{status: v.unlessSame(workload.Waiting(v.local, why, v.now)), warn: why}
}

func (v view) mirror(c *corev1.Pod) *corev1.PodStatus {
	if terminal(v.local) {
		return nil
	}
	s := workload.Mirror(v.local, c, v.origin, v.now)
	workload.RefuseEphemeral(&s, v.state.debug)
	return v.unlessSame(s)
}

func (v view) unlessSame(s corev1.PodStatus) *corev1.PodStatus {
	if workload.SameStatus(&v.local.Status, &s) {
		return nil
	}
	return &s
}

func terminal(pod *corev1.Pod) bool { return workload.Ended(pod.Status.Phase) }

// own returns the grace period of the deletion of local, in seconds.
func own(local *corev1.Pod) int64 {
	if g := local.DeletionGracePeriodSeconds; g != nil {
		return max(*g, 0)
	}
	return 0
}

// remaining returns the rest of the grace period of local, which is being deleted, in
// seconds. It is 0 only if the grace period was 0, otherwise at least 1, so that processes
// get SIGTERM before SIGKILL.
func remaining(local *corev1.Pod, now time.Time) int64 {
	whole := own(local)
	if whole == 0 {
		return 0
	}
	left := int64(local.DeletionTimestamp.Sub(now).Round(time.Second) / time.Second)
	return min(max(left, 1), whole)
}

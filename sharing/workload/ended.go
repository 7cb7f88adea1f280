package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

// Waiting returns the status of mine while it cannot run at the provider: Pending, with all
// containers waiting for the reason and message of why. A pod that has ended keeps its phase.
func Waiting(mine *corev1.Pod, why *Refusal, now time.Time) corev1.PodStatus {
	out := base(mine)
	reason, message := text.Line(why.Reason, maxReason), text.Lines(why.Message, maxMessage)
	if !Ended(out.Phase) {
		out.Phase, out.Reason, out.Message = corev1.PodPending, reason, message
	}
	unseen := corev1.ContainerStateWaiting{Reason: reason, Message: text.Lines(message, budget(containersIn(&mine.Spec)))}
	out.InitContainerStatuses = containerStatuses(mine.Spec.InitContainers, mine, mine.Status.InitContainerStatuses, nil, unseen, maxMessage)
	out.ContainerStatuses = containerStatuses(mine.Spec.Containers, mine, mine.Status.ContainerStatuses, nil, unseen, maxMessage)
	out.EphemeralContainerStatuses = containerStatuses(ephemerals(&mine.Spec), mine, mine.Status.EphemeralContainerStatuses, nil, unseen, maxMessage)
	setter{out: &out, before: mine.Status.Conditions, now: now}.unready(reason, message)
	return out
}

// DeletedByProvider returns the status of mine after the provider deleted its copy on its own:
// Failed, so that the controller replaces it. last is the copy as it was seen last, or nil. If
// that had already ended, its phase stays.
func DeletedByProvider(mine, last *corev1.Pod, in Origin, now time.Time) corev1.PodStatus {
	out := base(mine)
	var seenInit, seen, seenEphemeral []corev1.ContainerStatus
	if last != nil {
		out = Mirror(mine, last, in, now)
		seenInit, seen, seenEphemeral = last.Status.InitContainerStatuses, last.Status.ContainerStatuses, last.Status.EphemeralContainerStatuses
	}
	if Ended(out.Phase) {
		return out
	}
	why := &Refusal{ReasonDeletedByProvider, "The provider deleted the pod."}
	if last != nil {
		why = endedBecause(atHome(mine, last, in))
	}
	out.Phase, out.Reason, out.Message = corev1.PodFailed, why.Reason, why.Message

	size := budget(containersIn(&mine.Spec))
	out.InitContainerStatuses = lost(containerStatuses(mine.Spec.InitContainers, mine, mine.Status.InitContainerStatuses, seenInit, corev1.ContainerStateWaiting{}, size), now)
	out.ContainerStatuses = lost(containerStatuses(mine.Spec.Containers, mine, mine.Status.ContainerStatuses, seen, corev1.ContainerStateWaiting{}, size), now)
	out.EphemeralContainerStatuses = lost(containerStatuses(ephemerals(&mine.Spec), mine, mine.Status.EphemeralContainerStatuses, seenEphemeral, corev1.ContainerStateWaiting{}, size), now)
	set := setter{out: &out, before: mine.Status.Conditions, now: now}
	set.unready("PodFailed", "")
	set.as(corev1.DisruptionTarget, &corev1.PodCondition{Status: corev1.ConditionTrue, Reason: why.Reason, Message: why.Message})
	return out
}

// endedBecause returns why a copy ended, by its last status.
func endedBecause(last *corev1.Pod) *Refusal {
	reason, message := last.Status.Reason, last.Status.Message
	if c := condition(last.Status.Conditions, corev1.DisruptionTarget); reason == "" && c != nil && c.Status == corev1.ConditionTrue {
		reason, message = c.Reason, c.Message
	}
	if reason = text.Line(reason, maxReason); reason == "" {
		return &Refusal{ReasonDeletedByProvider, "The provider deleted the pod."}
	}
	said := "The provider ended the pod: " + reason
	if message = text.Lines(message, maxMessage-256); message != "" {
		said += ": " + message
	}
	return &Refusal{ReasonEvictedByProvider, said}
}

// lost marks the containers as terminated whose end was not seen, as a kubelet does for
// containers that it cannot find.
func lost(list []corev1.ContainerStatus, now time.Time) []corev1.ContainerStatus {
	for i := range list {
		s := &list[i]
		s.Ready = false
		if s.State.Terminated != nil {
			continue
		}
		end := &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The provider ended the pod before it reported how the container ended.",
			FinishedAt: moment(metav1.Time{Time: now}), ContainerID: s.ContainerID,
		}
		if s.State.Running != nil {
			end.StartedAt = s.State.Running.StartedAt
		}
		no := false
		s.State, s.Started = corev1.ContainerState{Terminated: end}, &no
	}
	return list
}

package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

// Limits of what is mirrored from a provider, in bytes. A kubelet limits the message of a
// container to 4096, and those of all containers to 12 KiB together.
const (
	maxReason   = 128
	maxMessage  = 4096
	maxImage    = 512
	maxID       = 256
	allMessages = 24 << 10
)

// containersIn returns how many containers of all kinds a pod has.
func containersIn(spec *corev1.PodSpec) int {
	return len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers)
}

// budget returns the limit for the message of each of n containers.
func budget(n int) int { return min(max(allMessages/max(n, 1), 128), maxMessage) }

func condition(list []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return &list[i]
	}
	return nil
}

// setter sets conditions of a status whose ObservedGeneration is already set.
type setter struct {
	out    *corev1.PodStatus
	before []corev1.PodCondition
	now    time.Time
}

// as sets the condition of that type to the status, reason and message of c.
func (s setter) as(kind corev1.PodConditionType, c *corev1.PodCondition) {
	status := c.Status
	if status != corev1.ConditionTrue && status != corev1.ConditionFalse {
		status = corev1.ConditionUnknown
	}
	set := corev1.PodCondition{
		Type: kind, Status: status, ObservedGeneration: s.out.ObservedGeneration,
		Reason: text.Line(c.Reason, maxReason), Message: text.Lines(c.Message, maxMessage),
		LastTransitionTime: moment(metav1.Time{Time: s.now}),
	}
	if before := condition(s.before, kind); before != nil {
		if before.Status == status && !before.LastTransitionTime.IsZero() {
			set.LastTransitionTime = before.LastTransitionTime
		}
		set.ObservedGeneration = max(set.ObservedGeneration, before.ObservedGeneration)
	}
	if at := condition(s.out.Conditions, kind); at != nil {
		*at = set
		return
	}
	s.out.Conditions = append(s.out.Conditions, set)
}

// unready sets the conditions of a pod that is not ready.
func (s setter) unready(reason, message string) {
	c := &corev1.PodCondition{Status: corev1.ConditionFalse, Reason: reason, Message: message}
	s.as(corev1.ContainersReady, c)
	s.as(corev1.PodReady, c)
}

// ready returns the condition Ready or ContainersReady of mine, if it is true for the copy. The
// readiness gates of this cluster (KEP-580) are not sent to the provider, so they are checked
// here.
func ready(kind corev1.PodConditionType, c *corev1.PodCondition, mine *corev1.Pod, out *corev1.PodStatus, n *Network) *corev1.PodCondition {
	if Ended(out.Phase) {
		return &corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	}
	if kind == corev1.PodReady && len(out.PodIPs) > 0 && n.Down != "" {
		return n.unreachable()
	}
	var shut []string
	for _, gate := range mine.Spec.ReadinessGates {
		switch own := condition(mine.Status.Conditions, gate.ConditionType); { // in the words of kubelets
		case own == nil:
			shut = append(shut, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case own.Status != corev1.ConditionTrue:
			shut = append(shut, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, own.Status))
		}
	}
	if kind != corev1.PodReady || shut == nil {
		return c
	}
	return &corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: strings.Join(shut, ", ")}
}

// containerStatuses returns one status for each container of mine: the provider's, or waiting
// with unseen.
func containerStatuses(of []corev1.Container, mine *corev1.Pod, before, theirs []corev1.ContainerStatus, unseen corev1.ContainerStateWaiting, size int) []corev1.ContainerStatus {
	index := make(map[string]*corev1.ContainerStatus, len(of))
	for i := range theirs {
		if _, known := index[theirs[i].Name]; !known {
			index[theirs[i].Name] = &theirs[i]
		}
	}
	out := make([]corev1.ContainerStatus, 0, len(of))
	for i := range of {
		s := corev1.ContainerStatus{
			Name: of[i].Name, Image: of[i].Image,
			State: corev1.ContainerState{Waiting: &unseen},
		}
		if t := index[of[i].Name]; t != nil {
			s = containerStatus(t, unseen, size)
		}
		if kept := final(&of[i], mine, before, &s); kept != nil {
			s = *kept
		}
		if s.State.Waiting == &unseen {
			s.State.Waiting = unseen.DeepCopy()
		}
		out = append(out, s)
	}
	return out
}

// final returns the present status of a container that has ended and may not restart, nil for
// others: API servers refuse to change it back.
func final(c *corev1.Container, mine *corev1.Pod, before []corev1.ContainerStatus, after *corev1.ContainerStatus) *corev1.ContainerStatus {
	if after.State.Terminated != nil {
		return nil
	}
	at := slices.IndexFunc(before, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	if at < 0 || before[at].State.Terminated == nil || restarts(c, &mine.Spec, before[at].State.Terminated.ExitCode) {
		return nil
	}
	kept := containerStatus(&before[at], corev1.ContainerStateWaiting{}, maxMessage)
	return &kept
}

// restarts reports whether a container may restart after that exit code, by the rules of API
// servers (KEP-5307).
func restarts(c *corev1.Container, spec *corev1.PodSpec, code int32) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	if c.RestartPolicy != nil {
		for _, rule := range c.RestartPolicyRules {
			if codes := rule.ExitCodes; codes != nil && rule.Action == corev1.ContainerRestartRuleActionRestart {
				in := slices.Contains(codes.Values, code)
				if in == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
					return true
				}
			}
		}
		switch *c.RestartPolicy {
		case corev1.ContainerRestartPolicyAlways:
			return true
		case corev1.ContainerRestartPolicyOnFailure:
			return code != 0
		case corev1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// containerStatus returns the part of a container's status that is mirrored.
func containerStatus(t *corev1.ContainerStatus, unseen corev1.ContainerStateWaiting, size int) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: t.Name, RestartCount: max(t.RestartCount, 0),
		Image: text.Line(t.Image, maxImage), ImageID: text.Line(t.ImageID, maxImage), ContainerID: text.Line(t.ContainerID, maxID),
		Ready: t.Ready,
	}
	if t.Started != nil {
		started := *t.Started
		s.Started = &started
	}
	switch state := t.State; {
	case state.Terminated != nil:
		s.State.Terminated = terminated(state.Terminated, size)
	case state.Running != nil:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: moment(state.Running.StartedAt)}
	case state.Waiting != nil:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: text.Line(state.Waiting.Reason, maxReason), Message: text.Lines(state.Waiting.Message, size)}
	default:
		s.State.Waiting = unseen.DeepCopy()
	}
	if s.State.Waiting != nil {
		s.Ready = false
	}
	if last := t.LastTerminationState.Terminated; last != nil {
		s.LastTerminationState.Terminated = terminated(last, size)
	}
	return s
}

func terminated(t *corev1.ContainerStateTerminated, size int) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: t.ExitCode, Signal: max(t.Signal, 0),
		Reason: text.Line(t.Reason, maxReason), Message: text.Lines(t.Message, size),
		StartedAt: moment(t.StartedAt), FinishedAt: moment(t.FinishedAt),
		ContainerID: text.Line(t.ContainerID, maxID),
	}
}

// moment returns a time with the precision of API servers, a second, and zero if they could not
// decode it.
func moment(t metav1.Time) metav1.Time {
	utc := t.UTC()
	if t.IsZero() || utc.Year() < 1 || utc.Year() > 9999 {
		return metav1.Time{}
	}
	return metav1.Time{Time: utc.Truncate(time.Second)}
}

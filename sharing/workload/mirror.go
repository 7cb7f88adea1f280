package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

// IsCopy reports whether theirs is the copy of mine, and not of an earlier pod of the same
// name: its AnnotationOriginUID is the UID of mine.
func IsCopy(mine, theirs *corev1.Pod) bool {
	return mine.UID != "" && theirs.Annotations[AnnotationOriginUID] == string(mine.UID)
}

// Mirror returns the status of mine, given its copy theirs at the provider. It does not expect
// theirs to be well-formed: it leaves out what the API server would refuse, bounds lengths and
// removes control characters; names of the provider in texts are replaced by those of this cluster. Times of conditions are from this cluster's clock: now if the
// condition changed. The result shares nothing with the arguments.
//
// Of the fields of a PodStatus:
//   - phase, reason, message, and the statuses of containers, init containers and ephemeral
//     containers are the provider's. A pod or container that has ended stays ended.
//   - Conditions that a kubelet sets are the provider's, with the readiness gates of this
//     cluster. All others, such as PodScheduled, are this cluster's. DisruptionTarget is
//     taken from either.
//   - podIP and podIPs are the addresses by which the pod is reached from this cluster. If
//     the two networks are not connected they are empty, because an address of the provider
//     may belong to another pod here: Services would send traffic to it, and network policies
//     would apply to it. While no packets pass, the pod is not ready.
//   - hostIP and hostIPs are empty. With the address of a local node, network plugins would
//     take the pod for a local one.
//   - startTime is the provider's, within the lifetime of mine, and never changes.
//   - observedGeneration is that of mine once the copy has all its changes.
//   - qosClass, nominatedNodeName and the states of resource claims are this cluster's.
//   - resize is Infeasible, and the condition PodResizePending says so.
//   - resources and allocatedResources, and user, volumeMounts, stopSignal and
//     allocatedResourcesStatus of containers are empty: they are about the provider's node,
//     and some of them would influence this cluster's scheduler.
func Mirror(mine, theirs *corev1.Pod, in Origin, now time.Time) corev1.PodStatus {
	theirs = atHome(mine, theirs, in)
	switch c := condition(theirs.Status.Conditions, corev1.PodScheduled); {
	case Ended(mine.Status.Phase) && !Ended(theirs.Status.Phase):
		return *mine.Status.DeepCopy() // theirs is from before the end
	case c != nil && c.Status == corev1.ConditionFalse && theirs.Spec.NodeName == "" && !Ended(theirs.Status.Phase):
		return Waiting(mine, unschedulable(c), now)
	}
	out := base(mine)
	if !Ended(mine.Status.Phase) {
		switch theirs.Status.Phase {
		case corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
			out.Phase = theirs.Status.Phase
		}
		out.Reason = text.Line(theirs.Status.Reason, maxReason)
		out.Message = text.Lines(theirs.Status.Message, maxMessage)
	}
	if out.StartTime == nil && theirs.Status.StartTime != nil {
		out.StartTime = &metav1.Time{Time: within(theirs.Status.StartTime.Time, mine.CreationTimestamp.Time, now)}
	}
	if seen := theirs.Status.ObservedGeneration; mine.Generation > out.ObservedGeneration && (seen == 0 || seen >= theirs.Generation) {
		_, behind := Change(mine, theirs, in)
		if waits, _, _ := Ephemeral(mine, theirs, nil); !behind && waits == "" {
			out.ObservedGeneration = mine.Generation
		}
	}

	size := budget(containersIn(&mine.Spec))
	unseen := corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if len(mine.Spec.InitContainers) > 0 {
		unseen.Reason = "PodInitializing"
	}
	out.InitContainerStatuses = containerStatuses(mine.Spec.InitContainers, mine, mine.Status.InitContainerStatuses, theirs.Status.InitContainerStatuses, unseen, size)
	out.ContainerStatuses = containerStatuses(mine.Spec.Containers, mine, mine.Status.ContainerStatuses, theirs.Status.ContainerStatuses, unseen, size)
	out.EphemeralContainerStatuses = containerStatuses(ephemerals(&mine.Spec), mine, mine.Status.EphemeralContainerStatuses, theirs.Status.EphemeralContainerStatuses, unseen, size)

	if out.PodIPs = in.Network.addresses(mine.Status.PodIPs, theirs.Status.PodIPs); len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}

	set := setter{out: &out, before: mine.Status.Conditions, now: now}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized} {
		if c := condition(theirs.Status.Conditions, kind); c != nil {
			set.as(kind, c)
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		c := condition(theirs.Status.Conditions, kind)
		if c == nil {
			c = &corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "The provider has not reported it yet."}
		}
		if c.Status == corev1.ConditionTrue {
			c = ready(kind, c, mine, &out, in.Network)
		}
		set.as(kind, c)
	}
	if c := condition(theirs.Status.Conditions, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		set.as(corev1.DisruptionTarget, c)
	}
	if resized(mine, theirs) {
		set.as(corev1.PodResizePending, &corev1.PodCondition{
			Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "Pods on a virtual node cannot be resized: create a new pod with the new resources.",
		})
	}
	return out
}

// within returns t, a time of another clock, moved into what is possible.
func within(t, earliest, latest time.Time) time.Time {
	if t.Before(earliest) {
		t = earliest
	}
	if t.After(latest) {
		t = latest
	}
	return t.UTC().Truncate(time.Second)
}

// base returns the part of the status of mine that does not depend on the provider.
func base(mine *corev1.Pod) corev1.PodStatus {
	s := mine.Status.DeepCopy()
	out := corev1.PodStatus{
		ObservedGeneration: s.ObservedGeneration, Phase: s.Phase, Reason: s.Reason, Message: s.Message,
		NominatedNodeName: s.NominatedNodeName,
		StartTime:         s.StartTime, QOSClass: s.QOSClass,
		ResourceClaimStatuses: s.ResourceClaimStatuses, ExtendedResourceClaimStatus: s.ExtendedResourceClaimStatus,
		NodeAllocatableResourceClaimStatuses: s.NodeAllocatableResourceClaimStatuses,
	}
	if out.Phase == "" || out.Phase == corev1.PodUnknown {
		out.Phase = corev1.PodPending
	}
	if s.Resize != "" {
		out.Resize = corev1.PodResizeStatusInfeasible
	}
	known := make(map[corev1.PodConditionType]bool)
	for _, c := range s.Conditions {
		if known[c.Type] || c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			continue
		}
		known[c.Type] = true
		out.Conditions = append(out.Conditions, c)
	}
	return out
}

// Ended reports whether a pod in that phase has ended for good.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// unschedulable returns why the provider's scheduler found no node.
func unschedulable(c *corev1.PodCondition) *Refusal {
	message := "The provider has no node for the pod"
	if said := strings.TrimRight(text.Lines(c.Message, maxMessage-200), ". "); said != "" {
		message += ": " + said
	}
	return &Refusal{ReasonRemoteUnschedulable, message + "."}
}

// resized reports whether mine requests other resources than its copy, after an in-place
// resize.
func resized(mine, theirs *corev1.Pod) bool {
	for i := range mine.Spec.Containers {
		want := &mine.Spec.Containers[i]
		at := slices.IndexFunc(theirs.Spec.Containers, func(c corev1.Container) bool { return c.Name == want.Name })
		if at < 0 {
			continue
		}
		have := &theirs.Spec.Containers[at].Resources
		if differ(want.Resources.Requests, have.Requests) || differ(want.Resources.Limits, have.Limits) {
			return true
		}
	}
	return false
}

// differ compares the resources that can be resized.
func differ(want, have corev1.ResourceList) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		w, wanted := want[name]
		h, has := have[name]
		if wanted && has && w.Cmp(h) != 0 {
			return true
		}
	}
	return false
}

// Missing returns the refusal of a pod that waits for ConfigMaps and Secrets of these names, of
// which there is at least one.
func Missing(configMaps, secrets []string) *Refusal {
	var what []string
	for kind, names := range map[string][]string{"ConfigMap": configMaps, "Secret": secrets} {
		for _, name := range names {
			what = append(what, fmt.Sprintf("%s %q", kind, text.Line(name, 253)))
		}
	}
	slices.Sort(what)
	return &Refusal{ReasonMissingReference, "The pod needs objects that do not exist: " + text.List(what, 8, ", ") + ". It starts when they are created."}
}

// SameStatus reports whether a and b are semantically equal: empty and nil lists, quantities and
// times in another notation, and conditions in another order are equal.
func SameStatus(a, b *corev1.PodStatus) bool {
	x, y := *a, *b
	x.Conditions, y.Conditions = sorted(a.Conditions), sorted(b.Conditions)
	return equality.Semantic.DeepEqual(x, y)
}

func sorted(conditions []corev1.PodCondition) []corev1.PodCondition {
	out := slices.Clone(conditions)
	slices.SortStableFunc(out, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

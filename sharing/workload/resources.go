package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// Requests returns what the scheduler reserves for pod (with init and sidecar containers,
// pod-level resources and overhead, by k8s.io/component-helpers/resource), and pods: 1.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	out := helper.PodRequests(pod, helper.PodResourcesOptions{})
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

// Limits returns the sum of the limits of pod, by the same rules. Resources without
// a limit are absent.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return helper.PodLimits(pod, helper.PodResourcesOptions{})
}

// Add adds more to sum.
func Add(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name].DeepCopy()
		have.Add(q)
		sum[name] = have
	}
}

// Exceeded returns the resources, by name, of which more is not zero, and used and more
// together exceed hard. What is not in hard counts as zero.
func Exceeded(used, more, hard corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for name, q := range more {
		if q.IsZero() {
			continue
		}
		sum := used[name].DeepCopy()
		sum.Add(q)
		if sum.Cmp(hard[name]) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

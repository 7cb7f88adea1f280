package vnode

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// defaultPods is how many pods fit on a node whose offer does not say so: as many
	// as a kubelet takes by default.
	defaultPods = 110

	// The largest amounts that a node says. The scheduler multiplies them by small
	// numbers in 64 bits, and nobody has more.
	maxMilliCPU = 1_000_000_000 // a million cores
	maxPods     = 100_000
	maxAmount   = 1 << 53 // bytes, or anything else

	maxResources = 64
)

// amounts returns what of an offer a node can say: known resources and extended
// ones, in whole units, or milli-units of cpu, rounded down.
func amounts(hard map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(defaultPods, resource.DecimalSI)}
	n := 0
	for _, name := range sortedKeys(hard) {
		if !known(name) {
			continue
		}
		quantity, err := resource.ParseQuantity(hard[name])
		if err != nil || quantity.Sign() < 0 {
			continue
		}
		if extended(name) {
			if n++; n > maxResources {
				continue
			}
		}
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU:
			out[corev1.ResourceCPU] = *resource.NewMilliQuantity(floor(quantity, resource.Milli, maxMilliCPU), resource.DecimalSI)
		case corev1.ResourcePods:
			out[corev1.ResourcePods] = *resource.NewQuantity(floor(quantity, 0, maxPods), resource.DecimalSI)
		default:
			out[corev1.ResourceName(name)] = *resource.NewQuantity(floor(quantity, 0, maxAmount), quantity.Format)
		}
	}
	return out
}

// floor returns how many whole units of a scale are in a quantity, at most most.
func floor(q resource.Quantity, scale resource.Scale, most int64) int64 {
	if q.Cmp(*resource.NewScaledQuantity(most, scale)) >= 0 {
		return most
	}
	v := q.ScaledValue(scale) // rounded up
	if resource.NewScaledQuantity(v, scale).Cmp(q) > 0 {
		v--
	}
	return v
}

// known reports whether a node can have a resource.
func known(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return extended(name)
}

// extended reports whether a resource is one that devices and the like have, as
// Kubernetes defines it.
func extended(name string) bool {
	domain, _, prefixed := strings.Cut(name, "/")
	return prefixed && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

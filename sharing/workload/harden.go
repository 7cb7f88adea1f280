package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// rawSockets is the capability that lets a pod send in the name of others on its network: with
// ARP it can take over the address of the node.
const rawSockets corev1.Capability = "NET_RAW"

// harden sets the security fields that a guest's pod leaves unset to the safe value. Explicit
// values stay within Pod Security: under "baseline" a pod may set allowPrivilegeEscalation,
// which programs such as sudo need. Limits of ephemeral storage above the offer are lowered
// to it.
func harden(spec *corev1.PodSpec, in Guest) {
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return // has none of these fields: API servers refuse them
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.SecurityContext.SeccompProfile == nil {
		spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			hardenContainer(&list[i], in)
		}
	}
	storage, memory := in.Offer[corev1.ResourceEphemeralStorage], in.Offer[corev1.ResourceMemory]
	for _, v := range spec.Volumes {
		if v.EmptyDir == nil {
			continue
		}
		limit, given := storage, v.EmptyDir.SizeLimit
		if v.EmptyDir.Medium == corev1.StorageMediumMemory {
			limit = memory
		}
		if limit.Sign() > 0 && (given == nil || given.IsZero() || given.Cmp(limit) > 0) {
			v.EmptyDir.SizeLimit = &limit
		}
	}
}

func hardenContainer(c *corev1.Container, in Guest) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	sc, no := c.SecurityContext, false
	if sc.AllowPrivilegeEscalation == nil && (sc.Privileged == nil || !*sc.Privileged) {
		sc.AllowPrivilegeEscalation = &no
	}
	if sc.Capabilities == nil {
		sc.Capabilities = &corev1.Capabilities{}
	}
	drops := func(c corev1.Capability) bool { return c == "ALL" || c == rawSockets } // as container runtimes spell them
	if !slices.ContainsFunc(sc.Capabilities.Drop, drops) {
		sc.Capabilities.Drop = append(slices.Clone(sc.Capabilities.Drop), rawSockets)
	}
	if limit := in.Offer[corev1.ResourceEphemeralStorage]; limit.Sign() > 0 {
		if given, limited := c.Resources.Limits[corev1.ResourceEphemeralStorage]; !limited || given.Cmp(limit) > 0 {
			limits := c.Resources.Limits.DeepCopy()
			if limits == nil {
				limits = corev1.ResourceList{}
			}
			limits[corev1.ResourceEphemeralStorage] = limit
			c.Resources.Limits = limits
		}
	}
}

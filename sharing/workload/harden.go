package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// rawSockets is the capability with which a pod speaks as any other one on its
// network: by ARP it takes the place of the node's own address.
const rawSockets corev1.Capability = "NET_RAW"

// harden fills in what a guest's pod left open, always the safe way. What a pod says
// itself stays as far as Pod Security lets it, as allowPrivilegeEscalation does, which
// programs such as sudo need, under the standard "baseline". Limits of what it writes
// that are above the offer are lowered to that.
func harden(spec *corev1.PodSpec, in Guest) {
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return // has none of this, and an API server refuses it there
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

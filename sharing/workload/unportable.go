package workload

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer/text"
)

// stay is the advice for a pod that cannot be offloaded.
const stay = "keep the pod on nodes of its own cluster, with a node affinity for " + LabelType + " NotIn " + VirtualNode

// The lists of what Pod Security's level baseline allows
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
var (
	capabilities = []corev1.Capability{
		"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
		"SETUID", "SYS_CHROOT",
	}
	seLinuxTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
	sysctls      = []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}
)

// unportable returns a sentence about the first field of a pod that cannot work in another
// cluster, or that no provider permits to guests; "" for none.
func unportable(spec *corev1.PodSpec) string {
	switch {
	case spec.HostNetwork, spec.HostPID, spec.HostIPC:
		return "hostNetwork, hostPID and hostIPC refer to the host, which belongs to another cluster on a virtual node: remove them, or " + stay + "."
	case spec.OS != nil && spec.OS.Name != corev1.Linux:
		return fmt.Sprintf("The pod needs the operating system %s, but virtual nodes are linux: %s.", text.Line(string(spec.OS.Name), 32), stay)
	case len(spec.ResourceClaims) > 0:
		return "resourceClaims refer to devices in the pod's own cluster: use extended resources of the virtual node, or " + stay + "."
	}
	for i := range spec.Volumes {
		if s := unportableVolume(&spec.Volumes[i]); s != "" {
			return s
		}
	}
	if s := unportablePodSecurity(spec.SecurityContext); s != "" {
		return s
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if s := unportableContainer(&list[i]); s != "" {
				return s
			}
		}
	}
	return ""
}

func unportableVolume(v *corev1.Volume) string {
	name, s := text.Line(v.Name, 63), &v.VolumeSource
	instead := "use emptyDir, configMap, secret, downwardAPI, projected or image volumes, or " + stay + "."
	switch {
	case s.HostPath != nil:
		return fmt.Sprintf("Volume %q is a hostPath, and the host of a virtual node belongs to another cluster: %s", name, instead)
	case s.Ephemeral != nil:
		return fmt.Sprintf("Volume %q is a generic ephemeral volume, whose claim is only in the pod's own cluster: %s", name, instead)
	case s.CSI != nil:
		return fmt.Sprintf("Volume %q is an inline csi volume, whose driver belongs to the pod's own cluster: %s", name, instead)
	case s.EmptyDir != nil:
		if m := s.EmptyDir.Medium; m != corev1.StorageMediumDefault && m != corev1.StorageMediumMemory {
			return fmt.Sprintf("Volume %q is an emptyDir of medium %s, which virtual nodes do not support: use medium Memory or none, or %s.", name, text.Line(string(m), 32), stay)
		}
		return ""
	case s.Projected != nil:
		for _, p := range s.Projected.Sources {
			if p.ServiceAccountToken != nil || p.ClusterTrustBundle != nil || p.PodCertificate != nil {
				return fmt.Sprintf("Volume %q has a service account token, trust bundle or pod certificate, which are only valid in the pod's own cluster: "+
					"put what the pod needs into a Secret, or %s.", name, stay)
			}
		}
		return ""
	case s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.Image != nil, s.PersistentVolumeClaim != nil: // see mountClaims
		return ""
	}
	return fmt.Sprintf("Volume %q is of a type that virtual nodes do not support: %s", name, instead)
}

func unportablePodSecurity(c *corev1.PodSecurityContext) string {
	if c == nil {
		return ""
	}
	for _, s := range c.Sysctls {
		if !slices.Contains(sysctls, s.Name) {
			return fmt.Sprintf("The pod sets the sysctl %s, which guests may not set: remove it, or %s.", text.Line(s.Name, 128), stay)
		}
	}
	return unportableSecurity("The pod", c.WindowsOptions, c.SELinuxOptions, c.SeccompProfile, c.AppArmorProfile)
}

// unportableSecurity checks the fields that the security contexts of pods and containers share.
func unportableSecurity(who string, w *corev1.WindowsSecurityContextOptions, se *corev1.SELinuxOptions, sc *corev1.SeccompProfile, aa *corev1.AppArmorProfile) string {
	switch {
	case w != nil:
		return who + " has windowsOptions, but virtual nodes are linux: remove them, or " + stay + "."
	case se != nil && (se.User != "" || se.Role != "" || !slices.Contains(seLinuxTypes, se.Type)):
		return who + " sets an SELinux user, role or type that guests may not set: use a type such as container_t, or " + stay + "."
	case sc != nil && sc.Type != corev1.SeccompProfileTypeRuntimeDefault && sc.Type != corev1.SeccompProfileTypeLocalhost:
		return who + " disables seccomp, which guests may not do: use the seccompProfile RuntimeDefault, or " + stay + "."
	case aa != nil && aa.Type != corev1.AppArmorProfileTypeRuntimeDefault && aa.Type != corev1.AppArmorProfileTypeLocalhost:
		return who + " disables AppArmor, which guests may not do: use the appArmorProfile RuntimeDefault, or " + stay + "."
	}
	return ""
}

func unportableContainer(c *corev1.Container) string {
	who := fmt.Sprintf("Container %q", text.Line(c.Name, 63))
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			return fmt.Sprintf("%s has hostPort %d, and the host of a virtual node belongs to another cluster: remove hostPort, or %s.", who, p.HostPort, stay)
		}
	}
	for _, m := range c.VolumeMounts {
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
			return fmt.Sprintf("%s mounts %q with propagation to the host, which guests may not do: use HostToContainer or None, or %s.", who, text.Line(m.Name, 63), stay)
		}
	}
	switch {
	case len(c.VolumeDevices) > 0:
		return fmt.Sprintf("%s uses block devices, which virtual nodes do not support: %s.", who, stay)
	case len(c.Resources.Claims) > 0:
		return fmt.Sprintf("%s claims resources of the pod's own cluster: use extended resources of the virtual node, or %s.", who, stay)
	}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name := range list {
			if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				return fmt.Sprintf("%s requests huge pages, which virtual nodes do not support: remove them, or %s.", who, stay)
			}
		}
	}
	if probesHost(c) {
		return fmt.Sprintf("%s sets a host in a probe or lifecycle hook, which the host of the provider would call: remove it, so that the pod itself is called, or %s.", who, stay)
	}
	s := c.SecurityContext
	switch {
	case s == nil:
		return ""
	case s.Privileged != nil && *s.Privileged:
		return fmt.Sprintf("%s is privileged, which guests may not be: set privileged: false, or %s.", who, stay)
	case s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount:
		return fmt.Sprintf("%s has a procMount other than Default, which guests may not have: remove it, or %s.", who, stay)
	case s.Capabilities != nil:
		for _, added := range s.Capabilities.Add {
			if !slices.Contains(capabilities, added) {
				return fmt.Sprintf("%s adds the capability %s, which guests may not have: remove it, or %s.", who, text.Line(string(added), 64), stay)
			}
		}
	}
	return unportableSecurity(who, s.WindowsOptions, s.SELinuxOptions, s.SeccompProfile, s.AppArmorProfile)
}

func probesHost(c *corev1.Container) bool {
	named := func(http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) bool {
		return http != nil && http.Host != "" || tcp != nil && tcp.Host != ""
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil && named(p.HTTPGet, p.TCPSocket) {
			return true
		}
	}
	if c.Lifecycle == nil {
		return false
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil && named(h.HTTPGet, h.TCPSocket) {
			return true
		}
	}
	return false
}

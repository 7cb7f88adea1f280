package workload

import corev1 "k8s.io/api/core/v1"

// maxGrace is the longest grace period of a consumer's pod, in seconds.
const maxGrace = 3600

// portable returns the fields of a pod's spec that mean the same in every cluster. Fields that
// are not listed here are not sent. spec has passed [unportable]; the result shares memory
// with it.
func portable(spec *corev1.PodSpec) corev1.PodSpec {
	no := false
	out := corev1.PodSpec{
		Volumes:                       volumes(spec.Volumes),
		InitContainers:                containers(spec.InitContainers),
		Containers:                    containers(spec.Containers),
		RestartPolicy:                 spec.RestartPolicy,
		TerminationGracePeriodSeconds: grace(spec.TerminationGracePeriodSeconds),
		ActiveDeadlineSeconds:         spec.ActiveDeadlineSeconds,
		DNSPolicy:                     spec.DNSPolicy,
		AutomountServiceAccountToken:  &no,
		ShareProcessNamespace:         spec.ShareProcessNamespace,
		SecurityContext:               spec.SecurityContext,
		ImagePullSecrets:              spec.ImagePullSecrets,
		Hostname:                      spec.Hostname,
		Subdomain:                     spec.Subdomain,
		HostAliases:                   spec.HostAliases,
		DNSConfig:                     spec.DNSConfig,
		EnableServiceLinks:            &no,
		SetHostnameAsFQDN:             spec.SetHostnameAsFQDN,
		OS:                            spec.OS,
		Resources:                     resources(spec.Resources),
		HostnameOverride:              spec.HostnameOverride,
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		out.HostUsers = &no
	}
	return out
}

func grace(seconds *int64) *int64 {
	if seconds == nil {
		return nil
	}
	bounded := min(max(*seconds, 0), maxGrace)
	return &bounded
}

func resources(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: r.Limits, Requests: r.Requests}
}

func volumes(in []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for i := range in {
		v := &in[i]
		source := corev1.VolumeSource{
			EmptyDir: v.EmptyDir, ConfigMap: v.ConfigMap, Secret: v.Secret, DownwardAPI: v.DownwardAPI, Image: v.Image,
			PersistentVolumeClaim: v.PersistentVolumeClaim,
		}
		if v.Projected != nil {
			source.Projected = &corev1.ProjectedVolumeSource{DefaultMode: v.Projected.DefaultMode}
			for _, p := range v.Projected.Sources {
				source.Projected.Sources = append(source.Projected.Sources,
					corev1.VolumeProjection{Secret: p.Secret, DownwardAPI: p.DownwardAPI, ConfigMap: p.ConfigMap})
			}
		}
		out = append(out, corev1.Volume{Name: v.Name, VolumeSource: source})
	}
	return out
}

func containers(in []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range in {
		c := &in[i]
		out = append(out, corev1.Container{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir,
			Ports: ports(c.Ports), EnvFrom: envFrom(c.EnvFrom), Env: env(c.Env),
			Resources:    *resources(&c.Resources),
			ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
			VolumeMounts:  mounts(c.VolumeMounts),
			LivenessProbe: probe(c.LivenessProbe), ReadinessProbe: probe(c.ReadinessProbe), StartupProbe: probe(c.StartupProbe),
			Lifecycle:                lifecycle(c.Lifecycle),
			TerminationMessagePath:   c.TerminationMessagePath,
			TerminationMessagePolicy: c.TerminationMessagePolicy,
			ImagePullPolicy:          c.ImagePullPolicy,
			SecurityContext:          securityContext(c.SecurityContext),
			Stdin:                    c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY,
		})
	}
	return out
}

func ports(in []corev1.ContainerPort) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, p := range in {
		out = append(out, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
	}
	return out
}

func envFrom(in []corev1.EnvFromSource) []corev1.EnvFromSource {
	var out []corev1.EnvFromSource
	for _, e := range in {
		out = append(out, corev1.EnvFromSource{Prefix: e.Prefix, ConfigMapRef: e.ConfigMapRef, SecretRef: e.SecretRef})
	}
	return out
}

func env(in []corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range in {
		v := corev1.EnvVar{Name: e.Name, Value: e.Value}
		if f := e.ValueFrom; f != nil {
			v.ValueFrom = &corev1.EnvVarSource{
				FieldRef: f.FieldRef, ResourceFieldRef: f.ResourceFieldRef,
				ConfigMapKeyRef: f.ConfigMapKeyRef, SecretKeyRef: f.SecretKeyRef, FileKeyRef: f.FileKeyRef,
			}
		}
		out = append(out, v)
	}
	return out
}

func mounts(in []corev1.VolumeMount) []corev1.VolumeMount {
	var out []corev1.VolumeMount
	for _, m := range in {
		out = append(out, corev1.VolumeMount{
			Name: m.Name, ReadOnly: m.ReadOnly, RecursiveReadOnly: m.RecursiveReadOnly, MountPath: m.MountPath,
			SubPath: m.SubPath, MountPropagation: m.MountPropagation, SubPathExpr: m.SubPathExpr,
		})
	}
	return out
}

func probe(in *corev1.Probe) *corev1.Probe {
	if in == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: in.Exec, HTTPGet: in.HTTPGet, TCPSocket: in.TCPSocket, GRPC: in.GRPC},
		InitialDelaySeconds: in.InitialDelaySeconds, TimeoutSeconds: in.TimeoutSeconds, PeriodSeconds: in.PeriodSeconds,
		SuccessThreshold: in.SuccessThreshold, FailureThreshold: in.FailureThreshold,
		TerminationGracePeriodSeconds: grace(in.TerminationGracePeriodSeconds),
	}
}

func lifecycle(in *corev1.Lifecycle) *corev1.Lifecycle {
	if in == nil {
		return nil
	}
	return &corev1.Lifecycle{PostStart: handler(in.PostStart), PreStop: handler(in.PreStop), StopSignal: in.StopSignal}
}

func handler(in *corev1.LifecycleHandler) *corev1.LifecycleHandler {
	if in == nil {
		return nil
	}
	return &corev1.LifecycleHandler{Exec: in.Exec, HTTPGet: in.HTTPGet, TCPSocket: in.TCPSocket, Sleep: in.Sleep}
}

func securityContext(in *corev1.SecurityContext) *corev1.SecurityContext {
	if in == nil {
		return nil
	}
	return &corev1.SecurityContext{
		Capabilities: in.Capabilities, Privileged: in.Privileged, SELinuxOptions: in.SELinuxOptions,
		RunAsUser: in.RunAsUser, RunAsGroup: in.RunAsGroup, RunAsNonRoot: in.RunAsNonRoot,
		ReadOnlyRootFilesystem: in.ReadOnlyRootFilesystem, AllowPrivilegeEscalation: in.AllowPrivilegeEscalation,
		ProcMount: in.ProcMount, SeccompProfile: in.SeccompProfile, AppArmorProfile: in.AppArmorProfile,
	}
}

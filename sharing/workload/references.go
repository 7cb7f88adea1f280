package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// RootCA is the ConfigMap with the CA of the cluster, which exists in every namespace. It is
// never copied: pods that reference it get the provider's, and those with tokens their own
// cluster's, in their [TokenSecret].
const RootCA = "kube-root-ca.crt"

// Reference is a reference of a pod to a ConfigMap or Secret in its namespace.
type Reference struct {
	Name string
	// Optional: the pod runs without it. False if any of several references requires it.
	Optional bool
}

// References returns the ConfigMaps and Secrets that pod references in its environment, volumes
// and image pull secrets, each once, ordered by name. Those of ephemeral containers and image pull
// secrets are optional, as for a kubelet. [RootCA] is left out.
func References(pod *corev1.Pod) (configMaps, secrets []Reference) {
	c, s := make(found), make(found)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			environment(&list[i], c.add, s.add)
		}
	}
	yes := true
	optional := func(f found) func(string, *bool) { return func(name string, _ *bool) { f.add(name, &yes) } }
	for _, e := range ephemerals(&pod.Spec) {
		environment(&e, optional(c), optional(s))
	}
	for _, v := range pod.Spec.Volumes {
		if r := v.ConfigMap; r != nil {
			c.add(r.Name, r.Optional)
		}
		if r := v.Secret; r != nil {
			s.add(r.SecretName, r.Optional)
		}
		if v.Projected == nil || tokenVolume(&v) {
			continue
		}
		for _, p := range v.Projected.Sources {
			if p.ConfigMap != nil {
				c.add(p.ConfigMap.Name, p.ConfigMap.Optional)
			}
			if p.Secret != nil {
				s.add(p.Secret.Name, p.Secret.Optional)
			}
		}
	}
	for _, r := range pod.Spec.ImagePullSecrets {
		s.add(r.Name, &yes)
	}
	delete(c, RootCA)
	return c.list(), s.list()
}

// environment calls configMap and secret for what the environment of a container references.
func environment(c *corev1.Container, configMap, secret func(name string, optional *bool)) {
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			configMap(r.Name, r.Optional)
		}
		if r := from.SecretRef; r != nil {
			secret(r.Name, r.Optional)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if r := v.ValueFrom.ConfigMapKeyRef; r != nil {
			configMap(r.Name, r.Optional)
		}
		if r := v.ValueFrom.SecretKeyRef; r != nil {
			secret(r.Name, r.Optional)
		}
	}
}

// found says whether references are optional, by name.
type found map[string]bool

func (f found) add(name string, optional *bool) {
	if name == "" {
		return
	}
	before, known := f[name]
	f[name] = optional != nil && *optional && (before || !known)
}

func (f found) list() []Reference {
	var out []Reference
	for _, name := range slices.Sorted(maps.Keys(f)) {
		out = append(out, Reference{Name: name, Optional: f[name]})
	}
	return out
}

package workload

import corev1 "k8s.io/api/core/v1"

// Reference is the name of a ConfigMap or Secret in the namespace of the pod that
// names it.
type Reference struct {
	Name string
	// Optional: the pod runs without it too. False if it is required anywhere.
	Optional bool
}

// References returns the ConfigMaps and Secrets that pod names in environment,
// volumes and image pull secrets, each once, ordered by name. Image pull secrets
// count as optional, as they do for a kubelet.
func References(pod *corev1.Pod) (configMaps, secrets []Reference) {
	return nil, nil
}

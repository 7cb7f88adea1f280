package workload

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Origin is where a pod comes from, and where it is sent.
type Origin struct {
	// Cluster is the consumer: this cluster.
	Cluster peer.ClusterID
	// Namespace is the provider's namespace for that of the pod.
	Namespace string
	// Node is the name of the virtual node.
	Node string
	// Network says how the provider's pods are reached from here, nil if they are not.
	Network *Network
	// Tokens: the pod may have service account tokens with it. Otherwise it has none.
	Tokens bool
	// Claim returns what a claim of a local namespace is called at the provider, or why a pod
	// there cannot mount it. Nil: the provider has none.
	Claim func(namespace, name string) (remote string, why *Refusal)
}

// Translate returns the copy of pod for the provider, or why pod cannot run there. pod is bound
// to in.Node. The result shares nothing with pod, and is the same for the same arguments.
func Translate(pod *corev1.Pod, in Origin) (*corev1.Pod, *Refusal) {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "DaemonSet" {
			return nil, notOffloadable("The pod belongs to a DaemonSet, whose pods run only on nodes of their own cluster: " +
				"remove the toleration of " + TaintNotAllowed + " from the DaemonSet, or give it a node affinity for " + LabelType + " NotIn " + VirtualNode + ".")
		}
	}
	if in.Cluster == "" || in.Namespace == "" || pod.Name == "" || pod.UID == "" {
		return nil, &Refusal{ReasonInvalid, "The pod cannot be sent until it has a name and a UID, and the provider has a namespace for it: wait."}
	}
	mine := pod.DeepCopy()
	tokens := false
	if in.Tokens {
		var r *Refusal
		if tokens, r = mountTokens(mine); r != nil {
			return nil, r
		}
	} else {
		removeToken(&mine.Spec)
		if s := ownToken(&mine.Spec); s != "" {
			return nil, notOffloadable(s)
		}
	}
	if s := unportable(&mine.Spec); s != "" {
		return nil, notOffloadable(s)
	}
	if r := mountClaims(mine, in); r != nil {
		return nil, r
	}
	if s := emptied(mine); s != "" {
		return nil, notOffloadable(s)
	}
	for _, list := range [][]corev1.Container{mine.Spec.InitContainers, mine.Spec.Containers} {
		for i := range list {
			resolveEnv(list[i].Env, mine)
		}
	}
	renameFields(mine.Spec.Volumes)
	sayDomain(&mine.Spec, mine.Namespace, in.Network)

	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: mine.Name, Namespace: in.Namespace,
			Labels: carriedLabels(mine.Labels), Annotations: carriedAnnotations(mine.Annotations),
		},
		Spec: portable(&mine.Spec),
	}
	sent := appliedOf(out)
	sent.Tokens = tokens
	record, err := json.Marshal(sent)
	if err != nil {
		return nil, &Refusal{ReasonInvalid, "The pod cannot be encoded: " + err.Error() + "."}
	}
	out.Labels[LabelOriginCluster] = string(in.Cluster)
	out.Annotations[AnnotationOriginUID] = string(mine.UID)
	out.Annotations[AnnotationOriginNamespace] = mine.Namespace
	out.Annotations[AnnotationApplied] = string(record)
	switch raw, err := json.Marshal(out); {
	case err != nil:
		return nil, &Refusal{ReasonInvalid, "The pod cannot be encoded: " + err.Error() + "."}
	case len(raw) > MaxPod:
		return nil, notOffloadable(fmt.Sprintf("The pod has %d KiB, and providers accept %d KiB: move long texts into ConfigMaps.", len(raw)>>10, MaxPod>>10))
	}
	return out, nil
}

func notOffloadable(message string) *Refusal {
	return &Refusal{Reason: ReasonNotOffloadable, Message: message}
}

// tokenPrefix is the prefix of the volume that admission adds for the service account token.
const tokenPrefix = "kube-api-access-"

// tokenVolume reports whether v is that volume, and not one of the pod's author.
func tokenVolume(v *corev1.Volume) bool {
	if !strings.HasPrefix(v.Name, tokenPrefix) || v.Projected == nil {
		return false
	}
	token := false
	for _, p := range v.Projected.Sources {
		switch {
		case p.ServiceAccountToken != nil:
			token = true
		case p.ConfigMap != nil && p.ConfigMap.Name == RootCA, p.DownwardAPI != nil:
		default:
			return false
		}
	}
	return token
}

// removeToken removes the volume with the service account token: it is useless in another
// cluster, and a credential.
func removeToken(spec *corev1.PodSpec) {
	removed := make(map[string]bool)
	var kept []corev1.Volume
	for _, v := range spec.Volumes {
		if tokenVolume(&v) {
			removed[v.Name] = true
			continue
		}
		kept = append(kept, v)
	}
	spec.Volumes = kept
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			var mounts []corev1.VolumeMount
			for _, m := range list[i].VolumeMounts {
				if !removed[m.Name] {
					mounts = append(mounts, m)
				}
			}
			list[i].VolumeMounts = mounts
		}
	}
}

// resolveEnv replaces references to fields that differ in the copy by the value in pod.
func resolveEnv(env []corev1.EnvVar, pod *corev1.Pod) {
	for i := range env {
		from := env[i].ValueFrom
		if from == nil || from.FieldRef == nil {
			continue
		}
		if value, ok := fieldHere(from.FieldRef.FieldPath, pod); ok {
			// A kubelet expands $(NAME) in values, but not in field references.
			env[i].Value, env[i].ValueFrom = strings.ReplaceAll(value, "$", "$$"), nil
		}
	}
}

// fieldHere returns the value of a field of pod, and whether the copy has another one.
func fieldHere(path string, pod *corev1.Pod) (string, bool) {
	switch path {
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "spec.nodeName":
		return pod.Spec.NodeName, true
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true
	}
	if key, ok := keyIn(path, "metadata.labels"); ok {
		return pod.Labels[key], !carries(key)
	}
	if key, ok := keyIn(path, "metadata.annotations"); ok {
		return pod.Annotations[key], !carriesAnnotation(key)
	}
	return "", false
}

// keyIn returns the key in a path such as metadata.labels['key'].
func keyIn(path, field string) (key string, ok bool) {
	quoted, ok := strings.CutPrefix(path, field+"['")
	return strings.TrimSuffix(quoted, "']"), ok
}

// emptied returns a sentence about the first downward API file that would be empty at the
// provider, because its label or annotation is not sent; "" for none.
func emptied(pod *corev1.Pod) string {
	for _, file := range fieldFiles(pod.Spec.Volumes) {
		_, quoted, keyed := strings.Cut(file.FieldRef.FieldPath, "['")
		if value, stays := fieldHere(file.FieldRef.FieldPath, pod); keyed && stays && value != "" {
			return fmt.Sprintf("The file %q contains the value of %q, which is for controllers and is not sent to other clusters: "+
				"read it from an environment variable.", text.Line(file.Path, 128), text.Line(strings.TrimSuffix(quoted, "']"), 317))
		}
	}
	return ""
}

// renameFields makes downward API files with namespace or UID read the values of the origin
// pod, from annotations.
func renameFields(volumes []corev1.Volume) {
	for _, file := range fieldFiles(volumes) {
		switch file.FieldRef.FieldPath {
		case "metadata.namespace":
			file.FieldRef.FieldPath = "metadata.annotations['" + AnnotationOriginNamespace + "']"
		case "metadata.uid":
			file.FieldRef.FieldPath = "metadata.annotations['" + AnnotationOriginUID + "']"
		}
	}
}

// fieldFiles returns the downward API files in volumes that contain a field of the pod.
func fieldFiles(volumes []corev1.Volume) []*corev1.DownwardAPIVolumeFile {
	var out []*corev1.DownwardAPIVolumeFile
	add := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			if items[i].FieldRef != nil {
				out = append(out, &items[i])
			}
		}
	}
	for _, v := range volumes {
		if v.DownwardAPI != nil {
			add(v.DownwardAPI.Items)
		}
		if v.Projected != nil {
			for _, p := range v.Projected.Sources {
				if p.DownwardAPI != nil {
					add(p.DownwardAPI.Items)
				}
			}
		}
	}
	return out
}

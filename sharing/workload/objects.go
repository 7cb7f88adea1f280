package workload

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

// Config returns the server-side apply body (JSON) of the provider's copy of cm, or
// why it is not sent. The same ConfigMap gives the same bytes. Only the data goes
// along: pods see nothing else. Nor does immutable, which only counts where the
// original is.
func Config(cm *corev1.ConfigMap, in Origin) ([]byte, *Refusal) {
	if cm.Name == RootCA {
		return nil, notOffloadable("The ConfigMap " + RootCA + " exists in every cluster: pods get that of the provider.")
	}
	return write("ConfigMap", cm.Name, &configBody{body: bodyOf("ConfigMap", &cm.ObjectMeta, in), Data: cm.Data, BinaryData: cm.BinaryData})
}

// SecretOf is what [Config] is, for a Secret. Credentials of the consumer's own API
// server are refused.
func SecretOf(s *corev1.Secret, in Origin) ([]byte, *Refusal) {
	if credential(s.Type) {
		return nil, notOffloadable("The Secret " + text.Line(s.Name, 253) + " is a credential of the API server of this cluster, and is never sent: " +
			"put what the pod needs into a Secret of another type, or " + stay + ".")
	}
	return write("Secret", s.Name, &secretBody{body: bodyOf("Secret", &s.ObjectMeta, in), Type: s.Type, Data: s.Data})
}

func bodyOf(kind string, meta *metav1.ObjectMeta, in Origin) body {
	return body{TypeMeta: typeMeta(kind), Metadata: bodyMeta{
		Name: meta.Name, Namespace: in.Namespace,
		Labels:      map[string]string{LabelOriginCluster: string(in.Cluster)},
		Annotations: map[string]string{AnnotationOriginUID: string(meta.UID)},
	}}
}

func write(kind, name string, object any) ([]byte, *Refusal) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, invalid("The %s %s cannot be encoded: %s.", kind, text.Line(name, 253), text.Line(err.Error(), 200))
	}
	if len(raw) > MaxObject {
		return nil, &Refusal{ReasonNotOffloadable, kind + " " + text.Line(name, 253) + " is too large for a provider, which takes 1200 KiB of JSON (900 KiB of binary data): split it."}
	}
	return raw, nil
}

// SameConfig reports whether theirs is the copy that [Config] makes of mine.
func SameConfig(mine, theirs *corev1.ConfigMap, in Origin) bool {
	return sameMeta(&mine.ObjectMeta, &theirs.ObjectMeta, in) &&
		equality.Semantic.DeepEqual(mine.Data, theirs.Data) && equality.Semantic.DeepEqual(mine.BinaryData, theirs.BinaryData)
}

// SameSecret reports whether theirs is the copy that [SecretOf] makes of mine.
func SameSecret(mine, theirs *corev1.Secret, in Origin) bool {
	kind := func(t corev1.SecretType) corev1.SecretType {
		if t == "" {
			return corev1.SecretTypeOpaque
		}
		return t
	}
	return sameMeta(&mine.ObjectMeta, &theirs.ObjectMeta, in) &&
		kind(mine.Type) == kind(theirs.Type) && equality.Semantic.DeepEqual(mine.Data, theirs.Data)
}

func sameMeta(mine, theirs *metav1.ObjectMeta, in Origin) bool {
	return mine.Name == theirs.Name && theirs.Namespace == in.Namespace &&
		theirs.Labels[LabelOriginCluster] == string(in.Cluster) && theirs.Annotations[AnnotationOriginUID] == string(mine.UID)
}

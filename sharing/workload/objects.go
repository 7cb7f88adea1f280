package workload

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer/text"
)

// Config returns the body (JSON) of the server-side apply of the provider's copy of cm, or why
// it is not sent. The same ConfigMap gives the same bytes. Only the data is copied, because
// pods see nothing else; immutable is not, because it only matters for the original.
func Config(cm *corev1.ConfigMap, in Origin) ([]byte, *Refusal) {
	if cm.Name == RootCA {
		return nil, notOffloadable("The ConfigMap " + RootCA + " exists in every cluster: pods get that of the provider.")
	}
	return write("ConfigMap", cm.Name, &configBody{body: bodyOf("ConfigMap", &cm.ObjectMeta, in), Data: cm.Data, BinaryData: cm.BinaryData})
}

// SecretOf is [Config] for a Secret. It refuses credentials of the consumer's API server.
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

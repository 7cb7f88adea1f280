package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer/text"
)

// maxDeadline is the largest activeDeadlineSeconds that API servers accept.
const maxDeadline = 1<<31 - 1

// AdmitPatch checks a patch of type [PatchType] of a pod, and returns the patch that may be
// applied instead, or why it is refused. It may change labels, annotations, images and
// activeDeadlineSeconds, and have a UID as a precondition. Other fields are refused rather
// than dropped, so that nobody believes them to be applied.
func AdmitPatch(raw []byte, in Guest) (clean []byte, r *Refusal) {
	if len(raw) > MaxPatch {
		return nil, invalid("The patch is larger than %d KiB: send a smaller one.", MaxPatch>>10)
	}
	if err := scan(raw, nil, maxNested); err != nil {
		return nil, invalid("The patch %s: send a JSON object.", text.Line(err.Error(), 200))
	}
	var p podPatch
	if r := strictly(raw, &p); r != nil {
		return nil, r
	}
	if p.Metadata.UID != "" && !uidPattern.MatchString(string(p.Metadata.UID)) {
		return nil, invalid("The UID in the patch is invalid: use that of the pod here, or remove it.")
	}
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Labels)) {
		if r := admitKey("label", key, carries(key)); r != nil {
			return nil, r
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		if r := admitKey("annotation", key, ownAnnotation(key) || carriesAnnotation(key)); r != nil {
			return nil, r
		}
	}
	if ns := p.Metadata.Annotations[AnnotationOriginNamespace]; ns != nil && len(validation.IsDNS1123Label(*ns)) > 0 {
		return nil, invalid("The annotation %s must be the name of a namespace: set it to that of the origin pod.", AnnotationOriginNamespace)
	}
	if p.Spec != nil {
		if d := p.Spec.ActiveDeadlineSeconds; d != nil && (*d < 0 || *d > maxDeadline) {
			return nil, invalid("activeDeadlineSeconds is %d, which is out of range: use 0 to %d.", *d, maxDeadline)
		}
		for _, image := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if image.Image == "" || len(validation.IsDNS1123Label(image.Name)) > 0 {
				return nil, invalid("The patch has a container without name or image: set both.")
			}
			if r := admitImage(fmt.Sprintf("Container %q", image.Name), image.Image, in); r != nil {
				return nil, r
			}
		}
	}
	clean, err := json.Marshal(p)
	if err != nil {
		return nil, invalid("The patch cannot be encoded: %s.", text.Line(err.Error(), 200))
	}
	return clean, nil
}

// strictly decodes a patch, and refuses fields that podPatch does not have.
func strictly(raw []byte, into *podPatch) *Refusal {
	var all map[string]any
	if err := utiljson.Unmarshal(raw, &all); err != nil {
		return invalid("The patch is not a JSON object: %s.", text.Line(err.Error(), 200))
	}
	allowed := map[string][]string{
		"":         {"metadata", "spec"},
		"metadata": {"uid", "labels", "annotations"},
		"spec":     {"activeDeadlineSeconds", "initContainers", "containers"},
	}
	check := func(where string, m map[string]any, keys []string) *Refusal {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !slices.Contains(keys, key) {
				return forbidden("Guests may not change %q: change only labels, annotations, images or activeDeadlineSeconds.", text.Line(where+key, 128))
			}
		}
		return nil
	}
	if r := check("", all, allowed[""]); r != nil {
		return r
	}
	for _, part := range []string{"metadata", "spec"} {
		m, _ := all[part].(map[string]any)
		if r := check(part+".", m, allowed[part]); r != nil {
			return r
		}
		for _, list := range []string{"initContainers", "containers"} {
			items, _ := m[list].([]any)
			for _, item := range items {
				c, _ := item.(map[string]any)
				if r := check(part+"."+list+".", c, []string{"name", "image"}); r != nil {
					return r
				}
			}
		}
	}
	if err := utiljson.Unmarshal(raw, into); err != nil {
		return invalid("The patch is not valid for a pod: %s.", text.Line(err.Error(), 200))
	}
	return nil
}

// AdmitObject checks the body of a server-side apply of the ConfigMap or Secret with that
// name, and returns the body (JSON) that may be applied instead, or why it is refused.
func AdmitObject(raw []byte, kind, name string, in Guest) (clean []byte, r *Refusal) {
	if len(raw) > MaxObject {
		return nil, invalid("The %s is larger than %d KiB: split it.", text.Line(kind, 32), MaxObject>>10)
	}
	if err := scan(raw, nil, maxNested); err != nil {
		return nil, invalid("The %s %s: send a valid object, as JSON.", text.Line(kind, 32), text.Line(err.Error(), 200))
	}
	var out any
	switch kind {
	case "ConfigMap":
		var cm corev1.ConfigMap
		if err := utiljson.Unmarshal(raw, &cm); err != nil {
			return nil, invalid("The document is not a ConfigMap: %s.", text.Line(err.Error(), 200))
		}
		meta, r := admitObjectMeta(cm.TypeMeta, &cm.ObjectMeta, kind, name, in)
		if r != nil {
			return nil, r
		}
		if name == RootCA {
			return nil, forbidden("The ConfigMap %s belongs to this cluster: do not change it.", RootCA)
		}
		out = &configBody{body: body{TypeMeta: typeMeta(kind), Metadata: *meta, Immutable: cm.Immutable}, Data: cm.Data, BinaryData: cm.BinaryData}
	case "Secret":
		var s corev1.Secret
		if err := utiljson.Unmarshal(raw, &s); err != nil {
			return nil, invalid("The document is not a Secret: %s.", text.Line(err.Error(), 200))
		}
		meta, r := admitObjectMeta(s.TypeMeta, &s.ObjectMeta, kind, name, in)
		if r != nil {
			return nil, r
		}
		if credential(s.Type) {
			return nil, forbidden("Guests may not have Secrets of type %s, which are credentials of an API server: remove it.", text.Line(string(s.Type), 253))
		}
		data := s.Data
		for key, value := range s.StringData {
			if data == nil {
				data = make(map[string][]byte)
			}
			data[key] = []byte(value)
		}
		out = &secretBody{body: body{TypeMeta: typeMeta(kind), Metadata: *meta, Immutable: s.Immutable}, Type: s.Type, Data: data}
	default:
		return nil, forbidden("Guests cannot have objects of kind %q: only ConfigMaps and Secrets.", text.Line(kind, 63))
	}
	return encoded(kind, out)
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

func admitObjectMeta(t metav1.TypeMeta, sent *metav1.ObjectMeta, kind, name string, in Guest) (*bodyMeta, *Refusal) {
	if t != typeMeta(kind) {
		return nil, invalid("The document is not a v1 %s: send it to the path of its kind.", kind)
	}
	return admitOwnMeta(sent, kind, name, in)
}

// admitOwnMeta checks the metadata of an object other than a pod, which has no labels and
// annotations but those of the agent.
func admitOwnMeta(sent *metav1.ObjectMeta, kind, name string, in Guest) (*bodyMeta, *Refusal) {
	meta, r := admitMeta(sent, name, in)
	if r != nil {
		return nil, r
	}
	for _, keys := range []struct {
		what          string
		sent, allowed map[string]string
	}{{"label", sent.Labels, meta.Labels}, {"annotation", sent.Annotations, meta.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(keys.sent)) {
			if _, known := keys.allowed[key]; !known {
				return nil, forbidden("The %s has the %s %q, which pods do not need: remove it.", kind, keys.what, text.Line(key, 317))
			}
		}
	}
	return &bodyMeta{Name: meta.Name, Namespace: meta.Namespace, Labels: meta.Labels, Annotations: meta.Annotations}, nil
}

// credential reports whether secrets of a type are credentials of an API server.
func credential(t corev1.SecretType) bool {
	return t == corev1.SecretTypeServiceAccountToken || t == corev1.SecretTypeBootstrapToken
}

// body are the fields that ConfigMaps and Secrets share in the body of an apply. The applier
// owns what is in the body, so it must not have empty fields.
type body struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        bodyMeta `json:"metadata"`
	Immutable       *bool    `json:"immutable,omitempty"`
}

type bodyMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type configBody struct {
	body
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

type secretBody struct {
	body
	Type corev1.SecretType `json:"type,omitempty"`
	Data map[string][]byte `json:"data,omitempty"`
}

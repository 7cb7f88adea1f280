package vnode

import (
	"encoding/json"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/workload"
)

// OffloadingName is the name of the MutatingAdmissionPolicy and its binding, or of
// the MutatingWebhookConfiguration, by which pods tolerate virtual nodes.
const OffloadingName = "liqo-agent-offloading"

const (
	admissionPath = "/apis/admissionregistration.k8s.io/"

	pluralPolicies = "mutatingadmissionpolicies"
	pluralBindings = "mutatingadmissionpolicybindings"
	pluralWebhooks = "mutatingwebhookconfigurations"
)

// The conditions under which a pod gets the toleration, and how, in CEL. What is
// written here is stored in the API server: another text is another write.
const (
	celNoDaemon = `!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, o.kind == "DaemonSet" && has(o.controller) && o.controller)`
	celNoMirror = `!has(object.metadata.annotations) || !("kubernetes.io/config.mirror" in object.metadata.annotations)`
	// A claim is of this cluster. One that waits for its first pod would be made on that
	// pod's node, and cannot be on a virtual one.
	celNoClaim = `!has(object.spec.volumes) || !object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))`
	celNotYet  = `!has(object.spec.tolerations) || !object.spec.tolerations.exists(t, ` +
		`(has(t.key) && t.key != "" ? t.key == "` + workload.TaintNotAllowed + `" : has(t.operator) && t.operator == "Exists") && ` +
		`(!has(t.effect) || t.effect == "" || t.effect == "NoExecute") && ` +
		`(has(t.operator) && t.operator == "Exists" || has(t.value) && t.value == "true"))`
	celToleration = `Object.spec.tolerations{key: "` + workload.TaintNotAllowed + `", operator: "Exists", effect: "NoExecute"}`
	celPatch      = `has(object.spec.tolerations) ? ` +
		`[JSONPatch{op: "add", path: "/spec/tolerations/-", value: ` + celToleration + `}] : ` +
		`[JSONPatch{op: "add", path: "/spec/tolerations", value: [` + celToleration + `]}]`
)

// manifest is an object of admissionregistration.k8s.io.
type manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec     any `json:"spec,omitempty"`
	Webhooks any `json:"webhooks,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (m *manifest) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec, out.Webhooks = runtime.DeepCopyJSONValue(m.Spec), runtime.DeepCopyJSONValue(m.Webhooks)
	return &out
}

// shows reports whether an object is as wanted, and the agent's or the
// administrator's. Fields of which want says nothing do not count: API servers fill
// them in.
func (m *manifest) shows(want *manifest) bool {
	by := m.Labels[api.LabelManagedBy]
	return (by == api.ManagedByAgent || by == api.ManagedByAdministrator) && covers(m.Spec, want.Spec) && covers(m.Webhooks, want.Webhooks)
}

// over returns what an object is to be replaced with.
func (m *manifest) over(found *manifest) *manifest {
	out := *found
	out.ObjectMeta.Labels = maps.Clone(found.Labels)
	if out.Labels == nil {
		out.Labels = make(map[string]string)
	}
	maps.Copy(out.Labels, m.Labels)
	out.TypeMeta, out.Spec, out.Webhooks = m.TypeMeta, m.Spec, m.Webhooks
	return &out
}

func covers(found, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		f, _ := found.(map[string]any)
		for key, value := range w {
			if !covers(f[key], value) {
				return false
			}
		}
		return true
	case []any:
		f, _ := found.([]any)
		if len(f) != len(w) {
			return false
		}
		for i := range w {
			if !covers(f[i], w[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(found, want)
}

func newManifest(version, kind string) *manifest {
	return &manifest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/" + version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Name: OffloadingName, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
	}
}

// OffloadingSpecs returns what the MutatingAdmissionPolicy and its binding say.
func OffloadingSpecs() (policy, binding map[string]any) {
	policy = map[string]any{
		"failurePolicy":      "Ignore",
		"reinvocationPolicy": "IfNeeded",
		// With all that an API server would fill in: it compares this as a whole.
		"matchConstraints": map[string]any{
			"matchPolicy": "Equivalent", "objectSelector": map[string]any{},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{workload.LabelEnabled: "true"}},
			"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"}, "operations": []any{"CREATE"}, "scope": "*",
			}},
		},
		"matchConditions": []any{
			map[string]any{"name": "no-daemon", "expression": celNoDaemon},
			map[string]any{"name": "no-mirror", "expression": celNoMirror},
			map[string]any{"name": "no-claim", "expression": celNoClaim},
			map[string]any{"name": "not-yet", "expression": celNotYet},
		},
		"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": celPatch}}},
	}
	return policy, map[string]any{"policyName": OffloadingName}
}

// policyManifest is the MutatingAdmissionPolicy.
func policyManifest(version string) *manifest {
	m := newManifest(version, "MutatingAdmissionPolicy")
	m.Spec, _ = OffloadingSpecs()
	return m
}

// bindingManifest is the MutatingAdmissionPolicyBinding.
func bindingManifest(version string) *manifest {
	m := newManifest(version, "MutatingAdmissionPolicyBinding")
	_, m.Spec = OffloadingSpecs()
	return m
}

// webhookManifest is the MutatingWebhookConfiguration that a server made, under our
// name; nil for nil.
func webhookManifest(made map[string]any) *manifest {
	if made == nil {
		return nil
	}
	m := newManifest("v1", "MutatingWebhookConfiguration")
	text, err := json.Marshal(made["webhooks"])
	if err != nil || json.Unmarshal(text, &m.Webhooks) != nil { // so that it compares with what the API server says
		return nil
	}
	return m
}

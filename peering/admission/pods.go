package admission

import (
	"context"
	"encoding/json"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"liqo.io/agent/sharing/workload"
)

const (
	// MutatingWebhookName is the name of the MutatingWebhookConfiguration.
	MutatingWebhookName = "liqo-agent-offloading"

	podsHookName = "pods.sharing.liqo.io"

	toleratePath = "/admit/pods"

	// podsTimeoutSeconds is how long the API server waits for an answer about a pod.
	// Without one it creates the pod as it is.
	podsTimeoutSeconds = 2
	// claimsTimeout is how long it may take to find out whose the claims of a pod are, of which
	// it may have at most maxClaims.
	claimsTimeout = 1500 * time.Millisecond
	maxClaims     = 16
)

// pods is the one resource of which objects are changed.
var pods = reviewResource{Version: "v1", Resource: "pods"}

// MutatingWebhook returns the MutatingWebhookConfiguration that has the API server
// ask this server about new pods of namespaces with the label liqo.io/enabled=true,
// as JSON decodes it; nil while the server does not listen. Like that of Webhook, it
// is the same after every restart that gets the same port, and says all that an API
// server would fill in.
//
// It is for API servers that have no MutatingAdmissionPolicies, and with claims for the
// pods that mount claims, of which policies cannot say whose they are. A pod is created
// without waiting for an agent that is down, and then has no toleration.
func (s *Server) MutatingWebhook(claims bool) map[string]any {
	webhook := map[string]any{
		"name": podsHookName,
		"rules": []any{map[string]any{
			"apiGroups":   []any{pods.Group},
			"apiVersions": []any{pods.Version},
			"resources":   []any{pods.Resource},
			"operations":  []any{OperationCreate},
			"scope":       "Namespaced",
		}},
		"failurePolicy":      "Ignore",
		"reinvocationPolicy": "IfNeeded",
		"timeoutSeconds":     float64(podsTimeoutSeconds),
		"namespaceSelector":  map[string]any{"matchLabels": map[string]any{workload.LabelEnabled: "true"}},
	}
	if claims {
		webhook["matchConditions"] = []any{map[string]any{"name": "claims", "expression": celClaims}}
	}
	return s.configuration("MutatingWebhookConfiguration", MutatingWebhookName, toleratePath, webhook)
}

// celClaims is whether a pod mounts claims, in CEL.
const celClaims = `has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.persistentVolumeClaim))`

// reviewedPod is as much of a pod as the toleration depends on.
type reviewedPod struct {
	Metadata struct {
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec *struct {
		Tolerations []toleration `json:"tolerations"`
		Volumes     []struct {
			PersistentVolumeClaim *struct {
				ClaimName string `json:"claimName"`
			} `json:"persistentVolumeClaim"`
			Ephemeral *struct{} `json:"ephemeral"`
		} `json:"volumes"`
	} `json:"spec"`
}

type toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

const (
	exists       = "Exists"
	noExecute    = "NoExecute"
	mirrorMarker = "kubernetes.io/config.mirror"
)

// suffices reports whether a toleration lets a pod onto virtual nodes, for a time at
// least: who says for how long means it.
func (t toleration) suffices() bool {
	return (t.Key == workload.TaintNotAllowed || t.Key == "" && t.Operator == exists) &&
		(t.Effect == "" || t.Effect == noExecute) && (t.Operator == exists || t.Value == "true")
}

// patch is a JSON patch (RFC 6902). In a review it is text.
type patch []operation

// MarshalJSON implements json.Marshaler.
func (p patch) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal([]operation(p))
	if err != nil {
		return nil, err
	}
	return json.Marshal(text)
}

// operation is one step of a patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// tolerate answers a review of a pod: it is never refused, and gets the toleration
// unless it has it, or belongs to its node: pods of DaemonSets and those that stand
// for a kubelet's files do, and so does a pod with a claim that cannot be at a provider,
// and may be made on the pod's node. What cannot be read stays as it is.
func (s *Server) tolerate(r *reviewRequest) reviewResponse {
	out := reviewResponse{UID: r.UID, Allowed: true}
	if r.Resource != pods || r.SubResource != "" || r.Operation != OperationCreate {
		return out
	}
	var pod reviewedPod
	if len(r.Object) == 0 || utiljson.Unmarshal(r.Object, &pod) != nil || pod.Spec == nil {
		return out
	}
	if _, mirror := pod.Metadata.Annotations[mirrorMarker]; mirror {
		return out
	}
	for _, o := range pod.Metadata.OwnerReferences {
		if o.Kind == "DaemonSet" && o.Controller {
			return out
		}
	}
	for _, t := range pod.Spec.Tolerations {
		if t.suffices() {
			return out
		}
	}
	var claims []string
	for _, v := range pod.Spec.Volumes {
		if v.Ephemeral != nil {
			return out
		}
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if len(claims) > 0 && !s.ownClaims(r.Namespace, claims) {
		return out
	}
	added := toleration{Key: workload.TaintNotAllowed, Operator: exists, Effect: noExecute}
	step := operation{Op: "add", Path: "/spec/tolerations", Value: []toleration{added}}
	if pod.Spec.Tolerations != nil {
		step.Path, step.Value = "/spec/tolerations/-", added
	}
	out.Patch, out.PatchType = patch{step}, "JSONPatch"
	return out
}

// ownClaims reports whether claims of a namespace may be at providers.
func (s *Server) ownClaims(namespace string, names []string) bool {
	if s.cfg.OwnClaims == nil || len(names) > maxClaims {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimsTimeout)
	defer cancel()
	return s.cfg.OwnClaims(ctx, namespace, names)
}

package offload

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// byAddress are the lists of a status that a strategic merge patch merges by default
// instead of replacing them.
var byAddress = []string{"podIPs", "hostIPs", "resourceClaimStatuses"}

// statusPatch returns the strategic merge patch that changes the status of the pod with
// that UID. It leaves out equal conditions, so it does not overwrite what others write at
// the same time.
func statusPatch(uid types.UID, from, to *corev1.PodStatus) ([]byte, error) {
	before, err := fields(from)
	if err != nil {
		return nil, err
	}
	after, err := fields(to)
	if err != nil {
		return nil, err
	}
	status := make(map[string]any)
	for name, value := range after {
		if !reflect.DeepEqual(before[name], value) {
			status[name] = value
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			status[name] = nil
		}
	}
	if _, changed := status["conditions"]; changed {
		if status["conditions"] = conditions(from.Conditions, to.Conditions); len(to.Conditions) == 0 && len(from.Conditions) == 0 {
			delete(status, "conditions")
		}
	}
	for _, name := range byAddress {
		if list, ok := status[name].([]any); ok {
			status[name] = append([]any{map[string]any{"$patch": "replace"}}, list...)
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// conditions returns the patch of a list of conditions.
func conditions(from, to []corev1.PodCondition) []any {
	before := make(map[corev1.PodConditionType]*corev1.PodCondition)
	for i := range from {
		before[from[i].Type] = &from[i]
	}
	patch := []any{}
	for i := range to {
		c := &to[i]
		old := before[c.Type]
		delete(before, c.Type)
		if old != nil && reflect.DeepEqual(*old, *c) {
			continue
		}
		patch = append(patch, map[string]any{
			"type": c.Type, "status": c.Status, "reason": orNull(c.Reason), "message": orNull(c.Message),
			"lastTransitionTime": c.LastTransitionTime, "lastProbeTime": c.LastProbeTime, "observedGeneration": orNull(c.ObservedGeneration),
		})
	}
	for _, c := range from {
		if before[c.Type] != nil {
			patch = append(patch, map[string]any{"$patch": "delete", "type": c.Type})
		}
	}
	return patch
}

// orNull returns nil, which removes a field, for the zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// fields returns a status as decoded JSON.
func fields(s *corev1.PodStatus) (map[string]any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("status of a pod: %w", err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("status of a pod: %w", err)
	}
	return out, nil
}

package vnode

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// TestNetworkUnavailable: only a network that was there and is away is reported as missing. Where
// there is none, pods run without, and must not be kept away.
func TestNetworkUnavailable(t *testing.T) {
	down := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: workload.ReasonNetworkDown, Message: "Away."}
	for name, tc := range map[string]struct {
		network spec.Network
		now     []corev1.NodeCondition
		want    corev1.ConditionStatus
		reason  string
	}{
		"nothing is known":          {spec.Network{}, nil, corev1.ConditionFalse, "VirtualNode"},
		"it is being connected":     {spec.Network{Status: api.ConditionUnknown, Reason: "Connecting"}, nil, corev1.ConditionFalse, "VirtualNode"},
		"connected":                 {spec.Network{Status: api.ConditionTrue, Reason: "Connected"}, []corev1.NodeCondition{down}, corev1.ConditionFalse, "Connected"},
		"down":                      {spec.Network{Status: api.ConditionFalse, Reason: "NetworkDown"}, nil, corev1.ConditionTrue, "NetworkDown"},
		"down before a restart":     {spec.Network{Status: api.ConditionUnknown, Reason: "Connecting"}, []corev1.NodeCondition{down}, corev1.ConditionTrue, "NetworkDown"},
		"switched off":              {spec.Network{Status: api.ConditionFalse, Reason: "Off"}, []corev1.NodeCondition{down}, corev1.ConditionFalse, "Off"},
		"not wanted by the peer":    {spec.Network{Status: api.ConditionFalse, Reason: "NotWanted"}, nil, corev1.ConditionFalse, "NotWanted"},
		"several nodes":             {spec.Network{Status: api.ConditionFalse, Reason: "SeveralNodes"}, nil, corev1.ConditionFalse, "SeveralNodes"},
		"not possible on this host": {spec.Network{Status: api.ConditionFalse, Reason: "NotPossibleHere"}, nil, corev1.ConditionFalse, "NotPossibleHere"},
	} {
		node := &corev1.Node{}
		node.Name, node.Status.Conditions = "liqo-barn", tc.now
		w := wanted(spec.Node{ID: "x", Network: tc.network}, judgement{ready: true, reason: ReasonReady}, Kubelet{}, node)
		node.Status.Conditions = w.status.Conditions
		if c := condition(node, corev1.NodeNetworkUnavailable); c == nil || c.Status != tc.want || c.Reason != tc.reason || len(w.status.Conditions) != 5 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

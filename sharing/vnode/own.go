package vnode

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
)

// manager is the field manager of what the agent says on nodes.
const manager = "liqo-agent-node"

// AnnotationMetricsPath on a node tells metrics-server where the node says what its pods
// use, in place of the path of kubelets: all virtual nodes have the same port.
const AnnotationMetricsPath = "metrics.k8s.io/resource-metrics-path"

// trimNode keeps of a node what is looked at: of other people's nodes that they
// are there, and of ours all but who else set which field.
func trimNode(n *corev1.Node) {
	path, metrics := n.Annotations[AnnotationMetricsPath]
	n.Annotations = nil
	if whose(n) == "" {
		n.ObjectMeta = metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}
		n.Spec, n.Status = corev1.NodeSpec{ProviderID: n.Spec.ProviderID}, corev1.NodeStatus{}
		return
	}
	if metrics {
		n.Annotations = map[string]string{AnnotationMetricsPath: path}
	}
	n.ManagedFields = slices.DeleteFunc(n.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply
	})
}

// ownFields returns what the agent applied to a node, or to a subresource of it.
func ownFields(n *corev1.Node, subresource string) api.Fields {
	for _, m := range n.ManagedFields {
		if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == subresource {
			return api.FieldsOf(m.FieldsV1)
		}
	}
	return nil
}

// hasTaint reports whether a node has the taint.
func hasTaint(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, isTaint) }

// metaDiffers reports whether labels or cordon of a node are not as wanted. What
// others put there does not count.
func metaDiffers(n *corev1.Node, w want) bool {
	own := ownFields(n, "")
	for key, value := range w.labels {
		if now, there := n.Labels[key]; !there || now != value {
			return true
		}
	}
	for key := range own.At("f:metadata", "f:labels") {
		if _, wanted := w.labels[strings.TrimPrefix(key, "f:")]; !wanted {
			return true
		}
	}
	_, cordoned := own.At("f:spec")["f:unschedulable"]
	return w.cordon && !n.Spec.Unschedulable || !w.cordon && cordoned
}

// statusDiffers reports whether the status of a node is not as wanted. What others
// put there does not count, nor do times and messages: a provider that does not
// answer does so in many words.
func statusDiffers(n *corev1.Node, w want) bool {
	own := ownFields(n, "status")
	for _, m := range []struct {
		field     string
		now, want corev1.ResourceList
	}{{"f:capacity", n.Status.Capacity, w.status.Capacity}, {"f:allocatable", n.Status.Allocatable, w.status.Allocatable}} {
		for name, quantity := range m.want {
			if now, there := m.now[name]; !there || now.Cmp(quantity) != 0 {
				return true
			}
		}
		for name := range own.At("f:status", m.field) {
			if _, wanted := m.want[corev1.ResourceName(strings.TrimPrefix(name, "f:"))]; !wanted {
				return true
			}
		}
	}
	for _, c := range w.status.Conditions {
		if now := condition(n, c.Type); now == nil || now.Status != c.Status || now.Reason != c.Reason {
			return true
		}
	}
	for _, a := range w.status.Addresses {
		if !slices.Contains(n.Status.Addresses, a) {
			return true
		}
	}
	if len(w.status.Addresses) == 0 && own.At("f:status", "f:addresses") != nil {
		return true
	}
	return n.Status.DaemonEndpoints != w.status.DaemonEndpoints || !sameInfo(n.Status.NodeInfo, w.status.NodeInfo) ||
		!slices.EqualFunc(n.Status.Images, w.status.Images, func(a, b corev1.ContainerImage) bool {
			return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
		})
}

func sameInfo(a, b corev1.NodeSystemInfo) bool {
	return a.KubeletVersion == b.KubeletVersion && a.OperatingSystem == b.OperatingSystem && a.Architecture == b.Architecture &&
		a.ContainerRuntimeVersion == b.ContainerRuntimeVersion
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// timed returns the wanted conditions with their times: a condition that stays
// keeps its own.
func timed(n *corev1.Node, wanted []corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	out := slices.Clone(wanted)
	for i := range out {
		c := &out[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		old := condition(n, c.Type)
		if old == nil || old.Status != c.Status {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Reason == c.Reason {
			c.LastHeartbeatTime, c.Message = old.LastHeartbeatTime, old.Message
		}
	}
	return out
}

// isTaint reports whether a taint is the one of virtual nodes. The time that a
// controller may add to it does not count.
func isTaint(t corev1.Taint) bool {
	return t.Key == taint.Key && t.Effect == taint.Effect && t.Value == taint.Value
}

// tainted returns the taints of a node and ours.
func tainted(n *corev1.Node) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
	return append(out, taint)
}

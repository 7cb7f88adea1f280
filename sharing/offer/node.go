package offer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/workload"
)

const (
	// maxImages is how many images are told of, maxNames how many names of one,
	// maxImageName how long one may be, and maxImageText how much there may be in
	// bytes: consumers are asked what they have of it again and again.
	maxImages    = 50
	maxNames     = 5
	maxImageName = 256
	maxImageText = 32 << 10
)

// Node is as much of a Node as an offer depends on.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   NodeSpec   `json:"spec"`
	Status NodeStatus `json:"status"`
}

// NodeSpec is as much of a Node's spec as an offer depends on.
type NodeSpec struct {
	Unschedulable bool    `json:"unschedulable,omitempty"`
	Taints        []Taint `json:"taints,omitempty"`
}

// Taint is as much of a taint as an offer depends on.
type Taint struct {
	Effect string `json:"effect"`
}

// NodeStatus is as much of a Node's status as an offer depends on.
type NodeStatus struct {
	Allocatable map[string]string    `json:"allocatable,omitempty"`
	Conditions  []NodeCondition      `json:"conditions,omitempty"`
	NodeInfo    NodeInfo             `json:"nodeInfo"`
	Images      []api.ContainerImage `json:"images,omitempty"`
}

// NodeInfo says what runs on a node.
type NodeInfo struct {
	Architecture    string `json:"architecture,omitempty"`
	OperatingSystem string `json:"operatingSystem,omitempty"`
	KubeletVersion  string `json:"kubeletVersion,omitempty"`
}

const (
	// NodeReady is the type of the condition of a node that can run pods.
	NodeReady = "Ready"
	// NodeDiskPressure is that of one whose disk is nearly full: it evicts pods, and takes no more.
	NodeDiskPressure = "DiskPressure"
)

// NodeCondition is as much of a node's condition as an offer depends on.
type NodeCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// Trim drops what nobody reads. It may be called again with its own result.
func (n *Node) Trim() {
	n.ManagedFields, n.Annotations = nil, nil
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c NodeCondition) bool { return c.Type != NodeReady && c.Type != NodeDiskPressure })
	images := n.Status.Images[:0]
	for _, image := range n.Status.Images {
		if image.Names = tellable(image.Names); len(image.Names) > 0 {
			images = append(images, image)
		}
	}
	slices.SortFunc(images, largestFirst)
	n.Status.Images = slices.Clone(images[:min(len(images), maxImages)])
}

// tellable returns the names of an image that say most: those that people use, or
// else the one with the digest.
func tellable(names []string) []string {
	var out, digests []string
	for _, name := range names {
		switch {
		case name == "" || len(name) > maxImageName || strings.HasPrefix(name, "<none>"):
		case strings.Contains(name, "@"):
			digests = append(digests, name)
		case len(out) < maxNames:
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return digests[:min(len(digests), 1)]
	}
	return out
}

func largestFirst(a, b api.ContainerImage) int {
	return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
}

// usable reports whether a consumer's pod may be scheduled to the node: it is
// ready, takes pods, is not about to go, does not stand for another cluster, runs
// Linux, and has no taint, because such a pod tolerates none.
func (n *Node) usable() bool {
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t Taint) bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" })
	return slices.Contains(n.Status.Conditions, NodeCondition{Type: NodeReady, Status: "True"}) && !n.Spec.Unschedulable && !tainted &&
		n.Labels[workload.LabelType] != workload.VirtualNode && n.DeletionTimestamp == nil && n.system() == linux
}

// Only returns the name of the node that all pods of consumers run on: the only one of this cluster, if they may be scheduled
// to it; "" otherwise. One that takes no pods now counts as well, as it may take some later.
func Only(nodes []*Node) string {
	own := slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n.Labels[workload.LabelType] == workload.VirtualNode })
	if len(own) != 1 || !own[0].usable() {
		return ""
	}
	return own[0].Name
}

const (
	linux     = "linux"
	labelArch = "kubernetes.io/arch"
	labelOS   = "kubernetes.io/os"
)

// DiskPressed reports whether a node of this cluster itself says that its disk is nearly full.
func (n *Node) DiskPressed() bool {
	return slices.Contains(n.Status.Conditions, NodeCondition{Type: NodeDiskPressure, Status: "True"}) && n.Labels[workload.LabelType] != workload.VirtualNode
}

func (n *Node) system() string {
	return cmp.Or(n.Labels[labelOS], n.Status.NodeInfo.OperatingSystem, linux)
}

func (n *Node) architecture() string {
	return cmp.Or(n.Labels[labelArch], n.Status.NodeInfo.Architecture)
}

// DeepCopyObject implements runtime.Object.
func (n *Node) DeepCopyObject() runtime.Object {
	out := *n
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Taints = slices.Clone(n.Spec.Taints)
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	out.Status.Allocatable = maps.Clone(n.Status.Allocatable)
	out.Status.Images = slices.Clone(n.Status.Images)
	for i, image := range out.Status.Images {
		out.Status.Images[i].Names = slices.Clone(image.Names)
	}
	return &out
}

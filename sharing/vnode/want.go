package vnode

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// Labels of virtual nodes.
const (
	labelClusterID   = workload.LabelClusterID
	labelClusterName = "liqo.io/cluster-name"
	labelRole        = "node-role.kubernetes.io/agent"

	// labelVersion in an offer is the Kubernetes version of the provider.
	labelVersion = "liqo.io/provider-version"
)

const (
	// maxImages and maxImageNames bound what is said about the provider's images: as
	// much as a kubelet says.
	maxImages     = 50
	maxImageNames = 5
	maxImageName  = 256

	maxLabels = 64
)

// taint keeps pods away that are not meant for providers.
var taint = corev1.Taint{Key: workload.TaintNotAllowed, Value: "true", Effect: corev1.TaintEffectNoExecute}

// firmLabels say whose a node is. It has them from its creation on.
func firmLabels(id peer.ClusterID) map[string]string {
	return map[string]string{
		workload.LabelType: workload.VirtualNode,
		labelClusterID:     string(id),
		api.LabelManagedBy: api.ManagedByAgent,
	}
}

// want is what a node of ours is to be.
type want struct {
	labels map[string]string
	cordon bool
	status corev1.NodeStatus // of the conditions only type, status, reason and message
}

// judgement is what a node is to say about its provider.
type judgement struct {
	ready           bool
	reason, message string
	cordon          bool
}

// judge says how the node of a provider stands.
func judge(p spec.Node) judgement {
	why := text.Sentence(p.Why)
	if why == "" {
		why = "the provider does not answer"
	}
	switch {
	case !p.Wanted && p.Gone:
		return judgement{reason: ReasonGone, message: "the peering with the provider ended; the node is being removed", cordon: true}
	case p.Wanted && p.Offer == nil && p.Reachable:
		return judgement{reason: ReasonNoOffer, message: "the provider offers nothing at the moment", cordon: true}
	case p.Wanted && p.Offer == nil:
		return judgement{reason: ReasonExpired, message: "the offer expired, and the provider cannot be asked for another: " + why, cordon: true}
	case !p.Reachable:
		return judgement{reason: ReasonUnreachable, message: why, cordon: !p.Wanted}
	case p.Excess != "":
		return judgement{
			reason: ReasonExcess, cordon: !p.Wanted,
			message: "the provider sends more than the agent accepts; the agent asks again every minute: " + text.Sentence(p.Excess),
		}
	}
	return judgement{ready: true, reason: ReasonReady, message: "the provider answers", cordon: !p.Wanted}
}

// wanted returns what the node of a provider is to be. What an offer that is not
// there would say stays as it is in now.
func wanted(p spec.Node, j judgement, kubelet Kubelet, now *corev1.Node) want {
	w := want{labels: firmLabels(p.ID), cordon: j.cordon}
	w.labels[labelRole] = ""
	w.labels[corev1.LabelHostname] = now.Name
	if p.Name != "" && len(validation.IsValidLabelValue(p.Name)) == 0 {
		w.labels[labelClusterName] = p.Name
	}
	switch {
	case p.Offer != nil:
		addOffered(w.labels, p.Offer.Labels)
		w.status.Capacity = amounts(p.Offer.ResourceQuota.Hard)
		w.status.NodeInfo = nodeInfo(p.Offer.Labels)
		w.status.Images = images(p.Offer.Images)
	default:
		for key := range ownFields(now, "").At("f:metadata", "f:labels") {
			key = strings.TrimPrefix(key, "f:")
			if _, firm := w.labels[key]; !firm && (mayOffer(key) || slices.Contains(checkedLabels, key)) {
				w.labels[key] = now.Labels[key]
			}
		}
		w.status.Capacity = now.Status.Capacity
		w.status.NodeInfo = now.Status.NodeInfo
		w.status.Images = now.Status.Images
	}
	w.status.Allocatable = w.status.Capacity
	ready := corev1.ConditionFalse
	if j.ready {
		ready = corev1.ConditionTrue
	}
	w.status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: j.reason, Message: j.message}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		w.status.Conditions = append(w.status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "VirtualNode", Message: "the nodes of the provider handle this",
		})
	}
	w.status.Conditions = append(w.status.Conditions, network(p.Network, now))
	if kubelet.Address.IsValid() && kubelet.Port != 0 {
		// An IP address by the type of a host name, which every API server takes and nobody has
		// to resolve. A node with an address that is called internal is one with an agent of
		// K3s on it, to K3s, which then reaches it through that agent's tunnel or not at all.
		w.status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: kubelet.Address.Unmap().WithZone("").String()}}
		w.status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Port)
	}
	return w
}

// network returns the condition NetworkUnavailable. It is true only if pods of the provider
// were reachable from here, and are not now: Kubernetes then adds a taint against new pods,
// which run without the network if there is none, as they always did. While the state is not
// known, the condition stays as it is in now.
func network(n spec.Network, now *corev1.Node) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: n.Reason, Message: n.Message}
	switch {
	case n.Status == api.ConditionUnknown && condition(now, c.Type) != nil:
		return *condition(now, c.Type)
	case n.Status == "", n.Status == api.ConditionUnknown:
		c.Reason, c.Message = "VirtualNode", "the network to the provider is not connected yet"
	case n.Reason == workload.ReasonNetworkDown:
		c.Status = corev1.ConditionTrue
	}
	return c
}

// platform is an operating system or an architecture as Go names it.
var platform = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

// version is one of Kubernetes.
var version = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+){1,2}([-+._][0-9A-Za-z.+_-]*)?$`)

// addOffered adds the labels of an offer that a node may have, and those about the
// platform.
func addOffered(labels, offered map[string]string) {
	info := nodeInfo(offered)
	labels[corev1.LabelOSStable] = info.OperatingSystem
	if info.Architecture != "" {
		labels[corev1.LabelArchStable] = info.Architecture
	}
	n := 0
	// In an order, in case there are too many.
	for _, key := range sortedKeys(offered) {
		if _, ours := labels[key]; ours || !mayOffer(key) || len(validation.IsValidLabelValue(offered[key])) > 0 {
			continue
		}
		if n++; n > maxLabels {
			return
		}
		labels[key] = offered[key]
	}
}

// LabelOffered is the prefix of labels that are a provider's to say. With any other,
// it could pass for a node that people of this cluster chose, and draw pods and load
// balancers to itself.
const LabelOffered = "offer.liqo.io/"

// checkedLabels are on a node of ours besides, made of what was checked.
var checkedLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable, labelClusterName}

// NodeLabels returns the labels that the agent gives its nodes, besides those that begin with
// liqo.io/ or with LabelOffered.
func NodeLabels() []string {
	return []string{
		api.LabelManagedBy, labelRole, corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	}
}

// mayOffer reports whether a provider may set a label on its node: those that are its
// own, and the few of Kubernetes that only say where and what a machine is.
func mayOffer(key string) bool {
	switch key {
	case corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable:
		return true
	}
	return strings.HasPrefix(key, LabelOffered) && len(validation.IsQualifiedName(key)) == 0
}

// nodeInfo is what the labels of an offer say about the provider's machines.
func nodeInfo(offered map[string]string) corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{OperatingSystem: "linux", ContainerRuntimeVersion: ProviderPrefix + "provider"}
	if os := offered[corev1.LabelOSStable]; platform.MatchString(os) {
		info.OperatingSystem = os
	}
	if arch := offered[corev1.LabelArchStable]; platform.MatchString(arch) {
		info.Architecture = arch
	}
	if v := offered[labelVersion]; len(v) <= validation.LabelValueMaxLength && version.MatchString(v) {
		info.KubeletVersion = v
	}
	return info
}

// images are those of an offer that are worth saying, in its order, the largest
// first.
func images(offered []api.ContainerImage) []corev1.ContainerImage {
	var out []corev1.ContainerImage
	for _, image := range offered {
		var names []string
		for _, name := range image.Names {
			if len(names) < maxImageNames && name != "" && len(name) <= maxImageName && plain(name) {
				names = append(names, name)
			}
		}
		if len(names) == 0 || image.SizeBytes < 0 {
			continue
		}
		if out = append(out, corev1.ContainerImage{Names: names, SizeBytes: image.SizeBytes}); len(out) == maxImages {
			break
		}
	}
	return out
}

// plain reports whether a text is printable ASCII without spaces.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= unicode.MaxASCII })
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

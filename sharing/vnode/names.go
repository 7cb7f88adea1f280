package vnode

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

const (
	// ProviderPrefix begins the spec.providerID of a virtual node. It cannot be
	// changed once it is set, so it tells whose a node is.
	ProviderPrefix = "liqo://"
	// namePrefix begins the name of a virtual node, so that no cluster can call
	// itself what a machine of this one is called.
	namePrefix = "liqo-"
	// maxName is the longest name of a node, which is also a label's value.
	maxName = validation.DNS1123LabelMaxLength
)

func providerID(id peer.ClusterID) string { return ProviderPrefix + string(id) }

// byProvider is the index by which the node of a provider is found.
func byProvider(n *corev1.Node) []string {
	if id := whose(n); id != "" {
		return []string{string(id)}
	}
	return nil
}

// whose returns the provider that a node stands for, "" of one that the agent did
// not make, and of nil.
func whose(n *corev1.Node) peer.ClusterID {
	if n == nil {
		return ""
	}
	text, virtual := strings.CutPrefix(n.Spec.ProviderID, ProviderPrefix)
	id, err := peer.ParseClusterID(text)
	if !virtual || err != nil {
		return ""
	}
	return id
}

// ProviderOf returns the provider that a node stands for; false of a node that the agent did
// not make.
func ProviderOf(n *corev1.Node) (peer.ClusterID, bool) {
	id := whose(n)
	return id, id != ""
}

// nodeName returns what the node of a provider may be called, which is what people
// call the provider, as far as a name of a node can be that. Each attempt is
// another name.
func nodeName(called string, id peer.ClusterID, attempt int) string {
	words := strings.FieldsFunc(strings.ToLower(called), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	suffix := ""
	if attempt > 0 || len(words) == 0 {
		suffix = "-" + strings.Trim(id.Short(), "-")
	}
	if attempt > 1 {
		suffix += "-" + strconv.Itoa(attempt)
	}
	name := strings.TrimSuffix(namePrefix, "-")
	for _, word := range words {
		name += "-" + word
	}
	return strings.TrimRight(name[:min(len(name), maxName-len(suffix))], "-") + suffix
}

// name returns what the node of a provider is to be called: what it was called
// before, or else a name that no node has, or had that stood for another provider.
// It is remembered.
func (s *session) name(ctx context.Context, p spec.Node) (string, error) {
	free := func(name string) bool { return s.nodes.Get("", name) == nil && name != s.cfg.Host }
	if name := s.cfg.Names.NodeName(p.ID); name != "" && free(name) {
		return name, nil
	}
	for attempt := 0; ; attempt++ {
		name := nodeName(p.Called, p.ID, attempt)
		if !free(name) {
			continue
		}
		if own, err := s.cfg.Names.NameNode(ctx, p.ID, name); own || err != nil {
			return name, err
		}
	}
}

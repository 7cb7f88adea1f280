package workload

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Labels and annotations of what is shared. Keys are part of the agent's
// interface: people select by them.
const (
	// LabelEnabled on a namespace of a consumer, with value "true", lets its pods run
	// on virtual nodes.
	LabelEnabled = "liqo.io/enabled"
	// LabelType on a node, with value VirtualNode, marks one that stands for a
	// provider.
	LabelType   = "liqo.io/type"
	VirtualNode = "virtual-node"
	// LabelOriginCluster on objects of a provider is the ID of the consumer that they
	// are for.
	LabelOriginCluster = api.LabelOriginCluster
	// LabelOriginNamespace on a namespace of a provider is what the one that it stands
	// for is called in the consumer.
	LabelOriginNamespace = "liqo.io/origin-namespace"
	// AnnotationPlacePrefix and a provider's ID are the annotation of a namespace here
	// that says in which namespace of the provider its pods are.
	AnnotationPlacePrefix = "offload.liqo.io/"
	// AnnotationOriginUID on an object of a provider is the UID of the consumer's
	// object that it stands for.
	AnnotationOriginUID = "liqo.io/origin-uid"

	// TaintNotAllowed, with effect NoExecute, keeps pods from a virtual node unless
	// their namespace has LabelEnabled.
	TaintNotAllowed = "virtual-node.liqo.io/not-allowed"
)

// shortLength is how many characters of a cluster ID are in the name of a
// namespace.
const shortLength = 8

// maxNamespace is the longest name of a namespace (RFC 1123 label).
const maxNamespace = 63

// Short is the beginning of a cluster ID, for names: enough to tell the clusters
// that one knows apart.
func Short(id peer.ClusterID) string {
	short := string(id)[:min(len(id), shortLength)]
	return strings.TrimRight(short, "-")
}

// Namespace is the namespace of a provider that stands for a namespace of a
// consumer: PREFIX-SHORTID-NAMESPACE. Where that is too long, the end of the name
// gives way to a hash of consumer and whole name. Two consumers whose IDs begin
// alike get the same names: whoever makes namespaces looks whose they are.
func Namespace(prefix string, consumer peer.ClusterID, namespace string) string {
	name := prefix + "-" + Short(consumer) + "-" + namespace
	if len(name) <= maxNamespace {
		return name
	}
	return Hashed(name, string(consumer)+"/"+namespace)
}

// Hashed returns name, shortened to what fits a namespace together with a hash of
// what it stands for.
func Hashed(name, of string) string {
	sum := sha256.Sum256([]byte(of))
	hash := strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
	return strings.TrimRight(name[:min(len(name), maxNamespace-1-len(hash))], "-") + "-" + hash
}

package workload

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// Labels and annotations of shared objects. They are part of the agent's interface: people
// select by them.
const (
	// LabelEnabled on a namespace of a consumer, with value "true", lets its pods run
	// on virtual nodes.
	LabelEnabled = "liqo.io/enabled"
	// LabelTokens on a namespace of a consumer, with value "true", lets the service account tokens
	// of its pods be at providers.
	LabelTokens = "liqo.io/tokens"
	// LabelType on a node, with value VirtualNode, marks the virtual nodes.
	LabelType   = "liqo.io/type"
	VirtualNode = "virtual-node"
	// LabelClusterID on a virtual node is the ID of its provider.
	LabelClusterID = "liqo.io/cluster-id"
	// LabelOriginCluster on objects of a provider is the ID of their consumer.
	LabelOriginCluster = api.LabelOriginCluster
	// LabelOriginNamespace on a guest namespace is the name of the consumer's namespace.
	LabelOriginNamespace = "liqo.io/origin-namespace"
	// AnnotationPlacePrefix with a provider's ID is the annotation of a consumer's namespace
	// that names the provider's namespace for it.
	AnnotationPlacePrefix = "offload.liqo.io/"
	// AnnotationOriginUID on an object of a provider is the UID of the consumer's object.
	AnnotationOriginUID = "liqo.io/origin-uid"

	// Provisioner is the provisioner of the agent's storage class.
	Provisioner = "storage.liqo.io"

	// TaintNotAllowed, with effect NoExecute, keeps pods from a virtual node unless
	// their namespace has LabelEnabled.
	TaintNotAllowed = "virtual-node.liqo.io/not-allowed"
)

// shortLength is how many characters of a cluster ID the name of a namespace has.
const shortLength = 8

// maxNamespace is the longest name of a namespace (RFC 1123 label).
const maxNamespace = 63

// Short returns the beginning of a cluster ID, for names. It is long enough to tell known
// clusters apart.
func Short(id peer.ClusterID) string {
	short := string(id)[:min(len(id), shortLength)]
	return strings.TrimRight(short, "-")
}

// Namespace returns the name of the guest namespace for a namespace of a consumer:
// PREFIX-SHORTID-NAMESPACE. If that is too long, a hash of consumer and whole name replaces
// its end. Two consumers whose IDs begin alike get the same names, so whoever creates a
// namespace checks whose it is.
func Namespace(prefix string, consumer peer.ClusterID, namespace string) string {
	name := prefix + "-" + Short(consumer) + "-" + namespace
	if len(name) <= maxNamespace {
		return name
	}
	return Hashed(name, string(consumer)+"/"+namespace)
}

// Hashed returns name with a hash of of, shortened to the length of a namespace.
func Hashed(name, of string) string {
	sum := sha256.Sum256([]byte(of))
	hash := strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
	return strings.TrimRight(name[:min(len(name), maxNamespace-1-len(hash))], "-") + "-" + hash
}

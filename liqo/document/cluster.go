package document

import (
	"errors"
	"fmt"
	"strings"

	"liqo.io/agent/peer/text"
)

// maxClusterID is how long an ID may be: the name of a namespace, which has at most 63 bytes,
// ends with it.
const maxClusterID = 63 - len(tenantPrefix)

// ClusterID is the ID by which Liqo knows a cluster. It is another one than the agent's
// peer.ClusterID: people choose it when they install Liqo.
type ClusterID string

// ParseClusterID reads an ID: a DNS label for which there can be a namespace.
func ParseClusterID(s string) (ClusterID, error) {
	switch {
	case s == "":
		return "", errors.New("there is no ID of a cluster")
	case len(s) > maxClusterID:
		return "", fmt.Errorf("the ID of a cluster has %d bytes; at most %d are possible", len(s), maxClusterID)
	case strings.HasPrefix(s, "-"), strings.HasSuffix(s, "-"), strings.ContainsFunc(s, func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z')
	}):
		return "", fmt.Errorf("%q is no ID of a cluster: it has lower-case letters, digits and inner hyphens", text.Line(s, maxClusterID))
	}
	return ClusterID(s), nil
}

// TenantNamespace is the namespace that stands for the cluster in another one.
func (id ClusterID) TenantNamespace() string { return tenantPrefix + string(id) }

// SliceIdentityName is the name of the Identity of the virtual node that a ResourceSlice became.
func SliceIdentityName(slice string) string { return "resourceslice-" + slice }

// IdentityName is the name of the Identity by which another cluster reaches this one.
func (id ClusterID) IdentityName() string { return identityPrefix + string(id) }

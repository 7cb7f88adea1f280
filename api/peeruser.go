package api

import "strings"

const (
	// PeerGroup is the group of all peers in the local API server. A peer is in no
	// other one: what is given to all service accounts is not given to it.
	PeerGroup = "liqo:peers"
	// PeerAccountPrefix and a cluster ID are the name of a peer's service account.
	PeerAccountPrefix = "liqo-peer-"
	// PeerRolePrefix and a cluster ID are the name of the ClusterRole and of the
	// ClusterRoleBinding by which a peer reaches its own objects.
	PeerRolePrefix = "liqo:peer:"
	// FormerPeerUserPrefix and a cluster ID were the name of a peer's user before
	// peers had service accounts.
	FormerPeerUserPrefix = "liqo:cluster:"

	serviceAccountPrefix = "system:serviceaccount:"
)

// PeerUsers says as whom peers reach the local API server: as service accounts in the
// agent's namespace, because the right to impersonate those can be given for one
// namespace, and that to impersonate users only for all of them. No such ServiceAccount
// exists, so that nobody can have a token for one.
type PeerUsers struct {
	// Namespace is the agent's.
	Namespace string
	// Former: the rights that the agent has are those of an older version, with which
	// it can only impersonate users.
	Former bool
}

// Name returns the name of a peer's user.
func (p PeerUsers) Name(clusterID string) string {
	if p.Former {
		return FormerPeerUserPrefix + clusterID
	}
	return PeerUserPrefix(p.Namespace) + clusterID
}

// Names returns whom the rights of a peer are given to: with former rights both users,
// so that nothing is missing when the agent gets those of today.
func (p PeerUsers) Names(clusterID string) []string {
	names := []string{PeerUserPrefix(p.Namespace) + clusterID}
	if p.Former {
		names = append(names, FormerPeerUserPrefix+clusterID)
	}
	return names
}

// PeerUserPrefix and a cluster ID are the name of a peer's user, with the agent in that
// namespace.
func PeerUserPrefix(namespace string) string {
	return serviceAccountPrefix + namespace + ":" + PeerAccountPrefix
}

// PeerOf returns the cluster ID in the name of a peer's user, and whether it is such a
// name. Any namespace will do: nobody else has an account of that name.
func PeerOf(user string) (clusterID string, ok bool) {
	if id, former := strings.CutPrefix(user, FormerPeerUserPrefix); former {
		return id, true
	}
	account, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", false
	}
	_, name, _ := strings.Cut(account, ":")
	return strings.CutPrefix(name, PeerAccountPrefix)
}

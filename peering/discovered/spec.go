package discovered

import (
	"cmp"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
)

// Spec are the fields of a ForeignCluster's spec, and its labels,
// that discovery owns.
type Spec struct {
	Labels          map[string]string   `json:"-"`
	ClusterIdentity api.ClusterIdentity `json:"clusterIdentity"`
	Namespace       string              `json:"namespace,omitempty"`
	DiscoveryType   api.DiscoveryType   `json:"discoveryType"`
	AuthURL         string              `json:"authUrl,omitempty"`
}

// SpecOf returns what fc's spec is to show. What the peer does not say
// stays as it is.
func SpecOf(p *peer.Peer, fc *api.ForeignCluster) Spec {
	var name string
	if fc.Spec.ClusterIdentity != nil {
		name = fc.Spec.ClusterIdentity.ClusterName
	}
	found := cmp.Or(api.DiscoveryType(p.Source), api.DiscoveryLAN)
	return Spec{
		Labels:          api.AgentLabels(found),
		ClusterIdentity: api.ClusterIdentity{ClusterID: string(p.ID), ClusterName: cmp.Or(p.Name, name)},
		Namespace:       cmp.Or(p.Namespace, fc.Spec.Namespace),
		DiscoveryType:   found,
		AuthURL:         cmp.Or(p.URL, fc.Spec.AuthURL),
	}
}

// ShownBy reports whether fc has all of s.
func (s Spec) ShownBy(fc *api.ForeignCluster) bool {
	for key, value := range s.Labels {
		if fc.Labels[key] != value {
			return false
		}
	}
	return fc.Spec.ClusterIdentity != nil && *fc.Spec.ClusterIdentity == s.ClusterIdentity &&
		fc.Spec.Namespace == s.Namespace && fc.Spec.DiscoveryType == s.DiscoveryType && fc.Spec.AuthURL == s.AuthURL
}

// Identity is everything that fields.ManagerDiscovery is to own in the spec of a
// ForeignCluster that a person wrote.
type Identity struct {
	ClusterIdentity api.ClusterIdentity `json:"clusterIdentity"`
	Namespace       string              `json:"namespace,omitempty"`
}

// IdentityOf returns what the agent is to own in the spec of a person's object:
// what is known of the cluster and was not set by somebody else. What the cluster
// does not say, or says in a way that no object can hold, stays as it is.
func IdentityOf(fc *api.ForeignCluster, owners fields.IdentityOwners, id peer.ClusterID, name, namespace string) Identity {
	spec := Identity{ClusterIdentity: api.ClusterIdentity{ClusterID: string(id)}}
	if _, err := peer.ParseClusterName(name); err != nil {
		name = ""
	}
	if _, err := peer.ParseClusterID(namespace); err != nil { // the same rules
		namespace = ""
	}
	if !owners.Name {
		var shown string
		if fc.Spec.ClusterIdentity != nil {
			shown = fc.Spec.ClusterIdentity.ClusterName
		}
		spec.ClusterIdentity.ClusterName = cmp.Or(name, shown)
	}
	if !owners.Namespace {
		spec.Namespace = cmp.Or(namespace, fc.Spec.Namespace)
	}
	return spec
}

// ShownBy reports whether fc has all of s.
func (s Identity) ShownBy(fc *api.ForeignCluster) bool {
	shown := fc.Spec.ClusterIdentity
	return shown != nil && shown.ClusterID == s.ClusterIdentity.ClusterID &&
		(s.ClusterIdentity.ClusterName == "" || s.ClusterIdentity.ClusterName == shown.ClusterName) &&
		(s.Namespace == "" || s.Namespace == fc.Spec.Namespace)
}

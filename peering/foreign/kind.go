package foreign

import (
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
)

// Cluster is a ForeignCluster together with who set the two fields of its
// spec that a person may set as well as the agent.
type Cluster struct {
	api.ForeignCluster `json:",inline"`

	Owners fields.Owners `json:"-"`
	past   fields.Owners // the people whom the agent took a field from
}

// DeepCopyObject implements runtime.Object.
func (fc *Cluster) DeepCopyObject() runtime.Object {
	return &Cluster{ForeignCluster: *fc.DeepCopy(), Owners: fc.Owners, past: fc.past}
}

// trim keeps of the list of field managers, which is most of the object, only who owns
// what people may set.
func (fc *Cluster) trim() {
	if fc.ManagedFields != nil {
		fc.Owners, fc.ManagedFields = fields.OwnersOf(&fc.ForeignCluster), nil
	}
}

// Kind is the kind of a Cluster.
func Kind() objects.Kind[*Cluster] {
	return objects.Kind[*Cluster]{
		GVK:   api.GroupVersion.WithKind(api.KindForeignCluster),
		Path:  api.Collection(api.GroupVersion, api.PluralForeignClusters),
		Fresh: func() *Cluster { return &Cluster{} },
		// By their spec, and by their name, which keeps that name from being used for
		// another one.
		About: func(fc *Cluster) []peer.ClusterID { return objects.ClusterIDs(fc.ClusterID(), fc.Name) },
		Trim:  (*Cluster).trim,
		Inherit: func(older, newer *Cluster) {
			if older.UID == newer.UID {
				newer.Owners.Join, newer.past.Join = fields.Follow(older.Owners.Join, older.past.Join, newer.Owners.Join)
				newer.Owners.TrustMode, newer.past.TrustMode = fields.Follow(older.Owners.TrustMode, older.past.TrustMode, newer.Owners.TrustMode)
			}
		},
	}
}

// ProbesURL is [discovered.ProbesURL].
func (fc *Cluster) ProbesURL() bool {
	return discovered.ProbesURL(&fc.ForeignCluster, fc.Owners.Identity)
}

package peering

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

func foreignClusterKind() objects.Kind[*foreignCluster] {
	return objects.Kind[*foreignCluster]{
		GVK:   api.GroupVersion.WithKind(api.KindForeignCluster),
		Path:  api.Collection(api.GroupVersion, api.PluralForeignClusters),
		Fresh: func() *foreignCluster { return &foreignCluster{} },
		// By their spec, and by their name, which keeps that name from being used for
		// another one.
		About: func(fc *foreignCluster) []peer.ClusterID { return objects.ClusterIDs(fc.ClusterID(), fc.Name) },
		Trim:  (*foreignCluster).trim,
		Inherit: func(older, newer *foreignCluster) {
			if older.UID == newer.UID {
				newer.owners.Join, newer.past.Join = follows(older.owners.Join, older.past.Join, newer.owners.Join)
				newer.owners.TrustMode, newer.past.TrustMode = follows(older.owners.TrustMode, older.past.TrustMode, newer.owners.TrustMode)
			}
		},
	}
}

func requestKind() objects.Kind[*api.PeeringRequest] {
	return objects.Kind[*api.PeeringRequest]{
		GVK:   api.GroupVersion.WithKind(api.KindPeeringRequest),
		Path:  api.Collection(api.GroupVersion, api.PluralPeeringRequests),
		Fresh: func() *api.PeeringRequest { return &api.PeeringRequest{} },
		About: func(r *api.PeeringRequest) []peer.ClusterID { return objects.ClusterIDs(r.Name) },
		Trim:  plan.TrimRequest,
	}
}

func advertisementKind() objects.Kind[*api.Advertisement] {
	return objects.Kind[*api.Advertisement]{
		GVK:   api.SharingGroupVersion.WithKind(api.KindAdvertisement),
		Path:  api.Collection(api.SharingGroupVersion, api.PluralAdvertisements),
		Fresh: func() *api.Advertisement { return &api.Advertisement{} },
		About: func(a *api.Advertisement) []peer.ClusterID { return objects.ClusterIDs(a.Name) },
		Trim:  plan.TrimAdvertisement,
	}
}

func nodeKind() objects.Kind[*offer.Node] {
	return objects.Kind[*offer.Node]{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Path: "/api/v1/nodes",
		Fresh: func() *offer.Node { return &offer.Node{} },
		Trim:  (*offer.Node).Trim,
	}
}

// foreignCluster is a ForeignCluster together with who set the two fields of its
// spec that a person may set as well as the agent.
type foreignCluster struct {
	api.ForeignCluster `json:",inline"`

	owners plan.Owners
	past   plan.Owners // the people whom the agent took a field from
}

// DeepCopyObject implements runtime.Object.
func (fc *foreignCluster) DeepCopyObject() runtime.Object {
	return &foreignCluster{ForeignCluster: *fc.DeepCopy(), owners: fc.owners, past: fc.past}
}

package peering

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/sharing/offer"
)

func requestKind() objects.Kind[*api.PeeringRequest] {
	return objects.Kind[*api.PeeringRequest]{
		GVK:   api.GroupVersion.WithKind(api.KindPeeringRequest),
		Path:  api.Collection(api.GroupVersion, api.PluralPeeringRequests),
		Fresh: func() *api.PeeringRequest { return &api.PeeringRequest{} },
		About: func(r *api.PeeringRequest) []peer.ClusterID { return objects.ClusterIDs(r.Name) },
		Trim:  fields.TrimRequest,
	}
}

func advertisementKind() objects.Kind[*api.Advertisement] {
	return objects.Kind[*api.Advertisement]{
		GVK:   api.SharingGroupVersion.WithKind(api.KindAdvertisement),
		Path:  api.Collection(api.SharingGroupVersion, api.PluralAdvertisements),
		Fresh: func() *api.Advertisement { return &api.Advertisement{} },
		About: func(a *api.Advertisement) []peer.ClusterID { return objects.ClusterIDs(a.Name) },
		Trim:  fields.TrimAdvertisement,
	}
}

func nodeKind() objects.Kind[*offer.Node] {
	return objects.Kind[*offer.Node]{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Path: "/api/v1/nodes",
		Fresh: func() *offer.Node { return &offer.Node{} },
		Trim:  (*offer.Node).Trim,
	}
}

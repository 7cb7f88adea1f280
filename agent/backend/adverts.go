package backend

import (
	"context"
	"errors"
	"fmt"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
)

const (
	labelArch = "kubernetes.io/arch"
	labelOS   = "kubernetes.io/os"
)

// Adverts implements socket.Backend.
func (b *Backend) Adverts(context.Context) ([]control.Advert, error) {
	offers, err := b.peering.Offers()
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]control.Advert, 0, len(offers))
	for _, o := range offers {
		out = append(out, b.advert(o))
	}
	return out, nil
}

// Offers counts the offers of other clusters by their state. Without an API server, none
// are known.
func (v *Views) Offers() (accepted, refused, pending int) {
	offers, _ := v.peering.Offers()
	for _, o := range offers {
		switch v.advert(o).Status {
		case control.AdvertAccepted:
			accepted++
		case control.AdvertRefused:
			refused++
		default:
			pending++
		}
	}
	return accepted, refused, pending
}

// advert is an offer as the control socket shows it.
func (v *Views) advert(o peering.Offer) control.Advert {
	out := control.Advert{
		ID: string(o.ID), Name: v.Label(o.ID), Status: string(o.State.AdvertisementStatus), Reason: o.State.Reason, Message: o.State.Message,
		DecidedBy: o.By, Expired: o.Expired, Resources: o.Spec.ResourceQuota.Hard, Labels: o.Spec.Labels,
		Arch: o.Spec.Labels[labelArch], OS: o.Spec.Labels[labelOS], Images: make([]string, 0, len(o.Spec.Images)),
		OfferedAt: o.Spec.Timestamp.UTC(), ExpiresAt: o.Spec.TimeToLive.UTC(), CreatedAt: o.Created.UTC(),
		Node: o.Use.Name, NodeReady: o.Use.Ready, NodeReason: o.Use.Reason, NodeMessage: o.Use.Message, Pods: o.Use.Pods,
	}
	if out.Status == "" {
		out.Status = control.AdvertPending
	}
	for _, image := range o.Spec.Images {
		if len(image.Names) > 0 {
			out.Images = append(out.Images, image.Names[0])
		}
	}
	return out
}

// Label returns what people call a cluster.
func (v *Views) Label(id peer.ClusterID) string {
	p, known := v.registry.Peer(id)
	if !known {
		p = v.unseen(id)
	}
	return control.NewPeer(p).Label()
}

// DecideAdvert implements socket.Backend.
func (b *Backend) DecideAdvert(ctx context.Context, id peer.ClusterID, accept bool, by string) error {
	err := b.peering.DecideOffer(ctx, id, accept, by)
	switch {
	case errors.Is(err, peering.ErrNotConnected):
		return unavailable(err)
	case errors.Is(err, peering.ErrNoOffer):
		return &control.Error{Kind: control.ErrNotFound, Message: fmt.Sprintf("%s offers nothing to this cluster", b.Label(id)),
			Advice: "liqo-agent adverts list", Cause: err}
	}
	return err
}

// unavailable is the error while there is no connection to the API server, which alone
// stores offers.
func unavailable(err error) error {
	return &control.Error{Kind: control.ErrUnavailable, Message: "the offers of other clusters are not known: " + err.Error(),
		Advice: "liqo-agent status", Cause: err}
}

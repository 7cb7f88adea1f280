package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// Offer is the Advertisement of a provider in this cluster, and what became of it.
type Offer struct {
	ID      peer.ClusterID
	Created time.Time
	Spec    api.AdvertisementSpec // shared, not to be changed
	State   api.AdvertisementState
	// By is the field manager with which a person decided about it; "" when the
	// policy does.
	By string
	// Expired: it ended by our clock, and was not renewed.
	Expired bool
	// Use is the state of the provider's node.
	Use spec.NodeStatus
}

// ErrNoOffer: there is no Advertisement of the cluster.
var ErrNoOffer = errors.New("the cluster offers nothing to this one")

// Offers returns the Advertisements in the local API server, the oldest first, and
// ErrNotConnected while there is no connection. Any goroutine may call it at any
// time.
func (c *Controller) Offers() ([]Offer, error) {
	s := c.current()
	if s == nil {
		return nil, ErrNotConnected
	}
	all := s.offers.All()
	slices.SortFunc(all, plan.OlderOffer)
	out := make([]Offer, 0, len(all))
	for _, adv := range all {
		if adv.DeletionTimestamp != nil {
			continue
		}
		id := peer.ClusterID(adv.Name)
		obs := c.peek(s, id)
		decision := plan.DecisionOf(adv)
		out = append(out, Offer{
			ID: id, Created: adv.CreationTimestamp.Time, Spec: adv.Spec, State: adv.Status, By: decision.Manager,
			Expired: obs.OfferExpired, Use: obs.Node,
		})
	}
	return out, nil
}

// DecideOffer accepts or refuses the Advertisement of a cluster, for a person who
// said so: by, for people. It holds for as long as that Advertisement exists, over
// restarts of the agent, until somebody decides again. The error wraps ErrNoOffer
// when there is none, ErrNotConnected while there is no connection. Any goroutine
// may call it at any time.
func (c *Controller) DecideOffer(ctx context.Context, id peer.ClusterID, accept bool, by string) error {
	s := c.current()
	if s == nil {
		return ErrNotConnected
	}
	adv := s.offers.Get(string(id))
	if adv == nil || adv.DeletionTimestamp != nil {
		return fmt.Errorf("cluster %s: %w", id, ErrNoOffer)
	}
	state := api.AdvertisementState{AdvertisementStatus: api.AdvertisementRefused, Reason: reason.RefusedByPerson, Message: "Refused"}
	if accept {
		state = api.AdvertisementState{AdvertisementStatus: api.AdvertisementAccepted, Reason: reason.AcceptedByPerson, Message: "Accepted"}
	}
	if by = text.Sentence(by); by != "" {
		state.Message += " by " + strings.TrimSuffix(by, ".")
	}
	state.Message += "."
	object := objects.Applied{Metadata: objects.Meta{Name: adv.Name, UID: adv.UID}, Status: state}
	written, err := objects.Apply(ctx, s.client, s.offers.Kind, "status", object, fields.ManagerIntent, true)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It was withdrawn, or withdrawn and made anew, at this moment.
		return fmt.Errorf("cluster %s: %w", id, errors.Join(ErrNoOffer, err))
	case err != nil:
		return fmt.Errorf("decide about the offer of cluster %s: %w", id, err)
	}
	s.offers.Wrote(written)
	return nil
}

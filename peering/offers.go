package peering

import (
	"slices"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

// SharingChanged says that SharingSettings may return something else: every
// cluster is looked at again. It never blocks. Any goroutine may call it at any
// time.
func (c *Controller) SharingChanged() {
	if s := c.current(); s != nil {
		work.Wake(s.count)
		s.enqueueAll()
	}
}

// OwnRegistries returns the registries that the pods of this cluster's own use; nil
// while that is not known, as it is not without consumers. Any goroutine may call it
// at any time.
func (c *Controller) OwnRegistries() []string { return c.allocator.Own() }

// OnlyNode returns the name of the node that all pods of consumers run on, "" if there is not exactly one, or while
// that is not known. Any goroutine may call it at any time.
func (c *Controller) OnlyNode() string {
	if s := c.current(); s != nil {
		return offer.Only(s.nodes.All())
	}
	return ""
}

// Offered is what this cluster offers to its consumers, for people.
type Offered struct {
	// Nodes is how many nodes take part, and Free what their own cluster leaves of
	// them, by resource; nil while that is not known, and while there is no consumer.
	Nodes int
	Free  map[string]string
	// Pool is what of Free is offered, to all consumers together.
	Pool map[string]string
	// Why is why nothing is offered, or nothing anew, in a sentence; else "".
	Why string
	// Promises are what each consumer is offered, by cluster ID.
	Promises []Promise
}

// Promise is what one consumer is offered.
type Promise struct {
	ID peer.ClusterID
	// Offer is shared and not to be changed; nil while nothing is offered yet.
	Offer *api.AdvertisementSpec
}

// Offered returns what this cluster offers. Any goroutine may call it at any time.
func (c *Controller) Offered() Offered {
	summary, settings := c.allocator.Summary(), c.cfg.SharingSettings()
	var out Offered
	for id, spec := range summary.Offers {
		out.Promises = append(out.Promises, Promise{ID: id, Offer: spec})
	}
	slices.SortFunc(out.Promises, func(a, b Promise) int { return strings.Compare(string(a.ID), string(b.ID)) })
	if summary.Pool != nil {
		out.Nodes, out.Free = summary.Pool.Nodes, summary.Pool.Free.Texts()
		out.Pool = offer.Split{Percentage: settings.Percentage}.Of(summary.Pool.Free).Texts()
	}
	usedUp := func(resource string) bool {
		amount, there := summary.Pool.Free[resource]
		return there && amount == 0
	}
	switch {
	case !settings.Enable:
		out.Why = "Nothing is shared (sharing.enable)."
	case len(out.Promises) == 0:
		out.Why = "There is no consumer."
	case c.current() == nil:
		out.Why = plan.MessageNoAPIServer
	case summary.Pool == nil && summary.Why == "":
		out.Why = "The available resources are not known yet."
	case summary.Pool == nil:
		out.Why = summary.Why
	case settings.Percentage == 0:
		out.Why = "Nothing is offered: sharing.percentage is 0."
	case summary.Pool.Nodes == 0:
		out.Why = "No node of this cluster takes pods of peers: a node must be ready and schedulable, run Linux, and have no taint."
	case usedUp("cpu"):
		out.Why = "The pods of this cluster request all of its CPU."
	case usedUp("memory"):
		out.Why = "The pods of this cluster request all of its memory."
	}
	return out
}

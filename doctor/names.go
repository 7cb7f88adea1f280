package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"liqo.io/agent/agent/control"
)

func checkNames(ctx context.Context, b *Box) []Finding {
	says, err := b.agentSays(ctx)
	if err != nil {
		return []Finding{skipped("the agent does not answer")}
	}
	known := says.status.Network.Names
	var silent []error
	for _, at := range known.Addresses {
		if err := b.ask.names(ctx, at); err != nil {
			silent = append(silent, fmt.Errorf("%s: %w", at, err))
		}
	}
	return judgeNames(known, errors.Join(silent...))
}

// judgeNames says whether pods of peers get answers to their DNS queries. silent is why the
// addresses do not answer.
func judgeNames(known control.Names, silent error) []Finding {
	const why = "pods of peers find no names, of their own clusters or others"
	switch {
	case known.Message != "":
		return []Finding{{Code: "names-unanswered", Status: Warning, What: "DNS queries of pods of peers are not answered: " + known.Message, Why: why,
			Do: []string{"check the cluster DNS: kubectl get pods -n kube-system -l k8s-app=kube-dns"}}}
	case silent != nil:
		return []Finding{{Code: "names-silent", Status: Warning, What: "DNS queries of pods of peers get no answer: " + strings.ReplaceAll(silent.Error(), "\n", "; "), Why: why,
			Do: []string{"check that the address is on the device: ip address show liqo0", "sudo systemctl restart liqo-agent"}}}
	case len(known.Addresses) == 0:
		return []Finding{skipped("no peer has pods here that the network could connect")}
	}
	return []Finding{fine("pods of peers get answers at %s", strings.Join(known.Addresses, " and "))}
}

package peering

import (
	"context"

	"k8s.io/client-go/rest"

	"liqo.io/agent/peering/plan"
)

// Sharing turns peerings into capacity: a provider into a node of this cluster, and
// a consumer that was let in into a tenant of it. The reconcile of a peer calls it with
// the desired state again and again, on several goroutines but for one peer at a
// time. Its methods must be quick: they take the desired state, work elsewhere, and
// have Enqueue called when the state they return changes.
type Sharing interface {
	// Provide sets the desired state of a provider's node, and returns its state.
	Provide(spec plan.NodeSpec) plan.NodeStatus
	// Host sets the desired state of a consumer's tenancy, and returns its state.
	Host(spec plan.TenantSpec) plan.TenantStatus
}

// While runs as long as there is a connection to the API server, with the
// configuration of a client for it, and returns when ctx ends. Writes through it count
// as the agent's own.
type While func(ctx context.Context, local *rest.Config)

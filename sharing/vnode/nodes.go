package vnode

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"

	"liqo.io/agent/peer"
)

// Nodes are the virtual nodes of this cluster. Its methods may be called from any
// goroutine.
type Nodes struct {
	cfg Config
	mu  sync.Mutex
}

// New returns Nodes that do nothing before Run.
func New(cfg Config) *Nodes { return &Nodes{cfg: cfg} }

// Run makes, keeps and removes nodes in the API server of local until ctx ends,
// when it returns nil, or until it cannot go on. It may be called again, but not
// twice at a time.
func (n *Nodes) Run(ctx context.Context, local *rest.Config) error { return nil }

// Set tells how the node of a provider is to stand, and returns how it stands. It
// is quick: what is to be done is done by Run, and Changed called when the answer is
// another.
func (n *Nodes) Set(p Provider) State { return State{} }

// Settled says that Set was called for every provider that is known. From then on,
// nodes of other providers are removed as those of one that is Gone.
func (n *Nodes) Settled() {}

// Touch has all nodes looked at again: Settings or Kubelet changed.
func (n *Nodes) Touch() {}

// Nodes returns the virtual nodes that exist and are the agent's, ordered by name,
// those which are being drained too; and nil while that is not known.
func (n *Nodes) Nodes() []Node { return nil }

// Forget drops what was said about a provider of which nothing is left. A node of
// it that turns up is one that nobody wants.
func (n *Nodes) Forget(id peer.ClusterID) {}

package vnode

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

// Nodes are the virtual nodes of this cluster. Its methods may be called from any
// goroutine.
type Nodes struct {
	cfg Config

	leases, leaseFailures atomic.Uint64

	mu      sync.Mutex
	records map[peer.ClusterID]*record
	told    map[peer.ClusterID]answer // what Set and Nodes say, unless it is nothing
	settled bool
	session *session // the last one, nil before the first
}

// record is what is known about a provider, or a node that nobody wants.
type record struct {
	want spec.Node
	// said: Set was called. Else want is that of a node that nobody wants.
	said    bool
	drain   drain
	failure string // of the last attempt to do something about the node
}

// answer is all that callers learn about a node.
type answer struct {
	spec.NodeStatus
	uid       types.UID
	accepting bool
}

// New returns Nodes that do nothing before Run.
func New(cfg Config) *Nodes {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Nodes{cfg: cfg, records: make(map[peer.ClusterID]*record), told: make(map[peer.ClusterID]answer)}
}

// Run makes, keeps and removes nodes in the API server of local until ctx ends,
// when it returns nil, or until it cannot go on. It may be called again, but not
// twice at a time.
func (n *Nodes) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return err
	}
	defer client.Close()
	return newSession(n, client).run(ctx)
}

// Leases returns how many leases of nodes were renewed since New, and how many
// renewals failed.
func (n *Nodes) Leases() (renewed, failed uint64) {
	return n.leases.Load(), n.leaseFailures.Load()
}

// Set tells how the node of a provider is to stand, and returns how it stands. It
// is quick: what is to be done is done by Run, and Changed called when the answer is
// another.
func (n *Nodes) Set(p spec.Node) spec.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.records[p.ID]
	if r == nil && !p.Wanted && n.session.looked() && n.session.own(p.ID) == nil {
		return n.tell(p.ID).NodeStatus // nothing to remember
	}
	if r == nil {
		r = &record{}
		n.records[p.ID] = r
	}
	changed := !r.said || r.want != p // offers are never changed in place
	if p.Wanted || !r.said || r.want.Wanted || r.want.Gone != p.Gone {
		r.drain = drain{}
	}
	r.want, r.said = p, true
	if changed {
		n.session.look(p.ID)
	}
	return n.tell(p.ID).NodeStatus
}

// Settled says that Set was called for every provider that is known. From then on,
// nodes of other providers are removed as those of one that is Gone.
func (n *Nodes) Settled() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.settled {
		return
	}
	n.settled = true
	n.session.lookAtAll()
}

// Touch has all nodes looked at again: Settings or Kubelet changed.
func (n *Nodes) Touch() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session.lookAtAll()
}

// Nodes returns the virtual nodes that exist and are the agent's, ordered by name,
// those which are being drained too; and nil while that is not known. Changed is
// called for those whose entry changes.
func (n *Nodes) Nodes() []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.session.looked() {
		return nil
	}
	out := []Node{}
	for _, node := range n.session.nodes.All() {
		if id := whose(node); id != "" && n.session.own(id) == node {
			out = append(out, Node{Name: node.Name, ID: id, UID: node.UID, Accepting: n.accepting(id, node)})
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// accepting reports whether pods of a node are to run at the provider. n.mu is
// held.
func (n *Nodes) accepting(id peer.ClusterID, node *corev1.Node) bool {
	if node.DeletionTimestamp != nil {
		return false
	}
	if r := n.records[id]; r != nil {
		return r.want.Wanted
	}
	return !n.settled
}

// tell returns what callers are to learn about a node now, and remembers that
// they did. n.mu is held.
func (n *Nodes) tell(id peer.ClusterID) answer {
	a := n.answer(id)
	if a == (answer{}) {
		delete(n.told, id)
	} else {
		n.told[id] = a
	}
	return a
}

// news has callers ask again about a node, if the answer changed.
func (n *Nodes) news(id peer.ClusterID) {
	n.mu.Lock()
	before := n.told[id]
	changed := n.tell(id) != before
	n.mu.Unlock()
	if changed {
		n.cfg.Changed(id)
	}
}

// answer works out how a node stands. n.mu is held.
func (n *Nodes) answer(id peer.ClusterID) answer {
	r := n.records[id]
	if !n.session.looked() {
		if r == nil {
			return answer{}
		}
		return answer{NodeStatus: spec.NodeStatus{Assigned: n.cfg.Names.NodeName(id), Busy: true, Unknown: true, Reason: ReasonPending, Message: "the nodes of this cluster are not known yet"}}
	}
	node := n.session.own(id)
	var s spec.NodeStatus
	if node != nil {
		s = spec.NodeStatus{Name: node.Name, Assigned: node.Name, Busy: true, Pods: len(n.session.bound(node.Name))}
	}
	switch {
	case r == nil:
		s.Reason, s.Message = ReasonPending, "nothing is known about its provider yet"
		if node == nil {
			s = spec.NodeStatus{}
		}
	case !r.want.Wanted && node == nil:
	case !r.want.Wanted:
		s.Reason, s.Message = r.drain.describe(s.Pods)
	case node == nil:
		s.Assigned, s.Busy, s.Reason, s.Message = n.cfg.Names.NodeName(id), true, ReasonPending, "the node is being created"
	default:
		j := judge(r.want)
		s.Reason, s.Message = j.reason, j.message
		now := condition(node, corev1.NodeReady)
		s.Ready = j.ready && now != nil && now.Status == corev1.ConditionTrue && node.DeletionTimestamp == nil
		if j.ready && !s.Ready {
			s.Reason, s.Message = ReasonPending, "the node is not marked as ready yet"
		}
	}
	if r != nil && r.failure != "" && !s.Ready && (node != nil || r.want.Wanted) {
		s.Reason, s.Message = ReasonFailed, r.failure
	}
	a := answer{NodeStatus: s}
	if node != nil {
		a.uid, a.accepting = node.UID, n.accepting(id, node)
	}
	return a
}

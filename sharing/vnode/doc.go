// Package vnode makes the nodes of this cluster that stand for providers.
//
// [Nodes.Set] says again and again how the node of a provider is to stand; what
// has to be done for that is done by [Nodes.Run] while there is a connection to
// the API server. A node has the capacity of the provider's offer. What people add
// to it (labels, annotations, taints, a cordon of theirs) stays; what is the agent's
// own is repaired. Nodes that somebody else made are never touched.
//
// Whose a node is says its provider ID, which nobody can change. It is named after
// what people call the provider: [Names] remembers that, so that whoever pins a pod to
// a node means the same provider for ever, whatever that calls itself later. A node
// that is there already keeps its name, such as the cluster ID that older agents chose.
//
// A Lease for each node is the heartbeat, and the only thing that is written while
// nothing changes. It says that the agent lives: whether the provider does is said
// by the node's Ready condition.
//
// A node that is not wanted any more is cordoned, drained and removed, in that
// order; an agent that starts in the middle of that goes on with it. Once
// [Nodes.Settled] was called, nodes that nobody wants are removed too.
//
// While there is a node, a MutatingAdmissionPolicy lets the pods of namespaces
// with the label liqo.io/enabled=true tolerate its taint: those that are created
// from then on, never those that are there already. API servers without such
// policies are told to ask the webhook of peering/admission.
//
// # What this package must not do
//
// It does not run pods, and ends them through the API server only: what happens
// at the provider is the job of sharing/offload, for which [Nodes.Nodes] says which
// nodes there are. It does not decide whether a provider is used.
//
// # Goroutines
//
// Run starts a few workers, of which one at a time looks at a node, one goroutine
// that renews all Leases, with up to eight requests under way, one that keeps the
// policy, and those of the caches. All have ended when it returns.
package vnode

// Package offload runs the pods that are bound to virtual nodes: it has them
// created at the providers that the nodes stand for, together with the ConfigMaps
// and Secrets that they name, and brings their state and events back.
//
// What a pod becomes at the provider and what of it comes back is decided by
// sharing/workload; this package compares and acts. Everything is level-triggered:
// a watch event says which pod to look at, plan, which is pure, says what is to be
// done with all that is known about it.
//
// A pod at the provider stands for one of ours if and only if it carries its UID.
// It is deleted only when ours is being deleted, or is known not to exist, from a
// complete list of this connection to the local API server. Ours is given up only
// when the provider, in a complete list of the namespace, does not have what was
// seen there before, or was created there by us.
//
// What was sent where is written down before anything is: an annotation of the
// namespace here names the provider's namespace for it ("offload.liqo.io/ID"). After a
// restart, what such a namespace has without an original here is removed; it is
// given back when it was not needed for a minute. Namespaces know better than the
// virtual node would: people delete nodes, and pods of a node go with it.
//
// Pods show what keeps them from running: as reason and message of the status and of
// containers that wait, and in one Warning event.
//
// What is kept of what a provider says is bounded, see [Offload.Excess]; events are
// kept until they were repeated.
//
// How often that is written here is bounded as well (pace.go); a state that has to wait
// is written as it is then.
//
// It must not talk to a provider but through its Remote, and it knows nothing about
// peerings, offers and nodes beyond what a Provider says.
//
// Goroutines: all of them are started by Run and end with it. One looks after the
// set of providers, and one reflector follows the namespaces here. For each provider
// there are two queues (see kube/work), which have nine workers at most, a reflector for the
// pods of its node, and two for each of its namespaces in use (pods and events); for each namespace
// here with pods that name ConfigMaps or Secrets up to two more.
package offload

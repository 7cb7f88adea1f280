// Package offload runs the pods that are bound to virtual nodes: it creates a copy of each
// at the provider that the node stands for, with the ConfigMaps and Secrets that the pod
// references, and mirrors status and events back.
//
// Package sharing/workload defines the translation of pods and of their status; this
// package compares and acts. Everything is level-triggered: a watch event names the pod to
// reconcile, and plan, a pure function, decides the next step from everything that is known
// about it.
//
// A pod at the provider is the copy of a local pod if and only if it carries the UID of
// that pod. The copy is deleted only if the local pod is being deleted, or is missing in a
// complete list of this connection to the local API server. The local pod fails only if its
// copy was seen or created, and is missing in a complete list of the provider's namespace.
//
// Before anything is sent, an annotation of the local namespace ("offload.liqo.io/ID")
// records the provider's namespace for it. After a restart, pods there that have no local
// pod are removed. The namespace is released when nothing has needed it for a minute. The
// record is not on the virtual node, because people delete nodes, and their pods with them.
//
// Services of the namespace are copied too, while it is enabled and has pods at the provider,
// with EndpointSlices that list their pods in this cluster (services.go). They are reconciled
// with the same queue.
//
// Copies at the provider are not watched, but for pods. They are listed every five minutes, and
// sent again if their resource version is another than that of what was sent (sweep.go).
//
// A pod that cannot run shows why: in reason and message of its status and of its waiting
// containers, and in one Warning event.
//
// The memory for what a provider sends is bounded, see [Offload.Excess], and so is the rate
// of writes to the local API server (pace.go). A delayed status is written as it is by then.
//
// It must not talk to a provider except through its Remote, and knows nothing about
// peerings, offers and nodes beyond what a Provider says.
//
// The package is larger than others because all its reconcilers, of pods, namespaces,
// ConfigMaps, Secrets, Services and events, share one controller with its caches and queues.
//
// Goroutines: Run starts all of them, and they end with it. One keeps the set of
// controllers equal to the set of providers, and one reflector follows the local
// namespaces. Each provider has two queues (see kube/work) with nine workers at most, a
// reflector for the pods of its node, and two for each of its namespaces in use (pods and
// events). Each local namespace in use has two more, for Services and EndpointSlices, and up
// to two for ConfigMaps and Secrets that its pods reference.
package offload

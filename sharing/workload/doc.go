// Package workload says what a pod of one cluster is in another one. It has no
// I/O: everything here is a function of its arguments.
//
// On the consumer, [Translate] makes the pod that is sent to the provider out of
// the one that is bound to the virtual node, or says why that cannot be, and
// [Mirror] makes the consumer's status out of the provider's. On the provider,
// [Admit] takes what a consumer sent for what it is, an untrusted document, and
// returns what may be created.
package workload

// Package host is what a provider does for its consumers: it makes the guest
// namespaces that stand for theirs, gives them rights there and nowhere else, takes
// care that all pods of a consumer together stay within what it was offered, and
// takes everything away again when it is no longer admitted.
//
// Two lines hold a consumer. The first is here: every pod, ConfigMap and Secret that
// comes through the endpoint is cleaned by package workload and counted before it is
// let through, over all namespaces of the consumer. The second is the API server's
// own: a Role that allows what the endpoint leads to and no more, a ResourceQuota
// with the whole offer in each namespace, a NetworkPolicy, and Pod Security.
//
// What belongs to whom is read from labels, so that nothing has to be remembered: a
// restarted agent goes on where it was. A namespace that lacks them, or has those of
// another consumer, is never touched. What cannot be read is not taken for gone, and
// a consumer that nobody spoke of since the start is neither served nor evicted.
//
// It must not decide who is admitted or what is offered: it is told ([Host.Set]). It
// knows nothing of HTTP.
//
// Goroutines: [Host.Run] has one per cache and some workers, all of which end with
// it. A consumer is never worked on by two: its namespaces are made and unmade under
// one lock per consumer. Everything else may be called from any goroutine.
package host

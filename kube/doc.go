// Package kube speaks to an API server: the local one, or a peer's through its
// endpoint. It is a thin layer on client-go's REST client and reflector.
//
// The typed clientset of client-go would double the agent's binary, so a [Client]
// takes paths, and puts answers into whatever structs its callers have: those of
// k8s.io/api, or smaller ones with just the fields that matter. A [Cache] follows
// all objects that a [Query] selects, and shows our own writes from the moment that the
// API server has answered them.
//
// A peer's API server is no friend: answers, lists and single events are bounded,
// and what is no JSON of the expected form is an error. [Bounds] limit what the caches
// of one such server hold together.
//
// It starts no goroutine but those of [Cache.Follow], which ends with them.
package kube

// Package allow decides what peers may ask the API server of this cluster, and makes the
// requests that are sent instead.
//
// A request is decided on by its method and its path as it was sent, byte for byte:
// there is one spelling of each path, so there is nothing to normalise. What is then
// sent is made from the table of routes alone: the path, query and header are ours, and
// a body is decoded, checked and encoded anew, so that a reader with other rules for
// names that occur twice, or for YAML, sees what was checked. There are two tables. In
// objects.go are a peer's own PeeringRequest and Advertisement. In calls.go are pods
// with their subresources, ConfigMaps, Secrets and events in the namespaces of a peer. Of
// the events there, a peer sees those about its pods (events.go).
//
// # What this package must not do
//
// It opens no connection, and does not know whose a namespace or an object is: whoever
// asks finds that out, and what a pod may be as well.
//
// # Goroutines
//
// None.
package allow

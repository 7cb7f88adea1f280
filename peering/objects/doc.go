// Package objects is how the packages below peering keep objects in the local API server:
// a [Store] of all objects of one kind, by name and by the clusters that they are about;
// server-side apply of an object, and its deletion; and the queue of what is to be looked
// at, with its backoff.
//
// It knows no kind, and starts no goroutine: [Store.Follow] works until its context ends.
package objects

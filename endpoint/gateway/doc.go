// Package gateway asks the local API server in the name of peers: as a user of each, with
// what package allow made of a peer's request.
//
// An answer that is no statement about an object (a redirect, a page, a refusal of the
// agent's own credentials) becomes a refusal: "unreachable" must not look like "gone".
//
// # What this package must not do
//
// It does not decide what may be sent, and calls nobody but the local API server.
//
// # Goroutines
//
// None: those of requests call it.
package gateway

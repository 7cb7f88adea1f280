// Package access keeps what the agent needs about peers in the local API server for itself:
// the Secret with the identity of each, and the role and the binding by which a peer
// reaches its own PeeringRequest and Advertisement, as far as it may.
//
// [Objects] follows them, says what they grant, and writes what was decided elsewhere.
// [Manager] owns them. Nobody else is to write those: an edit is put right, and an object
// that cannot be is replaced. [AskRights] finds out as whom peers are let in by what the
// agent's own user may do.
//
// # What it must not do
//
// It does not decide who may what: package plan does. It never deletes because something
// could not be read.
//
// # Goroutines
//
// It starts none that outlive a call. [Objects.Follow] works until its context ends, with
// one goroutine for each kind of object.
package access

// Package deletion tells who deleted an object about a peer: an object that is gone does
// not say so, and a person who deletes a peer's PeeringRequest ends the peering for good,
// while the peer itself does not.
//
// Whoever is about to delete an object, on the agent's own behalf or through the gateway,
// notes that before in a [Tracker], and what came of it. What nobody noted is a person's.
//
// It has no I/O, no clock and no goroutines. A Tracker is not safe for concurrent use.
package deletion
